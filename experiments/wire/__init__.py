"""The wire fabric: OpenFlow 1.3 switches in software that speak to the real application over TCP, without root."""
