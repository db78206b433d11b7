"""Recordings: the input and decisions of a run, interval by interval, for a later replay.

A recording is a sequence of records. A *start* record holds the whole control state, the VNs, the policies and the
links; there is one at the beginning, and one after each change from outside of the control step (a new pair, a changed
limit). An *interval* record holds the switches' counters, the time, and the resulting decision. Since the control step
is a pure function, an interval can be decided again from the records before it, bit for bit.

A record is one line of JSON that names its columns, and the bytes of the columns.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray, UInt32Array
from controller.dets.rate_allocator import RateAllocators
from controller.dets.send_rate_controller import SendRateControllers
from controller.errors import ProtocolError
from controller.fabric.link_table import LinkTable
from controller.fabric.meter_bounds import MeterBounds
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.loop import control_step
from controller.metering.counters import MeterCounters, MeterReadings
from controller.metering.enforcement import Enforcement, MeterChanges, to_kilo
from controller.metering.fabric_readings import FabricReadings
from controller.metering.mark_readings import MarkReadings
from controller.metering.measurement import Measurement
from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings
from controller.metering.receive_budgets import NEVER_S, ReceiveBudgets
from controller.policy.policy_groups import Choices, PolicyChoice
from controller.units import MAX_RATE_BPS
from controller.whatif.state_codec import decode_states, encode_states

FORMAT = {"format": "dets-recording", "version": 3}
# A client that does not drain its records must not fill the controller's memory.
MAX_RECORDING_BYTES = 64 * 2**20

_Columns = dict[str, NDArray[Any]]
_T = TypeVar("_T")
_TABLES: dict[str, type[Any]] = {
    "entries": PairTable,
    "counters": MeterCounters,
    "measured": Measurement,
    "machines": SendRateControllers,
    "enforcement": Enforcement,
    "accounts": ReceiveBudgets,
}
_OBSERVED: dict[str, type[Any]] = {"queues": QueueReadings, "ports": PortReadings, "marks": MarkReadings}
# Columns with smaller types in the controller than in a recording.
_NARROW: dict[str, type[np.signedinteger[Any]]] = {
    "control": np.int8,
    **dict.fromkeys(("intervals_since_message", "silent_intervals", "unread_intervals", "evidence"), np.int16),
}
# Columns in a meter's units, which are bit/s and bits in a recording.
_IN_STEPS = {"rate_kbps": "rate_bps", "burst_kbits": "burst_bits"}
# The names of renamed columns in a recording.
_FILE_NAMES = _IN_STEPS | {
    "intervals_since_message": "unheard_intervals",
    "path_offsets": "way_offsets",
    "path_link": "way",
    "uses_ceiling": "borrows",
    "has_queue": "shaped",
}
_DTYPES = frozenset({"<f8", "<i8", "<u8", "|b1"})


@dataclass(frozen=True)
class Start:
    """The state from which the following control steps start."""

    state: control_step.ControlState
    vns: VnTable
    policies: Choices
    links: LinkTable | None


@dataclass(frozen=True)
class Modified:
    """The ``rows`` of modified meters, in order, and their new settings; shape of ``rows`` each."""

    rows: IntArray
    rate_bps: FloatArray
    burst_bits: FloatArray

    @classmethod
    def from_changes(cls, changes: MeterChanges) -> Modified:
        """Return the modified meters of an interval."""
        return cls(changes.rows, changes.rate_bps, changes.burst_bits)


@dataclass(frozen=True)
class Interval:
    """The input and decision of one control step. ``limit_bps`` (pairs,) are the new effective limits.

    ``observed`` and its parts are None where the recording controller did not read them. ``shaped`` (pairs,) is the
    mask of pairs that agents shape; None: there are no agents.
    """

    now_s: float
    readings: MeterReadings
    observed: FabricReadings | None
    changes: Modified
    limit_bps: FloatArray
    shaped: BoolArray | None = None


@dataclass
class Recorder:
    """Turns the intervals of a running controller into records, until they are drained.

    It stops, with the reason in ``overrun``, when more than ``most_bytes`` were not drained.
    """

    most_bytes: int = MAX_RECORDING_BYTES
    overrun: bool = False
    _records: list[bytes] = field(default_factory=list)
    _bytes: int = 0
    _known: Start | None = None

    def interval(
        self,
        before: Start,
        now_s: float,
        readings: MeterReadings,
        observed: FabricReadings | None,
        after: control_step.ControlState,
        result: control_step.StepResult,
        shaped: BoolArray | None = None,
    ) -> None:
        """Record one interval, which led from ``before`` to ``after``."""
        if self.overrun:
            return
        if self._known is None or not _same(self._known, before):
            self._add(encode_start(before))
        changes = Modified.from_changes(result.changes)
        self._add(encode_interval(Interval(now_s, readings, observed, changes, result.limit_bps, shaped)))
        self._known = dataclasses.replace(before, state=after)

    def drain(self) -> bytes:
        """Return the records since the last call, concatenated, and clear them."""
        records, self._records, self._bytes = self._records, [], 0
        return b"".join(records)

    def _add(self, record: bytes) -> None:
        self._bytes += len(record)
        if self._bytes > self.most_bytes:
            self.overrun = True
        else:
            self._records.append(record)


def _same(known: Start, now: Start) -> bool:
    return (
        known.state is now.state
        and known.vns is now.vns
        and known.links is now.links
        and dict(known.policies) == dict(now.policies)
    )


def encode_start(start: Start) -> bytes:
    """Return a start record."""
    columns: _Columns = {}
    for name in _TABLES:
        _put(columns, name, getattr(start.state, name))
    allocators = start.state.allocators
    columns["congested"], columns["calm_intervals"] = allocators.congested, allocators.calm_intervals
    columns["unread_intervals"] = start.state.unread_intervals.astype(np.int64)
    if start.state.adopted_bps is not None:
        columns["adopted_bps"] = start.state.adopted_bps
    _put(columns, "vns", start.vns)
    if start.vns.meter_bounds is not None:
        _put(columns, "meter_bounds", start.vns.meter_bounds)
    values: dict[str, Any] = {
        "kind": "start",
        "decided_s": start.state.decided_s.hex(),
        "memories": encode_states(columns, allocators.memories),
        "policies": [[vid, policy.algorithm, dict(policy.parameters)] for vid, policy in start.policies.items()],
    }
    if start.links is not None:
        _put(columns, "links", start.links)
        values["links"] = {"names": start.links.names, "switches": start.links.switches}
    return _encode(values, columns)


def encode_interval(interval: Interval) -> bytes:
    """Return an interval record."""
    columns: _Columns = {"limit_bps": interval.limit_bps}
    if interval.shaped is not None:
        columns["shaped"] = interval.shaped
    _put(columns, "readings", interval.readings)
    _put(columns, "changes", interval.changes)
    for name in _OBSERVED:
        if (part := getattr(interval.observed, name, None)) is not None:
            _put(columns, name, part)
    return _encode({"kind": "interval", "now_s": interval.now_s.hex()}, columns)


def decode(data: bytes) -> Iterator[Start | Interval]:
    """Yield the records in ``data``; raise ProtocolError, with the problem, for bytes that are no records."""
    at = 0
    while at < len(data):
        try:
            values, columns, at = _decode(data, at)
            record = _start(values, columns) if values["kind"] == "start" else _interval(values, columns)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ProtocolError(f"recording: the record at byte {at} cannot be read: {error}") from error
        yield record


def _encode(values: dict[str, Any], columns: _Columns) -> bytes:
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    header = {**values, "columns": [[name, array.dtype.str, len(array)] for name, array in arrays.items()]}
    return b"".join([json.dumps(header).encode(), b"\n", *(array.tobytes() for array in arrays.values())])


def _decode(data: bytes, at: int) -> tuple[dict[str, Any], _Columns, int]:
    """Return a record's JSON values, its columns by name, and the offset behind it; ``at`` is its offset."""
    end = data.index(b"\n", at)
    values = json.loads(data[at:end])
    at = end + 1
    columns: _Columns = {}
    for name, dtype, rows in values["columns"]:
        if dtype not in _DTYPES or not isinstance(rows, int) or rows < 0:
            raise ValueError(f"column {name} is of {rows} times {dtype}")
        columns[name] = np.frombuffer(data, dtype, rows, at)
        at += columns[name].nbytes
    return values, columns, at


