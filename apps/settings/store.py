"""Where what operators set at run time is kept: overrides, who changed what and when, and tokens (SQLite).

A commit that has returned survives ``kill -9`` and a power cut (docs/adr/0045-store.md). The calls block while the disk
works: the application makes them from a thread, one change at a time. Only their caller knows which thread that is, so
there is no lock in here.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.settings.store_file import MEMORY, connect, failing, transaction
from controller.limits.overrides import VN_FIELDS, Override, VnName

# The history is bounded; of older changes nothing but their effect is left.
KEPT_CHANGES = 10_000
_NO_CEILING = 0  # in a column of vn_overrides; NULL says that there is no override
_VN_COLUMNS = f"vlan_vid, switch, port_no, {', '.join(VN_FIELDS)}, revision"


@dataclass(frozen=True, slots=True)
class Item:
    """One value that a change changed: of a VLAN, or of a VN if ``switch`` and ``port_no`` are given."""

    vlan_vid: int
    switch: str | None
    port_no: int | None
    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class StoredChange:
    """Who changed what and when (RFC 3339, UTC), by which action (``vn``, ``vlan``, ``limits``, ``import``, ...)."""

    revision: int
    at: str
    who: str
    address: str
    action: str
    changed: int
    items: list[Item] = field(default_factory=list)


@dataclass(frozen=True)
class Standing:
    """What the store holds: the last revision, all overrides (removed ones without values), and facts by name."""

    revision: int
    vlans: dict[int, Override]
    vns: dict[VnName, Override]
    facts: dict[str, str]


class Store:
    """The store at a path, or in memory (``:memory:``), for one process that changes it.

    Raises StoreError when it cannot be opened, is none of ours, or was written by a newer version.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with failing(path):
            self._writer = connect(path)
            # A second connection reads while the first one writes.
            self._reader = self._writer if path == MEMORY else connect(path)

    def close(self) -> None:
        """Close the files."""
        self._writer.close()
        self._reader.close()

    def load(self) -> Standing:
        """Return all that counts at a start."""
        with failing(self.path):
            (revision,) = self._reader.execute("SELECT coalesce(max(revision), 0) FROM changes").fetchone()
            vlans = {
                vid: Override(json.loads(values), last, limits)
                for vid, values, last, limits in self._reader.execute(
                    'SELECT vlan_vid, "values", revision, limits_revision FROM vlan_overrides'
                )
            }
            vns = dict(map(_vn_override, self._reader.execute(f"SELECT {_VN_COLUMNS} FROM vn_overrides")))
            facts = dict(self._reader.execute("SELECT name, value FROM facts").fetchall())
        return Standing(revision, vlans, vns, facts)

    def commit(
        self,
        change: StoredChange,
        vlans: Mapping[int, Override],
        vns: Mapping[VnName, Override],
        facts: Mapping[str, str] | None = None,
    ) -> None:
        """Keep a change with the overrides that it leaves: all of it, on the disk when this returns, or nothing."""
        items = zlib.compress(json.dumps([_packed(item) for item in change.items], ensure_ascii=False).encode(), 1)
        about = (change.revision, change.at, change.who, change.address, change.action, change.changed, items)
        with failing(self.path), transaction(self._writer) as db:
            db.execute("INSERT OR REPLACE INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", about)
            db.execute("DELETE FROM changes WHERE revision <= ?", (change.revision - KEPT_CHANGES,))
            db.executemany(
                "INSERT OR REPLACE INTO vlan_overrides VALUES (?, ?, ?, ?)",
                [(vid, json.dumps(one.values), one.revision, one.limits_revision) for vid, one in vlans.items()],
            )
            db.executemany(
                "INSERT OR REPLACE INTO vn_overrides VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(*name, *_columns(one.values), one.revision) for name, one in vns.items()],
            )
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", (facts or {}).items())

    def history(self, before: int, limit: int) -> list[StoredChange]:
        """Return changes without their items, newest first, from the one before revision ``before`` on."""
        with failing(self.path):
            rows = self._reader.execute(
                "SELECT revision, at, who, address, action, changed FROM changes WHERE revision < ? "
                "ORDER BY revision DESC LIMIT ?",
                (before, limit),
            ).fetchall()
        return [StoredChange(*row) for row in rows]

    def change(self, revision: int) -> StoredChange | None:
        """Return one change with its items, None if it is not kept."""
        with failing(self.path):
            row = self._reader.execute("SELECT * FROM changes WHERE revision = ?", (revision,)).fetchone()
        if row is None:
            return None
        items = [Item(*item) for item in json.loads(zlib.decompress(row[-1]))]
        return StoredChange(*row[:-1], items)


def _packed(item: Item) -> tuple[Any, ...]:
    return item.vlan_vid, item.switch, item.port_no, item.field, item.before, item.after


def _columns(values: Mapping[str, int | None]) -> list[int | None]:
    """Return what stands in the columns of a VN's values."""
    return [(values[name] or _NO_CEILING) if name in values else None for name in VN_FIELDS]


def _vn_override(row: tuple[Any, ...]) -> tuple[VnName, Override]:
    given = zip(VN_FIELDS, row[3:-1], strict=True)
    values = {name: None if value == _NO_CEILING else value for name, value in given if value is not None}
    return VnName(*row[:3]), Override(values, row[-1])
