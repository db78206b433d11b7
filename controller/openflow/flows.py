"""Flow entries as the core uses them, the flow-mods that install them, and the flow-stats that report them.

OpenFlow 1.3.5, sections 7.2.4 (instructions), 7.3.4.1 (flow-mod) and 7.3.5.2 (flow statistics). The flow-stats of a
flow entry from ``encode_flow_mods`` decode to an equal Flow, whatever the switch's order of fields and instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from controller.errors import InvalidValueError
from controller.openflow import constants as ofp
from controller.openflow.actions import Action, UnknownActionError, decode_actions, encode_actions
from controller.openflow.bounded_reader import (
    HEADER,
    Buffer,
    check_range,
    duration_s,
    equal_runs,
    gather_records,
    malformed,
    read,
    read_bytes,
    record_offsets,
    xids,
)
from controller.openflow.constants import FlowModCommand, FlowModFlags, InstructionType
from controller.openflow.match import Match, UnknownMatchError, encode_match, match_from_oxms, read_oxms

_FLOW_MOD = Struct("!QQBBHHHIIIH2x")
_INSTRUCTION = Struct("!HH")
_APPLY = Struct("!HH4x")
_GOTO = Struct("!HHB3x")
_METER = Struct("!HHI")
_METADATA = Struct("!HH4xQQ")
_STATS = Struct("!HBxIIHHHH4xQQQ")
_STATS_RECORD = np.dtype(
    [
        ("length", ">u2"),
        ("table_id", "u1"),
        ("pad", "u1"),
        ("duration_sec", ">u4"),
        ("duration_nsec", ">u4"),
        ("priority", ">u2"),
        ("idle_timeout", ">u2"),
        ("hard_timeout", ">u2"),
        ("flags", ">u2"),
        ("pad2", "V4"),
        ("cookie", ">u8"),
        ("packet_count", ">u8"),
        ("byte_count", ">u8"),
    ]
)
_SMALLEST_STATS = _STATS.size + 8
_NAME = "FLOW stats reply"


class WriteMetadata(NamedTuple):
    """The metadata that a flow entry writes for later tables: ``value``, which has ones only where ``mask`` has."""

    value: int
    mask: int


class _FlowFields(NamedTuple):
    table_id: int
    priority: int
    match: Match
    cookie: int
    idle_timeout_s: int
    send_flow_removed: bool
    meter_id: int | None
    actions: tuple[Action, ...]
    goto_table: int | None
    write_metadata: WriteMetadata | None


class Flow(_FlowFields):
    """A flow entry. Raises InvalidValueError naming the field and its limit.

    ``actions`` are the apply-actions; ``meter_id`` comes before, ``write_metadata`` and ``goto_table`` after them.
    ``idle_timeout_s`` 0 means no timeout. It is a tuple, like its match.
    """

    __slots__ = ()

    def __new__(
        cls,
        table_id: int,
        priority: int,
        match: Match,
        cookie: int,
        idle_timeout_s: int = 0,
        send_flow_removed: bool = False,
        meter_id: int | None = None,
        actions: tuple[Action, ...] = (),
        goto_table: int | None = None,
        write_metadata: WriteMetadata | None = None,
    ) -> Self:
        """Return a flow entry from fields that are in their ranges."""
        check_range("flow.table_id", table_id, 0, ofp.TABLE_MAX)
        check_range("flow.priority", priority, 0, 0xFFFF)
        check_range("flow.cookie", cookie, 0, 2**64 - 1)
        check_range("flow.idle_timeout_s", idle_timeout_s, 0, 0xFFFF)
        if meter_id is not None:
            check_range("flow.meter_id", meter_id, 1, ofp.METER_MAX)
        if goto_table is not None:
            check_range("flow.goto_table", goto_table, table_id + 1, ofp.TABLE_MAX)
        if write_metadata is not None:
            check_range("flow.write_metadata.mask", write_metadata.mask, 1, 2**64 - 1)
            check_range("flow.write_metadata.value", write_metadata.value, 0, write_metadata.mask)
        return super().__new__(
            cls,
            table_id,
            priority,
            match,
            cookie,
            idle_timeout_s,
            send_flow_removed,
            meter_id,
            actions,
            goto_table,
            write_metadata,
        )

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]  # mypy takes the inherited for generic
        return cls(*iterable)  # what _replace returns is checked as well


@dataclass(frozen=True, slots=True)
class UnknownFlow:
    """An installed flow entry that Flow cannot express, so not the controller's. ``raw`` is its ofp_flow_stats."""

    table_id: int
    priority: int
    cookie: int
    raw: bytes


