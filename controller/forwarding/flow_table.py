"""A table of flow entries in columns: a few bytes for each of tens of thousands, and fast comparison of two tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, IntArray
from controller.openflow.actions import Action
from controller.openflow.flows import Flow, WriteMetadata
from controller.openflow.match import Match, encode_match, match_from_oxms, walk_oxms

# Each per-host and per-pair match of the pipeline fits; the few longer ones are kept one by one.
KEY_BYTES = 40
KEY = np.dtype(f"S{KEY_BYTES}")
KeyArray = NDArray[np.bytes_]
_HEAD = Struct("!BHB")  # table, priority, bytes of the match
_MATCH_HEADER_BYTES = 4
# _MAX_RECENT changes, and an eighth of the table, are kept one by one before they go into the columns. Up to _FEW keys
# are put or compared one by one.
_MAX_RECENT, _FEW = 256, 16
_MAX_UNUSED = 64
_NO_METER = 0


class FlowKey(NamedTuple):
    """The key of a flow entry in a switch (OpenFlow 1.3.5, section 5.2)."""

    table_id: int
    priority: int
    match: Match


def flow_key(flow: Flow) -> FlowKey:
    """Return the key of a flow entry."""
    return FlowKey(flow.table_id, flow.priority, flow.match)


def pack_key(key: FlowKey | Flow) -> bytes:
    """Return a key, or the key of a flow entry, as bytes: table, priority, length of the match, its OXM TLVs in order.

    Equal keys have equal bytes, and bytes sort by table. Zeros at the end are removed, as in numpy's fixed-size bytes.
    """
    match = encode_match(key.match)
    length = int.from_bytes(match[2:4]) - _MATCH_HEADER_BYTES
    packed = _HEAD.pack(key.table_id, key.priority, length) + match[_MATCH_HEADER_BYTES : _MATCH_HEADER_BYTES + length]
    return packed.rstrip(b"\0")


def unpack_key(packed: bytes) -> FlowKey:
    """Return the key from the bytes of ``pack_key``."""
    table_id, priority, length = _HEAD.unpack(packed[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    oxms = memoryview(packed[_HEAD.size :].ljust(length, b"\0"))
    return FlowKey(table_id, priority, match_from_oxms(list(walk_oxms(oxms, "key"))))


class FlowTemplate(NamedTuple):
    """A flow entry without its key and its meter: the part that many flow entries share."""

    cookie: int
    idle_timeout_s: int
    send_flow_removed: bool
    actions: tuple[Action, ...]
    goto_table: int | None
    write_metadata: WriteMetadata | None


def effect_of(flow: Flow) -> FlowTemplate:
    """Return the effect (``FlowTemplate``) of a flow entry."""
    return FlowTemplate(
        flow.cookie, flow.idle_timeout_s, flow.send_flow_removed, flow.actions, flow.goto_table, flow.write_metadata
    )


class Row(NamedTuple):
    """A flow entry without its key: its meter (0: none) and the index of its effect."""

    meter_id: int
    template_index: int


class FlowTable(Mapping[FlowKey, Flow]):
    """Flow entries by key. Columns by ascending packed key: the key, the meter (0: none) and the index of the effect.

    Columns are replaced, never written, so that copies share them. Single changes are kept in a dict until there are
    enough of them. Flow entries become objects only when they are read.
    """

    def __init__(self, flows: Iterable[Flow] = ()) -> None:
        self._keys: KeyArray = np.empty(0, KEY)
        self._meter_id: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._template_index: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._effects: list[FlowTemplate] = []
        self._index_of_template: dict[FlowTemplate, int] = {}
        self._recent: dict[bytes, Row | None] = {}  # put or removed since the last merge; None: removed
        self._long: dict[bytes, Row] = {}
        self._compact_at = _MAX_UNUSED  # with more effects than this, unused ones are discarded
        for flow in flows:
            self.put(flow)

    # -- as a mapping

    def __len__(self) -> int:
        self._merge_recent()
        return len(self._keys) + len(self._long)

    def __iter__(self) -> Iterator[FlowKey]:
        return map(unpack_key, self.packed())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, FlowKey) and self._row(pack_key(key)) is not None

    def __getitem__(self, key: FlowKey) -> Flow:
        flow = self.flow(pack_key(key))
        if flow is None:
            raise KeyError(key)
        return flow

    def flow(self, packed: bytes) -> Flow | None:
        """Return the flow entry of a packed key, or None."""
        row = self._row(packed)
        if row is None:
            return None
        effect = self._effects[row.template_index]
        key = unpack_key(packed)
        return Flow(
            *key,
            effect.cookie,
            effect.idle_timeout_s,
            effect.send_flow_removed,
            row.meter_id or None,
            effect.actions,
            effect.goto_table,
            effect.write_metadata,
        )

    def has(self, packed: bytes) -> bool:
        """Return whether there is a flow entry of a packed key."""
        return self._row(packed) is not None

    def holds(self, flow: Flow) -> bool:
        """Return whether the table has exactly this flow entry."""
        row = self._row(pack_key(flow))
        return row is not None and row == (flow.meter_id or _NO_METER, self._index_of_template.get(effect_of(flow)))

    def packed(self) -> list[bytes]:
        """Return all keys, packed."""
        self._merge_recent()
        return [*self._keys.tolist(), *self._long]

    def flows_in_tables(self, table_ids: Collection[int]) -> Iterator[Flow]:
        """Yield the flow entries of some tables, each in its state at the time when it is read."""
        inside = [packed for packed in self._long if packed[0] in table_ids]
        keys = self.columns[0]  # the first byte of a key is its table
        inside += keys[np.isin(keys.view(np.uint8)[::KEY_BYTES], list(table_ids))].tolist()
        return (flow for packed in inside if (flow := self.flow(packed)) is not None)

    @property
    def rows(self) -> tuple[KeyArray, NDArray[np.uint32], NDArray[np.uint32]]:
        """The keys, ascending, meters (0: none) and effect indices of flow entries with keys of normal size."""
        self._merge_recent()
        return self._keys, self._meter_id, self._template_index

    @property
    def oversized(self) -> Mapping[bytes, Row]:
        """The flow entries with oversized keys."""
        return self._long

    @property
    def columns(self) -> tuple[KeyArray, NDArray[np.uint32]]:
        """The keys, ascending, and the meters (0: none) of the flow entries with keys of normal size."""
        self._merge_recent()
        return self._keys, self._meter_id

    def copy(self) -> FlowTable:
        """Return an independent copy of the table."""
        other = FlowTable()
        other._keys, other._meter_id, other._template_index = self._keys, self._meter_id, self._template_index
        other._effects, other._index_of_template = list(self._effects), dict(self._index_of_template)
        other._recent, other._long = dict(self._recent), dict(self._long)
        other._compact_at = self._compact_at
        return other

    def share(self, other: FlowTable) -> None:
        """Use the other table's arrays of keys and of meters where they equal this table's, which saves memory."""
        (keys, meter_id), (self_keys, self_meter_id) = other.columns, self.columns
        self._keys = keys if np.array_equal(keys, self_keys) else self_keys
        self._meter_id = meter_id if np.array_equal(meter_id, self_meter_id) else self_meter_id

    def with_rows(
        self, rows: tuple[KeyArray, NDArray[np.uint32], NDArray[np.uint32]], long: Mapping[bytes, Row]
    ) -> FlowTable:
        """Return a table of other flow entries, in ``rows`` and ``long``, with the same effect indices."""
        other = self.copy()
        other._keys, other._meter_id, other._template_index = rows
        other._recent, other._long = {}, dict(long)
        other._discard_unused_effects()
        return other

    # -- changes

    def put(self, flow: Flow) -> bytes:
        """Put a flow entry, replacing one with the same key; return the packed key."""
        packed = pack_key(flow)
        self._put(packed, Row(flow.meter_id or _NO_METER, self.template_index(effect_of(flow))))
        self._discard_unused_effects()
        return packed

    def put_new(self, packed: bytes, meter_id: int, effect: FlowTemplate) -> bool:
        """Put a flow entry of this packed key, meter (0: none) and effect; return whether that changed the table."""
        row = Row(meter_id, self.template_index(effect))
        if self._row(packed) == row:
            return False
        self._put(packed, row)
        self._discard_unused_effects()
        return True

    def put_from(self, other: FlowTable, packed: bytes) -> None:
        """Copy the flow entry of a packed key from another table; remove it if that table has none."""
        row = other._row(packed)
        if row is None:
            self.discard(packed)
        else:
            self._put(packed, Row(row.meter_id, self.template_index(other._effects[row.template_index])))
            self._discard_unused_effects()

    def discard(self, packed: bytes) -> None:
        """Remove the flow entry of a packed key, if present."""
        if len(packed) > KEY_BYTES:
            self._long.pop(packed, None)
        else:
            self._change(packed, None)

    def put_rows(self, keys: KeyArray, meter_id: NDArray[np.uint32], effect: FlowTemplate | NDArray[np.uint32]) -> None:
        """Put flow entries in columns, with one effect or with effect indices (``template_index``).

        The last one of a key counts.
        """
        if isinstance(effect, FlowTemplate):
            effect = np.full(len(keys), self.template_index(effect), np.uint32)
        if len(keys) <= _FEW:
            for packed, *row in zip(keys.tolist(), meter_id.tolist(), effect.tolist(), strict=True):
                self._put(packed, Row(*row))
        else:
            self._merge_recent()
            self._merge(keys, meter_id, effect)
        self._discard_unused_effects()

    def template_index(self, effect: FlowTemplate) -> int:
        """Return the index of an effect, which is added if it is new.

        Pass it to ``put_rows`` before any other put: a put may discard unused effects, and then indices change.
        """
        index = self._index_of_template.setdefault(effect, len(self._effects))
        if index == len(self._effects):
            self._effects.append(effect)
        return index

    # -- comparison

    def differing(self, other: FlowTable, among: Collection[bytes] | None = None) -> set[bytes]:
        """Return the packed keys, all or ``among`` some, of flow entries that differ or that only one table has."""
        if among is not None and len(among) <= _FEW:
            return {packed for packed in among if self._entry(packed) != other._entry(packed)}
        self._merge_recent()
        other._merge_recent()
        long = self._long.keys() | other._long.keys()
        if among is None:
            unlike = set(self._keys[self._unlike(other)].tolist()) | set(other._keys[other._unlike(self)].tolist())
        else:
            long &= set(among)
            keys = np.array([packed for packed in among if len(packed) <= KEY_BYTES], KEY)
            unlike = set(keys[self._unlike_at(other, keys)].tolist())
        return unlike | {packed for packed in long if self._entry(packed) != other._entry(packed)}

    def missing_from(self, other: FlowTable) -> set[bytes]:
        """Return the packed keys of the flow entries that the other table lacks."""
        self._merge_recent()
        other._merge_recent()
        absent = ~find(other._keys, self._keys)[1]
        return set(self._keys[absent].tolist()) | (self._long.keys() - other._long.keys())

    def contains(self, keys: KeyArray) -> BoolArray:
        """Return the mask of the keys that the table has, shape of ``keys``."""
        self._merge_recent()
        return find(self._keys, keys)[1]

    def differing_rows(self, keys: KeyArray, meter_id: NDArray[np.uint32], effect: FlowTemplate) -> BoolArray:
        """Return the mask of ``keys`` without a flow entry of this meter and effect in the table."""
        self._merge_recent()
        positions, present = find(self._keys, keys)
        rows, index = positions[present], self._index_of_template.get(effect, -1)
        same: BoolArray = present.copy()
        same[present] = (self._meter_id[rows] == meter_id[present]) & (self._template_index[rows] == index)
        return ~same

    # -- within

    def _unlike(self, other: FlowTable) -> BoolArray:
        """Return the mask of the rows that the other table lacks, or has with another meter or effect."""
        positions, present = find(other._keys, self._keys)
        other_rows = positions[present]
        same_meter = other._meter_id[other_rows] == self._meter_id[present]
        effect_there = self._own_indices(other)[other._template_index[other_rows]]
        same: BoolArray = present.copy()
        same[present] = same_meter & (effect_there == self._template_index[present])
        return ~same

    def _unlike_at(self, other: FlowTable, keys: KeyArray) -> BoolArray:
        """Return the mask of the keys that only one of both tables has, or that have another meter or effect there."""
        positions, present = find(self._keys, keys)
        other_positions, in_other = find(other._keys, keys)
        unlike: BoolArray = present != in_other
        in_both = present & in_other
        rows, other_rows = positions[in_both], other_positions[in_both]
        other_meter = self._meter_id[rows] != other._meter_id[other_rows]
        effect_there = self._own_indices(other)[other._template_index[other_rows]]
        unlike[in_both] = other_meter | (self._template_index[rows] != effect_there)
        return unlike

    def _own_indices(self, other: FlowTable) -> IntArray:
        """Return, for each effect index of the other table, the index of the equal effect in this one; -1 for none."""
        return np.array([self._index_of_template.get(effect, -1) for effect in other._effects], dtype=np.int64)

    def _entry(self, packed: bytes) -> tuple[int, FlowTemplate] | None:
        """Return the meter id and the template of a packed key; None without such a flow entry."""
        row = self._row(packed)
        return None if row is None else (row.meter_id, self._effects[row.template_index])

    def _row(self, packed: bytes) -> Row | None:
        """Return the meter and template index of a packed key; None without such a flow entry."""
        if packed in self._recent:
            return self._recent[packed]
        if len(packed) > KEY_BYTES:
            return self._long.get(packed)
        position = int(self._keys.searchsorted(np.array(packed, KEY)))
        if position == len(self._keys) or self._keys[position] != packed:
            return None
        return Row(int(self._meter_id[position]), int(self._template_index[position]))

    def _put(self, packed: bytes, row: Row) -> None:
        if len(packed) > KEY_BYTES:
            self._long[packed] = row
        else:
            self._change(packed, row)

    def _change(self, packed: bytes, row: Row | None) -> None:
        """Record a single change; None removes the flow entry. Many changes are merged into the columns."""
        self._recent[packed] = row
        if len(self._recent) > _MAX_RECENT + len(self._keys) // 8:
            self._merge_recent()

    def _merge_recent(self) -> None:
        """Merge single changes into the columns."""
        if not self._recent:
            return
        recent, self._recent = self._recent, {}
        removed = np.array([packed for packed, row in recent.items() if row is None], KEY)
        positions, present = find(self._keys, removed)
        if present.any():
            stays = np.ones(len(self._keys), dtype=np.bool_)
            stays[positions[present]] = False
            self._keys, self._meter_id, self._template_index = (
                self._keys[stays],
                self._meter_id[stays],
                self._template_index[stays],
            )
        put = {packed: row for packed, row in recent.items() if row is not None}
        rows = np.array(list(put.values()), np.uint32).reshape(-1, 2)  # (keys, 2): meter, index of the effect
        self._merge(np.array(list(put), KEY), rows[:, 0], rows[:, 1])

    def _merge(self, keys: KeyArray, meter_id: NDArray[np.uint32], template_index: NDArray[np.uint32]) -> None:
        """Insert or replace flow entries in the sorted columns; the last entry of a key counts."""
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        # The mask of the last one of equal keys.
        last = np.append(keys[1:] != keys[:-1], np.ones(min(len(keys), 1), dtype=np.bool_))
        keys, order = keys[last], order[last]
        positions, present = find(self._keys, keys)
        stays = np.ones(len(self._keys), dtype=np.bool_)
        stays[positions[present]] = False
        insert_at = np.searchsorted(self._keys[stays], keys)
        self._keys = np.insert(self._keys[stays], insert_at, keys)
        self._meter_id = np.insert(self._meter_id[stays], insert_at, meter_id[order])
        self._template_index = np.insert(self._template_index[stays], insert_at, template_index[order])

    def _discard_unused_effects(self) -> None:
        """Discard unused effects, if there are many. All effect indices in use must be in the table."""
        if len(self._effects) <= self._compact_at:
            return
        self._merge_recent()
        kept = np.zeros(len(self._effects), dtype=np.bool_)
        kept[self._template_index] = True
        kept[[row.template_index for row in self._long.values()]] = True
        used = np.flatnonzero(kept)
        new_index = np.zeros(len(self._effects), np.uint32)
        new_index[used] = np.arange(len(used))
        self._template_index = new_index[self._template_index]
        self._long = {
            packed: Row(row.meter_id, int(new_index[row.template_index])) for packed, row in self._long.items()
        }
        self._effects = [self._effects[old] for old in used.tolist()]
        self._index_of_template = {effect: new for new, effect in enumerate(self._effects)}
        self._compact_at = _MAX_UNUSED + 2 * len(self._effects)


def find(ascending: KeyArray, keys: KeyArray) -> tuple[IntArray, BoolArray]:
    """Return the position of each key in ``ascending``, or its insertion point, and the mask of the present keys.

    Both have the shape of ``keys``.
    """
    if len(ascending) == len(keys) and np.array_equal(ascending, keys):
        return np.arange(len(keys)), np.ones(len(keys), dtype=np.bool_)
    positions = np.searchsorted(ascending, keys)
    if not len(ascending):
        return positions, np.zeros(len(keys), dtype=np.bool_)
    present: BoolArray = ascending[np.minimum(positions, len(ascending) - 1)] == keys
    return positions, present
