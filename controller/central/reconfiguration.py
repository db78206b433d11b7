"""Another configuration for a running controller: what did not change continues undisturbed.

A fabric state is made for the new configuration. It takes over the VNs, hosts, pairs and links that both configurations
have: pairs keep their meters, meters their counters, algorithms their state. The controller then swaps its reconciler,
which holds the fabric state, in one assignment. The desired tables are compared with the installed ones, and only
differences are sent.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from controller.central.controller import CentralController
from controller.central.fabric_state import FabricState
from controller.central.reconciliation import Reconciler, may_be_desired
from controller.columns import NEW_ROW, IntArray, reindex
from controller.dets.rate_allocator import RateAllocators
from controller.errors import InvalidValueError
from controller.events import EventLog
from controller.fabric.config_model import Config
from controller.fabric.pair_table import PairTable, find_pairs
from controller.forwarding.desired_flows import plan_flows
from controller.forwarding.pairs import Pair
from controller.forwarding.pipeline import VnMeters
from controller.loop import control_step
from controller.switch.meters.meter_settings import MeterSettingsTable
from controller.switch.switch_record import SwitchRecord, SwitchUpdate


@dataclass(frozen=True)
class Reconfiguration:
    """A half-finished reconfiguration: ``finish`` completes it, ``undo`` reverts it.

    ``removed`` are the switches that the new configuration lacks, or has with another profile or other queue classes.
    ``_standing`` are the installed meter settings of the other connected switches, ``_leftovers`` the packed keys of
    their flow entries of an earlier run that a switch may need that has not connected yet.
    """

    removed: frozenset[int]
    _before: Reconciler
    _rows: _Rows
    _standing: Mapping[int, MeterSettingsTable]
    _leftovers: Mapping[int, set[bytes]]
    _allocators: RateAllocators

    def undo(self, central: CentralController) -> None:
        """Restore the controller's previous state."""
        central.set_reconciler(self._before)

    def finish(self, central: CentralController) -> None:
        """Queue the messages to the switches, once all limits and algorithms are effective."""
        fabric = central.fabric
        allocators = self._allocators.with_groups(self._before.fabric.control.groups, fabric.control.groups)
        fabric.state = fabric.state._replace(allocators=allocators)
        central.pairs.flush()
        _inherit_marks(self._before.fabric, fabric, self._rows)
        for dpid, installed in self._standing.items():
            _plan(fabric, fabric.switches[dpid], installed, self._leftovers.get(dpid, set()))


class PreparedReconfiguration:
    """The longest part of a reconfiguration, done in advance while the loop goes on.

    It uses the configuration alone (``fabric``, with the controller's events), and raises InvalidValueError as
    ``FabricState`` does. ``flow_inputs`` has the inputs of the flow entries that are built already, by switch: the
    meters of VNs, whether flow entries name queues, and the numbers of ports by name.
    """

    def __init__(self, config: Config, events: EventLog) -> None:
        self.fabric = FabricState(config, events)
        self.flow_inputs: dict[int, tuple[Mapping[int, VnMeters], bool, Mapping[int, int]]] = {}

    def build_switch_flows(self, central: CentralController) -> Iterator[None]:
        """Build the flow entries of connected switches that do not depend on pairs; yield after each batch.

        No switch may be brought up or adopted during that time. ``finish`` handles later changes of a switch.
        """
        before, after = central.fabric, self.fabric
        old_row = after.vns.rows_in(before.vns)
        _inherit_ports(before, after)
        for dpid in sorted(_kept(before, after)):
            record = before.switches[dpid]
            if record.connected:
                new_rows, in_use = after.switches[dpid].vn_meters, record.meters_in_use()
                meters = {row: in_use[old] for row in new_rows if (old := int(old_row[row])) != NEW_ROW}
                yield
                set_queue, numbers = record.capabilities.uses_queues, after.network.numbers.bound(dpid)
                yield from after.network.put_switch(dpid, meters, set_queue=set_queue)
                self.flow_inputs[dpid] = meters, set_queue, numbers


def _kept(before: FabricState, after: FabricState) -> set[int]:
    """Return the switches (dpid) that continue unchanged."""
    records = before.switches
    return {
        dpid for dpid, record in after.switches.items() if dpid in records and _is_compatible(records[dpid], record)
    }


def _is_compatible(before: SwitchRecord, after: SwitchRecord) -> bool:
    """Return whether a switch's state remains valid, and its flow entries name queues as before."""
    old, new = before.capabilities, after.capabilities
    return old.profile == new.profile and old.classes == new.classes and old.configured_bounds == new.configured_bounds


