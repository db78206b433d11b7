"""A host on Open vSwitch that sends UDP at a steady rate until it is stopped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from experiments.measure.frame_sizes import UDP_FRAME_BYTES, UDP_PAYLOAD_BYTES
from experiments.ovs.fabric import OvsFabric

SENDER = """
import socket, sys, time
address, rate_bps, payload, wire = sys.argv[1], *map(float, sys.argv[2:5])
sock, data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bytes(int(payload))
begin, sent = time.monotonic(), 0
while True:
    due = int((time.monotonic() - begin) * rate_bps / 8 / wire)
    sent = max(sent, due - 200)
    while sent < due:
        sock.sendto(data, (address, 9))
        sent += 1
    time.sleep(0.005)
"""


@contextmanager
def udp_blast(ovs: OvsFabric, host: str, address: str, rate_bps: int) -> Iterator[None]:
    """Let a host send so many bits a second on the wire to an address; it must still send at the end."""
    settings = [address, str(rate_bps), str(UDP_PAYLOAD_BYTES), str(UDP_FRAME_BYTES)]
    process = ovs.host(host).popen([sys.executable, "-c", SENDER, *settings])
    try:
        yield
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=10)
