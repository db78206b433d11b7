"""Flow tables: tuple-space search for entries, columns for their counters (OpenFlow 1.3.5, sections 5.2 to 6.4)."""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from controller.openflow import constants as ofp
from controller.openflow.actions import Output
from controller.openflow.constants import ErrorType, FlowModCommand, FlowModFlags
from controller.openflow.ethernet import FrameHeader
from controller.openflow.flows import Flow, Instructions, encode_instructions
from controller.openflow.match import Match, encode_match
from experiments.switch import replies
from experiments.switch.openflow_errors import OpenFlowReplyError
from experiments.switch.requests import FlowFilter, FlowMod

_STATS = Struct("!HBxIIHHHH4xQQQ")
_VERSIONS = itertools.count()  # one counter for all, so that cleared tables never have an old version
_COUNTERS = np.dtype(
    [("packets", np.float64), ("bytes", np.float64), ("created_s", np.float64), ("used_s", np.float64)]
)


class Shape(NamedTuple):
    """The fields of a match, and their masks: flow entries of one shape share a hash table."""

    in_port: bool
    vlan_vid: bool
    eth_dst_mask: int
    eth_src_mask: int
    eth_type: bool
    metadata_mask: int
    ip_ecn: bool


@dataclass(slots=True, eq=False)
class FlowTableEntry:
    """One installed entry; ``row`` is its row in the counter columns, ``tail`` its match and instructions encoded."""

    flow: Flow
    hard_timeout_s: int
    flags: int
    row: int
    tail: bytes

    def outputs_to(self, port_no: int) -> bool:
        """Whether one of its actions sends to that port (PORT_ANY: any entry matches)."""
        return port_no == ofp.PORT_ANY or any(
            isinstance(action, Output) and action.port_no == port_no for action in self.flow.actions
        )


