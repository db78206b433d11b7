"""Polls the switches' counters, once in an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apps.runtime.ryu_adapter import BULK_METER_STATS, Reply, send_bulk_request
from apps.southbound.connected_switches import (
    MAX_QUEUED_BYTES,
    POLL_TIMEOUT_S,
    REPEAT_S,
    ConnectedSwitch,
    ConnectedSwitches,
    Poll,
    check_size,
)
from apps.southbound.port_queue_stats import read_ports_and_queues
from controller.capability.meter_monitor import update_monitors
from controller.errors import ProtocolError
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK, Table
from controller.openflow.flows import decode_flow_stats
from controller.openflow.messages import encode_barrier_request
from controller.openflow.meters import STATS_BYTES, decode_meter_stats
from controller.openflow.multipart import (
    encode_flow_stats_request,
    encode_meter_stats_request,
    encode_port_stats_request,
    encode_queue_stats_request,
)
from controller.switch.meter_index import MeterStatsBatch

# Bytes that a switch reports for a flow entry and its meter, at most.
_METER_BYTES = 400
# Ports and queues are polled in every round while a policy uses them; otherwise twice as often as live rates are
# computed, and as soon as the first test frames of a queue should have been counted.
PORT_QUEUE_INTERVAL_S = 0.5
# Ports and queues that are due soon are polled together with a due one, up to this many: their counters are decoded at
# once.
MAX_EARLY_S, TOGETHER = 0.25, 32
EARLY_SHARE = 0.25  # of the time limit for replies


class PolledCounters(NamedTuple):
    """The counters that switches sent in time, by dpid: METER_STATS, their arrival, and the last confirmation.

    ``unanswered`` is the number of late switches.
    """

    meters: MeterStatsBatch
    received_s: dict[int, float]
    confirmed_s: dict[int, float]
    unanswered: int


Answer = tuple[ConnectedSwitch, Poll]


def poll(
    peers: ConnectedSwitches, started_s: float, deadline_s: float, waiting: Callable[[], AbstractContextManager[None]]
) -> PolledCounters:
    """Request the counters of the ready switches, and wait for them until ``deadline_s``.

    Most reply after a part of that time. During the wait for the rest, inside ``waiting``, other work may run.

    Ports and queues go to the delivered rates of the central controller. A late switch gets no further request, or it
    would fall further behind: its late reply serves the next round, and no later round waits for it again.
    """
    ready = peers.ready()
    called = _ask_all(peers, ready.values(), started_s)
    answered, silent, unanswered = [], [], 0
    soon_s = started_s + EARLY_SHARE * (deadline_s - started_s)
    if not BULK_METER_STATS.wait(soon_s - peers.clock()):
        with waiting():
            BULK_METER_STATS.wait(deadline_s - peers.clock())
    peers.collect_confirmations()
    bulk_replies = _collect_replies(called, started_s)
    others = [peer for peer in ready.values() if peer.poll is not None and peer not in bulk_replies]
    for peer in sorted(others, key=lambda peer: peer.poll is not None and peer.poll.requested_s < started_s):
        poll = peer.poll
        if poll is None:
            continue
        try:
            complete = poll.meters.wait_complete(soon_s - peers.clock() if poll.requested_s == started_s else 0.0)
            if not complete and poll.requested_s == started_s:
                with waiting():
                    complete = poll.meters.wait_complete(deadline_s - peers.clock())
        except ProtocolError as error:
            _report_fault(peers, peer, error)
            silent.append((peer, poll))
            continue
        unanswered += not complete
        if complete:
            answered.append((peer, poll))
        elif peers.clock() - poll.requested_s >= POLL_TIMEOUT_S:
            silent.append((peer, poll))
    answered = [(peer, poll) for peer, poll in answered if peers.is_current(peer)]
    there = peers.current(bulk_replies)
    bulk_replies = bulk_replies if len(there) == len(bulk_replies) else {peer: bulk_replies[peer] for peer in there}
    counters = PolledCounters(_read_meters(peers, called, bulk_replies, answered), {}, {}, unanswered)
    times_s = [(peer, at_s) for peer, (_, at_s) in bulk_replies.items()]
    times_s += [(peer, poll.meters.received_s) for peer, poll in answered]
    _note_times(counters, times_s)
    _watch_meters(peers, counters.meters)
    for peer in bulk_replies:
        peer.connection.count.received += 1
        peer.poll = None
    over = answered + [(peer, poll) for peer, poll in silent if peers.is_current(peer)]
    read_ports_and_queues(peers, over, counters.received_s, partial(_report_fault, peers))
    for peer, poll in over:
        _cancel(peer, poll)
        peer.poll = None
    _read_port_queue_polls(peers, ready.values(), started_s, counters.received_s)
    return counters


def _note_times(counters: PolledCounters, times_s: Iterable[tuple[ConnectedSwitch, float]]) -> None:
    """Record when each switch's counters arrived, if readable, and when its last meter-mods were confirmed."""
    listed = counters.meters.bounds
    for peer, at_s in times_s:
        dpid = peer.connection.dpid
        if dpid in listed:
            counters.received_s[dpid] = peer.counted_s = at_s
            if (set_s := peer.meters_set_s()) is not None:
                counters.confirmed_s[dpid] = set_s


