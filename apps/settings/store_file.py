"""The file of the store: SQLite, created if missing, readable by its owner only. It does not import numpy.

Only SQLite opens the file: closing another descriptor of the file would release SQLite's POSIX locks on the file. The
next process that closes the store would then remove the log to which this process still writes.
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
    """Return a connection to the store at ``path``; create the store if it is missing.

    Raises StoreError if the file is empty, not a store, or of another version; sqlite3.Error and OSError otherwise.
    """
    if path != MEMORY:
        if not os.path.exists(path):
            _create(path)
        if os.path.getsize(path) == 0:
            raise damage_error(path, "is empty")
    db = _open(path)
    try:
        if path == MEMORY:
            _create_tables(db)
        (application_id,) = db.execute("PRAGMA application_id").fetchone()
        if application_id != _APPLICATION_ID:
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
    uri = path if path == MEMORY else f"{pathlib.Path(path).absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, uri=True)


def _create(path: str) -> None:
    """Create an empty store that only its owner can read: completely, or not at all.

    If another process creates the store at the same time, the first one to finish wins.
    """
    temporary = f"{path}-new-{os.getpid()}"
    os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    try:
        with contextlib.closing(_open(temporary)) as db:
            _create_tables(db)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # otherwise a power cut could lose the file with all its commits
    finally:
        os.close(folder)


def _create_tables(db: sqlite3.Connection) -> None:
    """Create the tables, and mark the database as a store of this version."""
    with transaction(db):
        for statement in _SCHEMA.split(";\n"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {_VERSION}")


def damage_error(path: str, defect: str) -> StoreError:
    """Return the error for a damaged store; ``defect`` is a predicate, such as "is empty"."""
    return StoreError(f"store.file: {path!r} {defect}: restore a copy, or move it away to start without overrides")


def check_whole(db: sqlite3.Connection, path: str) -> None:
    """Read the whole file; raise StoreError if any part of it is damaged."""
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
        """Check the file before a commit: raise StoreError unless it is undamaged, with ``revision`` as last change."""
        self.check_same()
        if os.path.getsize(self._path) == 0:  # SQLite would treat it as a new database, and remove the log
            raise self._lost("was emptied")
        with contextlib.closing(_open(self._path)) as db:  # a connection without cached pages
            for table in _VITAL_TABLES:
                _check_pages(db, self._path, f"quick_check({table})")
            (last,) = db.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
        if last != revision:
            raise self._lost(f"has revision {last} where this controller has made {revision}")

    def _lost(self, event: str) -> StoreError:
        """Return the error for a file that was replaced or damaged; ``event`` is a predicate, such as "was emptied"."""
        reason = f"{event} while the controller runs: no change is accepted until it is restored, or after a restart"
        return StoreError(f"store.file: {self._path!r} {reason}")


def _check_pages(db: sqlite3.Connection, path: str, check: str) -> None:
    """Run an integrity check of SQLite (a PRAGMA); raise StoreError for a damaged file."""
    try:
        (result,) = db.execute(f"PRAGMA {check}").fetchone()
    except sqlite3.DatabaseError as error:
        result = error
    if result != "ok":
        raise damage_error(path, f"is damaged ({' '.join(str(result).split())[:_SHOWN_LENGTH]})")


def _identity(path: str) -> tuple[int, int] | None:
    """Return (device, inode) of a file, which stay while it is the same file; None if there is no file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Enclose a transaction: commit at the end, roll back at an error."""
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