class FlowTables:
    """All flow tables of one switch. ``version`` changes with every change to the handling of packets."""

    def __init__(self, tables: int, entries_per_table: int) -> None:
        self.version = next(_VERSIONS)
        self.meter_users: npt.NDArray[np.int64] = np.zeros(64, np.int64)
        """How many entries use each meter, by its id; ids beyond the end have none."""
        self._limit = entries_per_table
        self._entries: list[dict[tuple[int, Match], FlowTableEntry]] = [{} for _ in range(tables)]
        # Per table and shape, by the values of the matched fields: (-priority, row, entry), highest priority first.
        self._shapes: list[dict[Shape, dict[tuple[int | None, ...], list[tuple[int, int, FlowTableEntry]]]]] = [
            {} for _ in range(tables)
        ]
        self._timed: dict[int, FlowTableEntry] = {}
        self._serial = 0
        self._free: list[int] = []
        self.counters = np.zeros(64, _COUNTERS)

    def __len__(self) -> int:
        return sum(map(len, self._entries))

    def touch(self) -> None:
        """Record a change to the handling of packets."""
        self.version = next(_VERSIONS)

    def flows(self) -> list[Flow]:
        """Return the flows of all entries, table by table."""
        return [entry.flow for table in self._entries for entry in table.values()]

    def sizes(self) -> list[int]:
        """Return how many entries each table holds."""
        return list(map(len, self._entries))

    def lookup(
        self, table_id: int, in_port: int, header: FrameHeader, metadata: int = 0, ip_ecn: int | None = None
    ) -> FlowTableEntry | None:
        """Return the matching entry of highest priority; None: the packet is dropped (section 5.4).

        Tuple-space search: one hash lookup per shape. ``ip_ecn`` is None for packets without IP.
        """
        best: tuple[int, int, FlowTableEntry] | None = None  # (-priority, row, entry): the lowest wins
        for shape, table in self._shapes[table_id].items():
            candidates = table.get(_key_of_packet(shape, in_port, header, metadata, ip_ecn))
            if candidates and (best is None or candidates[0][0] < best[0]):
                best = candidates[0]
        return best[2] if best else None

    def apply(self, mod: FlowMod, now_s: float, has_meter: Callable[[int], bool]) -> list[tuple[FlowTableEntry, int]]:
        """Apply a flow-mod; return the entries deleted, with the reason. Raises OpenFlowReplyError."""
        match mod.command:
            case FlowModCommand.ADD:
                _check_meter(mod, has_meter)
                self._add(mod, now_s)
                return []
            case FlowModCommand.MODIFY | FlowModCommand.MODIFY_STRICT:
                for entry in list(self._selected_by(mod)):
                    _check_meter(mod, has_meter)
                    self._modify(entry, mod)
                return []
        deleted = list(self._selected_by(mod))
        for entry in deleted:
            self.remove(entry)
        return [(entry, int(ofp.FlowRemovedReason.DELETE)) for entry in deleted]

    def select(self, flow_filter: FlowFilter) -> Iterator[FlowTableEntry]:
        """Yield the entries that match a request."""
        tables = self._entries if flow_filter.table_id == ofp.TABLE_ALL else self._entries[flow_filter.table_id :][:1]
        matches_all = flow_filter.match == Match()
        for table in tables:
            for entry in table.values():
                if (
                    (entry.flow.cookie ^ flow_filter.cookie) & flow_filter.cookie_mask == 0
                    and (matches_all or _is_within(entry.flow.match, flow_filter.match))
                    and entry.outputs_to(flow_filter.out_port)
                ):
                    yield entry

    def remove(self, entry: FlowTableEntry) -> None:
        """Remove one entry."""
        flow = entry.flow
        del self._entries[flow.table_id][flow.priority, flow.match]
        shape = shape_of(flow.match)
        table = self._shapes[flow.table_id][shape]
        key = _key_of_match(flow.match)
        kept = [item for item in table[key] if item[2] is not entry]
        if kept:
            table[key] = kept
        else:
            del table[key]
            if not table:
                del self._shapes[flow.table_id][shape]
        self._count_meter(flow.meter_id, -1)
        self._timed.pop(entry.row, None)
        self._free.append(entry.row)
        self.touch()

    def remove_users_of(self, meter_id: int) -> list[FlowTableEntry]:
        """Remove every entry that uses a deleted meter (section 7.3.4.4) and return them."""
        if meter_id >= len(self.meter_users) or not self.meter_users[meter_id]:
            return []
        removed = [entry for table in self._entries for entry in table.values() if entry.flow.meter_id == meter_id]
        for entry in removed:
            self.remove(entry)
        return removed

    def expired(self, now_s: float) -> list[tuple[FlowTableEntry, int]]:
        """Remove expired entries; return each with the reason."""
        gone = []
        for row, entry in list(self._timed.items()):
            counters = self.counters[row]
            if entry.hard_timeout_s and now_s - counters["created_s"] >= entry.hard_timeout_s:
                gone.append((entry, int(ofp.FlowRemovedReason.HARD_TIMEOUT)))
            elif entry.flow.idle_timeout_s and now_s - counters["used_s"] >= entry.flow.idle_timeout_s:
                gone.append((entry, int(ofp.FlowRemovedReason.IDLE_TIMEOUT)))
        for entry, _reason in gone:
            self.remove(entry)
        return gone

    def hit(self, entry: FlowTableEntry, octets: int, now_s: float) -> None:
        """Count one packet."""
        row = self.counters[entry.row]
        row["packets"] += 1
        row["bytes"] += octets
        row["used_s"] = now_s

    def hit_rates(
        self, rows: npt.NDArray[np.int64], octets: npt.NDArray[np.float64], packet_bytes: float, now_s: float
    ) -> None:
        """Count traffic by the row of the entry, each row once; entries with traffic are in use."""
        self.counters["bytes"][rows] += octets
        self.counters["packets"][rows] += octets / packet_bytes
        self.counters["used_s"][rows[octets > 0]] = now_s

    def stats(self, entries: Sequence[FlowTableEntry], reported: npt.NDArray[np.void], now_s: float) -> list[bytes]:
        """Return the ofp_flow_stats of these entries, encoded.

        The counters are those in ``reported``, a copy of the counter columns, which may be old: entries added since
        have zero.
        """
        rows = np.array([entry.row for entry in entries], dtype=np.int64)
        age_s = (now_s - self.counters["created_s"][rows]).tolist()
        counts = np.zeros((2, len(rows)), dtype=np.int64)
        has_report = rows < len(reported)
        for target, name in zip(counts, ("packets", "bytes"), strict=True):
            target[has_report] = reported[name][rows[has_report]]
        records = []
        for entry, entry_s, packets, octets in zip(entries, age_s, *counts.tolist(), strict=True):
            flow = entry.flow
            length = _STATS.size + len(entry.tail)
            timeouts = (flow.idle_timeout_s, entry.hard_timeout_s)
            fixed = (length, flow.table_id, *replies.split_duration(entry_s), flow.priority, *timeouts, entry.flags)
            records.append(_STATS.pack(*fixed, flow.cookie, packets, octets) + entry.tail)
        return records

    def _add(self, mod: FlowMod, now_s: float) -> None:
        """Add a flow entry, or replace the one of the same match and priority; OpenFlowReplyError if refused."""
        table = self._entries[mod.table_id]
        replaced = table.get((mod.priority, mod.match))
        if replaced is None and len(table) >= self._limit:
            raise OpenFlowReplyError(ErrorType.FLOW_MOD_FAILED, "TABLE_FULL")
        if replaced is None and mod.flags & FlowModFlags.CHECK_OVERLAP and self._overlaps(mod):
            raise OpenFlowReplyError(ErrorType.FLOW_MOD_FAILED, "OVERLAP")
        if replaced is not None:
            self.remove(replaced)
        flow = mod.flow()
        row = self._free.pop() if self._free else self._serial
        if row == self._serial:
            self._serial += 1
        if row >= len(self.counters):
            self.counters = np.concatenate([self.counters, np.zeros(len(self.counters), _COUNTERS)])
        self.counters[row] = (0, 0, now_s, now_s)
        entry = FlowTableEntry(flow, mod.hard_timeout_s, mod.flags, row, mod.tail)
        table[flow.priority, flow.match] = entry
        shape_table = self._shapes[mod.table_id].setdefault(shape_of(flow.match), {})
        insort(shape_table.setdefault(_key_of_match(flow.match), []), (-flow.priority, row, entry))
        self._count_meter(flow.meter_id, 1)
        if flow.idle_timeout_s or mod.hard_timeout_s:
            self._timed[row] = entry
        self.touch()

    def _modify(self, entry: FlowTableEntry, mod: FlowMod) -> None:
        """Replace the instructions of a flow entry; its counters stay unless the request resets them."""
        instructions: Instructions = mod.instructions
        self._count_meter(entry.flow.meter_id, -1)
        entry.flow = entry.flow._replace(
            meter_id=instructions.meter_id,
            actions=instructions.actions,
            goto_table=instructions.goto_table,
            write_metadata=instructions.write_metadata,
        )
        self._count_meter(instructions.meter_id, 1)
        entry.tail = encode_match(entry.flow.match) + encode_instructions(entry.flow)
        if mod.flags & FlowModFlags.RESET_COUNTS:
            self.counters["packets"][entry.row] = self.counters["bytes"][entry.row] = 0
        self.touch()

    def _selected_by(self, mod: FlowMod) -> Iterator[FlowTableEntry]:
        """Yield the entries to which a modify or delete applies (section 6.4).

        Strict needs equal match and priority.
        """
        strict = mod.command in (FlowModCommand.MODIFY_STRICT, FlowModCommand.DELETE_STRICT)
        deletes = mod.command in (FlowModCommand.DELETE, FlowModCommand.DELETE_STRICT)
        out_port = mod.out_port if deletes else ofp.PORT_ANY
        flow_filter = FlowFilter(mod.table_id, mod.match, mod.cookie, mod.cookie_mask, out_port)
        if strict and mod.table_id != ofp.TABLE_ALL:
            entry = self._entries[mod.table_id].get((mod.priority, mod.match))
            if entry and not (entry.flow.cookie ^ mod.cookie) & mod.cookie_mask and entry.outputs_to(out_port):
                yield entry
            return
        for entry in self.select(flow_filter):
            if not strict or (entry.flow.priority, entry.flow.match) == (mod.priority, mod.match):
                yield entry

    def _overlaps(self, mod: FlowMod) -> bool:
        """Return whether another entry of the same priority can match the same packet (CHECK_OVERLAP)."""
        return any(
            entry.flow.priority == mod.priority
            and entry.flow.match != mod.match
            and _can_overlap(entry.flow.match, mod.match)
            for entry in self._entries[mod.table_id].values()
        )

    def _count_meter(self, meter_id: int | None, change: int) -> None:
        """Add ``change`` to the number of entries that use a meter."""
        if meter_id is None:
            return
        if meter_id >= len(self.meter_users):
            grown = np.zeros(2 * meter_id, np.int64)
            grown[: len(self.meter_users)] = self.meter_users
            self.meter_users = grown
        self.meter_users[meter_id] += change


