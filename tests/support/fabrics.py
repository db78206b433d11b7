"""A fabric of such switches around one central controller, in virtual time: links, hosts and greedy senders."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from support.switches import BROADCAST, Frame, Switch, Trace

from controller.central.controller import CentralController
from controller.fabric.config_model import Config
from controller.fabric.topology import PROBE_INTERVAL_S, PortId
from controller.switch.adoption import split_own_flows
from experiments.model.control.settings_operator import Operator

MANY_HOPS = 16


class LoopError(Exception):
    """A frame went round."""


@dataclass
class Delivery:
    """Where a frame got to: edge ports with the frame as it left and its queue, and the meters it passed."""

    at: list[tuple[PortId, Frame, int | None]] = field(default_factory=list)
    meters: list[tuple[int, int]] = field(default_factory=list)
    reports: int = 0


class Fabric:
    """Switches with links, and the controller they are connected to."""

    def __init__(
        self, config: Config, links: Iterable[tuple[PortId, PortId]] = (), central: CentralController | None = None
    ) -> None:
        self.config = config
        self.central = central or CentralController(config)
        self.operator = Operator(self.central)
        self.switches = {s.dpid: Switch(s.dpid) for s in config.switches.values()}
        self.peers: dict[PortId, PortId] = {}
        for a, b in links:
            self.peers[PortId(*a)], self.peers[PortId(*b)] = PortId(*b), PortId(*a)
        self.up: set[int] = set()
        self.now_s = 1000.0
        self.on_frame: Callable[[int, Trace], None] | None = None

    def start(self) -> None:
        """Connect all switches and let links come up and the tree settle."""
        for dpid in self.switches:
            self.connect(dpid)
        self.hello()
        self.settle()

    def connect(self, dpid: int) -> None:
        switch = self.switches[dpid]
        self.up.add(dpid)
        self.central.switch_connected(dpid, switch.flows.values(), switch.meter_config(), self.now_s)
        self.push()

    def disconnect(self, dpid: int) -> None:
        self.up.discard(dpid)
        self.central.switch_disconnected(dpid, self.now_s)
        self.push()

    def hello(self, ports: Iterable[PortId] | None = None) -> None:
        """Exchange hellos over all links, or those of some ports."""
        for receiver in list(ports if ports is not None else self.peers):
            sender = self.peers.get(receiver)
            if sender is not None and {sender.dpid, receiver.dpid} <= self.up:
                self.central.on_discovery_frame(sender, receiver, self.now_s)

    def cut(self, port: PortId) -> None:
        """Take a link away, unseen."""
        other = self.peers.pop(port)
        del self.peers[other]

    def settle(self, ticks: int = 3) -> None:
        for _ in range(ticks):
            self.tick()

    def tick(self) -> None:
        self.now_s += 0.055
        self.central.tick(self.now_s)
        self.push()

    def wait(self, seconds: float) -> None:
        """Let time pass, with hellos over the links that are there."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.now_s += PROBE_INTERVAL_S
            self.hello()
            self.central.tick(self.now_s)
            self.push()

    def push(self) -> int:
        """Send what is due; return how many messages that were."""
        count = 0
        for dpid, update in self.central.drain_updates().items():
            self.switches[dpid].apply(update, self.now_s)
            count += len(update)
        return count

    def audit(self, dpid: int) -> int:
        switch = self.switches[dpid]
        self.push()
        expected = self.central.reconciler.tables(dpid)
        ours = split_own_flows(switch.flows.values())[0]
        count = sum(self.central.reconciler.audit(dpid, expected, ours, switch.meter_config(), self.now_s))
        self.push()
        return count

    def send(self, frame: Frame, port: PortId, *, report: bool = True) -> Delivery:
        """Put a frame in at an edge port and follow all its copies; LoopError when they go round."""
        delivery = Delivery()
        todo: deque[tuple[Frame, PortId, int]] = deque([(frame, PortId(*port), 0)])
        reports = []
        while todo:
            one, at, hops = todo.popleft()
            if hops > MANY_HOPS or len(todo) > 1_000:
                raise LoopError(f"{frame} from {port}")
            trace = self.switches[at.dpid].run(one, at.port_no)
            delivery.meters += [(at.dpid, meter_id) for meter_id in trace.meters]
            reports += [(at.dpid, packet) for packet in trace.reports]
            for port_no, copy, queue in trace.outputs:
                out = PortId(at.dpid, port_no)
                if out in self.peers:
                    todo.append((copy, self.peers[out], hops + 1))
                elif self.central.network.edge_port(out) is not None:
                    delivery.at.append((out, copy, queue))
        delivery.reports = len(reports)
        if report:
            for dpid, packet in reports:
                self.central.on_packet_in(dpid, packet, self.now_s)
            self.push()
        return delivery

    def learn(self, mac: int, port: PortId, vlan_vid: int) -> Delivery:
        """Let a host say something to everybody."""
        return self.send(Frame(BROADCAST, mac, self.tag(port, vlan_vid)), port)

    def tag(self, port: PortId, vlan_vid: int) -> int | None:
        """The tag of a host's frames: none at an access port."""
        edge = self.central.network.edge_port(PortId(*port))
        assert edge is not None
        return edge.tag_of(vlan_vid)


