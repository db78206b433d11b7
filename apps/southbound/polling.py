"""Polls the switches' counters, once in an interval.

Most switches take part in one bulk request for their meters, whose replies are decoded straight into arrays. The others
get a request of their own, a *single* poll.
"""

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
    """The meters' counters (METER_STATS) that arrived in time.

    By dpid, ``received_s`` is the time of their arrival, and ``confirmed_s`` the time at which the switch confirmed the
    last meter-mods. ``unanswered`` is the number of switches whose counters did not arrive in time.
    """

    meters: MeterStatsBatch
    received_s: dict[int, float]
    confirmed_s: dict[int, float]
    unanswered: int


Answer = tuple[ConnectedSwitch, Poll]  # a switch, and its single poll whose replies have all arrived


def poll(
    peers: ConnectedSwitches, started_s: float, deadline_s: float, waiting: Callable[[], AbstractContextManager[None]]
) -> PolledCounters:
    """Request the counters of the ready switches, and wait for them until ``deadline_s``.

    Most switches reply within EARLY_SHARE of the time until ``deadline_s``. During the wait for the rest, inside
    ``waiting``, other work may run. Counters of ports and queues are passed to the central controller's fabric.

    A switch whose reply is late gets no further request, or it would fall further behind. The late reply serves the
    round in which it arrives; later rounds do not wait for it. After POLL_TIMEOUT_S the switch is polled again.
    """
    ready = peers.ready()
    bulk_polled = _request_all(peers, ready.values(), started_s)
    early_s = started_s + EARLY_SHARE * (deadline_s - started_s)
    if not BULK_METER_STATS.wait(early_s - peers.clock()):
        with waiting():
            BULK_METER_STATS.wait(deadline_s - peers.clock())
    peers.collect_confirmations()
    bulk_replies = _collect_replies(bulk_polled, started_s)
    single_polled = [peer for peer in ready.values() if peer.poll is not None and peer not in bulk_replies]
    # Those polled in this round come first, because it waits for them.
    single_polled.sort(key=lambda peer: peer.poll is not None and peer.poll.requested_s < started_s)
    answered, given_up, unanswered = [], [], 0
    for peer in single_polled:
        poll = peer.poll
        if poll is None:  # other work, which ran during the wait for another switch, has ended this poll
            continue
        is_new = poll.requested_s == started_s
        try:
            complete = poll.meters.wait_complete(early_s - peers.clock() if is_new else 0.0)
            if not complete and is_new:
                with waiting():
                    complete = poll.meters.wait_complete(deadline_s - peers.clock())
        except ProtocolError as error:
            _report_fault(peers, peer, error)
            given_up.append((peer, poll))
            continue
        unanswered += not complete
        if complete:
            answered.append((peer, poll))
        elif peers.clock() - poll.requested_s >= POLL_TIMEOUT_S:
            given_up.append((peer, poll))
    # Switches may have disconnected during the waits.
    answered = [(peer, poll) for peer, poll in answered if peers.is_current(peer)]
    current = peers.current(bulk_replies)
    bulk_replies = bulk_replies if len(current) == len(bulk_replies) else {peer: bulk_replies[peer] for peer in current}
    counters = PolledCounters(_read_meters(peers, bulk_polled, bulk_replies, answered), {}, {}, unanswered)
    arrivals = [(peer, received_s) for peer, (_, received_s) in bulk_replies.items()]
    arrivals += [(peer, poll.meters.received_s) for peer, poll in answered]
    _note_times(counters, arrivals)
    _update_meter_monitors(peers, counters.meters)
    for peer in bulk_replies:
        peer.connection.count.received += 1
        peer.poll = None
    ended = answered + [(peer, poll) for peer, poll in given_up if peers.is_current(peer)]
    read_ports_and_queues(peers, ended, counters.received_s, partial(_report_fault, peers))
    for peer, poll in ended:
        _cancel(peer, poll)
        peer.poll = None
    _read_port_queue_polls(peers, ready.values(), started_s, counters.received_s)
    return counters


