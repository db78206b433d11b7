"""TLS handshakes of who connects, a step at a time.

A step computes for a millisecond, or several with an RSA key. Peers that all go on at the same moment would have all of
theirs done in one pass of the hub, and the control loop would wait for that.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from eventlet import hubs


def do_handshake(connection: Any, timeout_s: float, wait: Callable[[], None]) -> None:
    """Do the server's part of the handshake of ``connection``, an SSLSocket of the hub.

    ``wait`` returns when it is the caller's turn for a step. Raises OSError (ssl.SSLError among them) when the
    handshake fails, or when nothing comes for ``timeout_s``.
    """
    connection.setblocking(False)
    what = "read"
    while what:
        hubs.trampoline(connection, timeout=timeout_s, timeout_exc=TimeoutError("timed out"), **{what: True})
        wait()
        what = _step(connection)
    connection.setblocking(True)


def _step(connection: Any) -> str:
    """Go on with a handshake as far as that goes; return what is to be waited for, "" at its end."""
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        return "read"
    except ssl.SSLWantWriteError:
        return "write"
    return ""