@dataclass
class Sender:
    """A greedy sender of UDP from one host to another; ``rate_bps`` 0 is silence."""

    source: PortId
    target: PortId
    vlan_vid: int
    rate_bps: float
    received_bits: float = 0.0
    _seen: tuple[int, ...] = ()
    _meters: list[tuple[int, int]] = field(default_factory=list)
    _behind: list[tuple[int, int]] = field(default_factory=list)


def mac_of(port: PortId, vlan_vid: int) -> int:
    """The address of the one host of a VN."""
    return 0x0200_0000_0000 | vlan_vid << 24 | port.dpid << 8 | port.port_no


class ControlLoop:
    """Senders, meters and the control loop on a fabric, in steps of virtual time; fluid, and without links' limits."""

    def __init__(self, fabric: Fabric, interval_s: float = 0.055, steps: int = 11) -> None:
        self.fabric, self.interval_s, self.steps = fabric, interval_s, steps
        self.senders: list[Sender] = []
        self.received: list[dict[tuple[PortId, int], float]] = []  # per interval: bit/s by (port, VLAN)
        self.mods: list[int] = []  # meter-mods per interval
        self._hellos = 0.0

    def add(self, source: tuple[int, int], target: tuple[int, int], vlan_vid: int, rate_bps: float) -> Sender:
        """Add a sender; both hosts say hello first."""
        sender = Sender(PortId(*source), PortId(*target), vlan_vid, rate_bps)
        for end in (sender.source, sender.target):
            self.fabric.learn(mac_of(end, vlan_vid), end, vlan_vid)
        self.senders.append(sender)
        return sender

    def run(self, intervals: int) -> None:
        for _ in range(intervals):
            self._interval()

    def rate(self, target: tuple[int, int], vlan_vid: int, first: int, last: int | None = None) -> float:
        """The mean rate that a VN got in some intervals, bit/s."""
        got = [interval.get((PortId(*target), vlan_vid), 0.0) for interval in self.received[first:last]]
        return sum(got) / len(got)

    def limits(self, vlan_vid: int) -> dict[tuple[int, int], float]:
        """What entries' meters stand at, by (sender's port, receiver's port) of one VLAN."""
        central, found = self.fabric.central, {}
        entries = central.state.entries
        for row in range(len(entries)):
            sender, receiver = central.vns.key(entries.sender[row]), central.vns.key(entries.receiver[row])
            if sender.vlan_vid == vlan_vid:
                meter = self.fabric.switches[sender.dpid].meters[int(entries.meter_id[row])]
                found[sender.port_no, receiver.port_no] = meter.setting.rate_kbps * 1e3
        return found

    def _interval(self) -> None:
        fabric, step_s = self.fabric, self.interval_s / self.steps
        if len(self.received) * self.interval_s // PROBE_INTERVAL_S != self._hellos:
            self._hellos = len(self.received) * self.interval_s // PROBE_INTERVAL_S
            fabric.hello()
        got: dict[tuple[PortId, int], float] = {}
        for _ in range(self.steps):
            fabric.now_s += step_s
            for sender in self.senders:
                passed = self._send(sender, step_s)
                key = (sender.target, sender.vlan_vid)
                got[key] = got.get(key, 0.0) + passed
                sender.received_bits += passed
            fabric.push()
        self.received.append({key: bits / self.interval_s for key, bits in got.items()})
        before = sum(switch.meter_mods for switch in fabric.switches.values())
        stats = {dpid: fabric.switches[dpid].meter_stats(fabric.now_s) for dpid in fabric.up}
        fabric.central.interval(stats, dict.fromkeys(stats, fabric.now_s), fabric.now_s)
        fabric.central.tick(fabric.now_s)
        fabric.push()
        self.mods.append(sum(switch.meter_mods for switch in fabric.switches.values()) - before)

    def _send(self, sender: Sender, step_s: float) -> float:
        if not sender.rate_bps:
            return 0.0
        versions = tuple(switch.version for switch in self.fabric.switches.values())
        if versions != sender._seen:
            delivery = self.fabric.send(
                Frame(
                    mac_of(sender.target, sender.vlan_vid),
                    mac_of(sender.source, sender.vlan_vid),
                    self.fabric.tag(sender.source, sender.vlan_vid),
                ),
                sender.source,
            )
            assert [port for port, _, _ in delivery.at] == [sender.target], delivery
            # Behind the output, and no limit to what is delivered.
            reporting = {
                (dpid, mine.report)
                for dpid, record in self.fabric.central.switches.items()
                for mine in record.vn_meters.values()
            }
            central = self.fabric.central
            marks = {(dpid, i) for dpid in central.switches for i in central.fabric.phantoms.ids_of(dpid, central.vns)}
            sender._behind = [meter for meter in delivery.meters if meter in marks]
            sender._meters = [meter for meter in delivery.meters if meter not in reporting | marks]
            # What a report of this frame caused is seen by the next one.
            sender._seen = versions if not delivery.reports else ()
        bits = sender.rate_bps * step_s
        for dpid, meter_id in sender._meters:
            bits = self.fabric.switches[dpid].meters[meter_id].pass_bits(bits, self.fabric.now_s)
        for dpid, meter_id in sender._behind:  # what these drop has gone out
            self.fabric.switches[dpid].meters[meter_id].pass_bits(bits, self.fabric.now_s)
        return bits


def started_loop(config: Config, links: Iterable[tuple[PortId, PortId]] = ()) -> ControlLoop:
    """Return the loop of a fabric whose switches are all connected."""
    net = Fabric(config, links)
    net.start()
    return ControlLoop(net)