def _note_times(counters: PolledCounters, arrivals: Iterable[tuple[ConnectedSwitch, float]]) -> None:
    """Record when each switch's counters arrived, and when its last meter-mods were confirmed.

    Switches with unreadable counters are left out.
    """
    readable = counters.meters.bounds
    for peer, received_s in arrivals:
        dpid = peer.connection.dpid
        if dpid in readable:
            counters.received_s[dpid] = peer.counted_s = received_s
            confirmed_s = peer.meters_set_s()
            if confirmed_s is not None:
                counters.confirmed_s[dpid] = confirmed_s


def _read_port_queue_polls(
    peers: ConnectedSwitches, ready: Iterable[ConnectedSwitch], started_s: float, counted: Container[int]
) -> None:
    """Read the port and queue counters that an earlier round requested after its bulk request for meters.

    ``counted`` (dpids) are the switches whose meter counters arrived in this round. Only their ports and queues are
    read now: the meter counters are newer, so they include all traffic in the port counters. Others are read later.
    """
    expired_before_s = peers.clock() - POLL_TIMEOUT_S
    polls = [(peer, peer.port_queue_poll) for peer in ready if peer.port_queue_poll is not None]
    ended = [
        (peer, poll)
        for peer, poll in polls
        if poll.requested_s < started_s and (poll.meters.done or poll.requested_s < expired_before_s)
    ]
    to_read = [(peer, poll) for peer, poll in ended if peer.connection.dpid in counted and peers.is_current(peer)]
    received_s = {peer.connection.dpid: poll.ports.received_s for peer, poll in to_read if poll.ports is not None}
    read_ports_and_queues(peers, to_read, received_s, partial(_report_fault, peers))
    for peer, poll in ended:
        if poll.requested_s < expired_before_s or peer.connection.dpid in counted:
            _cancel(peer, poll)
            peer.port_queue_poll = None


def _cancel(peer: ConnectedSwitch, poll: Poll) -> None:
    """Give up the replies of a poll that are still pending."""
    for reply in filter(None, (poll.meters, poll.ports, poll.queues)):
        peer.connection.forget(reply)


def _report_fault(peers: ConnectedSwitches, peer: ConnectedSwitch, error: ProtocolError) -> None:
    """Report unreadable counters of a connected switch, at most once in REPEAT_S."""
    now_s = peers.clock()
    if peers.is_current(peer) and now_s - peer.unreadable_s >= REPEAT_S:
        peer.unreadable_s = now_s
        peers.report_fault(peer.connection.dpid, f"sent counters that cannot be read: {error}")


def _request_all(peers: ConnectedSwitches, ready: Iterable[ConnectedSwitch], now_s: float) -> list[ConnectedSwitch]:
    """Request counters from the switches without a pending poll; return those in the bulk request for meters.

    A switch in the bulk request gets the request for its ports and queues after it, because the replies to a bulk
    request must come first; they are read in the next round. If a policy uses ports or queues, they are requested
    before the meters and read in this round, by single polls.
    """
    switches, needs_ports = peers.central.switches, peers.central.reads_ports_or_queues
    unpolled = [peer for peer in ready if peer.poll is None]
    bulk_candidates: list[ConnectedSwitch] = []
    ports_after_bulk: list[ConnectedSwitch] = []
    due_before_s = now_s if needs_ports else polled_before_s([peer.port_queue_polled_s for peer in unpolled], now_s)
    for peer in unpolled:
        if peer.stale_meter_ids:
            peer.stale_meter_ids = []
        ports_due = peer.port_queue_polled_s <= due_before_s
        uses_meters = switches[peer.connection.dpid].capabilities.uses_meters
        ports_first = ports_due and needs_ports
        # A bulk request needs to know how many meters the reply will have.
        if uses_meters and peer.counting is None and not ports_first and peer.meters_listed:
            bulk_candidates.append(peer)
            if ports_due and peer.port_queue_poll is None:
                ports_after_bulk.append(peer)
        else:
            peer.poll = _request_single(peer, uses_meters, now_s, ports_due)
    bulk_polled, filenos, xids = [], [], []
    bulk_poll = Poll(now_s, Reply())  # marks that a poll is pending; its reply is never used
    connections = [peer.connection for peer in bulk_candidates]
    sent = send_bulk_request(BULK_METER_STATS, connections, encode_meter_stats_request)
    for peer, fileno_and_xid in zip(bulk_candidates, sent, strict=True):
        if fileno_and_xid is None:  # this connection cannot take part in a bulk request now
            peer.poll = _request_single(peer, uses_meters=True, now_s=now_s, with_ports=False)
        else:
            peer.poll = bulk_poll
            bulk_polled.append(peer)
            filenos.append(fileno_and_xid[0])
            xids.append(fileno_and_xid[1])
    BULK_METER_STATS.expect([peer.meters_listed for peer in bulk_polled])
    BULK_METER_STATS.start(filenos, xids)
    for peer in ports_after_bulk:
        ports, queues = peer.connection.ask_all(encode_port_stats_request, encode_queue_stats_request)
        peer.port_queue_poll, peer.port_queue_polled_s = Poll(now_s, queues, ports, queues), now_s
    return bulk_polled


