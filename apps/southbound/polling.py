"""Reads the switches' counters, once in an interval."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apps.southbound.peers import MOST_BYTES, POLL_PATIENCE_S, REPEAT_S, Peer, Peers, Poll, check_size
from controller.errors import ProtocolError
from controller.forwarding.pipeline import OWN_COOKIE, OWN_COOKIE_MASK, Table
from controller.openflow.flows import decode_flow_stats
from controller.openflow.messages import encode_barrier_request
from controller.openflow.meters import decode_meter_stats
from controller.openflow.stats import (
    decode_port_stats,
    decode_queue_stats,
    encode_flow_stats_request,
    encode_meter_stats_request,
    encode_port_stats_request,
    encode_queue_stats_request,
)

# A switch reports no more than that of a flow entry and its meter.
_METER_BYTES = 400
# Ports and queues are asked for in every round while a policy decides by them; else a little
# less often than the watch over queues looks, which is as often as people do.
LOOK_INTERVAL_S = 0.26
SOON = 0.25  # of the time that answers have


class PolledCounters(NamedTuple):
    """What the switches told in time, by dpid: METER_STATS, when they came, and when meters were set as last told.

    ``unanswered`` is how many switches were late.
    """

    meters: dict[int, NDArray[np.void]]
    received_s: dict[int, float]
    confirmed_s: dict[int, float]
    unanswered: int


def poll(
    peers: Peers, started_s: float, deadline_s: float, waiting: Callable[[], AbstractContextManager[None]]
) -> PolledCounters:
    """Ask the switches that are ready for their counters, and wait for them until ``deadline_s``.

    Most have answered after a part of that time. While the rest is waited for, inside ``waiting``, others may work.

    Ports and queues go to the deliveries of the central controller. A switch that is late is not asked again, or it
    would only fall further behind: its answer serves the next round. Nor do the others wait for it once more.
    """
    ready = peers.ready()
    always = peers.central.reads_ports_or_queues
    for peer in ready.values():
        if peer.poll is None:
            peer.overtaken.clear()
            peer.poll = _ask(peers, peer, started_s, always)
    counters, unanswered = PolledCounters({}, {}, {}, 0), 0
    soon_s = started_s + SOON * (deadline_s - started_s)
    late_last = sorted(ready.items(), key=lambda item: item[1].poll is not None and item[1].poll.asked_s < started_s)
    for dpid, peer in late_last:
        asked = peer.poll
        if asked is None:
            continue
        try:
            body = asked.meters.wait(soon_s - peers.clock() if asked.asked_s == started_s else 0.0)
            if body is None and asked.asked_s == started_s:
                with waiting():
                    body = asked.meters.wait(deadline_s - peers.clock())
            if body is None:
                unanswered += 1
                if peers.clock() - asked.asked_s < POLL_PATIENCE_S:
                    continue
            if not peers.holds(peer):
                continue
            _take(peers, peer, asked, body, counters)
        except ProtocolError as error:
            if peers.holds(peer) and started_s - peer.unreadable_s >= REPEAT_S:
                peer.unreadable_s = started_s
                peers.complain(dpid, f"sent counters that cannot be read: {error}")
        for reply in filter(None, asked[1:]):
            peer.connection.forget(reply)
        peer.poll = None
    return counters._replace(unanswered=unanswered)


def _ask(peers: Peers, peer: Peer, now_s: float, always: bool) -> Poll:
    def ask_flows(xid: int) -> bytes:
        return encode_flow_stats_request(xid, OWN_COOKIE, OWN_COOKIE_MASK, Table.RATE_CONTROL)

    ask_meters = ask_flows if peer.counting is not None else encode_meter_stats_request
    if not peers.central.switches[peer.connection.dpid].can.uses_meters:
        ask_meters = encode_barrier_request  # nothing to read: its answer, which has no body, says that all is there
    if not always and now_s - peer.looked_s < LOOK_INTERVAL_S:
        return Poll(now_s, peer.connection.ask(ask_meters))
    peer.looked_s = now_s
    # Answers come in this order: with the meters, all are there.
    ports, queues, meters = peer.connection.ask_all(encode_port_stats_request, encode_queue_stats_request, ask_meters)
    return Poll(now_s, meters, ports, queues)


def _take(peers: Peers, peer: Peer, asked: Poll, body: bytes | None, counters: PolledCounters) -> None:
    dpid = peer.connection.dpid
    if body is not None:
        check_size("meters", body, MOST_BYTES + _METER_BYTES * len(peers.central.switches[dpid].installed))
        counters.meters[dpid] = _meter_stats(peer, body, asked.meters.received_s)
        counters.received_s[dpid] = peer.counted_s = asked.meters.received_s
        if peer.meters_set is not None and peer.meters_set.done:
            counters.confirmed_s[dpid] = peer.meters_set.received_s
    # Ports and queues count as of this round where the meters came with them; else they are nobody's.
    came_s = counters.received_s.get(dpid, asked.asked_s)
    delivery = peers.central.fabric.deliveries[dpid]
    port_stats = None
    if asked.ports is not None and (body := asked.ports.wait(0.0)) is not None:
        check_size("ports", body)
        port_stats = decode_port_stats(body)
        delivery.read_ports(port_stats, came_s)
    if dpid in counters.meters and peer.counting is None and peers.central.switches[dpid].can.uses_meters:
        peer.meters.read(counters.meters[dpid], port_stats, peers.clock())
    if asked.queues is not None and (body := asked.queues.wait(0.0)) is not None:
        check_size("queues", body)
        queue_stats = decode_queue_stats(body)
        delivery.read_queues(queue_stats, came_s)
        if port_stats is not None:
            peer.queues.read(queue_stats, port_stats, peers.clock())


def _meter_stats(peer: Peer, body: bytes, received_s: float) -> NDArray[np.void]:
    """Return the counters, without those of meters that were set while the switch was asked.

    It has answered before it set them, maybe long after that was sent, so that they are counts from before the setting
    that would be taken for counts since then.
    """
    if peer.counting is None:
        meters = decode_meter_stats(body)
        return meters[~np.isin(meters["meter_id"], np.concatenate(peer.overtaken))] if peer.overtaken else meters
    peer.known_flows = decode_flow_stats(body, peer.known_flows.known)
    return peer.counting.meter_stats(peer.known_flows, received_s)
