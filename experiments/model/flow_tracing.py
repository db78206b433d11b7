"""The path of a source's frames through the present flow tables, entry by entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from controller.fabric.topology import PortId
from controller.openflow.ethernet import FrameHeader, build_frame, ip_ecn_of, parse_frame, with_ip_ecn
from experiments.model.meters import ModelDatapath
from experiments.model.queues import Bucket, Hop, OutPort
from experiments.switch.flow_tables import FlowTableEntry

ETH_TYPE_IPV4 = 0x0800
ECT_0, CE = 2, 3  # RFC 3168, section 5
_SMALLEST_FRAME = 60
_MAX_HOPS = 32


@dataclass(slots=True)
class TracedPath:
    """The trace of one frame: the hops to the receiver, the entries it matched, the packet-ins it causes.

    ``hops`` is empty when it does not reach the receiver. Copies that floods send to other ports are not followed: in
    the model they load no port.
    """

    hops: list[Hop] = field(default_factory=list)
    entries: list[tuple[int, int]] = field(default_factory=list)
    """(dpid, row of the entry's counters)."""
    reports: list[tuple[int, FlowTableEntry | None, int, bytes, int, int]] = field(default_factory=list)
    """(dpid, entry, in_port, frame, max_len, metadata), as ``Datapath.packet_in`` takes them."""


class _Walk:
    """The visitor of one walk through one switch's pipeline."""

    def __init__(self, dpid: int, way: TracedPath) -> None:
        self.meters: list[int] = []
        self.outputs: list[tuple[int, int | None, bytes, tuple[int, ...]]] = []
        self._dpid, self._way = dpid, way

    def hit(self, entry: FlowTableEntry, octets: int) -> None:
        self._way.entries.append((self._dpid, entry.row))

    def police(self, meter_id: int, octets: int) -> bool:
        self.meters.append(meter_id)
        return True

    def output(self, port_no: int, queue_id: int | None, frame: bytes) -> None:
        self.outputs.append((port_no, queue_id, frame, tuple(self.meters)))

    def to_controller(
        self, entry: FlowTableEntry | None, in_port: int, frame: bytes, max_len: int, metadata: int
    ) -> None:
        self._way.reports.append((self._dpid, entry, in_port, frame, max_len, metadata))


def frame_of(source_mac: int, target_mac: int, vlan_vid: int | None, ip_ecn: int = 0) -> bytes:
    """Return a frame from one host to another; ``vlan_vid`` None at an access port."""
    frame = build_frame(FrameHeader(target_mac, source_mac, vlan_vid, ETH_TYPE_IPV4), b"")
    return with_ip_ecn(frame.ljust(_SMALLEST_FRAME, b"\0"), ip_ecn)


def trace_path(
    switches: Mapping[int, ModelDatapath],
    ports: Mapping[PortId, OutPort],
    peer: Callable[[PortId], PortId | None],
    frame: bytes,
    start: PortId,
    target: PortId,
) -> TracedPath:
    """Follow ``frame`` from the edge port where it enters to the edge port where it should leave."""
    way = TracedPath()
    way.hops = _follow(switches, ports, peer, frame, start, target, way, 0) or []
    return way


def _follow(
    switches: Mapping[int, ModelDatapath],
    ports: Mapping[PortId, OutPort],
    peer: Callable[[PortId], PortId | None],
    frame: bytes,
    at: PortId,
    target: PortId,
    way: TracedPath,
    depth: int,
) -> list[Hop] | None:
    """Return the hops from a port to ``target`` through the present flow tables; None if the frame does not arrive."""
    if depth > _MAX_HOPS:
        return None
    walk = _Walk(at.dpid, way)
    datapath = switches[at.dpid]
    datapath.pipeline.run(at.port_no, frame, walk)
    for port_no, queue_id, sent, meters in walk.outputs:
        out = PortId(at.dpid, port_no)
        if out not in ports:
            continue
        queue = queue_id if queue_id is not None and queue_id in ports[out].port.queues else 0
        before, behind = (
            tuple(datapath.meters.buckets[m] for m in some) for some in (meters, walk.meters[len(meters) :])
        )
        counting, clears = _marked(datapath, frame, at, out, walk.meters)
        hop = Hop(before, ports[out], queue, behind, bool(_ecn_of(sent)), counting, clears)
        if out == target:
            return [hop]
        other = peer(out)
        rest = None if other is None else _follow(switches, ports, peer, sent, other, target, way, depth + 1)
        if rest is not None:
            return [hop, *rest]
    return None


def _marked(
    datapath: ModelDatapath, frame: bytes, at: PortId, out: PortId, meters: list[int]
) -> tuple[tuple[Bucket, ...], bool]:
    """Return the other meters for a frame that arrives with a mark, and whether its mark is removed."""
    if not _ecn_of(frame):
        return (), False
    walk = _Walk(at.dpid, TracedPath())
    datapath.pipeline.run(at.port_no, with_ip_ecn(frame, CE), walk)
    more = tuple(datapath.meters.buckets[meter] for meter in walk.meters if meter not in meters)
    clears = all(_ecn_of(sent) != CE for port_no, _, sent, _ in walk.outputs if port_no == out.port_no)
    return more, clears


def _ecn_of(frame: bytes) -> int:
    return ip_ecn_of(frame, parse_frame(frame)) or 0


def in_order(ports: Iterable[OutPort], ways: Iterable[list[Hop]]) -> list[OutPort]:
    """Return the ports so that each follows those that send to it; if paths form a ring, nearly so."""
    rank = {id(port): 0 for port in ports}
    chains = [[id(hop.port) for hop in way] for way in ways]
    for _ in range(_MAX_HOPS):
        moved = False
        for chain in chains:
            for before, after in pairwise(chain):
                if rank[after] <= rank[before]:
                    rank[after], moved = rank[before] + 1, True
        if not moved:
            break
    return sorted(ports, key=lambda port: rank[id(port)])