def polled_before_s(polled_s: Iterable[float], now_s: float) -> float:
    """Return the time T: ports and queues of each switch whose last poll was at T or earlier are polled now.

    ``polled_s`` is the time of each switch's last poll. A switch is due PORT_QUEUE_INTERVAL_S after its last poll. Once
    one is due, others that were polled at least MAX_EARLY_S ago are polled with it, up to TOGETHER switches in all,
    those with the oldest polls first.
    """
    due_s = now_s - PORT_QUEUE_INTERVAL_S
    candidates_s = sorted([last_s for last_s in polled_s if last_s <= now_s - MAX_EARLY_S])
    if not candidates_s or candidates_s[0] > due_s:
        return due_s
    return max(candidates_s[min(len(candidates_s), TOGETHER) - 1], due_s)


def _collect_replies(bulk_polled: list[ConnectedSwitch], now_s: float) -> dict[ConnectedSwitch, tuple[int, float]]:
    """Return, by switch, the index in the bulk request and the arrival time of each reply to it.

    The polls of the other switches become single polls, requested at ``now_s``.
    """
    bulk_replies = {}
    for index, (peer, received_s) in enumerate(zip(bulk_polled, BULK_METER_STATS.at_s.tolist(), strict=True)):
        if not math.isnan(received_s):
            bulk_replies[peer] = index, received_s
        else:
            peer.poll = Poll(now_s, peer.connection.fall_back(BULK_METER_STATS))
    return bulk_replies


def _request_single(peer: ConnectedSwitch, uses_meters: bool, now_s: float, with_ports: bool) -> Poll:
    """Request the counters of a switch's meters (or flow entries), and if ``with_ports`` of its ports and queues."""
    encode_meters = _encode_flows_request if peer.counting is not None else encode_meter_stats_request
    if not uses_meters:
        encode_meters = encode_barrier_request  # no counters: its reply shows that the replies before it have arrived
    if not with_ports:
        return Poll(now_s, peer.connection.ask(encode_meters))
    peer.port_queue_polled_s = now_s
    # Replies come in the order of the requests: once the last one, for meters, has arrived, all have.
    requests = (encode_port_stats_request, encode_queue_stats_request, encode_meters)
    ports, queues, meters = peer.connection.ask_all(*requests)
    return Poll(now_s, meters, ports, queues)


def _encode_flows_request(xid: int) -> bytes:
    """Return a request for the counters of the flow entries with meters."""
    return encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK, Table.RATE_CONTROL)