@dataclass(frozen=True, slots=True, eq=False)
class FlowStats:
    """The flow entries of a flow-stats reply and, row by row, their counters (uint64) and age in seconds (float64).

    ``known`` makes decoding the next reply fast: it maps the bytes of a flow entry, without counters, to its Flow.
    """

    flows: list[Flow | UnknownFlow]
    packet_count: npt.NDArray[np.uint64]
    byte_count: npt.NDArray[np.uint64]
    duration_s: npt.NDArray[np.float64]
    known: Mapping[bytes, Flow] = field(default_factory=dict)


def encode_flow_mods(rows: Iterable[tuple[FlowModCommand, Flow]], xid_first: int) -> bytes:
    """Return a flow-mod for each (ADD, MODIFY_STRICT or DELETE_STRICT; flow) in order, xids from ``xid_first`` on.

    ADD replaces an entry with the same table, priority and match.
    """
    todo = list(rows)
    numbers = xids(xid_first, len(todo)).tolist()
    return b"".join(_encode_flow_mod(command, flow, xid) for (command, flow), xid in zip(todo, numbers, strict=True))


def encode_flow_delete_by_cookie(cookie: int, mask: int, xid: int, table_id: int = ofp.TABLE_ALL) -> bytes:
    """Return the flow-mod that deletes, in one table or all, each entry with cookie ``cookie`` under ``mask``."""
    check_range("cookie", cookie, 0, 2**64 - 1)
    check_range("cookie_mask", mask, 1, 2**64 - 1)
    check_range("table_id", table_id, 0, ofp.TABLE_ALL)
    return _pack_flow_mod(FlowModCommand.DELETE, (cookie, mask, table_id), (0, 0, 0), Match(), b"", xid)


def decode_flow_stats(body: Buffer, known: Mapping[bytes, Flow] | None = None) -> FlowStats:
    """Return the flow entries in the body of a flow-stats reply (of one part, or of several joined).

    A flow entry that Flow cannot express becomes UnknownFlow. ``known`` is that of an earlier reply: flow entries in it
    are not decoded again, which takes a twentieth of the time. Raises ProtocolError when malformed.
    """
    view = memoryview(body)
    offsets = record_offsets(view, 0, _SMALLEST_STATS, _NAME)
    records = gather_records(view, offsets[:-1], _STATS_RECORD)
    flows: list[Flow | UnknownFlow] = []
    decoded: dict[bytes, Flow] = {}
    known = known or {}
    for start, end in pairwise(offsets.tolist()):
        raw = bytes(view[start:end])
        key = raw[2:4] + raw[12:32] + raw[_STATS.size :]  # all but length, age and counters
        flow = known.get(key) or decode_entry(raw)
        if isinstance(flow, Flow):
            decoded[key] = flow
        flows.append(flow)
    return FlowStats(
        flows,
        records["packet_count"].astype(np.uint64),
        records["byte_count"].astype(np.uint64),
        duration_s(records),
        decoded,
    )


