"""Switches, links and hosts of any fabric of ``topologies`` in virtual time, in slots.

    model = ModelFabric(fig5(link_rate_bps=10**9), ModelOptions())
    install_plain_forwarding(model)
    flow = model.connect(UdpSource(500e6, model.slot_s), fabric.vn(1, 1), fabric.vn(1, 11))
    flow.source.start(0)
    model.run(1.0)

In each slot every source sends a run of whole packets, which goes from port to port within the slot unless it has to
wait. Random numbers come from one generator with the options' seed, so that a run is the same every time.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from controller.errors import InvalidValueError
from controller.fabric.topology import PortId
from experiments.model import MAX_SLOT_S, MIN_SLOT_S
from experiments.model.flow_tracing import ECT_0, TracedPath, frame_of, in_order, trace_path
from experiments.model.meters import ModelDatapath
from experiments.model.queues import Hop, OutPort, QueueOptions, Run, Sender, whole_ms
from experiments.model.sources import Generator, ModelSource
from experiments.switch.options import DatapathOptions
from experiments.switch.ports import SwitchPort as LinkPort
from topologies.fabric import Fabric, VirtualNode

FLOW_STATS_STALENESS_S = 0.5  # Open vSwitch's revalidator


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options of the model. ``slot_s`` is the grain of time: events within a slot coincide.

    No round trip is shorter than a slot. ``queues`` are those of edge ports, ``core_queues`` those of links between
    switches, ``uplink_queues`` those of hosts. None: as ``queues``.
    """

    slot_s: float = 0.001
    seed: int = 1
    queues: QueueOptions = field(default_factory=QueueOptions)
    core_queues: QueueOptions | None = None
    uplink_queues: QueueOptions | None = None
    flow_stats_staleness_s: float = FLOW_STATS_STALENESS_S

    def __post_init__(self) -> None:
        if not MIN_SLOT_S <= self.slot_s <= MAX_SLOT_S:
            raise InvalidValueError("slot_s", self.slot_s, f"is outside {MIN_SLOT_S:g} to {MAX_SLOT_S:g} seconds")


@dataclass(slots=True, eq=False)
class ModelFlow:
    """A source with its sender and receiver, and the path of its frames through the present flow tables."""

    source: ModelSource
    sender: VirtualNode
    receiver: VirtualNode
    start: PortId
    target: PortId
    frame: bytes
    way: TracedPath = field(default_factory=TracedPath)
    reported: tuple[int, int] = (0, 0)
    """(sent, delivered) packets that the flow entries' counters include already"""
    seen: int = 0
    """packets sent until the last ``report_frames``"""


@dataclass(slots=True)
class Received:
    """The tagged frames that a VN received, and their bytes."""

    packets: int = 0
    octets: int = 0


def mac_of(vn: VirtualNode) -> int:
    """Return a VN's MAC address as an integer."""
    return int(vn.mac.replace(":", ""), 16)


