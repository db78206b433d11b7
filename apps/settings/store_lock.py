"""At most one controller for a store: a lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import socket

from apps.settings.errors import StoreError

SUFFIX = "-lock"
_MAX_BYTES = 300


class StoreLock:
    """The lock of the store at ``path``, held until ``close``; raises StoreError, naming the holder, if another has it.

    The lock is flock(2) on a file next to the store, which names the holder. The kernel releases the lock when its
    holder ends, however that happens, so no lock outlives its process. The file is never removed: otherwise two
    processes could lock two files of the same name. It is not the store itself: closing a descriptor of the store would
    release the locks that SQLite holds on it (POSIX locks belong to the process).
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.realpath(path) + SUFFIX
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, _MAX_BYTES).decode(errors="replace").strip() or "another process"
            os.close(self._file)
            raise StoreError(f"store.file: {path!r} is in use by {holder}: a store has one controller") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} on host {socket.gethostname()}\n".encode(), 0)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)