def reconfigure(
    central: CentralController, config: Config, now_s: float, made: PreparedReconfiguration | None = None
) -> Reconfiguration:
    """Give a controller another configuration; references to the controller stay valid.

    All updates must have been drained. ``made`` is the part done in advance. Raises InvalidValueError, with nothing
    changed, when a switch has fewer meter ids than it needs.
    """
    made = PreparedReconfiguration(config, central.events) if made is None else made
    before, after = central.fabric, made.fabric
    after.arrivals = before.arrivals
    row_of = _rows_of(before, after)
    kept = _kept(before, after)
    present = sorted(dpid for dpid in kept if before.switches[dpid].connected)
    installed = {dpid: before.desired_meters(before.switches[dpid]) for dpid in present}
    for dpid in kept:
        mark_meter_ids = before.phantoms.ids_of(dpid, before.vns) + before.measuring.ids_of(dpid, before.vns)
        _inherit_record(before.switches[dpid], after.switches[dpid], row_of, config, mark_meter_ids)
    after.frame_bytes = reindex(before.frame_bytes, row_of.old, 0.0)
    after.follow_bounds()
    _inherit_network(before, made, row_of, kept)
    allocators = _inherit_state(before, after, row_of, kept, now_s)
    _inherit_views(before, after, row_of, kept)
    reconciler = Reconciler(after)
    reconciler.agents.inherit(central.agents)
    unmetered = [pair for pair in map(row_of.pair, central.pairs.unmetered) if pair is not None]
    reconciler.pairs.inherit(unmetered)
    leftovers = {dpid: _leftovers(before, dpid) for dpid in present} if after.awaits_switches(now_s) else {}
    removed = frozenset(before.switches.keys() - kept)
    done = Reconfiguration(removed, central.reconciler, row_of, installed, leftovers, allocators)
    central.set_reconciler(reconciler)
    return done


class _Rows:
    """The row of each VN in the old VN table (``old``) and in the new one (``new``); NEW_ROW for none."""

    def __init__(self, old: IntArray, new: IntArray) -> None:
        self.old, self.new = old, new

    def pair(self, pair: Pair) -> Pair | None:
        """Return a pair by its new rows, None if one of its VNs was removed."""
        sender, receiver = int(self.new[pair.sender]), int(self.new[pair.receiver])
        return None if NEW_ROW in (sender, receiver) else Pair(sender, receiver)


def _rows_of(before: FabricState, after: FabricState) -> _Rows:
    """Return which rows VNs have in the old and in the new VN table."""
    old_of_new = after.vns.rows_in(before.vns)
    new_of_old = np.full(len(before.vns), NEW_ROW, dtype=np.int64)
    both = np.flatnonzero(old_of_new != NEW_ROW)
    new_of_old[old_of_new[both]] = both
    return _Rows(old_of_new, new_of_old)


def _inherit_record(
    before: SwitchRecord, after: SwitchRecord, row_of: _Rows, config: Config, mark_meter_ids: Iterable[int]
) -> None:
    """Keep a switch's meters, tables and capabilities; new VNs get new meters.

    The meters for marks, ``mark_meter_ids``, are assigned again from the flow entries that name them.
    """
    after.meter_ids = copy.deepcopy(before.meter_ids)
    for mark_id in mark_meter_ids:
        after.meter_ids.release(mark_id)
    rows = list(after.vn_meters)
    old_rows = row_of.old[rows].tolist() if rows else []
    meters = {row: before.vn_meters[old] for row, old in zip(rows, old_rows, strict=True) if old != NEW_ROW}
    for row in after.vn_meters.keys() - meters.keys():
        new_id = after.meter_ids.allocate()
        if new_id is None:
            reason = f"leaves switch {after.switch.name} no meter for a new VN: remove others first, or restart"
            raise InvalidValueError("openflow.last_meter_id", config.last_meter_id, reason)
        meters[row] = VnMeters(send=new_id)
    after.set_vn_meters(meters)
    after.thrifty = before.thrifty
    if before.connected:  # others adopt installed meters first, when they connect
        after.complete_vn_meters()
    after.capabilities, after.connected = before.capabilities, before.connected
    after.ports = {port_no: before.ports[port_no] for port_no in before.ports.keys() & after.switch.ports.keys()}
    after.installed, after.changed_keys = before.installed.copy(), set(before.changed_keys)
    after.foreign, after.deferred = before.foreign, before.deferred


def _inherit_network(before: FabricState, made: PreparedReconfiguration, row_of: _Rows, kept: set[int]) -> None:
    """Keep the links and hosts that still exist."""
    after = made.fabric
    _inherit_ports(before, after)
    after.network.inherit_links(before.network, kept)
    for dpid in kept:
        record = after.switches[dpid]
        if record.connected:
            meters, set_queue = record.meters_in_use(), record.capabilities.uses_queues
            if made.flow_inputs.get(dpid) != (meters, set_queue, after.network.numbers.bound(dpid)):
                for _ in after.network.put_switch(dpid, meters, set_queue=set_queue):
                    pass
            after.network.paths.switch_up(dpid)
    after.network.update_paths()
    after.network.inherit_hosts(before.network, row_of.new)


def _inherit_ports(before: FabricState, after: FabricState) -> None:
    """Keep the numbers of ports by name, and the fences of fenced ports."""
    after.network.numbers.inherit(before.network.numbers)
    for port in before.network.fenced ^ after.network.fenced:
        after.network.fence(port, port in before.network.fenced)


