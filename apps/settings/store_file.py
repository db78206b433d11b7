"""The file of the store: SQLite, made when it is not there, readable by its owner alone. Knows nothing of numpy."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator

from controller.errors import DetsError

MEMORY = ":memory:"
_APPLICATION_ID = 0x44455453  # "DETS"
_VERSION = 1
_BUSY_TIMEOUT_S = 5.0
_SCHEMA = """
CREATE TABLE vlan_overrides (
    vlan_vid INTEGER PRIMARY KEY, "values" TEXT NOT NULL, revision INTEGER NOT NULL, limits_revision INTEGER NOT NULL
);
CREATE TABLE vn_overrides (
    vlan_vid INTEGER, switch TEXT, port_no INTEGER,
    send_limit_bps INTEGER, receive_limit_bps INTEGER, send_ceiling_bps INTEGER, receive_ceiling_bps INTEGER,
    revision INTEGER NOT NULL, PRIMARY KEY (vlan_vid, switch, port_no)
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


class StoreError(DetsError):
    """The store cannot be opened, read or written; nothing was changed."""


def connect(path: str) -> sqlite3.Connection:
    """Return a connection to the store at ``path``, which is made, readable by its owner alone, if there is none.

    Raises sqlite3.Error and OSError, StoreError if the file is no store or that of a newer version.
    """
    if path != MEMORY:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        (kind,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and kind != _APPLICATION_ID:
            raise StoreError(f"store.file: {path!r} is a database, but not a store of this controller's")
        if version > _VERSION:
            raise StoreError(f"store.file: {path!r} was written by a newer version of this controller")
        db.execute("PRAGMA journal_mode = WAL")
        # In WAL mode NORMAL may lose the last commits at a power cut.
        db.execute("PRAGMA synchronous = FULL")
        if not tables:
            _make(db)
    except BaseException:
        db.close()
        raise
    return db


def _make(db: sqlite3.Connection) -> None:
    with transaction(db):
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables:  # another process was quicker
            return
        for statement in _SCHEMA.split(";\n"):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {_VERSION}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Commit what is done within, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def failing(path: str) -> Iterator[None]:
    """Turn what the disk or SQLite refuses into a StoreError that names the store."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise StoreError(f"store.file: {path!r} cannot be used: {reason}") from error