def _check_meter(mod: FlowMod, has_meter: Callable[[int], bool]) -> None:
    """Raise Open vSwitch's error for a missing meter of an entry; it checks only if an entry matches."""
    meter_id = mod.instructions.meter_id
    if meter_id is not None and not has_meter(meter_id):
        raise OpenFlowReplyError(ErrorType.METER_MOD_FAILED, "INVALID_METER")


def shape_of(match: Match) -> Shape:
    """Return the shape of a match."""
    return Shape(
        match.in_port is not None,
        match.vlan_vid is not None,
        _mask(match.eth_dst, match.eth_dst_mask, 48),
        _mask(match.eth_src, match.eth_src_mask, 48),
        match.eth_type is not None,
        _mask(match.metadata, match.metadata_mask, 64),
        match.ip_ecn is not None,
    )


def _mask(value: int | None, mask: int | None, bits: int) -> int:
    """Return the effective mask of a match field: 0 if the field is absent, all ones without a mask."""
    return 0 if value is None else mask or 2**bits - 1


def _key_of_match(match: Match) -> tuple[int | None, ...]:
    """Return the field values of a match, in the order of ``_key_of_packet``."""
    return (*match[:5], match.metadata, match.ip_ecn)


def _key_of_packet(
    shape: Shape, in_port: int, header: FrameHeader, metadata: int, ip_ecn: int | None
) -> tuple[int | None, ...]:
    """Return the fields of a packet in the order of a match's shape, None where the packet lacks one."""
    vlan_vid = ofp.VLAN_NONE if header.vlan_vid is None else header.vlan_vid or ofp.VLAN_PRIORITY
    return (
        in_port if shape.in_port else None,
        vlan_vid if shape.vlan_vid else None,
        header.eth_dst & shape.eth_dst_mask if shape.eth_dst_mask else None,
        header.eth_src & shape.eth_src_mask if shape.eth_src_mask else None,
        header.eth_type if shape.eth_type else None,
        metadata & shape.metadata_mask if shape.metadata_mask else None,
        (-1 if ip_ecn is None else ip_ecn) if shape.ip_ecn else None,
    )


