"""Compares a switch's tables with the desired ones: when it connects, and in audits afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.batches import batches
from controller.central.fabric_state import FabricState
from controller.central.no_agents import agents_of
from controller.central.pair_meters import PairMeterManager
from controller.central.refused_meters import ENTRIES_REJECTED, NOT_THERE, RefusedMeters, ScarceMeters
from controller.events import EventKind
from controller.fabric.port_numbers import PortNumbers
from controller.forwarding.desired_flows import plan_flows
from controller.forwarding.flow_table import FlowTable, unpack_key
from controller.forwarding.host_flow_columns import HostFlows
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import Table
from controller.switch.adoption import DeferredAdoption, InstalledPairs, adopted_pairs, hosts_and_pairs, vn_meter_flows
from controller.switch.meters.meter_settings import MeterSetting, MeterSettingsTable
from controller.switch.switch_record import NO_ENTRY, SwitchRecord

# Flow entries per batch.
_COMPARE_BATCH, _REPAIR_BATCH = 1000, 125
# Flow entries in columns per batch; and hosts, each of which has flow entries at all switches of its VLAN.
_CLAIM_BATCH, _HOST_BATCH = 4000, 25


class InstalledTables(NamedTuple):
    """The controller's part of a switch's tables: flow entries by key, meters by id."""

    flows: FlowTable
    meters: MeterSettingsTable


class Reconciler:
    """Makes the switches' tables equal the desired ones, and adopts what they hold.

    ``agents`` are the agents on hosts. A controller has one reconciler at a time. Another configuration comes with a
    new one, and this one is dropped as a whole.
    """

    def __init__(self, fabric: FabricState, epoch: int = 0) -> None:
        self.fabric = fabric
        self.agents = agents_of(fabric, epoch)
        self.pairs = PairMeterManager(fabric, self.agents)
        self.refused = RefusedMeters(fabric, self.pairs)
        self.scarce = ScarceMeters(fabric, self.pairs)

    def bring_up(
        self, dpid: int, flows: FlowTable, foreign: int, meters: NDArray[np.void], now_s: float
    ) -> Iterator[None]:
        """Bring up a switch of the configuration, with the flow entries and meters (METER_CONFIG) in its tables.

        ``flows`` are the controller's flow entries; ``foreign`` is the number of other ones.

        1) Hosts and pairs that an earlier run left are adopted, with their installed meters.
        2) What is missing or different is repaired at once.
        3) Unneeded flow entries and meters of the controller are removed by an ``audit`` once no switch is awaited:
           until then they may be needed.

        Yields after each batch, so that other greenlets may run. The switch counts as connected once everything that it
        holds has been adopted. Nothing is sent to it before. Stop iterating if the switch disconnects. Until the end no
        other switch may be brought up and the configuration may not change. Then call ``record_switch_up``.
        """
        fabric, pairs, record = self.fabric, self.pairs, self.fabric.switches[dpid]
        fabric.arrivals.began(now_s)
        fabric.follow_bounds()
        self.refused.begin(record)
        record.limit_meter_ids()
        record.meter_ids.reserve(meters["meter_id"])
        # 1
        record.foreign = foreign
        record.installed, record.changed_keys = flows.copy(), set()
        yield
        fabric.invalidate_counters(record)
        for named in batches(vn_meter_flows(record.installed), _COMPARE_BATCH):
            record.adopt_vn_meters(named, fabric.vns, fabric.network.numbers)
            yield
        self._complete_vn_meters(record, now_s)
        self.refused.leave_out(record, now_s)
        record.audited_meter_id, record.unlike_settings, record.missing_meter_ids = (
            meters["meter_id"].astype(np.int64),
            {},
            frozenset(),
        )
        yield
        yield from fabric.network.put_switch(dpid, record.meters_in_use(), set_queue=record.capabilities.uses_queues)
        if not record.capabilities.uses_meters:
            pairs.remove_switch_meters(dpid)
        hosts, pair_flows = hosts_and_pairs(record.installed)
        yield from self._adopt_hosts(record, hosts, now_s)
        # Pairs to receivers that are still unknown wait: the receivers' switches may connect later.
        record.deferred = DeferredAdoption(pair_flows, meters)
        yield
        yield from self.adopt_deferred(now_s)
        pairs.flush()
        yield
        # 2
        record.connected = True
        fabric.arrivals.connected(dpid, now_s)
        fabric.network.paths.switch_up(dpid)
        fabric.network.update_paths()
        installed, settings = MeterSettingsTable.from_installed(meters), fabric.desired_meters(record)
        # Without the undesired ones, which step 3 removes, and those that ``flush`` has queued already.
        differing = settings.differing(installed).intersection(settings) - set(record.update.meter_id)
        # A switch may round a setting, and then reports the rounded one.
        is_alias = record.capabilities.is_alias
        differing -= {i for i in differing if i in installed and is_alias(settings[i], installed[i])}
        record.update.put_meters({meter_id: settings[meter_id] for meter_id in sorted(differing)}, installed.keys())
        yield
        # Later changes are sent as usual. Later tables come before earlier ones, as in any plan.
        desired = fabric.network.desired.flows_at(dpid)
        # Flow entries that are not desired stay until step 3.
        lacking = desired.differing(record.installed) - record.installed.missing_from(desired)
        for keys in batches(sorted(lacking, reverse=True), _COMPARE_BATCH):
            record.set_flows(plan_flows(desired, record.installed, keys))
            yield

    def adopt_deferred(
        self, now_s: float, only: SwitchRecord | None = None, come: Collection[Host] | None = None
    ) -> Iterator[None]:
        """Adopt, in batches, the installed pairs with receivers that were unknown when the pairs' switches connected.

        All switches (or only the switch ``only``) are handled at once, since each addition of pairs reindexes all
        columns. ``come`` are the hosts that have become known; None: all hosts are looked up.
        """
        claimed: list[InstalledPairs] = []
        try:
            for record in self.fabric.switches.values() if only is None else [only]:
                if not len(record.deferred.entries.key):
                    continue
                pair_flows = record.deferred.pop_known(self.fabric.network.knows, come)
                if come is not None and not len(pair_flows.key):
                    continue
                yield
                yield from self._claim(record, pair_flows, record.deferred.meters, claimed)
            adopted, claimed = claimed, []  # from here on ``adopt`` releases the meters that it does not adopt
            if adopted:
                yield from self.pairs.adopt(InstalledPairs.together(adopted), now_s)
        finally:
            if claimed:  # the iteration was stopped
                self.pairs.release_claimed(InstalledPairs.together(claimed))

    def _complete_vn_meters(self, record: SwitchRecord, now_s: float) -> None:
        """Add the missing meters of VNs at a switch."""
        lacking = record.complete_vn_meters()
        if lacking and record.capabilities.uses_meters:
            record.capabilities.short_of_meters = True
            text = f"switch {record.switch.name}: no ids left for {lacking} meters of floods"
            self.fabric.note(EventKind.OUT_OF_METERS, text, now_s, dpid=record.switch.dpid)

    def record_switch_up(self, dpid: int, now_s: float) -> None:
        """Record that a switch has been brought up."""
        record = self.fabric.switches[dpid]
        foreign = f", {record.foreign} foreign flow entries unchanged" if record.foreign else ""
        self.fabric.note(
            EventKind.SWITCH_UP, f"switch {record.switch.name} ({dpid:016x}) is up{foreign}", now_s, dpid=dpid
        )

    def tables(self, dpid: int) -> InstalledTables:
        """Return the desired tables of a switch, once all messages that ``drain_updates`` returned are executed."""
        record = self.fabric.switches[dpid]
        return InstalledTables(record.installed.copy(), self.fabric.desired_meters(record))

    def audit(
        self,
        dpid: int,
        expected: InstalledTables,
        flows: FlowTable,
        meters: NDArray[np.void],
        now_s: float,
        only: Collection[bytes] | None = None,
    ) -> Iterator[int]:
        """Compare a switch's tables with the desired ones and repair the controller's part, in batches.

        ``expected`` is what ``tables`` returned when the switch was asked for its ``flows`` (the controller's) and
        ``meters`` (METER_CONFIG). Later changes are left for the next audit. Only entries with packed keys in ``only``
        are compared when all others are known to be right. Unneeded flow entries of an earlier run are removed, unless
        a switch that is still awaited may need them. Yields after each batch the number of repairs in it. State may
        change between batches. Stop iterating if the switch disconnects or the configuration changes.
        """
        record = self.fabric.switches[dpid]
        tidy = not self.fabric.awaits_switches(now_s)
        if tidy and record.deferred.holds_anything:
            record.deferred = DeferredAdoption()
        for _ in self.adopt_deferred(now_s, record):
            yield 0
        count = 0
        lost, record.missing_metered_keys = record.missing_metered_keys, frozenset()
        try:
            for keys in batches(sorted(self._candidate_keys(record, expected.flows, flows, only)), _REPAIR_BATCH):
                # Different from what was expected at the time of the request, and not changed since.
                differing = expected.flows.differing(flows, keys) - record.installed.differing(expected.flows, keys)
                record.mark_installed(differing, flows)
                known = FlowTable(flow for packed in keys if (flow := record.installed.flow(packed)) is not None)
                self._adopt_at_once(record, known, meters, now_s)
                self.pairs.flush()
                self._release_lost_meters(record, differing, lost, now_s)
                wrong = self._repair_flows(record, keys, differing, tidy=tidy)
                count += wrong
                yield wrong
            wrong = self._repair_meters(record, expected.meters, meters, now_s, tidy=tidy)
            count += wrong
            yield wrong
        finally:
            if count:
                text = f"switch {record.switch.name}: {count} flow entries and meters repaired"
                self.fabric.note(EventKind.TABLES_REPAIRED, text, now_s, dpid=record.switch.dpid)

    def _candidate_keys(
        self, record: SwitchRecord, expected: FlowTable, flows: FlowTable, only: Collection[bytes] | None
    ) -> set[bytes]:
        """Return the packed keys of flow entries to compare: ``only``, or those that differ or are not desired.

        Entries that differ are in ``expected`` or ``flows`` alone, or with other contents. Undesired entries of
        deferred pairs are left out: their hosts may become known.
        """
        if only is not None:
            return set(only)
        desired = self.fabric.network.desired.flows_at(record.switch.dpid)
        desired.share(record.installed)  # saves memory: usually both are equal
        undesired = expected.missing_from(desired)
        return expected.differing(flows) | undesired.difference(record.deferred.entries.key.tolist())

    def _release_lost_meters(
        self, record: SwitchRecord, differing: set[bytes], lost: frozenset[bytes], now_s: float
    ) -> None:
        """Remove the meters from flow entries that are missing again: the switch may reject these meters.

        ``differing`` are packed keys of this audit, ``lost`` those of metered flow entries missing at the last audit.
        """
        desired = self.fabric.network.desired.flows_at(record.switch.dpid)
        flows = {packed: flow for packed in differing if (flow := desired.flow(packed)) is not None}
        metered = {packed: flow.meter_id for packed, flow in flows.items() if flow.meter_id is not None}
        refused = {meter_id for packed, meter_id in metered.items() if packed in lost}
        if refused:
            self.refused.release_meters(record, refused, ENTRIES_REJECTED, now_s)
        record.missing_metered_keys |= metered.keys() - lost

    def _repair_flows(self, record: SwitchRecord, keys: Collection[bytes], differing: set[bytes], *, tidy: bool) -> int:
        """Repair the flow entries in ``differing``, delete undesired ones among ``keys``; return the number of changes.

        Unless ``tidy``, undesired flow entries stay that a switch may need that has not connected yet.
        """
        desired = self.fabric.network.desired.flows_at(record.switch.dpid)
        unwanted = {packed for packed in keys if record.installed.has(packed) and not desired.has(packed)}
        differing = differing | unwanted
        if not tidy:
            numbers = self.fabric.network.numbers
            differing -= {packed for packed in unwanted if may_be_desired(packed, record, numbers)}
        wrong = plan_flows(desired, record.installed, differing)
        record.set_flows(wrong)
        return len(wrong)

    def _repair_meters(
        self, record: SwitchRecord, expected: MeterSettingsTable, meters: NDArray[np.void], now_s: float, *, tidy: bool
    ) -> int:
        """Repair installed ``meters`` that differ from ``expected``; return the number of meter-mods.

        ``expected`` were the desired settings when ``meters`` were requested; a meter whose desired setting has changed
        since is left for the next audit. ``tidy``: meters that are not desired are deleted.

        A meter that is missing in two audits in a row was rejected; so was a missing one that was not installed at the
        last audit, if an error since then named no meter. A meter with other settings is set again. If the next audit
        reads the same, the switch rounds the setting: nobody changed it.
        """
        installed = MeterSettingsTable.from_installed(meters)
        # The findings of the last audit, replaced by those of this one.
        was_installed, record.audited_meter_id = record.audited_meter_id, installed.meter_id
        was_unlike, record.unlike_settings = record.unlike_settings, {}
        was_missing, record.missing_meter_ids = record.missing_meter_ids, frozenset()
        unidentified_error, record.unidentified_error = record.unidentified_error, False
        owned = installed.within(record.meter_ids.first, record.meter_ids.last)
        differing = owned.differing(expected)
        if not differing:
            return 0
        desired = self.fabric.desired_meters(record)
        differing = {i for i in differing if desired.get(i) == expected.get(i)} - set(record.update.meter_id)
        unwanted = differing - desired.keys() if tidy else set()
        differing &= desired.keys()
        # Missing meters: rejected, or to be added again.
        missing = {i for i in differing if i not in installed}
        refused = {i for i in missing if i in was_missing or (unidentified_error and i not in was_installed)}
        if refused:
            self.refused.release_meters(record, refused, NOT_THERE, now_s)
            differing -= refused
        record.missing_meter_ids = frozenset(missing - refused)
        # Meters with other settings: rounded by the switch, or to be set again.
        unlike = {i: (desired[i], installed[i]) for i in differing if i in installed}
        is_alias = record.capabilities.is_alias
        rounded = {i for i, both in unlike.items() if was_unlike.get(i) == both or is_alias(*both)}
        self._accept({i: unlike[i] for i in rounded}, record)
        record.unlike_settings = {i: both for i, both in unlike.items() if i not in rounded}
        differing -= rounded
        record.update.put_meters({i: desired[i] for i in sorted(differing)}, installed.keys())
        self.fabric.invalidate_counters(record, np.array(sorted(differing | unwanted), dtype=np.int64))
        record.update.meter_deletes += sorted(unwanted)
        return len(differing) + len(unwanted)

    def _accept(self, unlike: Mapping[int, tuple[MeterSetting, MeterSetting]], record: SwitchRecord) -> None:
        """Store the rounded settings that a switch reports for meters: ``unlike`` has (desired, installed) by id."""
        for desired, installed in unlike.values():
            record.capabilities.record_alias(desired, installed)
        ids = np.array(sorted(unlike), dtype=np.int64)
        rows = record.rows_of(ids)
        self.fabric.set_installed(rows[rows != NO_ENTRY], [unlike[i][1] for i in ids[rows != NO_ENTRY].tolist()])

    def _adopt_hosts(self, record: SwitchRecord, hosts: HostFlows, now_s: float) -> Iterator[None]:
        """Adopt the unknown hosts that flow entries in a switch's tables stand for, in batches."""
        fabric = self.fabric
        for batch in hosts.batches(_HOST_BATCH):
            columns = (column.tolist() for column in (batch.in_port, batch.vlan_vid, batch.mac))
            for in_port, vlan_vid, mac in zip(*columns, strict=True):
                host = Host(vlan_vid, mac)
                if not fabric.network.knows(host):
                    port = fabric.network.numbers.port(record.switch.dpid, in_port)
                    fabric.learn(host, port, now_s, installed=True)
            yield

    def _adopt_at_once(self, record: SwitchRecord, entries: FlowTable, meters: NDArray[np.void], now_s: float) -> None:
        """Adopt the unknown hosts and pairs that a few flow entries in a switch's tables stand for."""
        hosts, pair_flows = hosts_and_pairs(entries)
        for _ in self._adopt_hosts(record, hosts, now_s):
            pass
        claimed: list[InstalledPairs] = []
        for _ in self._claim(record, pair_flows, meters, claimed):
            pass
        for _ in self.pairs.adopt(InstalledPairs.together(claimed), now_s):
            pass

    def _claim(
        self, record: SwitchRecord, pair_flows: HostFlows, meters: NDArray[np.void], claimed: list[InstalledPairs]
    ) -> Iterator[None]:
        """Claim the installed meters of unknown pairs, in batches, and append these pairs to ``claimed``."""
        if not record.capabilities.uses_meters or not len(pair_flows.key):
            return
        installed = MeterSettingsTable.from_installed(meters)
        for batch in pair_flows.batches(_CLAIM_BATCH):
            # Both the meter, and the flow entry: it may have been removed since the switch was read.
            is_installed = np.isin(batch.meter_id, installed.meter_id) & record.installed.contains(batch.key)
            pairs = adopted_pairs(batch.only(is_installed), self.fabric.network, record.switch.dpid, installed)
            pairs = pairs.only(~self.pairs.metered_mask(pairs.sender, pairs.receiver))
            claimed.append(pairs.only(record.meter_ids.claim_all(pairs.meter_id)))
            yield


def may_be_desired(packed: bytes, record: SwitchRecord, numbers: PortNumbers) -> bool:
    """Return whether another switch may need a flow entry; entries of edge ports depend on the configuration alone."""
    key = unpack_key(packed)
    in_port = key.match.in_port
    port_no = None if in_port is None else numbers.port(record.switch.dpid, in_port).port_no
    return key.table_id >= Table.RATE_CONTROL or port_no not in record.switch.ports
