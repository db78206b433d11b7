"""What the controller knows of one switch, and the messages it owes it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.config import Config, Switch
from controller.enforcement import RATE_STEP_BPS
from controller.errors import InvalidValueError
from controller.meter_ids import MeterIds
from controller.openflow.constants import FlowModCommand, MeterModCommand
from controller.openflow.flows import Flow, encode_flow_mods
from controller.openflow.meters import encode_meter_deletes, encode_meter_mods
from controller.tables import FlowKey, FlowMods
from controller.vns import VnTable

NO_ENTRY = -1


class MeterSetting(NamedTuple):
    """Rate and burst of a meter, as a band carries them."""

    rate_kbps: int
    burst_kbits: int


@dataclass
class SwitchUpdate:
    """Messages for one switch, in the one order in which nothing refers to what is not there.

    Flow deletes, meter-mods (decreases come before increases), flow adds, meter deletes.
    """

    flow_deletes: list[Flow] = field(default_factory=list)
    meter_command: list[int] = field(default_factory=list)
    meter_id: list[int] = field(default_factory=list)
    rate_kbps: list[int] = field(default_factory=list)
    burst_kbits: list[int] = field(default_factory=list)
    flow_adds: list[Flow] = field(default_factory=list)
    meter_deletes: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of messages."""
        return len(self.flow_deletes) + len(self.meter_id) + len(self.flow_adds) + len(self.meter_deletes)

    def modify_meters(self, meter_id: IntArray, rate_kbps: IntArray, burst_kbits: IntArray) -> None:
        """Append a MODIFY per row."""
        self.meter_command += [int(MeterModCommand.MODIFY)] * len(meter_id)
        self.meter_id += meter_id.tolist()
        self.rate_kbps += rate_kbps.tolist()
        self.burst_kbits += burst_kbits.tolist()

    def put_meters(self, settings: Mapping[int, MeterSetting], standing: Container[int]) -> None:
        """Append a meter-mod for each id: MODIFY where a meter is standing, ADD where there is none."""
        for meter_id, (rate_kbps, burst_kbits) in settings.items():
            command = MeterModCommand.MODIFY if meter_id in standing else MeterModCommand.ADD
            self.meter_command.append(int(command))
            self.meter_id.append(meter_id)
            self.rate_kbps.append(rate_kbps)
            self.burst_kbits.append(burst_kbits)

    def set_flows(self, mods: FlowMods) -> None:
        """Append planned flow-mods."""
        for command, flow in mods:
            (self.flow_adds if command == FlowModCommand.ADD else self.flow_deletes).append(flow)

    def encode(self, xid_first: int) -> bytes:
        """Return all messages as bytes, with xids from ``xid_first`` on."""
        parts, xid = [], xid_first
        if self.flow_deletes:
            parts.append(encode_flow_mods([(FlowModCommand.DELETE_STRICT, flow) for flow in self.flow_deletes], xid))
            xid += len(self.flow_deletes)
        if self.meter_id:
            parts.append(
                encode_meter_mods(self.meter_command, self.meter_id, self.rate_kbps, self.burst_kbits, xid_first=xid)
            )
            xid += len(self.meter_id)
        if self.flow_adds:
            parts.append(encode_flow_mods([(FlowModCommand.ADD, flow) for flow in self.flow_adds], xid))
            xid += len(self.flow_adds)
        if self.meter_deletes:
            parts.append(encode_meter_deletes(self.meter_deletes, xid))
        return b"".join(parts)


@dataclass
class SwitchRecord:
    """One switch of the configuration.

    ``send_meter`` gives the meter of each of its VNs (rows of the VN table). ``installed`` is what its tables hold of
    ours. ``row_of_meter`` leads from a meter id, less the first of the range, to the row of the entry table.
    """

    switch: Switch
    meter_ids: MeterIds
    first_meter_id: int
    send_meter: dict[int, int]
    connected: bool = False
    installed: dict[FlowKey, Flow] = field(default_factory=dict)
    update: SwitchUpdate = field(default_factory=SwitchUpdate)
    row_of_meter: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, switch: Switch, vns: VnTable, config: Config) -> SwitchRecord:
        """Return the record of a switch not yet connected; each of its VNs has its meter id.

        Raises InvalidValueError when there are more VNs than ids.
        """
        ids = MeterIds(config.first_meter_id, config.last_meter_id)
        send_meter: dict[int, int] = {}
        for row in np.flatnonzero(vns.dpid == switch.dpid).tolist():
            meter_id = ids.take()
            if meter_id is None:
                reason = f"leaves switch {switch.name} fewer meter ids than it has VNs"
                raise InvalidValueError("openflow.last_meter_id", config.last_meter_id, reason)
            send_meter[row] = meter_id
        return cls(switch, ids, config.first_meter_id, send_meter)

    def take_update(self) -> SwitchUpdate:
        """Return the messages that are due, and begin anew.

        The id of a meter is free only now that its delete comes before whatever follows: in one update adds come first.
        """
        taken, self.update = self.update, SwitchUpdate()
        for meter_id in taken.meter_deletes:
            self.meter_ids.release(meter_id)
        return taken

    def map_meters(self, meter_id: IntArray, rows: IntArray) -> None:
        """Note which entries of the table the switch's meters belong to."""
        size = int(meter_id.max(initial=self.first_meter_id - 1)) - self.first_meter_id + 1
        self.row_of_meter = np.full(size, NO_ENTRY, dtype=np.int64)
        self.row_of_meter[meter_id - self.first_meter_id] = rows

    def rows_of(self, meter_id: IntArray) -> IntArray:
        """Return the entry rows of meters, NO_ENTRY for meters that limit no entry."""
        index = meter_id - self.first_meter_id
        inside = (index >= 0) & (index < len(self.row_of_meter))
        rows = np.full(len(meter_id), NO_ENTRY, dtype=np.int64)
        rows[inside] = self.row_of_meter[index[inside]]
        return rows


def meter_settings(meter_id: list[int], rate_bps: FloatArray, burst_bits: FloatArray) -> dict[int, MeterSetting]:
    """Return columns as settings by meter id."""
    rows = zip(meter_id, kilo(rate_bps).tolist(), kilo(burst_bits).tolist(), strict=True)
    return {meter: MeterSetting(rate, burst) for meter, rate, burst in rows}


def standing_meters(meters: NDArray[np.void]) -> dict[int, MeterSetting]:
    """Return the settings in a METER_CONFIG array by meter id."""
    rows = zip(*(meters[name].tolist() for name in ("meter_id", "rate_kbps", "burst_kbits")), strict=True)
    return {meter: MeterSetting(rate, burst) for meter, rate, burst in rows}


def kilo(values: Any) -> IntArray:
    """Return bit/s as kb/s, or bits as kb; they are whole already."""
    return np.rint(np.asarray(values, dtype=np.float64) / RATE_STEP_BPS).astype(np.int64)