def entry_runs(body: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yield the flow entries in a flow-stats reply as runs of one length: (offset, length, count), in order.

    Raises ProtocolError if a length is wrong.
    """
    return equal_runs(memoryview(body), 0, _SMALLEST_STATS, _NAME)


@dataclass(frozen=True, slots=True)
class Instructions:
    """The effect of a list of instructions, in the order in which a switch executes them (section 5.9)."""

    meter_id: int | None = None
    actions: tuple[Action, ...] = ()
    goto_table: int | None = None
    write_metadata: WriteMetadata | None = None


class UnknownInstructionError(Exception):
    """Well-formed bytes of an instruction that Instructions does not support."""


def encode_instructions(flow: Flow) -> bytes:
    """Return the instructions of ``flow`` in the order in which they are executed."""
    parts = b""
    if flow.meter_id is not None:
        parts += _METER.pack(InstructionType.METER, _METER.size, flow.meter_id)
    if flow.actions:
        actions = encode_actions(flow.actions)
        parts += _APPLY.pack(InstructionType.APPLY_ACTIONS, _APPLY.size + len(actions)) + actions
    if flow.write_metadata is not None:
        parts += _METADATA.pack(InstructionType.WRITE_METADATA, _METADATA.size, *flow.write_metadata)
    if flow.goto_table is not None:
        parts += _GOTO.pack(InstructionType.GOTO_TABLE, _GOTO.size, flow.goto_table)
    return parts


def decode_instructions(view: memoryview, message: str) -> Instructions:
    """Return the instructions that fill ``view``; ProtocolError if malformed.

    If all are well-formed, raises UnknownInstructionError or UnknownActionError for an unsupported one.
    """
    meter_id: int | None = None
    actions: tuple[Action, ...] = ()
    goto_table: int | None = None
    write_metadata: WriteMetadata | None = None
    seen: set[int] = set()
    unknown: Exception | None = None
    for kind, raw in _walk_instructions(view, message):
        if kind in seen:
            unknown = UnknownInstructionError(f"two instructions of type {kind}")
        seen.add(kind)
        match kind:
            case InstructionType.METER:
                meter_id = read(_METER, raw, 0, message, "meter instruction")[2]
            case InstructionType.GOTO_TABLE:
                goto_table = read(_GOTO, raw, 0, message, "goto_table instruction")[2]
            case InstructionType.WRITE_METADATA:
                value, mask = read(_METADATA, raw, 0, message, "write_metadata instruction")[2:]
                write_metadata = WriteMetadata(value, mask)
            case InstructionType.APPLY_ACTIONS:
                try:
                    actions = decode_actions(raw[_APPLY.size :], message)
                except UnknownActionError as error:
                    unknown = error
            case _:
                unknown = UnknownInstructionError(f"instruction type {kind}")
    if unknown is not None:
        raise unknown
    return Instructions(meter_id, actions, goto_table, write_metadata)


def _walk_instructions(view: memoryview, message: str) -> Iterable[tuple[int, memoryview]]:
    """Yield the (type, bytes) of each instruction; ProtocolError for a wrong length."""
    offset = 0
    while offset < len(view):
        kind, length = read(_INSTRUCTION, view, offset, message, "instruction")
        if length < 8:
            raise malformed(message, "instruction.len", length, "8 or more")
        yield kind, read_bytes(view, offset, length, message, "instruction.len")
        offset += length


def _encode_flow_mod(command: FlowModCommand, flow: Flow, xid: int) -> bytes:
    """Return the flow-mod of a command; cookie masks protect foreign flow entries."""
    if command == FlowModCommand.DELETE_STRICT:
        # The full mask: a foreign flow entry in place of the controller's must not be deleted.
        return _pack_flow_mod(
            command, (flow.cookie, 2**64 - 1, flow.table_id), (0, flow.priority, 0), flow.match, b"", xid
        )
    if command not in (FlowModCommand.ADD, FlowModCommand.MODIFY_STRICT):
        raise InvalidValueError("command", command, "is not ADD, MODIFY_STRICT or DELETE_STRICT")
    flags = FlowModFlags.SEND_FLOW_REM if flow.send_flow_removed else 0
    # A cookie mask in ADD is ignored; in MODIFY_STRICT it protects foreign flow entries.
    mask = 0 if command == FlowModCommand.ADD else 2**64 - 1
    identity = (flow.cookie, mask, flow.table_id)
    return _pack_flow_mod(
        command, identity, (flow.idle_timeout_s, flow.priority, flags), flow.match, encode_instructions(flow), xid
    )


def _pack_flow_mod(
    command: FlowModCommand,
    identity: tuple[int, int, int],
    settings: tuple[int, int, int],
    match: Match,
    instructions: bytes,
    xid: int,
) -> bytes:
    """Return one flow-mod.

    ``identity`` is (cookie, cookie mask, table_id) and ``settings`` (idle timeout, priority, flags).
    """
    check_range("xid", xid, 0, 2**32 - 1)
    cookie, mask, table_id = identity
    idle_timeout_s, priority, flags = settings
    body = _FLOW_MOD.pack(
        cookie,
        mask,
        table_id,
        command,
        idle_timeout_s,
        0,
        priority,
        ofp.NO_BUFFER,
        ofp.PORT_ANY,
        ofp.GROUP_ANY,
        flags,
    )
    body += encode_match(match) + instructions
    return HEADER.pack(ofp.VERSION, ofp.MessageType.FLOW_MOD, HEADER.size + len(body), xid) + body


def decode_entry(raw: bytes) -> Flow | UnknownFlow:
    """Return the decoded flow entry of a flow-stats reply; raises ProtocolError if malformed."""
    view = memoryview(raw)
    values = _STATS.unpack_from(view)
    _length, table_id, _sec, _nsec, priority, idle_timeout_s, hard_timeout_s, flags, cookie, _packets, _bytes = values
    unknown = UnknownFlow(table_id, priority, cookie, raw)
    oxms, offset = read_oxms(view, _STATS.size, _NAME)
    try:
        instructions = decode_instructions(view[offset:], _NAME)
        match = match_from_oxms(oxms)
        if hard_timeout_s or flags & ~FlowModFlags.SEND_FLOW_REM:
            return unknown
        return Flow(
            table_id,
            priority,
            match,
            cookie,
            idle_timeout_s,
            bool(flags),
            instructions.meter_id,
            instructions.actions,
            instructions.goto_table,
            instructions.write_metadata,
        )
    except (UnknownMatchError, UnknownActionError, UnknownInstructionError, InvalidValueError):
        return unknown