def _read_port_queue_polls(
    peers: ConnectedSwitches, ready: Iterable[ConnectedSwitch], started_s: float, counted: Container[int]
) -> None:
    """Read the port and queue counters that were requested after the meters in an earlier round.

    ``counted`` (dpid) are switches with meter counters of this round, which are newer: traffic in the port counters is
    also in the meters' counters. The others are read later.
    """
    for_long_s = peers.clock() - POLL_TIMEOUT_S
    over = [
        (peer, look) for peer in ready if (look := peer.port_queue_poll) is not None and look.requested_s < started_s
    ]
    over = [(peer, look) for peer, look in over if look.meters.done or look.requested_s < for_long_s]
    read = [(peer, look) for peer, look in over if peer.connection.dpid in counted and peers.is_current(peer)]
    at_s = {peer.connection.dpid: look.ports.received_s for peer, look in read if look.ports is not None}
    read_ports_and_queues(peers, read, at_s, partial(_report_fault, peers))
    for peer, look in over:
        if look.requested_s < for_long_s or peer.connection.dpid in counted:
            _cancel(peer, look)
            peer.port_queue_poll = None


def _cancel(peer: ConnectedSwitch, poll: Poll) -> None:
    for reply in filter(None, poll[1:]):
        peer.connection.forget(reply)


def _report_fault(peers: ConnectedSwitches, peer: ConnectedSwitch, error: ProtocolError) -> None:
    now_s = peers.clock()
    if peers.is_current(peer) and now_s - peer.unreadable_s >= REPEAT_S:
        peer.unreadable_s = now_s
        peers.report_fault(peer.connection.dpid, f"sent counters that cannot be read: {error}")


def _ask_all(peers: ConnectedSwitches, ready: Iterable[ConnectedSwitch], now_s: float) -> list[ConnectedSwitch]:
    """Request counters from switches without a pending reply; return those with a bulk request for their meters.

    Their ports and queues are requested after it, since replies to a bulk request must come first, and are read in the
    next round. If a policy uses them, they are requested before the meters, for this round.
    """
    switches, always = peers.central.switches, peers.central.reads_ports_or_queues
    unpolled = [peer for peer in ready if peer.poll is None]
    to_call: list[ConnectedSwitch] = []
    to_look: list[ConnectedSwitch] = []
    before_s = now_s if always else polled_before_s([peer.port_queue_polled_s for peer in unpolled], now_s)
    for peer in unpolled:
        if peer.stale_meter_ids:
            peer.stale_meter_ids = []
        looks = peer.port_queue_polled_s <= before_s
        uses_meters = switches[peer.connection.dpid].capabilities.uses_meters
        if uses_meters and peer.counting is None and not (looks and always) and peer.meters_listed:
            to_call.append(peer)
            if looks and peer.port_queue_poll is None:
                to_look.append(peer)
        else:
            peer.poll = _ask(peer, uses_meters, now_s, looks)
    called, filenos, xids = [], [], []
    in_call = Poll(now_s, Reply())
    lanes = send_bulk_request(BULK_METER_STATS, [peer.connection for peer in to_call], encode_meter_stats_request)
    for peer, lane in zip(to_call, lanes, strict=True):
        if lane is None:
            peer.poll = _ask(peer, uses_meters=True, now_s=now_s, looks=False)
        else:
            peer.poll = in_call
            called.append(peer)
            filenos.append(lane[0])
            xids.append(lane[1])
    BULK_METER_STATS.expect([peer.meters_listed for peer in called])
    BULK_METER_STATS.start(filenos, xids)
    for peer in to_look:
        ports, queues = peer.connection.ask_all(encode_port_stats_request, encode_queue_stats_request)
        peer.port_queue_poll, peer.port_queue_polled_s = Poll(now_s, queues, ports, queues), now_s
    return called


def polled_before_s(polled_s: Iterable[float], now_s: float) -> float:
    """Return a time: the ports and queues of switches that were last polled before it, or at it, are polled now.

    ``polled_s`` is the time of each switch's last poll. Once a switch is due, up to TOGETHER switches are polled at the
    same time, those longest ago first, even if they would be due a little later.
    """
    due_s = now_s - PORT_QUEUE_INTERVAL_S
    soon = sorted([one_s for one_s in polled_s if one_s <= now_s - MAX_EARLY_S])
    if not soon or soon[0] > due_s:
        return due_s
    return max(soon[min(len(soon), TOGETHER) - 1], due_s)


