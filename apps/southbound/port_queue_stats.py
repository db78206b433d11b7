"""Reads the switches' replies about ports and queues, and passes them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from apps.runtime.ryu_adapter import Reply
from apps.southbound.connected_switches import ConnectedSwitch, ConnectedSwitches, Poll, check_size
from controller.errors import ProtocolError
from controller.openflow.multipart import decode_port_stats, decode_queue_stats

ReportFault = Callable[[ConnectedSwitch, ProtocolError], None]
_Body = tuple[ConnectedSwitch, bytes]
_Decode = Callable[[bytes], NDArray[np.void]]


def read_ports_and_queues(
    peers: ConnectedSwitches,
    polls: Sequence[tuple[ConnectedSwitch, Poll]],
    received_s: Mapping[int, float],
    report_fault: ReportFault,
) -> None:
    """Pass the counters of ports and queues in complete replies to the fabric's deliveries and to the monitors.

    ``received_s`` is the arrival time of the meters' counters of this round, by dpid. Counters of a switch without one
    are dated at their request, and not compared with the meters' counters.

    ``report_fault`` is called for a switch with unreadable counters. The queues of such a switch are not read if its
    ports are unreadable.
    """
    polls = [(peer, poll) for peer, poll in polls if poll.ports is not None]
    if not polls:
        return
    read_s = {peer.connection.dpid: received_s.get(peer.connection.dpid, poll.requested_s) for peer, poll in polls}
    bodies, rejected = _bodies("ports", [(peer, poll.ports) for peer, poll in polls], report_fault)
    ports, unreadable = _decoded(bodies, decode_port_stats, report_fault)
    for peer, port_stats in ports:
        dpid = peer.connection.dpid
        _apply_config_numbers(peers, dpid, port_stats)
        peers.central.fabric.deliveries[dpid].read_ports(port_stats, read_s[dpid])
        if dpid in received_s and peer.counting is None and peers.central.switches[dpid].capabilities.uses_meters:
            peer.meters.update(port_stats, peers.clock())
    without_ports = rejected | unreadable
    queue_requests = [(peer, poll.queues) for peer, poll in polls if peer.connection.dpid not in without_ports]
    bodies, _ = _bodies("queues", queue_requests, report_fault)
    port_stats_of = {peer.connection.dpid: port_stats for peer, port_stats in ports}
    for peer, queue_stats in _decoded(bodies, decode_queue_stats, report_fault)[0]:
        dpid = peer.connection.dpid
        _apply_config_numbers(peers, dpid, queue_stats)
        peers.central.fabric.deliveries[dpid].read_queues(queue_stats, read_s[dpid])
        if dpid in port_stats_of:
            peer.queues.read(queue_stats, port_stats_of[dpid], peers.clock())


def _apply_config_numbers(peers: ConnectedSwitches, dpid: int, stats: NDArray[np.void]) -> None:
    """Replace the switch's port numbers in counters by the configuration's, which differ for ports given by name."""
    numbers = peers.central.network.numbers
    if numbers.bound(dpid):  # some port of the switch is given by name
        stats["port_no"] = numbers.ports(dpid, stats["port_no"].astype(np.int64))


def _bodies(
    subject: str, requests: Sequence[tuple[ConnectedSwitch, Reply | None]], report_fault: ReportFault
) -> tuple[list[_Body], set[int]]:
    """Return the bodies of the complete replies, and the dpids of error replies and of replies that are too long."""
    bodies: list[_Body] = []
    rejected: set[int] = set()
    for peer, reply in requests:
        try:
            body = None if reply is None else reply.wait(0.0)
            if body is not None:
                check_size(subject, len(body))
                bodies.append((peer, body))
        except ProtocolError as error:
            report_fault(peer, error)
            rejected.add(peer.connection.dpid)
    return bodies, rejected


def _decoded(
    bodies: Sequence[_Body], decode: _Decode, report_fault: ReportFault
) -> tuple[list[tuple[ConnectedSwitch, NDArray[np.void]]], set[int]]:
    """Return the counters in each body, and the dpids of switches with a malformed body.

    All bodies are decoded together, which is faster. If one is malformed, each is decoded separately.
    """
    whole = b"".join([body for _, body in bodies])
    try:
        counters = decode(whole)
    except ProtocolError:
        return _decoded_one_by_one(bodies, decode, report_fault)
    row_octets = len(whole) // len(counters) if len(counters) else 1
    if any(len(body) % row_octets for _, body in bodies):  # a body ends within a row
        return _decoded_one_by_one(bodies, decode, report_fault)
    decoded, start = [], 0
    for peer, body in bodies:
        end = start + len(body) // row_octets
        decoded.append((peer, counters[start:end].copy()))  # a slice would keep the counters of all switches in memory
        start = end
    return decoded, set()


def _decoded_one_by_one(
    bodies: Sequence[_Body], decode: _Decode, report_fault: ReportFault
) -> tuple[list[tuple[ConnectedSwitch, NDArray[np.void]]], set[int]]:
    """Return the counters in each body, and the dpids of switches with a malformed body, which is a fault."""
    decoded: list[tuple[ConnectedSwitch, NDArray[np.void]]] = []
    unreadable: set[int] = set()
    for peer, body in bodies:
        try:
            decoded.append((peer, decode(body)))
        except ProtocolError as error:
            report_fault(peer, error)
            unreadable.add(peer.connection.dpid)
    return decoded, unreadable
