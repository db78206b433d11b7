"""Connections are taken for as long as the process lives, whatever becomes of one of them."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Any

# No file descriptors or no memory left, or the client has gone again, or the network it comes from has: it passes.
_PASSING = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EPROTO, errno.EPERM),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET),
        *(errno.ENOPROTOOPT, errno.EOPNOTSUPP),
    }
)
RETRY_S = 0.5

log = logging.getLogger("dets.listener")


class LastingListener:
    """A listening socket whose ``accept`` waits and tries again after errors that pass (accept(2)).

    Servers of the libraries end at any of them, and nobody could connect any more. ``name`` is what is served;
    ``sleep`` lets others in the process run.
    """

    def __init__(self, listening: Any, name: str, sleep: Callable[[float], None]) -> None:
        self._listening, self._name, self._sleep = listening, name, sleep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listening, name)

    def accept(self) -> Any:
        """Return the next connection and its address; raise OSError when there will be none any more."""
        while True:
            try:
                return self._listening.accept()
            except OSError as error:
                if error.errno not in _PASSING:
                    raise
                log.warning("%s: a connection cannot be taken now: %s", self._name, error)
                self._sleep(RETRY_S)
