"""The file of the store: SQLite, created if missing, readable by its owner only. It does not import numpy.

Only SQLite opens the file: closing another descriptor of it would release the POSIX locks that SQLite holds on it, and
the next process to close the store would then remove the log that this one still writes to.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import sqlite3
from collections.abc import Iterator

from apps.settings.errors import StoreError

MEMORY = ":memory:"
_APPLICATION_ID = 0x44455453  # "DETS"
_VERSION = 2
_BUSY_TIMEOUT_S = 5.0
_SHOWN_LENGTH = 100
_SCHEMA = """
CREATE TABLE vlan_overrides (
    vlan_vid INTEGER PRIMARY KEY, "values" TEXT NOT NULL, revision INTEGER NOT NULL, limits_revision INTEGER NOT NULL
);
CREATE TABLE vn_overrides (
    vlan_vid INTEGER, switch TEXT, port_no INTEGER,
    send_limit_bps INTEGER, receive_limit_bps INTEGER, send_ceiling_bps INTEGER, receive_ceiling_bps INTEGER,
    weight REAL, revision INTEGER NOT NULL, PRIMARY KEY (vlan_vid, switch, port_no)
) WITHOUT ROWID;
CREATE TABLE changes (
    revision INTEGER PRIMARY KEY, at TEXT NOT NULL, who TEXT NOT NULL, address TEXT NOT NULL, action TEXT NOT NULL,
    changed INTEGER NOT NULL, items BLOB NOT NULL
);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, scope TEXT NOT NULL CHECK (scope IN ('read', 'write')), digest BLOB NOT NULL UNIQUE,
    created_at TEXT NOT NULL
);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
# The tables whose loss would change effective values. The check before each change skips the history, which may be
# large, and which only /v1/history needs.
_VITAL_TABLES = ("vlan_overrides", "vn_overrides", "tokens", "facts")


def connect(path: str) -> sqlite3.Connection:
    """Return a connection to the store at ``path``, which is created, readable by its owner only, if missing.

    Raises sqlite3.Error and OSError, StoreError if the file is empty, no store or that of another version.
    """
    if path != MEMORY:
        if not os.path.exists(path):
            _make(path)
        if os.path.getsize(path) == 0:
            raise damage_error(path, "is empty")
    db = _open(path)
    try:
        if path == MEMORY:
            _fill(db)
        (kind,) = db.execute("PRAGMA application_id").fetchone()
        if kind != _APPLICATION_ID:
            raise StoreError(f"store.file: {path!r} is a database, but not a store of this controller's")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            raise StoreError(f"store.file: {path!r} was written by another version of this controller")
        db.execute("PRAGMA journal_mode = WAL")
        # In WAL mode NORMAL may lose the last commits at a power cut.
        db.execute("PRAGMA synchronous = FULL")
    except BaseException:
        db.close()
        raise
    return db


def _open(path: str) -> sqlite3.Connection:
    """Open an existing database; by default SQLite would create a missing one."""
    name = path if path == MEMORY else f"{pathlib.Path(path).absolute().as_uri()}?mode=rw"
    return sqlite3.connect(name, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, uri=True)


def _make(path: str) -> None:
    """Create an empty store: completely, or not at all. If another process was faster, its store stays."""
    new = f"{path}-new-{os.getpid()}"
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.closing(_open(new)) as db:
            _fill(db)
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
    finally:
        os.unlink(new)
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # otherwise a power cut could lose the file with all its commits
    finally:
        os.close(folder)


def _fill(db: sqlite3.Connection) -> None:
    with transaction(db):
        for statement in _SCHEMA.split(";\n"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {_VERSION}")


def damage_error(path: str, what: str) -> StoreError:
    """Return the error for a store whose file differs from what a controller has left."""
    return StoreError(f"store.file: {path!r} {what}: restore a copy, or move it away to start without overrides")


def check_whole(db: sqlite3.Connection, path: str) -> None:
    """Raise StoreError if any part of the file is damaged. Reads all of it."""
    _check_pages(db, path, "quick_check(1)")


class StoreGuard:
    """Checks that the file of an open store is still the opened one, and undamaged.

    SQLite would go on writing to a removed file, and reads cached pages from memory.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._names = (path, f"{os.path.realpath(path)}-wal")
        self._opened = [_identity(name) for name in self._names]

    def check_same(self) -> None:
        """Raise StoreError if the file was removed or replaced."""
        if [_identity(name) for name in self._names] != self._opened:
            raise self._lost("was removed or replaced")

    def check(self, revision: int) -> None:
        """Raise StoreError unless the file is undamaged, and its last change is ``revision``.

        Call it before each commit.
        """
        self.check_same()
        if os.path.getsize(self._path) == 0:  # SQLite would treat it as a new database, and remove the log
            raise self._lost("was emptied")
        with contextlib.closing(_open(self._path)) as db:  # a connection without cached pages
            for table in _VITAL_TABLES:
                _check_pages(db, self._path, f"quick_check({table})")
            (last,) = db.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
        if last != revision:
            raise self._lost(f"has revision {last} where this controller has made {revision}")

    def _lost(self, what: str) -> StoreError:
        reason = f"{what} while the controller runs: no change is accepted until it is restored, or after a restart"
        return StoreError(f"store.file: {self._path!r} {reason}")


def _check_pages(db: sqlite3.Connection, path: str, check: str) -> None:
    try:
        (found,) = db.execute(f"PRAGMA {check}").fetchone()
    except sqlite3.DatabaseError as error:
        found = error
    if found != "ok":
        raise damage_error(path, f"is damaged ({' '.join(str(found).split())[:_SHOWN_LENGTH]})")


def _identity(path: str) -> tuple[int, int] | None:
    """Return an identity that stays while it is the same file, None if it does not exist."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Run a transaction: commit everything within, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def translating_errors(path: str) -> Iterator[None]:
    """Turn errors of the disk or SQLite into a StoreError that names the store."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreError(f"store.file: {path!r} cannot be used: {reason}") from error
