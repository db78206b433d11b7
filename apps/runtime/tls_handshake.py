"""TLS handshakes of clients, one step at a time.

A step computes for a millisecond, or several with an RSA key. If many clients continued at the same moment, all their
steps would run in one pass of the hub, and delay the control loop.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from eventlet import hubs


def do_handshake(connection: Any, timeout_s: float, wait: Callable[[], None]) -> None:
    """Do the server's part of the handshake of ``connection``, an SSLSocket of the hub.

    ``wait`` returns when it is the caller's turn for a step. Raises OSError (including ssl.SSLError) if the handshake
    fails, or if nothing arrives for ``timeout_s``.
    """
    connection.setblocking(False)
    awaited_event = "read"
    while awaited_event:
        hubs.trampoline(connection, timeout=timeout_s, timeout_exc=TimeoutError("timed out"), **{awaited_event: True})
        wait()
        awaited_event = _step(connection)
    connection.setblocking(True)


def _step(connection: Any) -> str:
    """Continue a handshake as far as possible; return the event to wait for, ``read`` or ``write``, "" at its end."""
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return "read"
    except ssl.SSLWantWriteError:
        return "write"
    return ""
