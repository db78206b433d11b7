"""Gives receiving VNs and entries their meters for marks, and takes them away, as policies ask for marks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from controller.central.state import FabricState
from controller.columns import BoolArray, FloatArray, IntArray
from controller.events import EventKind
from controller.fabric.entries import EntryTable
from controller.forwarding.desired_flows import FlowKey
from controller.metering.observed import Reading
from controller.policy.groups import PolicyGroup
from controller.policy.memory import positions
from controller.switch.mark_meters import NO_METER, missing, spare
from controller.switch.meter_settings import MeterColumns
from controller.switch.record import SwitchRecord


class MarkMeterKeeper:
    """Keeps the meters for marks in step with entries, policies and limits."""

    def __init__(self, fabric: FabricState) -> None:
        self._fabric = fabric
        self._known: tuple[object, ...] = ()
        self._able: list[bool] = []
        self._limit_bps: FloatArray = fabric.vns.receive_limit_bps
        self._short: set[int] = set()

    def flush(self, now_s: float) -> None:
        """Give meters, take meters, and set those whose limits changed. Does nothing while all is as it was."""
        fabric, control = self._fabric, self._fabric.control
        known = (control.state.entries, control.groups, control.shadow.groups, control.vns)
        able = [record.can.uses_meters for record in fabric.switches.values()]
        if not self._short and able == self._able and all(map(_is, known, self._known)) and self._known:
            return
        self._known, self._able = known, able
        asking = _asking((*control.groups, *control.shadow.groups), len(control.vns))
        if not asking.any() and not fabric.marks:
            return
        entries = control.state.entries
        if fabric.marks.entries is not entries:
            fabric.marks = fabric.marks.with_entries(entries, _old_rows(fabric.marks.entries, entries, len(asking)))
        self._follow_limits()
        usable = [dpid for dpid, record in fabric.switches.items() if record.can.uses_meters]
        receives = np.zeros(len(asking), dtype=np.bool_)
        receives[entries.receiver] = True
        self._short.clear()
        self._phantom(asking & receives & np.isin(control.vns.dpid, np.array(usable, dtype=np.uint64)), now_s)

    def _follow_limits(self) -> None:
        fabric, limit_bps = self._fabric, self._fabric.vns.receive_limit_bps
        changed = np.flatnonzero((limit_bps != self._limit_bps) & (fabric.marks.phantom_id != NO_METER))
        self._limit_bps = limit_bps
        for dpid in np.unique(fabric.vns.dpid[changed]).tolist():
            ids = fabric.marks.phantom_id[changed[fabric.vns.dpid[changed] == dpid]]
            self._put(fabric.switches[dpid], ids, ids)
            fabric.marks = fabric.marks.forgotten(dpid, fabric.vns, ids)

    def _phantom(self, wanted: BoolArray, now_s: float) -> None:
        """Let these receiving VNs, and no others, have a phantom meter."""
        fabric = self._fabric
        for row in spare(wanted, fabric.marks.phantom_id):
            fabric.network.set_phantom(row, None)
            self._take(fabric.record_of_sender(row), int(fabric.marks.phantom_id[row]))
            fabric.marks = fabric.marks.with_phantom(row, NO_METER)
        for row in missing(wanted, fabric.marks.phantom_id):
            record = fabric.record_of_sender(row)
            meter_id, stood = self._give(record, fabric.network.phantom_keys(row), now_s)
            if meter_id is not None:
                fabric.marks = fabric.marks.with_phantom(row, meter_id)
                self._put(record, np.array([meter_id]), np.array([meter_id] if stood else []))
                fabric.network.set_phantom(row, meter_id)

    def _give(self, record: SwitchRecord, keys: Iterable[FlowKey], now_s: float) -> tuple[int | None, bool]:
        """Return a meter: one that the switch's entries of these keys name and that stands there (True), or a new one.

        None when there is none left.
        """
        for key in keys:
            found = record.installed.get(key)
            if found is not None and found.meter_id is not None and record.meter_ids.claim(found.meter_id):
                return found.meter_id, True
        meter_id = record.meter_ids.take()
        if meter_id is None:
            self._short.add(record.switch.dpid)
            if not record.can.short_of_meters:
                record.can.short_of_meters = True
                text = f"switch {record.switch.name}: no meter ids left for marks; some are not counted"
                self._fabric.note(EventKind.OUT_OF_METERS, text, now_s)
        return meter_id, False

    def _put(self, record: SwitchRecord, meter_id: IntArray, standing: IntArray) -> None:
        """Queue the settings of meters, of which some are ``standing`` on the switch."""
        if record.connected:
            ids, rate_bps, burst_bits = self._fabric.marks.settings(record.switch.dpid, self._fabric.vns)
            mine = np.isin(ids, meter_id)
            settings = MeterColumns.of_rates(ids[mine], rate_bps[mine], burst_bits[mine])
            record.update.put_meters(settings, set(standing.tolist()))

    def _take(self, record: SwitchRecord, meter_id: int) -> None:
        if record.connected and record.can.uses_meters:
            record.update.meter_deletes.append(meter_id)
        else:
            record.meter_ids.release(meter_id)


def _is(one: object, other: object) -> bool:
    return one is other


def _asking(groups: Iterable[PolicyGroup], vns: int) -> BoolArray:
    """Return the VNs whose policy or shadow reads marks, (vns,)."""
    asking = np.zeros(vns, dtype=np.bool_)
    for group in groups:
        if Reading.MARKS in group.policy.reads:
            asking[group.vns] = True
    return asking


def _old_rows(before: EntryTable, after: EntryTable, vns: int) -> IntArray:
    return positions(before.receiver * vns + before.sender, after.receiver * vns + after.sender)
