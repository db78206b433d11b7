"""A listener that accepts connections as long as the process runs, in spite of transient errors."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

# No file descriptors or memory left, or the client or its network is gone: such errors are transient.
_TRANSIENT_ERRORS = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPROTO, errno.EPERM),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET),
        *(errno.ENOPROTOOPT, errno.EOPNOTSUPP),
    }
)
RETRY_S = 0.5

log = logging.getLogger("dets.listener")


def listening_address(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """Return the family and the address for a socket that listens at ``host``: a name, or an address.

    A link-local address has its interface (``fe80::1%eth0``). For a name with both families, IPv4 is used. Raises
    OSError.
    """
    candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(candidates, key=lambda info: info[0] != socket.AF_INET)
    return family, address


class RetryingListener:
    """A listening socket whose ``accept`` retries after transient errors (accept(2)).

    The servers of Ryu and eventlet end at any such error, and then no client could connect. ``name`` is the service,
    for the log; ``sleep`` lets other greenlets run.
    """

    def __init__(self, listening: Any, name: str, sleep: Callable[[float], None]) -> None:
        self._listening, self._name, self._sleep = listening, name, sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listening, name)

    def accept(self) -> Any:
        """Return the next connection and its address; raise OSError when the listener is closed."""
        while True:
            try:
                return self._listening.accept()
            except OSError as error:
                if error.errno not in _TRANSIENT_ERRORS:
                    raise
                log.warning("%s: a connection cannot be taken now: %s", self._name, error)
                self._sleep(RETRY_S)