class ModelFabric:
    """The fabric as a model: its switches, ports, links and flows; ``slot`` is the time, in slots."""

    def __init__(self, fabric: Fabric, options: ModelOptions) -> None:
        self.fabric, self.options, self.slot_s = fabric, options, options.slot_s
        self.rng = Random(options.seed)
        self.slot = 0
        self.flows: list[ModelFlow] = []
        self.received: dict[VirtualNode, Received] = {vn: Received() for vn in fabric.vns()}
        datapath = DatapathOptions(flow_stats_staleness_s=options.flow_stats_staleness_s)
        self.switches = {s.dpid: ModelDatapath(s.dpid, datapath) for s in fabric.switches}
        self.ports: dict[PortId, OutPort] = {}
        self.uplinks: dict[int, OutPort] = {}  # by PN number: from the PN to its edge switch
        self.uplink_queue = self.class_on_uplink
        self.links: dict[PortId, PortId] = {}
        self._receiver_of: dict[Sender, Received] = {}
        self._sending: list[ModelSource] = []
        self._generators: list[Generator] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []  # a heap of (slot, serial number, action)
        self._event_count = 0
        self._order: list[OutPort] = []  # each port after the ports that send to it
        self._versions: list[int] | None = None  # of the flow tables when paths were traced; None: trace them again
        self._build()

    @property
    def now_s(self) -> float:
        """The virtual time in seconds."""
        return self.slot * self.slot_s

    def slot_of(self, at_s: float) -> int:
        """Return the slot that begins at a time in seconds, or the first slot after that time."""
        return math.ceil(at_s / self.slot_s - 1e-6)  # a rounding error costs no slot

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        """Schedule ``action`` for the slot that begins at a time; actions of one slot run in order of scheduling."""
        self._event_count += 1
        heapq.heappush(self._events, (max(self.slot_of(at_s), self.slot), self._event_count, action))

    def connect(self, source: ModelSource, sender: VirtualNode, receiver: VirtualNode) -> ModelFlow:
        """Connect a source from a sender to a receiver in the same VLAN; it sends nothing until it is started."""
        if sender.vlan_vid != receiver.vlan_vid:
            raise InvalidValueError("receiver", receiver.name, f"is not in VLAN {sender.vlan_vid}, as the sender is")
        frame = frame_of(mac_of(sender), mac_of(receiver), sender.vlan_vid, ECT_0 if source.ecn else 0)
        flow = ModelFlow(source, sender, receiver, self.edge_port(sender), self.edge_port(receiver), frame)
        self.flows.append(flow)
        self._sending.append(source)
        self._receiver_of[source] = self.received[receiver]
        self._versions = None
        return flow

    def generate(self, generator: Generator) -> None:
        """Let a generator drive its sources from now on."""
        self._generators.append(generator)

    def edge_port(self, vn: VirtualNode) -> PortId:
        """Return the edge port behind which a VN is."""
        return PortId(self.fabric.switch(vn.pn.switch).dpid, vn.pn.port_no)

    def round_trip_s(self, sender: VirtualNode, receiver: VirtualNode) -> float:
        """Return the sum of the link delays there and back in seconds, along the path with the fewest links."""
        one_way_s = sender.pn.link_delay_s + receiver.pn.link_delay_s
        return 2 * (one_way_s + self._core_delay_s(sender.pn.switch, receiver.pn.switch))

    def set_queues(self, queues: Mapping[PortId, Mapping[int, tuple[int, int]]]) -> None:
        """Configure the queues of edge ports: (min, max) rates in bit/s by queue id, by port."""
        for port, classes in queues.items():
            self.ports[port].configure(dict(classes), self.now_s)
        self._versions = None

    def set_uplink_queues(self, pn_number: int, vlans: Mapping[int, tuple[int, int]]) -> None:
        """Configure a class per VLAN on a PN's uplink: (min, max) rates in bit/s by VLAN id; none: one FIFO.

        VLANs without a class share what the classes leave, as a default class. This is the host's scheduler that a
        paper on hosts assumes; edge switches receive frames only behind it. Raises InvalidValueError for a VLAN that
        the PN is not in.
        """
        pn = self.fabric.pn(pn_number)
        for vid in vlans.keys() - set(pn.vlans):
            raise InvalidValueError(
                "vlan_vid", vid, f"is not a VLAN of PN {pn_number} ({', '.join(map(str, pn.vlans))})"
            )
        self.uplinks[pn_number].configure(dict(vlans), self.now_s)
        self._versions = None

    def run(self, until_s: float) -> None:
        """Advance the virtual time to ``until_s``, slot by slot."""
        end = self.slot_of(until_s)
        while self.slot < end:
            events = self._events
            if events and events[0][0] <= self.slot:
                while events and events[0][0] <= self.slot:
                    heapq.heappop(events)[2]()
                self.follow_tables()
            elif self._versions is None:
                self.follow_tables()
            self._pass_slot()
            self.slot += 1

    def class_on_uplink(self, flow: ModelFlow) -> int:
        """Return the queue id of a flow on its PN's uplink: its VLAN id if that VLAN has a class, otherwise 0."""
        vid = flow.sender.vlan_vid
        return vid if vid in self.uplinks[flow.sender.pn.number].port.queues else 0

    def uplinks_changed(self) -> None:
        """Make the next slot look up the sources' queues on uplinks again."""
        self._versions = None

    def follow_tables(self) -> None:
        """Trace the path of every source again if a flow table or an uplink has changed."""
        versions = [datapath.tables.version for datapath in self.switches.values()]
        if versions == self._versions:
            return
        self.count_hits()
        for flow in self.flows:
            flow.way = trace_path(self.switches, self.ports, self.links.get, flow.frame, flow.start, flow.target)
            port, queue_id = self.uplinks[flow.sender.pn.number], self.uplink_queue(flow)
            uplink = Hop((), port, queue_id, markable=flow.source.ecn)
            flow.source.set_path([uplink, *flow.way.hops] if flow.way.hops else [])
        all_ports = [*self.uplinks.values(), *self.ports.values()]
        self._order = in_order(all_ports, (flow.source.hops for flow in self.flows))
        self._versions = versions

    def count_hits(self) -> None:
        """Update the counters of flow entries, ports and queues with the traffic since the last call.

        Entries of the first switch count the packets sent, those of later switches the packets delivered.
        """
        hits_by_switch: dict[int, dict[int, int]] = {}
        for flow in self.flows:
            counts = (flow.source.sent, flow.source.delivered)
            sent, delivered = counts[0] - flow.reported[0], counts[1] - flow.reported[1]
            flow.reported = counts
            for dpid, row in flow.way.entries:
                octets = (sent if dpid == flow.start.dpid else delivered) * flow.source.frame_bytes
                bytes_by_row = hits_by_switch.setdefault(dpid, {})
                bytes_by_row[row] = bytes_by_row.get(row, 0) + octets
        for dpid, bytes_by_row in hits_by_switch.items():
            self.switches[dpid].count(bytes_by_row, self.now_s)
        for pn in self.fabric.pns:
            uplink = self.uplinks[pn.number]
            self.ports[PortId(self.fabric.switch(pn.switch).dpid, pn.port_no)].port.receive(*uplink.drain_sent())
        for port_id, port in self.ports.items():
            sent_since = port.count()
            if port_id in self.links:
                self.ports[self.links[port_id]].port.receive(*sent_since)

    def report_frames(self) -> None:
        """Send the packet-ins that the tables demand: one frame of each source active since the last call.

        A real switch sends every frame of a pair without a flow entry. Call this once per control interval.
        """
        for flow in self.flows:
            has_sent, flow.seen = flow.source.sent > flow.seen, flow.source.sent
            if has_sent or flow.source.running:
                for dpid, entry, in_port, frame, max_len, metadata in flow.way.reports:
                    self.switches[dpid].packet_in(entry, in_port, frame, max_len, metadata)

    # -- inside

    def _build(self) -> None:
        """Add the ports of all edge links, uplinks and core links, and connect the ends of the core links."""
        for pn in self.fabric.pns:
            edge_port = PortId(self.fabric.switch(pn.switch).dpid, pn.port_no)
            self._add_port(edge_port, pn.link_rate_bps, pn.edge_interface, self.options.queues)
            trunk = LinkPort(1, pn.trunk_interface, 0, pn.link_rate_bps)
            queues = self.options.uplink_queues or self.options.queues
            self.uplinks[pn.number] = OutPort(trunk, self.slot_s, queues, self.rng)
        for link in self.fabric.core_links:
            ends = [
                PortId(self.fabric.switch(name).dpid, port_no)
                for name, port_no in ((link.switch_a, link.port_a), (link.switch_b, link.port_b))
            ]
            for end, interface in zip(ends, link.interfaces, strict=True):
                self._add_port(end, link.rate_bps, interface, self.options.core_queues or self.options.queues)
            self.links[ends[0]], self.links[ends[1]] = ends[1], ends[0]
        for datapath in self.switches.values():
            datapath.drain_messages()  # discard port-status: no controller is connected yet

    def _add_port(self, port_id: PortId, rate_bps: int, name: str, queues: QueueOptions) -> None:
        port = self.switches[port_id.dpid].add_port(port_id.port_no, rate_bps, self.now_s, name)
        self.ports[port_id] = OutPort(port, self.slot_s, queues, self.rng)

    def _core_delay_s(self, start: str, end: str) -> float:
        """Return the delay in seconds along the path with the fewest links; InvalidValueError without a path."""
        seen, to_visit = {start}, deque([(start, 0.0)])
        while to_visit:
            name, delay_s = to_visit.popleft()
            if name == end:
                return delay_s
            for link in self.fabric.core_links:
                for near, far in ((link.switch_a, link.switch_b), (link.switch_b, link.switch_a)):
                    if near == name and far not in seen:
                        seen.add(far)
                        to_visit.append((far, delay_s + link.delay_s))
        raise InvalidValueError("switch", end, f"cannot be reached from {start}")

    def _pass_slot(self) -> None:
        """Simulate one slot: sources send, then each busy port serves its queues, ports in the order of the paths."""
        slot = self.slot
        for generator in self._generators:
            generator.step(slot)
        for source in self._sending:
            packets = source.offer(slot)
            if packets:
                if source.hops:
                    hop = source.hops[0]
                    hop.port.arrived.append((hop.queue_id, (source, packets, slot, 0)))
                else:
                    source.lose(packets, 0)
        now_ms = whole_ms(slot * self.slot_s)
        for port in self._order:
            if port.arrived or port.waiting:
                leaving: list[Run] = []
                port.serve(leaving)
                for run in leaving:
                    self._forward(run, port, now_ms)

    def _forward(self, run: Run, port: OutPort, now_ms: int) -> None:
        """Pass a run that left ``port`` to its receiver, or through the next hop's meters to the next port."""
        source, packets, sent_slot, marked = run
        hop = source.hop_after(port)
        if hop is None:
            if not source.hops or source.hops[-1].port is not port:
                source.lose(packets, 0)  # its path changed while it waited here
                return
            received = self._receiver_of[source]
            received.packets += packets
            received.octets += packets * source.frame_bytes
            source.arrive(packets, sent_slot, marked, self.slot)
            return
        for bucket in hop.meters:
            passed = bucket.consume(packets, source.frame_bits, now_ms)
            if passed < packets:
                source.lose(packets - passed, passed + hop.port.beyond(source) if source.reliable else 0)
                packets = passed
                if not packets:
                    return
        marked = min(marked, packets)
        for bucket in hop.counting if marked else ():
            bucket.consume(marked, source.frame_bits, now_ms)
        hop.port.arrived.append((hop.queue_id, (source, packets, sent_slot, 0 if hop.clears else marked)))
        for bucket in hop.behind:
            packets = bucket.consume(packets, source.frame_bits, now_ms)
