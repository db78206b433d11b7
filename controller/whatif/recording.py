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
# Columns with smaller types in the controller than in a recording, which has int64.
_NARROW: dict[str, type[np.signedinteger[Any]]] = {
    "control": np.int8,
    **dict.fromkeys(("intervals_since_message", "silent_intervals", "unread_intervals", "evidence"), np.int16),
}
# Columns that the controller has in kbit/s or kbit, as meters do; a recording has bit/s or bits under these names.
_KILO_COLUMNS = {"rate_kbps": "rate_bps", "burst_kbits": "burst_bits"}
# The names in a recording of columns that have other names in the controller.
_FILE_NAMES = _KILO_COLUMNS | {
    "intervals_since_message": "unheard_intervals",
    "path_offsets": "way_offsets",
    "path_link": "way",
    "uses_ceiling": "borrows",
    "has_queue": "shaped",
}
# Columns or tables of a start record with a row for each pair, and for each VN.
_PAIR_COLUMNS = ("entries", "counters", "measured", "machines", "enforcement", "unread_intervals", "adopted_bps")
_VN_COLUMNS = ("vns", "congested", "calm_intervals", "accounts.pressed_s", "accounts.excess_bits")
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
    """The meters that an interval modified, (meters,) each: the ``rows`` of their pairs, and their new settings."""

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

    The recorder stops, and sets ``overrun``, when more than ``most_bytes`` were not drained.
    """

    most_bytes: int = MAX_RECORDING_BYTES
    overrun: bool = False
    _records: list[bytes] = field(default_factory=list)
    _bytes: int = 0
    _recorded_state: Start | None = None  # the state that a reader of the records has after the last record

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
        """Record one interval, which led from ``before`` to ``after``.

        A start record comes first if ``before`` is not the state after the last interval.
        """
        if self.overrun:
            return
        if self._recorded_state is None or not _is_same(self._recorded_state, before):
            self._add(encode_start(before))
        changes = Modified.from_changes(result.changes)
        self._add(encode_interval(Interval(now_s, readings, observed, changes, result.limit_bps, shaped)))
        self._recorded_state = dataclasses.replace(before, state=after)

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


def _is_same(recorded: Start, before: Start) -> bool:
    """Return whether two start states are the same objects, with equal policies."""
    return (
        recorded.state is before.state
        and recorded.vns is before.vns
        and recorded.links is before.links
        and dict(recorded.policies) == dict(before.policies)
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
    offset = 0
    while offset < len(data):
        try:
            values, columns, end = _decode(data, offset)
            record = _start(values, columns) if values["kind"] == "start" else _interval(values, columns)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"recording: the record at byte {offset} cannot be read: {error}") from error
        offset = end
        yield record


def _encode(values: dict[str, Any], columns: _Columns) -> bytes:
    """Return a record: a line of JSON with ``values`` and the columns' names, types and lengths; then their bytes."""
    arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
    header = {**values, "columns": [[name, array.dtype.str, len(array)] for name, array in arrays.items()]}
    return b"".join([json.dumps(header).encode(), b"\n", *(array.tobytes() for array in arrays.values())])


def _decode(data: bytes, offset: int) -> tuple[dict[str, Any], _Columns, int]:
    """Return the JSON values of the record at a byte offset, its columns by name, and the offset behind the record."""
    line_end = data.index(b"\n", offset)
    values = json.loads(data[offset:line_end])
    offset = line_end + 1
    columns: _Columns = {}
    for name, dtype, rows in values["columns"]:
        if dtype not in _DTYPES or not isinstance(rows, int) or rows < 0:
            raise ValueError(f"column {name} is of {rows} times {dtype}")
        columns[name] = np.frombuffer(data, dtype, rows, offset)
        offset += columns[name].nbytes
    return values, columns, offset


