"""Virtual nodes (VNs): one (VLAN, edge port) pair each, as columns. Inside the core a row number identifies a VN."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray, columns_equal
from controller.errors import InvalidValueError
from controller.fabric.config_model import Config
from controller.fabric.meter_bounds import MeterBounds
from controller.units import format_rate


class VnKey(NamedTuple):
    """The key of a VN outside the core: its VLAN and its edge port."""

    vlan_vid: int
    dpid: int
    port_no: int


def check_ceiling(key: str, ceiling_bps: int, limit_bps: int, capacity_bps: int) -> int:
    """Return a VN's ceiling if it is between its limit and its port's capacity; raise InvalidValueError otherwise.

    A ceiling is no guarantee: only idle capacity is lent, so none needs to be reserved.
    """
    if not limit_bps <= ceiling_bps <= capacity_bps:
        maximum = f"the port's capacity of {format_rate(capacity_bps)}"
        raise InvalidValueError(key, ceiling_bps, f"is outside the limit of {format_rate(limit_bps)} to {maximum}")
    return ceiling_bps


@dataclass(frozen=True)
class VnTable:
    """All VNs of the fabric, one row each; every column has shape (vns,).

    ``capacity_bps`` is the capacity of the VN's edge port, which all VNs of that port share. Limits are rates on the
    wire (layer 2, frame header included, without preamble and inter-frame gap), as meters and queues count them. A
    ceiling is NaN where the VN has none. It has no effect where ``uses_ceiling`` is False or the limit is above it.
    Without a ceiling the limit applies, or with ``port_ceilings`` the port's capacity. ``always_controlled`` is the
    mask of VNs with senders under control even without congestion. ``uses_ceiling``, ``port_ceilings`` and
    ``always_controlled`` depend on the policy of the VLAN. ``has_queue`` is the mask of VNs that a queue at the edge
    port holds to their receive limit; for the other VNs the senders' meters do. ``meter_bounds`` are the bounds of the
    VN's switch; None: no switch has any. ``own_flood_limit_bps`` is NaN for VNs with their VLAN's flood limit; None:
    all VNs have it.
    """

    vlan_vid: IntArray
    dpid: NDArray[np.uint64]
    port_no: IntArray
    send_limit_bps: FloatArray
    receive_limit_bps: FloatArray
    weight: FloatArray
    capacity_bps: FloatArray
    send_ceiling_bps: FloatArray
    receive_ceiling_bps: FloatArray
    uses_ceiling: BoolArray
    port_ceilings: BoolArray
    always_controlled: BoolArray
    has_queue: BoolArray
    meter_bounds: MeterBounds | None = None
    own_flood_limit_bps: FloatArray | None = None
    _keys: list[VnKey] = field(init=False, repr=False, compare=False)
    _row: dict[VnKey, int] = field(init=False, repr=False, compare=False)
    _dpids: list[int] = field(init=False, repr=False, compare=False)
    _switch: NDArray[np.uint16] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the rows by VN and by switch; raise InvalidValueError if two rows name one VN."""
        keys = zip(self.vlan_vid.tolist(), self.dpid.tolist(), self.port_no.tolist(), strict=True)
        object.__setattr__(self, "_keys", [VnKey(*key) for key in keys])
        object.__setattr__(self, "_row", {key: row for row, key in enumerate(self._keys)})
        dpids, switch = np.unique(self.dpid, return_inverse=True)
        object.__setattr__(self, "_dpids", dpids.tolist())
        object.__setattr__(self, "_switch", switch.astype(np.uint16))  # small integers are sorted by radix
        if len(self._row) != len(self):
            reason = f"rows name only {len(self._row)} different (VLAN, edge port) pairs"
            raise InvalidValueError("vns", len(self), reason)

    def __len__(self) -> int:
        return len(self.vlan_vid)

    def row_of(self, vlan_vid: int, dpid: int, port_no: int) -> int | None:
        """Return the row of the VN of a VLAN behind a port, or None if the configuration has no such VN."""
        return self._row.get(VnKey(vlan_vid, dpid, port_no))

    def key(self, row: int) -> VnKey:
        """Return the key of the VN of ``row``."""
        return self._keys[row]

    def has_rows_of(self, other: VnTable) -> bool:
        """Return whether another table has the same VNs in the same rows."""
        return (
            columns_equal(self.vlan_vid, other.vlan_vid)
            and columns_equal(self.dpid, other.dpid)
            and columns_equal(self.port_no, other.port_no)
        )

    def rows_in(self, other: VnTable) -> IntArray:
        """Return the row in another table of each of these VNs, shape (vns,); NEW_ROW for none."""
        if self.has_rows_of(other):
            return np.arange(len(self), dtype=np.int64)
        return np.array(list(map(other._row.get, self._keys, repeat(NEW_ROW))), dtype=np.int64)

    @property
    def dpids(self) -> list[int]:
        """The switches that have VNs, in ascending order."""
        return self._dpids

    @property
    def switch(self) -> NDArray[np.uint16]:
        """The index into ``dpids`` of each VN's switch, shape (vns,)."""
        return self._switch

    @cached_property
    def vlan(self) -> IntArray:
        """The index of each VN's VLAN among the VLAN ids in ascending order, shape (vns,)."""
        return np.unique(self.vlan_vid, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def all_shaped(self) -> bool:
        """Return whether every VN has a queue."""
        return bool(self.has_queue.all())

    @cached_property
    def some_shaped(self) -> bool:
        """Return whether some VN has a queue."""
        return bool(self.has_queue.any())

    @cached_property
    def some_borrow(self) -> bool:
        """Return whether some VN uses its ceiling."""
        return bool(self.uses_ceiling.any())

    @cached_property
    def some_always_controlled(self) -> bool:
        """Return whether some VN's senders are always under control."""
        return bool(self.always_controlled.any())

    def by_switch(self, rows: IntArray) -> tuple[IntArray, list[tuple[int, int, int]]]:
        """Return the positions in ``rows`` ordered by switch, and the range (dpid, start, end) of each switch in them.

        There is a range for each switch in ``dpids``, also an empty one.
        """
        switch = self._switch[rows]
        ends = np.cumsum(np.bincount(switch, minlength=len(self._dpids))).tolist()
        return np.argsort(switch, kind="stable"), list(zip(self._dpids, [0, *ends], ends, strict=False))

    def with_columns(self, **columns: FloatArray | BoolArray | MeterBounds | None) -> VnTable:
        """Return the table with other columns, but the same VNs: the index of keys is slow to build, and shared."""
        table = copy(self)
        for name in _DERIVED:
            table.__dict__.pop(name, None)
        for name, column in columns.items():
            object.__setattr__(table, name, column)
        return table

    @cached_property
    def send_max_bps(self) -> FloatArray:
        """The maximum send rate of a VN, shape (vns,): its ceiling if its VLAN borrows, otherwise its limit."""
        return self._max_bps(self.send_limit_bps, self.send_ceiling_bps)

    @cached_property
    def receive_max_bps(self) -> FloatArray:
        """The maximum receive rate of a VN, shape (vns,): its ceiling if its VLAN borrows, otherwise its limit."""
        return self._max_bps(self.receive_limit_bps, self.receive_ceiling_bps)

    def max_arrival_bps(self) -> FloatArray:
        """Return the highest rate that can arrive for each VN, (vns,): all VNs of its VLAN send at their capacities."""
        return np.bincount(self.vlan, weights=self.capacity_bps).astype(np.float64)[self.vlan]

    def _max_bps(self, limit_bps: FloatArray, ceiling_bps: FloatArray) -> FloatArray:
        """Return the ceilings of VNs that use them, otherwise the limits, (vns,)."""
        ceiling_bps = np.where(np.isnan(ceiling_bps) & self.port_ceilings, self.capacity_bps, ceiling_bps)
        return np.where(self.uses_ceiling, np.fmax(limit_bps, ceiling_bps), limit_bps)

    @classmethod
    def from_config(cls, config: Config) -> VnTable:
        """Return the VNs of a configuration, in the order of the file.

        The columns that depend on policies are False until ``apply_choices`` sets them.
        """
        vns = list(config.vns())
        ports = {(switch.dpid, port.port_no): port for switch, port in config.ports()}
        flood_limits_bps = [vn.flood_limit_bps for vn in vns]
        queue_per_vlan = config.queue_mode == "per-vlan"
        has_queues = {
            s.dpid: queue_per_vlan and s.ovsdb is not None and s.profile != "no-queues"
            for s in config.switches.values()
        }
        return cls(
            vlan_vid=np.array([vn.vlan_vid for vn in vns], dtype=np.int64),
            dpid=np.array([vn.dpid for vn in vns], dtype=np.uint64),
            port_no=np.array([vn.port_no for vn in vns], dtype=np.int64),
            send_limit_bps=np.array([vn.send_limit_bps for vn in vns], dtype=np.float64),
            receive_limit_bps=np.array([vn.receive_limit_bps for vn in vns], dtype=np.float64),
            weight=np.array(
                [config.vlans[vn.vlan_vid].weight if vn.weight is None else vn.weight for vn in vns], dtype=np.float64
            ),
            capacity_bps=np.array([ports[vn.dpid, vn.port_no].capacity_bps for vn in vns], dtype=np.float64),
            send_ceiling_bps=_rates_or_nan([vn.send_ceiling_bps for vn in vns]),
            receive_ceiling_bps=_rates_or_nan([vn.receive_ceiling_bps for vn in vns]),
            uses_ceiling=np.zeros(len(vns), dtype=np.bool_),
            port_ceilings=np.zeros(len(vns), dtype=np.bool_),
            always_controlled=np.zeros(len(vns), dtype=np.bool_),
            has_queue=np.array([has_queues[vn.dpid] for vn in vns], dtype=np.bool_),
            own_flood_limit_bps=_rates_or_nan(flood_limits_bps) if any(flood_limits_bps) else None,
        )


# Cached properties that depend on columns which ``with_columns`` may replace.
_DERIVED = ("send_max_bps", "receive_max_bps", "all_shaped", "some_shaped", "some_borrow", "some_always_controlled")


def _rates_or_nan(rates_bps: list[int | None]) -> FloatArray:
    return np.array([np.nan if rate_bps is None else rate_bps for rate_bps in rates_bps], dtype=np.float64)