def _collect_replies(called: list[ConnectedSwitch], now_s: float) -> dict[ConnectedSwitch, tuple[int, float]]:
    """Return the switches that replied to the bulk request, their index there and the time.

    The others become normal replies.
    """
    bulk_replies = {}
    for index, (peer, at_s) in enumerate(zip(called, BULK_METER_STATS.at_s.tolist(), strict=True)):
        if not math.isnan(at_s):
            bulk_replies[peer] = index, at_s
        else:
            peer.poll = Poll(now_s, peer.connection.fall_back(BULK_METER_STATS))
    return bulk_replies


def _ask(peer: ConnectedSwitch, uses_meters: bool, now_s: float, looks: bool) -> Poll:
    """Request the counters of a switch: of meters or flows, and with ``looks`` those of ports and queues."""
    ask_meters = _ask_flows if peer.counting is not None else encode_meter_stats_request
    if not uses_meters:
        ask_meters = encode_barrier_request  # nothing to read: its reply shows that all replies have arrived
    if not looks:
        return Poll(now_s, peer.connection.ask(ask_meters))
    peer.port_queue_polled_s = now_s
    # Replies come in this order: after the meters' reply, all have arrived.
    ports, queues, meters = peer.connection.ask_all(encode_port_stats_request, encode_queue_stats_request, ask_meters)
    return Poll(now_s, meters, ports, queues)


def _ask_flows(xid: int) -> bytes:
    return encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK, Table.RATE_CONTROL)


def _read_meters(
    peers: ConnectedSwitches,
    called: list[ConnectedSwitch],
    replied: dict[ConnectedSwitch, tuple[int, float]],
    answered: list[Answer],
) -> MeterStatsBatch:
    """Return the counters of the switches' meters: from the bulk request, and from normal replies.

    ``called`` are the switches of the bulk request, ``replied`` the index there and the time of those that replied to
    it, and ``answered`` the normal replies.
    """
    if not answered and len(replied) == len(called) and not [peer for peer in called if peer.stale_meter_ids]:
        dpids = [peer.connection.dpid for peer in called]
        return MeterStatsBatch(dpids, BULK_METER_STATS.stats, BULK_METER_STATS.ends, BULK_METER_STATS.meter_id)
    stats, bounds = {}, list(pairwise([0, *BULK_METER_STATS.ends.tolist()]))
    for peer, (index, _) in replied.items():
        stats[peer.connection.dpid] = _drop_stale(peer, BULK_METER_STATS.stats[slice(*bounds[index])])
    return MeterStatsBatch.from_stats(stats | _read_replies(peers, answered))


def _read_replies(peers: ConnectedSwitches, answered: list[Answer]) -> dict[int, NDArray[np.void]]:
    """Return the counters of the switches' meters by dpid, each decoded separately."""
    stats: dict[int, NDArray[np.void]] = {}
    for peer, poll in answered:
        octets = _octets(poll)
        try:
            peer.meters_listed = 0
            check_size("meters", octets, _most_octets(peers, peer))
            peer.meters_listed = octets // STATS_BYTES
            stats[peer.connection.dpid] = _meter_stats(peer, poll.meters)
        except ProtocolError as error:
            _report_fault(peers, peer, error)
    return stats


def _octets(poll: Poll) -> int:
    begun = poll.meters.begun
    return sum(map(len, poll.meters.parts)) + (0 if begun is None else STATS_BYTES * len(begun))


def _most_octets(peers: ConnectedSwitches, peer: ConnectedSwitch) -> int:
    return MAX_QUEUED_BYTES + _METER_BYTES * len(peers.central.switches[peer.connection.dpid].installed)


def _watch_meters(peers: ConnectedSwitches, reports: MeterStatsBatch) -> None:
    """Compare the meters' counts with their settings, at switches whose meters count."""
    fabric = peers.central.fabric
    switches = fabric.switches
    watched = {
        dpid: peers[dpid].meters
        for dpid in reports.dpids
        if peers[dpid].counting is None and switches[dpid].capabilities.uses_meters
    }
    if len(watched) < len(reports.dpids):
        reports = reports.select_switches(watched)
    rows, enforcement = fabric.listing.find(switches, reports).entry, fabric.state.enforcement
    settings = enforcement.rate_kbps, enforcement.burst_kbits
    update_monitors(list(watched.values()), reports.whole, reports.ends, rows, settings)


def _meter_stats(peer: ConnectedSwitch, reply: Reply) -> NDArray[np.void]:
    body = b"".join(reply.parts)
    if peer.counting is None:
        meters = decode_meter_stats(body)
        return _drop_stale(peer, meters if reply.begun is None else np.concatenate([reply.begun, meters]))
    peer.known_flows = decode_flow_stats(body, peer.known_flows.known)
    return peer.counting.meter_stats(peer.known_flows, reply.received_s)


def _drop_stale(peer: ConnectedSwitch, meters: NDArray[np.void]) -> NDArray[np.void]:
    """Return the counters, without those of meters that were modified after the request.

    The switch replied before it executed the modify, maybe long after that was sent, so that old counts would be taken
    for counts since the modify.
    """
    return (
        meters[~np.isin(meters["meter_id"], np.concatenate(peer.stale_meter_ids))] if peer.stale_meter_ids else meters
    )