def _is_within(match: Match, wider: Match) -> bool:
    """Whether every packet of ``match`` also matches ``wider`` (non-strict, section 6.4)."""
    for name in ("in_port", "vlan_vid", "eth_type", "ip_ecn"):
        if getattr(wider, name) is not None and getattr(match, name) != getattr(wider, name):
            return False
    return all(
        wide & ~mask == 0 and (value ^ wide_value) & wide == 0
        for (value, mask), (wide_value, wide) in zip(_masked(match), _masked(wider), strict=True)
    )


def _can_overlap(match: Match, other: Match) -> bool:
    """Whether some packet matches both."""
    for name in ("in_port", "vlan_vid", "eth_type", "ip_ecn"):
        a, b = getattr(match, name), getattr(other, name)
        if a is not None and b is not None and a != b:
            return False
    fields = zip(_masked(match), _masked(other), strict=True)
    return all((a ^ b) & mask & other_mask == 0 for (a, mask), (b, other_mask) in fields)


def _masked(match: Match) -> Iterator[tuple[int, int]]:
    """Yield the fields that may have masks: value (0 for any) and mask (0: the field does not count)."""
    shape = shape_of(match)
    yield match.eth_dst or 0, shape.eth_dst_mask
    yield match.eth_src or 0, shape.eth_src_mask
    yield match.metadata or 0, shape.metadata_mask