def _put(columns: _Columns, prefix: str, table: Any) -> None:
    for one in _names(type(table)):
        column = getattr(table, _IN_STEPS.get(one, one))
        if isinstance(column, np.ndarray):
            narrow = column.dtype in _NARROW.values()
            columns[f"{prefix}.{_FILE_NAMES.get(one, one)}"] = column.astype(np.int64) if narrow else column


def _names(kind: Any) -> list[str]:
    """Return the field names of the tables of a kind, named tuples or dataclasses."""
    if issubclass(kind, tuple):
        return list(kind._fields)
    return [one.name for one in dataclasses.fields(kind) if one.init]


def _get(columns: _Columns, prefix: str, kind: type[_T], **others: Any) -> _T:
    names = [name for name in _names(kind) if name not in others]
    found = {name: columns[f"{prefix}.{_FILE_NAMES.get(name, name)}"] for name in names}
    narrow = {name: column.astype(_NARROW[name]) for name, column in found.items() if name in _NARROW}
    steps = {name: _steps(name, column) for name, column in found.items() if name in _IN_STEPS}
    return kind(**found | narrow | steps, **others)


def _steps(name: str, values: FloatArray) -> UInt32Array:
    if not ((values >= 0.0) & (values <= MAX_RATE_BPS)).all():
        raise ValueError(f"column {_IN_STEPS[name]} has values outside of 0 to {MAX_RATE_BPS}")
    return to_kilo(values)


