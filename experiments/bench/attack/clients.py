"""Hostile clients of the REST interface."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter

from experiments.bench.attack.hostile_peer import Address

MAX_BODY_BYTES = 4 * 2**20
_BODIES = 120  # one address may have 128 connections
_TIMEOUT_S = 3.0
_STATUS_BYTES = len("HTTP/1.1 503")
_HEAD = f"""\
POST /v1/limits HTTP/1.1\r
Host: localhost\r
Content-Type: application/json\r
Content-Length: {MAX_BODY_BYTES}\r
\r
""".encode()
_INCOMPLETE_BODY = b'{"limits": [' + b" " * (MAX_BODY_BYTES - 100)


def hold_bodies(held: contextlib.ExitStack, address: Address, until_s: float | None = None) -> Counter[bytes]:
    """Open connections in ``held``, each with a body of the largest size whose last bytes are never sent.

    Return how many were answered by status; b"" counts those without an answer so far.
    """
    socks = []
    for _ in range(_BODIES):
        if until_s is not None and time.monotonic() > until_s:
            break
        sock = held.enter_context(socket.create_connection(address, _TIMEOUT_S))
        with contextlib.suppress(OSError):  # refused by now
            sock.sendall(_HEAD + _INCOMPLETE_BODY)
        socks.append(sock)
    return Counter(map(_status, socks))


def bodies_held_open(address: Address, until_s: float) -> None:
    """Hold bodies open until the time is over; reopen connections that have ended."""
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            hold_bodies(held, address, until_s)
            time.sleep(min(1.0, max(until_s - time.monotonic(), 0.0)))


def _status(sock: socket.socket) -> bytes:
    """Return the status line of the answer to a connection; b"" without an answer so far."""
    sock.settimeout(0.01)
    try:
        return sock.recv(_STATUS_BYTES)
    except OSError:
        return b""
