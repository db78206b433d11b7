"""One control interval of a fabric: meter-stats by switch in, the step, meter-mods by switch out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from controller.central.fabric_state import ControlContext, FabricState
from controller.central.no_agents import NoAgents
from controller.central.readings_collector import collect_readings
from controller.central.settings_update import follow_frame_sizes
from controller.columns import FloatArray, IntArray, columns_equal, nan_column
from controller.events import EventKind
from controller.fabric.vn_table import VnTable
from controller.forwarding.pipeline import VnMeters
from controller.loop import control_step
from controller.metering.counters import ListedReadings, MeterReadings, columns_of
from controller.metering.enforcement import MeterChanges
from controller.metering.fabric_readings import ReadingKind
from controller.metering.guarantees import Guarantees, sender_entitlements
from controller.policy.policy_groups import declare_congestion, required_readings
from controller.switch.frame_sizes import MAX_FRAME_METERS, dropped_frame_bytes
from controller.switch.meter_index import MeterOwners, MeterStatsBatch
from controller.switch.meters.counter_meters import CounterMeters
from controller.switch.meters.meter_mods import modifications_by_switch
from controller.whatif.recording import Recorder, Start
from controller.whatif.shadow import shadow_step

MeterStats = NDArray[np.void]

# Positions of the fields of VnMeters.
_SEND_LIMIT, *_OF_FLOODS = map(VnMeters._fields.index, ("send", "flood", "discovery", "report"))
NOTIFICATION_EVENT_GAP_S = 5.0
"""After this time without notifications, a further one counts as a new congestion."""


def run_interval(
    fabric: FabricState,
    agents: NoAgents,
    recorder: Recorder | None,
    stats: Mapping[int, MeterStats],
    received_s: Mapping[int, float],
    now_s: float,
    confirmed_s: Mapping[int, float],
) -> control_step.StepResult:
    """Run the control step on the switches' METER_STATS, and queue the meter-mods that the step decides.

    ``stats``, ``received_s`` (when the stats arrived) and ``confirmed_s`` (when the switch had executed its last
    meter-mods, where known) are by dpid. ``fabric`` gets the next state, and notes events.
    """
    # The switches of the stats may belong to an earlier configuration.
    stats = MeterStatsBatch.from_stats(stats).select_switches(fabric.switches)
    # Grants are frozen while some senders may be unknown.
    if fabric.state.adopted_bps is not None and not fabric.may_lack_senders(now_s):
        fabric.state = control_step.with_released_grants(fabric.state)
        fabric.share.released()
    listed, of_send_limits = _readings(fabric, stats, received_s, confirmed_s)
    _watch_floods_and_frame_sizes(fabric, stats, now_s)
    readings, shaped = agents.before_step(listed if recorder is None else listed.columns, now_s)
    control, vns = fabric.control, fabric.shared_vns
    required = _required_readings(control, recorder)
    links = fabric.links.link_table(vns, fabric.network.topology) if ReadingKind.LINKS in required else None
    marks = None
    # A node of a cluster needs an object even without such meters: it gets the peers' readings.
    if ReadingKind.MARKS in required and (fabric.phantoms or fabric.measuring or not fabric.share.is_whole):
        # ``counted`` are the meters of pairs that count marked frames, ``beyond`` the phantom meters of receiving VNs.
        counted, beyond = (
            _readings_of(fabric, meters, stats, received_s, confirmed_s)
            for meters in (fabric.measuring, fabric.phantoms)
        )
        fabric.measuring, marked_bps = fabric.measuring.read(fabric.vns, control.state.entries, counted)
        fabric.phantoms, marks = fabric.phantoms.read(fabric.vns, marked_bps, beyond)
    observed = collect_readings(fabric, required, received_s, now_s, marks)
    state, result = fabric.share.step(control.state, vns, control.groups, readings, now_s, links, observed, shaped)
    shadow = control.shadow
    if shadow.names:
        shadow = shadow_step(shadow, vns, control.state, state, links, observed)
    fabric.control = ControlContext(control.config, control.vns, control.policies, control.groups, shadow, state)
    fabric.received_bps, fabric.last_loads = result.received_bps, (state.measured, result.receiver_loads_bps)
    queues = None if observed is None else observed.queues
    fabric.queue_dropped_bps = nan_column(len(vns)) if queues is None else queues.dropped_bps
    fabric.send_limits = fabric.send_limits.updated(of_send_limits, vns.capacity_bps)
    if recorder is not None:
        start = Start(control.state, vns, control.policies, links)
        recorder.interval(start, now_s, columns_of(readings), observed, state, result, shaped)
    queue_meter_mods(fabric, result.changes)
    queue_meter_mods(fabric, result.backstops)
    agents.after_step(result.agent_bps, now_s)
    _note_notifications(fabric, result.notified, now_s)
    _watch_congestion(fabric, control.state, result.limit_bps, now_s)
    _note_implausible(fabric, result.implausible, now_s)
    _watch_guarantees(fabric, vns, now_s)
    if vns.some_borrow:
        _watch_send_guarantees(fabric, vns, now_s)
    fabric.events.report_suppressed(now_s)
    return result


def _required_readings(control: ControlContext, recorder: Recorder | None) -> frozenset[ReadingKind]:
    """Return the kinds of readings that policies, shadows or the recorder need in this interval."""
    if recorder is not None:
        return frozenset(ReadingKind)  # so that any policy can replay the recording
    return required_readings((*control.groups, *control.shadow.groups))


def reads_ports_or_queues(control: ControlContext, recorder: Recorder | None) -> bool:
    """Return whether a policy or the recorder uses counters of ports or queues, or may do so later."""
    return not _required_readings(control, recorder).isdisjoint((ReadingKind.PORTS, ReadingKind.QUEUES))


def _readings(
    fabric: FabricState,
    reports: MeterStatsBatch,
    received_s: Mapping[int, float],
    confirmed_s: Mapping[int, float],
) -> tuple[ListedReadings, ListedReadings]:
    """Return the readings of the pairs' meters and of the meters of VNs' send limits."""
    index, control = fabric.listing, fabric.control
    listed = index.find(fabric.switches, reports)
    arrived_s, executed_s = _times_s(reports, received_s, confirmed_s)
    pair_positions = index.places_of_entries(listed, reports.ends, len(control.state.entries))
    send_limit_positions = index.places_of_kind(listed, reports.ends, len(control.vns), _SEND_LIMIT)
    stats, modified_s = reports.whole, control.state.enforcement.modified_s
    of_pairs = ListedReadings(*pair_positions, stats, arrived_s, executed_s, modified_s)
    unconfirmed_s = nan_column(len(executed_s))  # no interval modifies send limits: confirmations mean nothing there
    return of_pairs, ListedReadings(*send_limit_positions, stats, arrived_s, unconfirmed_s, None)


def _readings_of(
    fabric: FabricState,
    meters: CounterMeters,
    reports: MeterStatsBatch,
    received_s: Mapping[int, float],
    confirmed_s: Mapping[int, float],
) -> MeterReadings:
    """Return the readings of counting meters, those of pairs' marked frames or the phantom meters."""
    positions = fabric.listing.places_of_meters(meters.dpid(fabric.vns), meters.meter_id, reports)
    return ListedReadings(*positions, reports.whole, *_times_s(reports, received_s, confirmed_s), None).columns


