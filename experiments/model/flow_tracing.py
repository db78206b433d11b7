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
    """The visitor of one frame's pass through one switch's pipeline: its meters and outputs."""

    def __init__(self, dpid: int, path: TracedPath) -> None:
        self.meters: list[int] = []
        # (port_no, queue id, frame, ids of the meters passed before) of each output.
        self.outputs: list[tuple[int, int | None, bytes, tuple[int, ...]]] = []
        self._dpid, self._path = dpid, path

    def hit(self, entry: FlowTableEntry, octets: int) -> None:
        self._path.entries.append((self._dpid, entry.row))

    def police(self, meter_id: int, octets: int) -> bool:
        self.meters.append(meter_id)
        return True

    def output(self, port_no: int, queue_id: int | None, frame: bytes) -> None:
        self.outputs.append((port_no, queue_id, frame, tuple(self.meters)))

    def to_controller(
        self, entry: FlowTableEntry | None, in_port: int, frame: bytes, max_len: int, metadata: int
    ) -> None:
        self._path.reports.append((self._dpid, entry, in_port, frame, max_len, metadata))


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
    """Return the path of ``frame`` from the edge port where it enters to ``target``, the edge port of the receiver."""
    path = TracedPath()
    path.hops = _follow(switches, ports, peer, frame, start, target, path, 0) or []
    return path


def _follow(
    switches: Mapping[int, ModelDatapath],
    ports: Mapping[PortId, OutPort],
    peer: Callable[[PortId], PortId | None],
    frame: bytes,
    entry_port: PortId,
    target: PortId,
    path: TracedPath,
    depth: int,
) -> list[Hop] | None:
    """Return the hops from a port to ``target`` through the present flow tables; None if the frame does not arrive.

    Entries and packet-ins on the way are added to ``path``; ``depth`` is the number of hops before this port.
    """
    if depth > _MAX_HOPS:
        return None
    walk = _Walk(entry_port.dpid, path)
    datapath = switches[entry_port.dpid]
    datapath.pipeline.run(entry_port.port_no, frame, walk)
    for port_no, queue_id, sent_frame, meters in walk.outputs:
        out_port = PortId(entry_port.dpid, port_no)
        if out_port not in ports:
            continue
        queue = queue_id if queue_id is not None and queue_id in ports[out_port].port.queues else 0
        buckets, passed = datapath.meters.buckets, len(meters)
        before = tuple(buckets[meter_id] for meter_id in meters)
        behind = tuple(buckets[meter_id] for meter_id in walk.meters[passed:])
        counting, clears = _marked(datapath, frame, entry_port, out_port, walk.meters)
        hop = Hop(before, ports[out_port], queue, behind, bool(_ecn_of(sent_frame)), counting, clears)
        if out_port == target:
            return [hop]
        peer_port = peer(out_port)
        if peer_port is None:
            continue
        further_hops = _follow(switches, ports, peer, sent_frame, peer_port, target, path, depth + 1)
        if further_hops is not None:
            return [hop, *further_hops]
    return None


def _marked(
    datapath: ModelDatapath, frame: bytes, entry_port: PortId, out_port: PortId, meters: list[int]
) -> tuple[tuple[Bucket, ...], bool]:
    """Return the additional meters for a frame with a congestion mark, and whether the switch removes the mark."""
    if not _ecn_of(frame):
        return (), False
    walk = _Walk(entry_port.dpid, TracedPath())
    datapath.pipeline.run(entry_port.port_no, with_ip_ecn(frame, CE), walk)
    marked_only = tuple(datapath.meters.buckets[meter] for meter in walk.meters if meter not in meters)
    clears = all(_ecn_of(sent) != CE for port_no, _, sent, _ in walk.outputs if port_no == out_port.port_no)
    return marked_only, clears


def _ecn_of(frame: bytes) -> int:
    """Return the ECN field of an IP frame, 0 for other frames."""
    return ip_ecn_of(frame, parse_frame(frame)) or 0


def in_order(ports: Iterable[OutPort], paths: Iterable[list[Hop]]) -> list[OutPort]:
    """Return the ports in an order in which each port comes after the ports that send to it.

    Ports on a ring of paths have no such order; their order is then nearly so.
    """
    rank = {id(port): 0 for port in ports}
    chains = [[id(hop.port) for hop in path] for path in paths]
    for _ in range(_MAX_HOPS):
        changed = False
        for chain in chains:
            for before, after in pairwise(chain):
                if rank[after] <= rank[before]:
                    rank[after], changed = rank[before] + 1, True
        if not changed:
            break
    return sorted(ports, key=lambda port: rank[id(port)])
