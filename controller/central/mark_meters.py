"""Gives receiving VNs phantom meters, and pairs counting meters for their marks, if a policy uses marks."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_

import numpy as np

from controller.central.fabric_state import FabricState
from controller.columns import BoolArray, FloatArray, IntArray
from controller.events import EventKind
from controller.fabric.pair_table import PairTable
from controller.forwarding.flow_table import FlowKey
from controller.forwarding.pairs import Pair
from controller.metering.fabric_readings import ReadingKind
from controller.policy.policy_groups import PolicyGroup
from controller.switch.meters.counter_meters import NO_METER
from controller.switch.meters.counting import UNLIMITED
from controller.switch.meters.meter_settings import MeterSettingsTable
from controller.switch.meters.phantom import phantom_settings
from controller.switch.switch_record import SwitchRecord


class MarkMeterManager:
    """Keeps phantom and counting meters in step with pairs, policies, limits and the switches' capabilities."""

    def __init__(self, fabric: FabricState) -> None:
        self._fabric = fabric
        self._flushed_for: tuple[object, ...] = ()  # the inputs of the last ``flush``
        self._capable: list[tuple[bool, bool]] = []  # then: whether each switch uses meters, and ECN
        self._needed_for: tuple[tuple[object, ...], bool] = ((), False)  # inputs and result of ``_is_needed``
        self._limit_bps: FloatArray = fabric.vns.receive_limit_bps
        self._out_of_ids: set[int] = set()
        self._without_ecn: frozenset[int] = frozenset()  # VLANs with phantom meters only

    def flush(self, now_s: float) -> None:
        """Add, delete and set meters where pairs or limits changed. Does nothing otherwise."""
        fabric, control = self._fabric, self._fabric.control
        if not self._is_needed() and not fabric.phantoms and not fabric.network.marked.vlans:
            return
        local_mask = fabric.share.receives
        remote_destinations = fabric.network.remote_destinations
        policies = control.groups, control.shadow.groups
        inputs = (control.state.entries, *policies, control.vns, local_mask, remote_destinations)
        able = [(record.capabilities.uses_meters, record.capabilities.uses_ecn) for record in fabric.switches.values()]
        ids_are_free_again = any(fabric.switches[dpid].meter_ids.available for dpid in self._out_of_ids)
        same_inputs = bool(self._flushed_for) and all(map(is_, inputs, self._flushed_for))
        if same_inputs and able == self._capable and not ids_are_free_again:
            return
        self._flushed_for, self._capable = inputs, able
        marking = _uses_marks((*control.groups, *control.shadow.groups), len(control.vns))
        entries = control.state.entries
        self._follow_limits()
        usable = [dpid for dpid, record in fabric.switches.items() if record.capabilities.uses_meters]
        receives = np.zeros(len(marking), dtype=np.bool_)
        receives[entries.receiver] = receives[sorted(remote_destinations)] = True
        receives &= local_mask
        self._out_of_ids.clear()
        can_meter = np.isin(control.vns.dpid, np.array(usable, dtype=np.uint64))
        self._phantom(marking & receives & can_meter, now_s)
        fabric.network.mark_vlans(self._marked_vlans(marking, now_s))
        self._measure(entries, now_s)

    def release_switch(self, dpid: int) -> None:
        """Forget the meters of a switch that another node owns now; they stay installed."""
        fabric = self._fabric
        rows = np.flatnonzero((fabric.vns.dpid == dpid) & (fabric.phantoms.meter_id != NO_METER))
        for row in rows.tolist():
            fabric.network.of_hosts.set_phantom(row, None)
        fabric.phantoms = fabric.phantoms.added(rows, np.full(len(rows), NO_METER))
        self._flushed_for = ()

    def _is_needed(self) -> bool:
        """Return whether any policy uses marks."""
        control = self._fabric.control
        inputs = (control.groups, control.shadow.groups, control.vns)
        if not self._needed_for[0] or not all(map(is_, inputs, self._needed_for[0])):
            groups = (*control.groups, *control.shadow.groups)
            self._needed_for = inputs, bool(_uses_marks(groups, len(control.vns)).any())
        return self._needed_for[1]

    def _marked_vlans(self, marking: BoolArray, now_s: float) -> frozenset[int]:
        """Return the VLANs in which packets may be marked: all their edge switches count marks and clear them."""
        fabric, vns = self._fabric, self._fabric.vns
        if fabric.config.ecn_source == "phantom":
            return frozenset()
        desired: set[int] = set(vns.vlan_vid[marking].tolist())
        unable: dict[int, SwitchRecord] = {}
        for dpid, record in fabric.switches.items():
            if not record.capabilities.uses_ecn:
                unable |= dict.fromkeys(set(vns.vlan_vid[vns.dpid == dpid].tolist()) & desired, record)
        for vid in sorted(unable.keys() - self._without_ecn):
            switch = unable[vid].switch
            why = unable[vid].capabilities.ecn.why or "its meters are unusable"
            text = f"VLAN {vid}: no marks on the way, since {switch.name} cannot count and clear them: {why}"
            fabric.note(EventKind.ECN_MARKS_UNAVAILABLE, text, now_s, dpid=switch.dpid)
        self._without_ecn = frozenset(unable)
        return frozenset(desired - self._without_ecn)

    def _measure(self, entries: PairTable, now_s: float) -> None:
        """Give a counting meter to exactly the pairs whose frames may be marked."""
        fabric, vns, marked = self._fabric, self._fabric.vns, self._fabric.network.marked
        needs_meter = np.isin(vns.vlan_vid[entries.sender], sorted(marked.vlans))  # (pairs,)
        needs_meter &= vns.dpid[entries.sender] != vns.dpid[entries.receiver]
        pair_row, pair_exists = fabric.measuring.rows_in(entries)  # of each counting meter, (meters,)
        stays = pair_exists.copy()  # (meters,): the pair is still active and needs its meter
        stays[pair_exists] = needs_meter[pair_row[pair_exists]]
        lacks_meter = needs_meter.copy()
        lacks_meter[pair_row[stays]] = False
        if stays.all() and not lacks_meter.any():
            return
        installed = fabric.measuring
        for row in np.flatnonzero(~stays).tolist():
            pair = Pair(int(installed.sender[row]), int(installed.receiver[row]))
            marked.set_counter(pair, None)
            # Counting meters are at the receiver's switch, where that VN sends as well.
            self._delete_meter(fabric.record_of_sender(pair.receiver), int(installed.meter_id[row]))
        new_ids: dict[Pair, int] = {}
        for row in np.flatnonzero(lacks_meter).tolist():
            pair = Pair(int(entries.sender[row]), int(entries.receiver[row]))
            record = fabric.record_of_sender(pair.receiver)
            meter_id, is_installed = self._assign_meter(record, marked.counter_keys(pair), now_s)
            if meter_id is None:
                continue
            marked.set_counter(pair, meter_id)
            new_ids[pair] = meter_id
            if record.connected and not is_installed:
                record.update.put_meters({meter_id: UNLIMITED}, [])
        pairs = np.array(list(new_ids), dtype=np.int64).reshape(-1, 2)
        ids = np.array(list(new_ids.values()), dtype=np.int64)
        fabric.measuring = installed.subset(stays).added(pairs[:, 0], pairs[:, 1], ids)

    def _follow_limits(self) -> None:
        """Queue new settings of phantom meters where receive limits changed."""
        fabric, limit_bps = self._fabric, self._fabric.vns.receive_limit_bps
        changed = np.flatnonzero((limit_bps != self._limit_bps) & (fabric.phantoms.meter_id != NO_METER))
        self._limit_bps = limit_bps
        if len(changed):
            self._put(changed, changed)
            # The same meters: added again because a modified meter counts from zero.
            fabric.phantoms = fabric.phantoms.added(changed, fabric.phantoms.meter_id[changed])

    def _phantom(self, desired: BoolArray, now_s: float) -> None:
        """Give a phantom meter to exactly these receiving VNs."""
        fabric = self._fabric
        installed = fabric.phantoms.meter_id
        rows: list[int] = []  # the VNs that lose or get a meter
        ids: list[int] = []  # and the new meter of each, or NO_METER
        installed_rows: list[int] = []  # the VNs whose new meter an earlier run has left installed
        for row in np.flatnonzero(~desired & (installed != NO_METER)).tolist():
            fabric.network.of_hosts.set_phantom(row, None)
            self._delete_meter(fabric.record_of_sender(row), int(installed[row]))
            rows.append(row)
            ids.append(NO_METER)
        for row in np.flatnonzero(desired & (installed == NO_METER)).tolist():
            keys = fabric.network.of_hosts.phantom_keys(row)
            meter_id, is_installed = self._assign_meter(fabric.record_of_sender(row), keys, now_s)
            if meter_id is not None:
                fabric.network.of_hosts.set_phantom(row, meter_id)
                rows.append(row)
                ids.append(meter_id)
                if is_installed:
                    installed_rows.append(row)
        if rows:
            fabric.phantoms = fabric.phantoms.added(np.array(rows, dtype=np.int64), np.array(ids, dtype=np.int64))
            self._put(np.array(rows, dtype=np.int64), np.array(installed_rows, dtype=np.int64))

    def _assign_meter(self, record: SwitchRecord, keys: Iterable[FlowKey], now_s: float) -> tuple[int | None, bool]:
        """Return a meter id, and True if the switch's flow entries of these keys name that meter and it is installed.

        None when all ids are in use.
        """
        for key in keys:
            flow = record.installed.get(key)
            if flow is not None and flow.meter_id is not None and record.meter_ids.claim(flow.meter_id):
                return flow.meter_id, True
        meter_id = record.meter_ids.allocate()
        if meter_id is None:
            self._out_of_ids.add(record.switch.dpid)
            if not record.capabilities.short_of_meters:
                record.capabilities.short_of_meters = True
                text = f"switch {record.switch.name}: no meter ids left for marks; some are not counted"
                self._fabric.note(EventKind.OUT_OF_METERS, text, now_s)
        return meter_id, False

    def _put(self, rows: IntArray, installed: IntArray) -> None:
        """Queue the settings of the meters of these VNs; the meters of ``installed`` are installed already."""
        vns, meter_id = self._fabric.vns, self._fabric.phantoms.meter_id
        rows = rows[meter_id[rows] != NO_METER]
        rate_bps, burst_bits = phantom_settings(vns.receive_limit_bps[rows])
        for dpid in np.unique(vns.dpid[rows]).tolist():
            record, at_switch = self._fabric.switches[dpid], vns.dpid[rows] == dpid
            if record.connected:
                ids = meter_id[rows[at_switch]]
                settings = MeterSettingsTable.from_rates(ids, rate_bps[at_switch], burst_bits[at_switch])
                record.update.put_meters(settings, set(meter_id[installed].tolist()))

    def _delete_meter(self, record: SwitchRecord, meter_id: int) -> None:
        """Queue the deletion of a meter; release its id at once if the switch has no such meter."""
        if record.connected and record.capabilities.uses_meters:
            record.update.meter_deletes.append(meter_id)
        else:
            record.meter_ids.release(meter_id)


def _uses_marks(groups: Iterable[PolicyGroup], vns: int) -> BoolArray:
    """Return the mask of the VNs whose policy or shadow reads marks, (vns,)."""
    marking = np.zeros(vns, dtype=np.bool_)
    for group in groups:
        if ReadingKind.MARKS in group.policy.required_readings:
            marking[group.vns] = True
    return marking