def _times_s(
    reports: MeterStatsBatch, received_s: Mapping[int, float], confirmed_s: Mapping[int, float]
) -> tuple[FloatArray, FloatArray]:
    """Return when each switch's counters arrived, and when it had executed its last messages (NaN: unknown).

    Both have one value for each switch of ``reports``, in its order, by the controller's clock.
    """
    arrived_s = np.array([received_s[dpid] for dpid in reports.dpids], dtype=np.float64)
    return arrived_s, np.array([confirmed_s.get(dpid, np.nan) for dpid in reports.dpids], dtype=np.float64)


def queue_meter_mods(fabric: FabricState, changes: MeterChanges) -> None:
    """Queue meter-mods for the switches that are connected, in the order of ``changes``."""
    if not len(changes.rows):
        return
    mods, parts = modifications_by_switch(fabric.vns, fabric.state.entries, changes)
    for dpid, start, end in parts:
        record = fabric.switches[dpid]
        if record.connected and end > start:
            record.update.modify_meters(mods[:, start:end], restarts_counts=True)


def _watch_floods_and_frame_sizes(fabric: FabricState, reports: MeterStatsBatch, now_s: float) -> None:
    """Evaluate the drops of VNs' meters, if the flood check is due: the size of frames, and which VNs flood."""
    floods = fabric.floods
    if not floods.due(now_s):
        return
    vns = fabric.vns
    listed = fabric.listing.find(fabric.switches, reports)
    vn_positions = fabric.listing.places_of_vns(listed, reports.ends, len(vns)).meter  # (vns, VN_METERS)
    # (vns,): whether the VN's switch has replied.
    answered = np.array([dpid in reports for dpid in vns.dpids], dtype=np.bool_)[vns.switch]
    part = slice(fabric.next_frame_meter, fabric.next_frame_meter + MAX_FRAME_METERS)
    owners, sender = MeterOwners(listed.entry[part], listed.vn[part]), fabric.state.entries.sender
    follow_frame_sizes(fabric, dropped_frame_bytes(reports.whole[part], owners, sender, len(vns)), now_s)
    fabric.next_frame_meter = part.stop if part.stop < len(reports.whole) else 0
    floods.read(reports.whole, vn_positions[:, _OF_FLOODS].T, answered, vns.capacity_bps, now_s)
    began, ended = floods.update(vns.vlan, vns.receive_limit_bps, now_s)
    for row in fabric.events.limit_named(EventKind.FLOOD_BEGAN, began, now_s):
        limit, dropped = fabric.flood_limit_bps[row] / 1e6, floods.dropped_bps[row] / 1e6
        text = f"{fabric.vn_name(row)}: floods beyond its limit of {limit:.3g} Mbit/s; {dropped:.3g} Mbit/s are dropped"
        fabric.note(EventKind.FLOOD_BEGAN, text, now_s, vn=row)
    for row in fabric.events.limit_named(EventKind.FLOOD_ENDED, ended, now_s):
        fabric.note(EventKind.FLOOD_ENDED, f"{fabric.vn_name(row)}: floods within its limit again", now_s, vn=row)


