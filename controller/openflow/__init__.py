"""OpenFlow 1.3 messages as bytes and columns, without Ryu."""