def _start(values: dict[str, Any], columns: _Columns) -> Start:
    """Return the state before the first interval from a *start* record; ValueError for rows outside the VN table."""
    rows = len(columns["vns.vlan_vid"])
    columns.setdefault("accounts.pressed_s", np.full(rows, NEVER_S))  # recordings of 1.0.0 lack these two
    columns.setdefault("accounts.excess_bits", np.zeros(rows))
    for end in ("entries.sender", "entries.receiver"):  # native functions do not check it
        if ((columns[end] < 0) | (columns[end] >= rows)).any():
            raise ValueError(f"column {end} has rows outside of {rows} VNs")
    policies = {vid: PolicyChoice(name, parameters) for vid, name, parameters in values["policies"]}
    bounded = "meter_bounds.max_burst_kbits" in columns
    bounds = _get(columns, "meter_bounds", MeterBounds) if bounded else None
    vns = _get(columns, "vns", VnTable, meter_bounds=bounds, own_flood_limit_bps=None)
    memories = decode_states(columns, values["memories"], rows)
    state = control_step.ControlState(
        **{name: _get(columns, name, kind) for name, kind in _TABLES.items()},
        allocators=RateAllocators(columns["congested"], columns["calm_intervals"], memories),
        unread_intervals=columns["unread_intervals"].astype(np.int16),
        decided_s=float.fromhex(values["decided_s"]),
        adopted_bps=columns.get("adopted_bps"),
    )
    links = values.get("links")
    if links is not None:
        links = _get(columns, "links", LinkTable, names=tuple(links["names"]), switches=links["switches"])
    return Start(state, vns, policies, links)


def _interval(values: dict[str, Any], columns: _Columns) -> Interval:
    """Return one interval from its record."""
    seen = {column.partition(".")[0] for column in columns}
    observed = {name: _get(columns, name, kind) for name, kind in _OBSERVED.items() if name in seen}
    return Interval(
        float.fromhex(values["now_s"]),
        _get(columns, "readings", MeterReadings),
        FabricReadings(**observed) if observed else None,
        _get(columns, "changes", Modified),
        columns["limit_bps"],
        columns.get("shaped"),
    )