def _watch_guarantees(fabric: FabricState, vns: VnTable, now_s: float) -> None:
    """Update the receive guarantees; note violations that begin or end."""
    before = fabric.guarantees
    offered_bps = fabric.receiver_loads_bps[0]
    if not fabric.share.is_whole:
        offered_bps = np.where(fabric.share.receives, offered_bps, 0.0)  # unknown for VNs of other nodes
    interval_s = fabric.config.interval_s
    after = before.updated(offered_bps, fabric.received_bps, vns.receive_limit_bps, interval_s)
    fabric.guarantees = after
    _note_guarantees(fabric, before, after, "receives", "offered within its limit", now_s)


def _watch_send_guarantees(fabric: FabricState, vns: VnTable, now_s: float) -> None:
    """Update the send guarantees of VNs with ceilings; note violations that begin or end."""
    before = fabric.send_guarantees
    entries, measured = fabric.state.entries, fabric.state.measured
    offered_bps = sender_entitlements(
        entries.sender, entries.receiver, measured.offered_bps, measured.active, vns.weight, vns.receive_limit_bps
    )
    sent_bps = np.bincount(entries.sender, measured.passed_bps, minlength=len(vns)).astype(np.float64)
    offered_bps = np.where(vns.uses_ceiling, offered_bps, 0.0)
    after = before.updated(offered_bps, sent_bps, vns.send_limit_bps, fabric.config.interval_s)
    fabric.send_guarantees = after
    _note_guarantees(fabric, before, after, "sends", "offered within both ends' limits", now_s)


