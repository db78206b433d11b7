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
    """Pass the received counters of ports and queues to the fabric's deliveries, meter readers and queue readers.

    They belong to this round if the meters arrived with them (``received_s`` of their dpid); otherwise they are not
    used by policies.

    ``report_fault`` is called for a switch with unreadable counters; its queues are not read without its ports.
    """
    polls = [(peer, poll) for peer, poll in polls if poll.ports is not None]
    if not polls:
        return
    at_s = {peer.connection.dpid: received_s.get(peer.connection.dpid, poll.requested_s) for peer, poll in polls}
    bodies, refused = _bodies("ports", [(peer, poll.ports) for peer, poll in polls], report_fault)
    ports, unreadable = _decoded(bodies, decode_port_stats, report_fault)
    for peer, port_stats in ports:
        dpid = peer.connection.dpid
        _name_ports(peers, dpid, port_stats)
        peers.central.fabric.deliveries[dpid].read_ports(port_stats, at_s[dpid])
        if dpid in received_s and peer.counting is None and peers.central.switches[dpid].capabilities.uses_meters:
            peer.meters.update(port_stats, peers.clock())
    left_out = refused | unreadable
    queue_requests = [(peer, poll.queues) for peer, poll in polls if peer.connection.dpid not in left_out]
    bodies, _ = _bodies("queues", queue_requests, report_fault)
    ports_of = {peer.connection.dpid: port_stats for peer, port_stats in ports}
    for peer, queue_stats in _decoded(bodies, decode_queue_stats, report_fault)[0]:
        dpid = peer.connection.dpid
        _name_ports(peers, dpid, queue_stats)
        peers.central.fabric.deliveries[dpid].read_queues(queue_stats, at_s[dpid])
        if dpid in ports_of:
            peer.queues.read(queue_stats, ports_of[dpid], peers.clock())


def _name_ports(peers: ConnectedSwitches, dpid: int, stats: NDArray[np.void]) -> None:
    """Rename counters from the switch's numbers to the ports that the configuration names."""
    numbers = peers.central.network.numbers
    if numbers.bound(dpid):
        stats["port_no"] = numbers.ports(dpid, stats["port_no"].astype(np.int64))


def _bodies(
    what: str, requests: Sequence[tuple[ConnectedSwitch, Reply | None]], report_fault: ReportFault
) -> tuple[list[_Body], set[int]]:
    """Return the received replies, and the dpids of error replies and of replies that are too long."""
    found: list[_Body] = []
    refused: set[int] = set()
    for peer, reply in requests:
        try:
            if reply is not None and (body := reply.wait(0.0)) is not None:
                check_size(what, len(body))
                found.append((peer, body))
        except ProtocolError as error:
            report_fault(peer, error)
            refused.add(peer.connection.dpid)
    return found, refused


def _decoded(
    bodies: Sequence[_Body], decode: _Decode, report_fault: ReportFault
) -> tuple[list[tuple[ConnectedSwitch, NDArray[np.void]]], set[int]]:
    """Return the counters in each body, and the dpids of unreadable ones.

    All bodies are decoded together; if one is malformed, each is decoded separately.
    """
    whole = b"".join([body for _, body in bodies])
    try:
        counters = decode(whole)
    except ProtocolError:
        return _decoded_one_by_one(bodies, decode, report_fault)
    octets = len(whole) // len(counters) if len(counters) else 1
    if any(len(body) % octets for _, body in bodies):
        return _decoded_one_by_one(bodies, decode, report_fault)
    found, start = [], 0
    for peer, body in bodies:
        end = start + len(body) // octets
        found.append((peer, counters[start:end].copy()))  # a slice would keep the counters of all switches in memory
        start = end
    return found, set()


def _decoded_one_by_one(
    bodies: Sequence[_Body], decode: _Decode, report_fault: ReportFault
) -> tuple[list[tuple[ConnectedSwitch, NDArray[np.void]]], set[int]]:
    """Return the decoded replies, and the dpids of switches with a malformed reply, which is a fault."""
    found: list[tuple[ConnectedSwitch, NDArray[np.void]]] = []
    unreadable: set[int] = set()
    for peer, body in bodies:
        try:
            found.append((peer, decode(body)))
        except ProtocolError as error:
            report_fault(peer, error)
            unreadable.add(peer.connection.dpid)
    return found, unreadable