def _put(columns: _Columns, prefix: str, table: Any) -> None:
    """Add the columns of a table as ``PREFIX.NAME``, in the names, units and types of a recording."""
    for name in _field_names(type(table)):
        column = getattr(table, _KILO_COLUMNS.get(name, name))
        if isinstance(column, np.ndarray):
            is_narrow = column.dtype in _NARROW.values()
            columns[f"{prefix}.{_FILE_NAMES.get(name, name)}"] = column.astype(np.int64) if is_narrow else column


def _field_names(kind: Any) -> list[str]:
    """Return the field names of the tables of a kind, named tuples or dataclasses."""
    if issubclass(kind, tuple):
        return list(kind._fields)
    return [field.name for field in dataclasses.fields(kind) if field.init]


def _get(columns: _Columns, prefix: str, kind: type[_T], **others: Any) -> _T:
    """Return the table of this kind whose columns ``_put`` added; ``others`` are its fields that are not recorded."""
    names = [name for name in _field_names(kind) if name not in others]
    recorded = {name: columns[f"{prefix}.{_FILE_NAMES.get(name, name)}"] for name in names}
    narrow = {name: column.astype(_NARROW[name]) for name, column in recorded.items() if name in _NARROW}
    kilo = {name: _to_kilo(name, column) for name, column in recorded.items() if name in _KILO_COLUMNS}
    return kind(**recorded | narrow | kilo, **others)


def _to_kilo(name: str, values: FloatArray) -> UInt32Array:
    """Return a recorded column in bit/s or bits as kbit/s or kbit; ValueError for values that no meter can have."""
    if not ((values >= 0.0) & (values <= MAX_RATE_BPS)).all():
        raise ValueError(f"column {_KILO_COLUMNS[name]} has values outside of 0 to {MAX_RATE_BPS}")
    return to_kilo(values)


def _start(values: dict[str, Any], columns: _Columns) -> Start:
    """Return the state before the intervals that follow a *start* record; ValueError for rows outside the VN table."""
    rows = len(columns["vns.vlan_vid"])
    columns.setdefault("accounts.pressed_s", np.full(rows, NEVER_S))  # recordings of 1.0.0 lack these two
    columns.setdefault("accounts.excess_bits", np.zeros(rows))
    for name in ("entries.sender", "entries.receiver"):  # native functions do not check these rows
        if ((columns[name] < 0) | (columns[name] >= rows)).any():
            raise ValueError(f"column {name} has rows outside of {rows} VNs")
    _check_lengths(columns, _PAIR_COLUMNS, len(columns["entries.sender"]))
    _check_lengths(columns, _VN_COLUMNS, rows)
    _check_lengths(columns, ("accounts.slot_bits",), rows * len(columns["accounts.slot_start_s"]))
    policies = {vid: PolicyChoice(name, parameters) for vid, name, parameters in values["policies"]}
    has_bounds = "meter_bounds.max_burst_kbits" in columns
    bounds = _get(columns, "meter_bounds", MeterBounds) if has_bounds else None
    # The control step does not use flood limits.
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


def _check_lengths(columns: _Columns, names: tuple[str, ...], rows: int) -> None:
    """Raise ValueError unless all columns of these names or tables have so many rows: native functions read as many."""
    for name, column in columns.items():
        if (name in names or name.partition(".")[0] in names) and len(column) != rows:
            raise ValueError(f"column {name} has {len(column)} rows instead of {rows}")


def _interval(values: dict[str, Any], columns: _Columns) -> Interval:
    """Return one interval from its record; ValueError unless its readings have a row for each limit."""
    _check_lengths(columns, ("readings", "shaped"), len(columns["limit_bps"]))
    recorded_tables = {column.partition(".")[0] for column in columns}
    observed = {name: _get(columns, name, kind) for name, kind in _OBSERVED.items() if name in recorded_tables}
    return Interval(
        float.fromhex(values["now_s"]),
        _get(columns, "readings", MeterReadings),
        FabricReadings(**observed) if observed else None,
        _get(columns, "changes", Modified),
        columns["limit_bps"],
        columns.get("shaped"),
    )