def _note_guarantees(
    fabric: FabricState, before: Guarantees, after: Guarantees, verb: str, rate_text: str, now_s: float
) -> None:
    """Record events for violated and restored guarantees.

    ``verb`` is the direction, *receives* or *sends*; ``rate_text`` explains the entitled rate.
    """
    if columns_equal(before.violated, after.violated):
        return
    violated = np.flatnonzero(after.violated & ~before.violated)
    restored = np.flatnonzero(before.violated & ~after.violated)
    for row in fabric.events.limit_named(EventKind.GUARANTEE_VIOLATED, violated, now_s):
        mbps, entitled_mbps = after.received_bps[row] / 1e6, after.entitled_bps[row] / 1e6
        text = f"{fabric.vn_name(row)}: {verb} {mbps:.3g} of {entitled_mbps:.3g} Mbit/s {rate_text}"
        fabric.note(EventKind.GUARANTEE_VIOLATED, text, now_s, vn=row)
    for row in fabric.events.limit_named(EventKind.GUARANTEE_RESTORED, restored, now_s):
        text = f"{fabric.vn_name(row)}: {verb} its guaranteed rate again"
        fabric.note(EventKind.GUARANTEE_RESTORED, text, now_s, vn=row)


def _note_notifications(fabric: FabricState, notified: IntArray | None, now_s: float) -> None:
    """Count the congestion notifications that receivers sent; ``notified`` (vns,) is their number in this interval.

    Record an event for the first one after NOTIFICATION_EVENT_GAP_S only, since floods cause many a second.
    """
    if notified is None or not notified.any():
        return
    fabric.notifications += notified
    # A VN that never notified has NaN in ``notified_s``, and so counts as first.
    first = (notified > 0) & ~(now_s - fabric.notified_s < NOTIFICATION_EVENT_GAP_S)
    fabric.notified_s[notified > 0] = now_s
    for row in fabric.events.limit_named(EventKind.CONGESTION_NOTIFICATION_SENT, np.flatnonzero(first), now_s):
        dropped = fabric.queue_dropped_bps[row] / 1e6
        drops = "" if np.isnan(dropped) else f"; its queue dropped {dropped:.3g} Mbit/s"
        text = f"{fabric.vn_name(row)}: notifies {notified[row]} of its senders of congestion{drops}"
        fabric.note(EventKind.CONGESTION_NOTIFICATION_SENT, text, now_s, vn=row)


def _watch_congestion(
    fabric: FabricState, before: control_step.ControlState, limit_bps: FloatArray, now_s: float
) -> None:
    """Update which VNs are congested, and note those whose congestion begins or ends."""
    control = fabric.control
    declared = declare_congestion(control.groups, len(control.vns))
    fabric.congestion, began, ended = fabric.congestion.updated(
        before, control.state, control.vns, declared, limit_bps, now_s
    )
    if not len(began) and not len(ended):
        return
    for kind, rows in ((EventKind.CONGESTION_BEGAN, began), (EventKind.CONGESTION_ENDED, ended)):
        for row in fabric.events.limit_named(kind, rows, now_s):
            fabric.note(kind, f"{fabric.vn_name(row)}: {kind.value.replace('-', ' ')}", now_s, vn=row)


def _note_implausible(fabric: FabricState, rows: IntArray, now_s: float) -> None:
    """Note pairs (``rows``) whose meter counters changed by more than their link can carry, or went back."""
    if not len(rows):
        return
    entries = fabric.state.entries
    for row in fabric.events.limit_named(EventKind.COUNTERS_IMPLAUSIBLE, rows, now_s):
        ends = f"{fabric.vn_name(int(entries.sender[row]))} to {fabric.vn_name(int(entries.receiver[row]))}"
        fabric.note(
            EventKind.COUNTERS_IMPLAUSIBLE,
            f"{ends}: its counters jumped or went back",
            now_s,
            vn=int(entries.sender[row]),
        )