def _read_meters(
    peers: ConnectedSwitches,
    bulk_polled: list[ConnectedSwitch],
    bulk_replies: dict[ConnectedSwitch, tuple[int, float]],
    answered: list[Answer],
) -> MeterStatsBatch:
    """Return the counters of the switches' meters: from the bulk request, and from single polls.

    ``bulk_polled`` are the switches of the bulk request, ``bulk_replies`` the index in it and the arrival time of each
    reply, and ``answered`` the single polls with their replies. The switches are in the order of ``peers``, whichever
    way they replied: the owners of all meters would be searched for again in another order.
    """
    # Usually every reply came by the bulk request, and no meter was modified after it: the arrays serve as they are.
    all_in_bulk = not answered and len(bulk_replies) == len(bulk_polled)
    if all_in_bulk and not [peer for peer in bulk_polled if peer.stale_meter_ids]:
        dpids = [peer.connection.dpid for peer in bulk_polled]
        return MeterStatsBatch(dpids, BULK_METER_STATS.stats, BULK_METER_STATS.ends, BULK_METER_STATS.meter_id)
    stats, bounds = _read_single_replies(peers, answered), list(pairwise([0, *BULK_METER_STATS.ends.tolist()]))
    for peer, (index, _) in bulk_replies.items():
        stats[peer.connection.dpid] = _drop_stale(peer, BULK_METER_STATS.stats[slice(*bounds[index])])
    return MeterStatsBatch.from_stats({dpid: stats[dpid] for dpid in peers if dpid in stats})


def _read_single_replies(peers: ConnectedSwitches, answered: list[Answer]) -> dict[int, NDArray[np.void]]:
    """Return the counters of the switches' meters (METER_STATS) by dpid, without unreadable replies."""
    stats: dict[int, NDArray[np.void]] = {}
    for peer, poll in answered:
        octets = _reply_octets(poll)
        try:
            peer.meters_listed = 0  # while the replies are unreadable, the switch gets single polls
            check_size("meters", octets, _max_reply_octets(peers, peer))
            peer.meters_listed = octets // STATS_BYTES
            stats[peer.connection.dpid] = _meter_stats(peer, poll.meters)
        except ProtocolError as error:
            _report_fault(peers, peer, error)
    return stats


def _reply_octets(poll: Poll) -> int:
    """Return the length of a poll's meter-stats in bytes; ``begun`` is the part that a bulk request has decoded."""
    begun = poll.meters.begun
    return sum(map(len, poll.meters.parts)) + (0 if begun is None else STATS_BYTES * len(begun))


def _max_reply_octets(peers: ConnectedSwitches, peer: ConnectedSwitch) -> int:
    """Return the greatest length of a correct switch's meter-stats or flow-stats, in bytes."""
    return MAX_QUEUED_BYTES + _METER_BYTES * len(peers.central.switches[peer.connection.dpid].installed)


def _update_meter_monitors(peers: ConnectedSwitches, meters: MeterStatsBatch) -> None:
    """Let the monitors compare the meters' counters with their settings, at switches whose meters count."""
    fabric = peers.central.fabric
    switches = fabric.switches
    monitors = {
        dpid: peers[dpid].meters
        for dpid in meters.dpids
        if peers[dpid].counting is None and switches[dpid].capabilities.uses_meters
    }
    if len(monitors) < len(meters.dpids):
        meters = meters.select_switches(monitors)
    pair_rows, enforcement = fabric.listing.find(switches, meters).entry, fabric.state.enforcement
    settings = enforcement.rate_kbps, enforcement.burst_kbits
    update_monitors(list(monitors.values()), meters.whole, meters.ends, pair_rows, settings)


def _meter_stats(peer: ConnectedSwitch, reply: Reply) -> NDArray[np.void]:
    """Return the meters' counters (METER_STATS) of a reply with meter-stats or, for ``peer.counting``, flow-stats."""
    body = b"".join(reply.parts)
    if peer.counting is None:
        meters = decode_meter_stats(body)
        return _drop_stale(peer, meters if reply.begun is None else np.concatenate([reply.begun, meters]))
    peer.known_flows = decode_flow_stats(body, peer.known_flows.known)
    return peer.counting.meter_stats(peer.known_flows, reply.received_s)


def _drop_stale(peer: ConnectedSwitch, meters: NDArray[np.void]) -> NDArray[np.void]:
    """Return the counters without those of meters that were modified after the request for counters.

    The switch replied before it executed the modify, so these counters would be mistaken for counts since the modify.
    """
    if not peer.stale_meter_ids:
        return meters
    return meters[~np.isin(meters["meter_id"], np.concatenate(peer.stale_meter_ids))]
