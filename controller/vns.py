"""Virtual nodes (VNs): one (VLAN, edge port) pair each, as columns. A row number is a VN's name inside the core."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.errors import InvalidValueError
from controller.units import format_rate


class VnKey(NamedTuple):
    """What names a VN outside the core: its VLAN and the edge port behind which it lives."""

    vlan_vid: int
    dpid: int
    port_no: int


@dataclass(frozen=True)
class VnTable:
    """All VNs of the fabric, one row each; every column has shape (vns,).

    ``capacity_bps`` is the capacity of the VN's edge port, which all VNs of that port share. Limits are rates on the
    wire (layer 2, frame header included, without preamble and inter-frame gap), as meters and queues count them.
    """

    vlan_vid: IntArray
    dpid: NDArray[np.uint64]
    port_no: IntArray
    send_limit_bps: FloatArray
    receive_limit_bps: FloatArray
    weight: FloatArray
    capacity_bps: FloatArray
    _row: dict[VnKey, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        keys = zip(self.vlan_vid.tolist(), self.dpid.tolist(), self.port_no.tolist(), strict=True)
        object.__setattr__(self, "_row", {VnKey(*key): row for row, key in enumerate(keys)})
        if len(self._row) != len(self):
            raise InvalidValueError(
                "vns", len(self), f"rows name only {len(self._row)} different (VLAN, edge port) pairs"
            )

    def __len__(self) -> int:
        return len(self.vlan_vid)

    def row(self, key: VnKey) -> int | None:
        """Return the row of a VN, or None if the configuration has no such VN."""
        return self._row.get(key)

    def key(self, row: int) -> VnKey:
        """Return what names the VN of ``row`` outside the core."""
        return VnKey(int(self.vlan_vid[row]), int(self.dpid[row]), int(self.port_no[row]))

    def with_limits(
        self, row: int, *, send_limit_bps: int | None = None, receive_limit_bps: int | None = None
    ) -> VnTable:
        """Return the table with new limits for one VN.

        Raises InvalidValueError naming ``send_limit_bps`` or ``receive_limit_bps`` when the limits of the VNs that
        share the port would together exceed its capacity.
        """
        changes: dict[str, FloatArray] = {}
        for column, limit_bps in (("send_limit_bps", send_limit_bps), ("receive_limit_bps", receive_limit_bps)):
            if limit_bps is None:
                continue
            limits_bps: FloatArray = getattr(self, column)
            same_port = (self.dpid == self.dpid[row]) & (self.port_no == self.port_no[row])
            others_bps = float(limits_bps[same_port].sum() - limits_bps[row])
            free_bps = float(self.capacity_bps[row]) - others_bps
            if limit_bps > free_bps:
                raise InvalidValueError(
                    column,
                    limit_bps,
                    f"is over {format_rate(free_bps)} ({free_bps:.0f}), which the port's capacity of "
                    f"{format_rate(float(self.capacity_bps[row]))} leaves beside other VLANs' {format_rate(others_bps)}",
                )
            changed = limits_bps.copy()
            changed[row] = limit_bps
            changes[column] = changed
        return replace(self, **changes)

    @classmethod
    def from_rows(cls, rows: list[tuple[VnKey, float, float, float, float]]) -> VnTable:
        """Build the table from (key, send limit, receive limit, weight, capacity) rows."""
        return cls(
            vlan_vid=np.array([key.vlan_vid for key, *_ in rows], dtype=np.int64),
            dpid=np.array([key.dpid for key, *_ in rows], dtype=np.uint64),
            port_no=np.array([key.port_no for key, *_ in rows], dtype=np.int64),
            send_limit_bps=np.array([row[1] for row in rows], dtype=np.float64),
            receive_limit_bps=np.array([row[2] for row in rows], dtype=np.float64),
            weight=np.array([row[3] for row in rows], dtype=np.float64),
            capacity_bps=np.array([row[4] for row in rows], dtype=np.float64),
        )