def _inherit_state(
    before: FabricState, after: FabricState, row_of: _Rows, kept: set[int], now_s: float
) -> RateAllocators:
    """Give ``after`` the remaining pairs with all their state; return the allocators, still to be grouped.

    A pair remains if both of its VNs do, and its sender's switch is in ``kept`` (dpids). ``row_of`` maps VN rows from
    old to new and back. The allocators keep the policies' old grouping of VNs.
    """
    old = before.state
    sender, receiver = row_of.new[old.entries.sender], row_of.new[old.entries.receiver]
    switch_stays = np.isin(before.vns.dpid[old.entries.sender], np.array(sorted(kept), dtype=np.uint64))
    stays = np.flatnonzero((sender != NEW_ROW) & (receiver != NEW_ROW) & switch_stays)
    # Pair tables are sorted by receiver, then sender; VN rows may have another order now.
    old_row = stays[np.lexsort((sender[stays], receiver[stays]))]
    entries = PairTable(sender[old_row], receiver[old_row], old.entries.meter_id[old_row])
    unused = np.zeros(len(entries))  # settings of new pairs, of which there are none
    after.state = control_step.ControlState(
        entries,
        old.counters.reindexed(old_row),
        old.measured.reindexed(old_row),
        old.machines.reindexed(old_row),
        after.state.allocators,
        old.enforcement.reindexed(old_row, unused, unused, now_s),
        old.accounts.reindexed(row_of.old),
        reindex(old.unread_intervals, old_row, 0),
        old.decided_s,
        None if old.adopted_bps is None else old.adopted_bps[old_row],
    )
    for row in range(len(entries)):
        pair = Pair(int(entries.sender[row]), int(entries.receiver[row]))
        old_pair = Pair(int(row_of.old[pair.sender]), int(row_of.old[pair.receiver]))
        after.network.pairs.inherit(pair, int(entries.meter_id[row]) or None, before.network.pairs.hosts_of(old_pair))
    allocators = old.allocators.reindexed(old_row)
    return allocators._replace(
        congested=reindex(allocators.congested, row_of.old, False),
        calm_intervals=reindex(allocators.calm_intervals, row_of.old, 0),
        memories=tuple(memory.reindexed_vns(row_of.old) for memory in allocators.memories),
    )


def _inherit_views(before: FabricState, after: FabricState, row_of: _Rows, kept: set[int]) -> None:
    """Keep what the views of VNs show: rates, congestion, guarantees."""
    after.received_bps = reindex(before.received_bps, row_of.old, 0.0)
    after.congestion = before.congestion.reindexed(row_of.old)
    after.send_limits = before.send_limits.reindexed(row_of.old)
    after.floods = before.floods.reindexed(row_of.old)
    after.guarantees = before.guarantees.reindexed(row_of.old)
    after.send_guarantees = before.send_guarantees.reindexed(row_of.old)
    after.notifications = reindex(before.notifications, row_of.old, 0.0)
    after.notified_s = reindex(before.notified_s, row_of.old, np.nan)
    after.deliveries |= {dpid: before.deliveries[dpid] for dpid in kept}


def _inherit_marks(before: FabricState, after: FabricState, row_of: _Rows) -> None:
    """Keep counting marks with the installed meters; their flow entries name them again."""
    after.phantoms = after.phantoms.remembering(before.phantoms, row_of.old)
    ends = row_of.old[after.measuring.sender], row_of.old[after.measuring.receiver]
    after.measuring = after.measuring.remembering(before.measuring, find_pairs(before.measuring, *ends))


def _leftovers(fabric: FabricState, dpid: int) -> set[bytes]:
    """Return the packed keys of a switch's undesired flow entries that another switch may need."""
    record, numbers = fabric.switches[dpid], fabric.network.numbers
    undesired = record.installed.missing_from(fabric.network.desired.flows_at(dpid))
    return {packed for packed in undesired if may_be_desired(packed, record, numbers)}


def _plan(
    fabric: FabricState, record: SwitchRecord, installed: MeterSettingsTable, leftovers: Collection[bytes]
) -> None:
    """Queue the differences between the installed and the desired tables of a switch; undesired ``leftovers`` stay."""
    record.update = SwitchUpdate()
    desired = fabric.network.desired.flows_at(record.switch.dpid)
    stays = {packed for packed in leftovers if not desired.has(packed)}
    record.set_flows(plan_flows(desired, record.installed, desired.differing(record.installed) - stays))
    settings = fabric.desired_meters(record)
    differing = settings.differing(installed)
    removed = np.setdiff1d(installed.meter_id, settings.meter_id).tolist()
    differing.difference_update(removed)
    fabric.invalidate_counters(record, np.array(sorted(differing), dtype=np.int64))
    record.update.put_meters({meter_id: settings[meter_id] for meter_id in sorted(differing)}, installed.keys())
    record.update.meter_deletes += removed
