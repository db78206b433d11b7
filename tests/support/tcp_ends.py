"""Both ends of a TCP connection; standard library only.

``tcp_ends.py receive FILE`` listens, says so, and leaves in FILE what came after SKIP_S, in bit/s; ``tcp_ends.py send
ADDRESS SECONDS CONGESTION_CONTROL`` sends as much as TCP takes for so long.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

PORT = 9
SKIP_S = 2.0
LONGEST_S = 300.0


def receive(path: Path) -> None:
    with socket.create_server(("", PORT)) as listening:
        listening.settimeout(LONGEST_S)
        print("listening", flush=True)
        connection, _ = listening.accept()
    connection.settimeout(LONGEST_S)
    begin_s, octets = time.monotonic() + SKIP_S, 0
    while got := len(connection.recv(1 << 18)):
        octets += got if time.monotonic() > begin_s else 0
    path.write_text(str(octets * 8 / (time.monotonic() - begin_s)))


def send(address: str, seconds: float, congestion_control: str) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        connection.settimeout(seconds)
        connection.connect((address, PORT))
        end_s, block = time.monotonic() + seconds, bytes(1 << 14)
        while (left_s := end_s - time.monotonic()) > 0:
            connection.settimeout(left_s)
            try:
                connection.send(block)
            except TimeoutError:
                return


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(Path(sys.argv[2]))
    else:
        send(sys.argv[2], float(sys.argv[3]), sys.argv[4])
