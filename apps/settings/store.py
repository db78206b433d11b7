"""The store of overrides, the history of changes, and tokens (SQLite).

A commit that has returned survives ``kill -9`` and a power cut (docs/adr/0045-store.md). It is rejected if the file is
not the one that was opened, or is damaged. The calls block while the disk works: the application makes them from a
thread, one change at a time, so there is no lock against threads in here.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from apps.settings.store_file import (
    MEMORY,
    StoreGuard,
    check_whole,
    connect,
    damage_error,
    transaction,
    translating_errors,
)
from apps.settings.store_lock import StoreLock
from controller.limits.overrides import VN_FIELDS, VN_RATES, Override, VnName

# The history is bounded: of older changes only the effect remains.
KEPT_CHANGES = 10_000
_NO_CEILING = 0  # in a ceiling's column of vn_overrides; NULL means that there is no override
_VN_COLUMNS = f"vlan_vid, switch, port_no, {', '.join(VN_FIELDS)}, revision"


@dataclass(frozen=True, slots=True)
class Item:
    """One changed value: of a VLAN, or of a VN if ``switch`` and ``port_no`` are given."""

    vlan_vid: int
    switch: str | None
    port_no: int | None
    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class StoredChange:
    """Who changed what and when (RFC 3339, UTC), by which action (``vn``, ``vlan``, ``limits``, ``import``, ...).

    ``changed`` is the number of changed values, also where ``items`` were not read and are empty.
    """

    revision: int
    at: str
    who: str
    address: str
    action: str
    changed: int
    items: list[Item] = field(default_factory=list)

    def concerns(self, scope: tuple[int | None, str | None, int | None]) -> bool:
        """Return whether an item is within a scope (VLAN id, switch name, port number; None for any)."""
        owners = ((item.vlan_vid, item.switch, item.port_no) for item in self.items)
        return any(all(wanted in (None, value) for wanted, value in zip(scope, owner, strict=True)) for owner in owners)


@dataclass(frozen=True)
class StoredState:
    """The contents of the store: the last revision, all overrides (removed ones without values), and metadata."""

    revision: int
    vlans: dict[int, Override]
    vns: dict[VnName, Override]
    metadata: dict[str, str]


def read_state(path: str) -> StoredState:
    """Return the contents of the store at ``path``, with or without a running controller. Raises StoreError."""
    with translating_errors(path), contextlib.closing(connect(path)) as db:
        check_whole(db, path)
        return _stored_state(db, path)


class SettingsStore(Protocol):
    """The store's interface for ``Settings``: SQLite's below, or etcd's (``apps.cluster.etcd_store``).

    While it is not ``writable``, another node stores changes, and this one only loads them.
    """

    @property
    def writable(self) -> bool:
        """Return whether changes can be stored now."""

    def close(self) -> None:
        """Release the store's resources."""

    def load(self) -> StoredState:
        """Return the stored state."""

    def commit(
        self,
        change: StoredChange,
        vlans: Mapping[int, Override],
        vns: Mapping[VnName, Override],
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Store a change: all of it, or nothing."""

    def keep_facts(self, facts: Mapping[str, str]) -> None:
        """Store metadata without a change and a revision."""

    def undo_last(self, change: StoredChange, facts: Mapping[str, str]) -> None:
        """Delete ``change``, the last commit, and restore ``facts``, the metadata before it.

        The commit must not have changed an override: overrides are not restored.
        """

    def history(self, before: int, limit: int) -> list[StoredChange]:
        """Return changes without their items, newest first."""

    def change(self, revision: int) -> StoredChange | None:
        """Return one change with its items, None if it is not stored."""


class Store:
    """The store at a path, or in memory (``:memory:``), for the one controller that changes it.

    Raises StoreError if another controller has it, and if it cannot be opened, is damaged, is not a store, or was
    written by another version.
    """

    writable = True

    def __init__(self, path: str) -> None:
        self.path = path
        with translating_errors(path), contextlib.ExitStack() as undo:
            if path != MEMORY:
                undo.callback(StoreLock(path).close)
            self._writer = undo.enter_context(contextlib.closing(connect(path)))
            # A second connection reads while the first one writes.
            self._reader = self._writer
            if path != MEMORY:
                self._reader = undo.enter_context(contextlib.closing(connect(path)))
            check_whole(self._reader, path)
            self._revision = _last_revision(self._reader)
            self._guard = None if path == MEMORY else StoreGuard(path)
            self._close: Callable[[], None] = undo.pop_all().close

    def close(self) -> None:
        """Close the files, and release the store for other controllers."""
        self._close()

    def load(self) -> StoredState:
        """Return the stored state."""
        with translating_errors(self.path):
            return _stored_state(self._reader, self.path)

    def commit(
        self,
        change: StoredChange,
        vlans: Mapping[int, Override],
        vns: Mapping[VnName, Override],
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Store a change with the resulting overrides: all of it, on the disk when this returns, or nothing."""
        items = encode_items(change.items)
        row = (change.revision, change.at, change.who, change.address, change.action, change.changed, items)
        with self._changing() as db:
            db.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            db.execute("DELETE FROM changes WHERE revision <= ?", (change.revision - KEPT_CHANGES,))
            db.executemany(
                "INSERT OR REPLACE INTO vlan_overrides VALUES (?, ?, ?, ?)",
                [(vid, json.dumps(vlan.values), vlan.revision, vlan.limits_revision) for vid, vlan in vlans.items()],
            )
            db.executemany(
                f"INSERT OR REPLACE INTO vn_overrides ({_VN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(*name, *_columns(vn.values), vn.revision) for name, vn in vns.items()],
            )
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", (facts or {}).items())
        self._revision = change.revision

    def keep_facts(self, facts: Mapping[str, str]) -> None:
        """Store metadata without a change and a revision. Raises StoreError."""
        with self._changing() as db:
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def undo_last(self, change: StoredChange, facts: Mapping[str, str]) -> None:
        """Delete ``change``, the last commit, and restore ``facts``, the metadata before it. Raises StoreError.

        The commit must not have changed an override: overrides are not restored.
        """
        with self._changing() as db:
            db.execute("DELETE FROM changes WHERE revision = ?", (change.revision,))
            db.execute("DELETE FROM facts")
            db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
        self._revision = change.revision - 1

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Enclose a transaction. Raises StoreError if the file was replaced, damaged or changed by another process."""
        with translating_errors(self.path):
            if self._guard is not None:
                self._guard.check(self._revision)
            with transaction(self._writer) as db:
                yield db
            if self._guard is not None:
                self._guard.check_same()

    def history(self, before: int, limit: int) -> list[StoredChange]:
        """Return changes without their items, newest first, below revision ``before``."""
        with translating_errors(self.path):
            rows = self._reader.execute(
                "SELECT revision, at, who, address, action, changed FROM changes WHERE revision < ? "
                "ORDER BY revision DESC LIMIT ?",
                (before, limit),
            ).fetchall()
        return [StoredChange(*row) for row in rows]

    def change(self, revision: int) -> StoredChange | None:
        """Return one change with its items, None if it is not stored."""
        with translating_errors(self.path):
            row = self._reader.execute("SELECT * FROM changes WHERE revision = ?", (revision,)).fetchone()
        if row is None:
            return None
        try:
            items = [Item(*item) for item in json.loads(zlib.decompress(row[-1]))]
        except (ValueError, TypeError, zlib.error) as error:
            raise damage_error(self.path, f"is damaged (change {revision} cannot be read)") from error
        return StoredChange(*(*row[:-1], items))


def _stored_state(db: sqlite3.Connection, path: str) -> StoredState:
    """Read the whole state; raise StoreError for a damaged row."""
    rows = db.execute('SELECT vlan_vid, "values", revision, limits_revision FROM vlan_overrides').fetchall()
    vlans = dict(_vlan_override(row, path) for row in rows)
    vns = dict(_vn_override(row, path) for row in db.execute(f"SELECT {_VN_COLUMNS} FROM vn_overrides"))
    facts = dict(db.execute("SELECT name, value FROM facts").fetchall())
    return StoredState(_last_revision(db), vlans, vns, facts)


def _last_revision(db: sqlite3.Connection) -> int:
    """Return the revision of the last change, 0 without any."""
    (revision,) = db.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
    return int(revision)


def encode_items(items: list[Item]) -> bytes:
    """Return the changed values of a change as they are stored: compressed JSON, a list for each item."""
    rows = [[item.vlan_vid, item.switch, item.port_no, item.field, item.before, item.after] for item in items]
    return zlib.compress(json.dumps(rows, ensure_ascii=False).encode(), 1)


def _columns(values: Mapping[str, float | None]) -> list[float | None]:
    """Return a VN's override as columns in the order of VN_FIELDS: NULL for no override, _NO_CEILING for None."""
    return [(values[name] or _NO_CEILING) if name in values else None for name in VN_FIELDS]


def _vlan_override(row: tuple[Any, ...], path: str) -> tuple[int, Override]:
    """Return the VLAN id and the override of a row of the store at ``path``; StoreError if the row is damaged."""
    vlan_vid, text, revision, limits_revision = row
    try:
        values = json.loads(text)
    except (ValueError, TypeError):
        values = None
    if not isinstance(values, dict) or not _all_int(revision, limits_revision):
        raise damage_error(path, f"is damaged (the override of VLAN {vlan_vid} cannot be read)")
    return vlan_vid, Override(values, revision, limits_revision)


def _vn_override(row: tuple[Any, ...], path: str) -> tuple[VnName, Override]:
    """Return the VN and the override of a row; StoreError if the row is damaged."""
    name, columns, revision = VnName(*row[:3]), row[3:-1], row[-1]
    values = {field: value for field, value in zip(VN_FIELDS, columns, strict=True) if value is not None}
    rates = (value for field, value in values.items() if field in VN_RATES)
    has_whole_numbers = _all_int(name.vlan_vid, name.port_no, revision, *rates)
    if not has_whole_numbers or not isinstance(values.get("weight", 1.0), float):
        raise damage_error(path, f"is damaged (the override of {name} cannot be read)")
    return name, Override({field: _ceiling_or_rate(field, value) for field, value in values.items()}, revision)


def _ceiling_or_rate(field: str, value: float) -> float | None:
    """Return a stored value of an override; None for a ceiling that was set to none."""
    return None if field.endswith("_ceiling_bps") and value == _NO_CEILING else value


def _all_int(*values: object) -> bool:
    return all(isinstance(value, int) for value in values)
