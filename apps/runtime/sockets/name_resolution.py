"""Resolves host names in a thread, so that the event loop goes on while a name server does not reply."""

from __future__ import annotations

import socket
from typing import Any

from eventlet import patcher, tpool

_socket = patcher.original("socket")


def getaddrinfo(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> Any:
    """Return the result of ``socket.getaddrinfo``; only names need a thread, not numeric addresses. Raises gaierror."""
    try:
        return _socket.getaddrinfo(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
    except socket.gaierror as error:
        if error.errno != socket.EAI_NONAME or flags & socket.AI_NUMERICHOST:
            raise
    return tpool.execute(_socket.getaddrinfo, host, port, family, type, proto, flags)
