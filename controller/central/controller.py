"""The central controller: one DETS for a whole fabric, from the switches' messages to the messages for them.

It does no input or output and reads no clock: a fabric calls it with each occurrence and drains the resulting messages
(``drain_updates``). The same object runs against a model in virtual time, software switches and Open vSwitch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_

import numpy as np
from numpy.typing import NDArray

from controller.central import control_interval, edge_ports
from controller.central.fabric_state import FabricState
from controller.central.no_agents import NoAgents
from controller.central.pair_meters import PairMeterManager
from controller.central.reconciliation import Reconciler
from controller.central.settings_update import apply_settings
from controller.events import EventKind, EventLog
from controller.fabric.agent_ports import AgentFrame
from controller.fabric.config_model import Config
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding.desired_flows import plan_flows
from controller.forwarding.flow_table import FlowKey, pack_key
from controller.forwarding.forwarding_state import ForwardingState
from controller.forwarding.host_probing import HostProbe, HostProber
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import MetadataFlag, Table
from controller.limits.effective_settings import EffectiveSettings
from controller.loop import control_step
from controller.loop.bounded_meters import within_bounds
from controller.metering.enforcement import finalize
from controller.openflow.ethernet import HEADER_BYTES, TAGGED_HEADER_BYTES, FrameHeader, parse_frame
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.messages import FlowRemoved, PacketIn
from controller.switch.adoption import DeferredAdoption, split_own_flows
from controller.switch.port_states import PortState
from controller.switch.switch_record import SwitchRecord, SwitchUpdate
from controller.whatif.recording import Recorder

# Maximum flow changes per interval: a link change affects a flow entry for each host and switch.
MAX_FLOW_CHANGES = 500


class CentralController:
    """DETS for the fabric of one configuration.

    ``reconciler`` holds all that belongs to one configuration: the ``fabric``, with hosts, links and paths
    (``network``) and ``switches`` (by dpid), the active ``pairs`` and their meters, and the ``agents`` on hosts.
    Another configuration replaces all of it at once (``controller.central.reconfiguration``), while references to this
    object stay valid. ``epoch`` is random at every start; agents discard state from another epoch. ``on_event`` is
    called with every event as it happens. Raises InvalidValueError as ``FabricState`` does.
    """

    def __init__(
        self, config: Config, on_event: Callable[[EventKind, str], None] | None = None, epoch: int = 0
    ) -> None:
        self.events = EventLog(on_event)
        self.set_reconciler(Reconciler(FabricState(config, self.events), epoch))
        self.recorder: Recorder | None = None
        self._prober = HostProber()
        self._reads_inputs: tuple[object, ...] = (None, None, None)  # of the cached ``_reads``
        self._reads = False

    def set_reconciler(self, reconciler: Reconciler) -> None:
        """Replace everything that belongs to one configuration."""
        self.reconciler = reconciler
        self.fabric: FabricState = reconciler.fabric
        self.network: ForwardingState = reconciler.fabric.network
        self.switches: Mapping[int, SwitchRecord] = reconciler.fabric.switches
        self.pairs: PairMeterManager = reconciler.pairs
        self.agents: NoAgents = reconciler.agents

    @property
    def config(self) -> Config:
        """The configuration, with the effective values of VLANs."""
        return self.fabric.config

    @property
    def vns(self) -> VnTable:
        """The VNs, with their effective values."""
        return self.fabric.vns

    @property
    def state(self) -> control_step.ControlState:
        """The state that one interval passes to the next."""
        return self.fabric.state

    def note(self, kind: EventKind, text: str, now_s: float, *, dpid: int | None = None) -> None:
        """Record an event, with the switch that it concerns, if any."""
        self.fabric.note(kind, text, now_s, dpid=dpid)

    # -- switches

    def switch_connected(
        self, dpid: int, flows: Iterable[Flow | UnknownFlow], meters: NDArray[np.void], now_s: float
    ) -> None:
        """Bring up a configured switch in one call, with the contents of its tables (meters: METER_CONFIG)."""
        for _ in self.reconciler.bring_up(dpid, *split_own_flows(flows), meters, now_s):
            pass
        self.reconciler.record_switch_up(dpid, now_s)

    def switch_disconnected(self, dpid: int, now_s: float) -> None:
        """Mark a switch as disconnected; its meters and flow entries remain installed."""
        record = self.switches[dpid]
        record.connected = False
        record.deferred = DeferredAdoption()
        record.drain_update()
        self.network.paths.switch_down(dpid)
        self.note(EventKind.SWITCH_DOWN, f"switch {record.switch.name} ({dpid:016x}) is down", now_s, dpid=dpid)

    def on_switch_released(self, dpid: int, now_s: float) -> None:
        """Stop changing a connected switch, since another node owns it; its tables stay, and paths lead through it."""
        record = self.switches[dpid]
        record.connected = False
        record.drain_update()
        self.note(EventKind.SWITCH_DOWN, f"switch {record.switch.name} ({dpid:016x}) is given up", now_s, dpid=dpid)

    def port_down(self, dpid: int, port_no: int, now_s: float) -> None:
        """Record that a port lost its link or was removed."""
        self.network.port_down(self.network.numbers.port(dpid, port_no), now_s)

    def ports_known(self, dpid: int, states: Mapping[int, PortState], now_s: float) -> None:
        """Apply the ports that a switch reported; an edge port that may be the wrong port carries nothing."""
        edge_ports.apply_port_states(self.fabric, dpid, states, now_s)

    def reset(self, config: Config, values: EffectiveSettings, epoch: int) -> None:
        """Discard hosts, pairs and grants, because another controller has changed the switches since.

        ``config`` is the configuration of the file, ``values`` are the effective values that override it. Test results
        of switches stay. No switch may be connected.
        """
        fabric = FabricState(config, self.events)
        fabric.control = fabric.control.with_values(values)
        for dpid, record in fabric.switches.items():
            record.capabilities = self.switches[dpid].capabilities
        self.set_reconciler(Reconciler(fabric, epoch))
        self._prober = HostProber()

    # -- what switches report

    def on_packet_in(self, dpid: int, packet: PacketIn, now_s: float) -> bool:
        """Process a packet-in: an unknown source, a pair without a flow entry, or both, by its metadata flag.

        Return whether the packet-in was processed: not if its VN has exceeded its packet-in rate, nor if it comes from
        another table, an unknown VN or a fenced port. Raises ProtocolError for a frame that is cut short.
        """
        port = self.network.numbers.port(dpid, packet.in_port)
        row = self.vns.row_of(packet.metadata & MetadataFlag.VLAN, *port)
        if packet.table_id != Table.PACKET_IN or row is None or port in self.network.fenced:
            return False
        if not self.fabric.reports.consume(row, now_s):
            self.fabric.floods.reports_dropped[row] += 1
            return False
        header = parse_frame(packet.data)
        vlan_vid = self.vns.key(row).vlan_vid
        if packet.metadata & MetadataFlag.UNKNOWN_SOURCE:
            self.fabric.learn(Host(vlan_vid, header.eth_src), port, now_s)
            self._probe_host(Host(vlan_vid, header.eth_dst), header, port, packet.data, now_s)
        if packet.metadata & MetadataFlag.NEW_PAIR:
            pair = self.network.pair_seen(Host(vlan_vid, header.eth_dst), port)
            if pair is not None:
                self.pairs.on_pair_seen(pair, now_s)
        return True

    def _probe_host(self, host: Host, header: FrameHeader, port: PortId, frame: bytes, now_s: float) -> None:
        """Probe for the unknown destination ``host`` of a frame that arrived at an edge port."""
        edge = self.network.edge_port(port)
        if header.is_multicast or edge is None or self.network.knows(host):
            return
        payload = frame[TAGGED_HEADER_BYTES if header.vlan_vid is not None else HEADER_BYTES :]
        as_sent = header._replace(vlan_vid=edge.tag_of(host.vlan_vid))
        self._prober.probe_host(host, port, as_sent, payload, now_s)

    def meter_refused(self, dpid: int, message: bytes, code: str) -> bool:
        """Record that a switch rejected a meter-mod.

        Return whether the next interval handles it, so that no audit is needed.
        """
        return self.reconciler.refused.note(dpid, message, code)

    def on_control_frame(self, dpid: int, port_no: int, frame: bytes, now_s: float) -> bool:
        """Process an agent's control frame that arrived at an edge port. Return whether it was processed."""
        port = self.network.numbers.port(dpid, port_no)
        return port not in self.network.fenced and self.agents.receive_frame(port, frame, now_s)

    def drain_agent_frames(self) -> list[AgentFrame]:
        """Return the frames for agents, with the ports' numbers on their switches; none goes to a fenced port."""
        frames = [frame for frame in self.agents.drain_frames() if frame.port not in self.network.fenced]
        numbers = self.network.numbers
        return [frame._replace(port=frame.port._replace(port_no=numbers.number(frame.port))) for frame in frames]

    def drain_host_probes(self, now_s: float) -> list[HostProbe]:
        """Return the probe frames for silent hosts; each must pass its switch's tables."""
        return self._prober.due_probes(self.network.knows, now_s)

    def on_discovery_frame(self, sender: PortId, receiver: PortId, now_s: float) -> bool:
        """Record that a discovery probe of one switch reached another; return whether that brought a link up."""
        up = self.network.paths.on_discovery_frame(sender, receiver, now_s)
        if up:
            ends = " and ".join(f"{self.fabric.switch_name(end.dpid)}:{end.port_no}" for end in (sender, receiver))
            self.note(EventKind.LINK_UP, f"link between {ends} is up", now_s)
        return up

    def on_flow_removed(self, dpid: int, removed: FlowRemoved, now_s: float) -> None:
        """Handle the flow-removed message of an aged flow entry."""
        match = removed.match
        if match is None or match.in_port is None or match.vlan_vid is None:
            return
        self.switches[dpid].mark_removed(pack_key(FlowKey(removed.table_id, removed.priority, match)))
        port = self.network.numbers.port(dpid, match.in_port)
        if removed.table_id == Table.LEARN and match.eth_src is not None:
            self.network.source_aged(Host(match.vlan_vid, match.eth_src), port)
        elif removed.table_id == Table.RATE_CONTROL and match.eth_dst is not None:
            pair = self.network.pair_aged(Host(match.vlan_vid, match.eth_dst), port)
            if pair is not None:
                self.pairs.on_pair_aged(pair)

    # -- the interval

    @property
    def reads_ports_or_queues(self) -> bool:
        """Return whether a policy needs the counters of ports or queues in every interval."""
        control = self.fabric.control
        inputs = control.groups, control.shadow.groups, self.recorder  # the result is cached until one is replaced
        if not all(map(is_, inputs, self._reads_inputs)):
            self._reads_inputs = inputs
            self._reads = control_interval.reads_ports_or_queues(control, self.recorder)
        return self._reads

    def interval(
        self,
        stats: Mapping[int, control_interval.MeterStats],
        received_s: Mapping[int, float],
        now_s: float,
        confirmed_s: Mapping[int, float] | None = None,
    ) -> control_step.StepResult:
        """Bring the pairs' meters up to date, and run one control interval on the switches' METER_STATS, by dpid.

        ``received_s`` is when the stats arrived, ``confirmed_s`` when switches had executed their last meter-mods,
        where known; both by dpid.
        """
        self.reconciler.refused.tick(now_s)  # handle rejected meters
        self.reconciler.scarce.tick(now_s)  # where meters are too few, pairs take turns
        self.pairs.flush()  # meters for new pairs, none for aged ones
        self.pairs.swap_shapers(*self.agents.meter_changes(), now_s)  # either an agent or a meter shapes a pair
        return control_interval.run_interval(
            self.fabric, self.agents, self.recorder, stats, received_s, now_s, confirmed_s or {}
        )

    def tick(self, now_s: float) -> None:
        """Expire links and update the tree; call it every interval."""
        network = self.network
        before = network.topology.links()
        network.paths.tick(now_s)
        self.fabric.learning.tick(now_s)
        after = network.topology.links()
        if after is not before and (removed := before - after):
            self.note(EventKind.LINK_DOWN, f"{len(removed)} links down: no discovery probes received", now_s)

    def extend_timeouts(self, seconds: float) -> None:
        """Extend timeouts by the time in which sockets were not read, so that links do not expire for that."""
        self.network.topology.extend_timeouts(seconds)

    def finalize(self, now_s: float) -> None:
        """Set meters that stay after the controller stops to the exact rates of their limits.

        The limits are those that a policy names for a time without a controller; otherwise the effective limits.
        """
        fabric = self.fabric
        before = control_step.with_settled_limits(fabric.state)
        enforcement, changes = finalize(before, now_s)
        if (bounds := fabric.vns.meter_bounds) is not None:
            pair_bounds, measured = bounds.select(fabric.state.entries.sender), fabric.state.measured
            enforcement, changes = within_bounds(before, enforcement, changes, measured, pair_bounds, now_s)
        counters = fabric.state.counters.modified(changes.rows, now_s)
        fabric.state = fabric.state._replace(enforcement=enforcement, counters=counters)
        control_interval.queue_meter_mods(fabric, changes)

    def drain_updates(self) -> dict[int, SwitchUpdate]:
        """Return the messages that are due, by dpid, for the connected switches.

        At most MAX_FLOW_CHANGES flow entries are changed; further changes wait for the next call.
        """
        self.pairs.flush()
        network, switches = self.network, self.switches
        network.update_paths()
        installed = {dpid: record.installed for dpid, record in switches.items() if record.connected}
        for dpid, keys in network.desired.pop_changed(MAX_FLOW_CHANGES, installed).items():
            desired = network.desired.flows_at(dpid)
            switches[dpid].set_flows(plan_flows(desired, installed[dpid], keys))
        # Where flow changes wait, meters stay that their flow entries may still name.
        pending = network.desired.pending
        due = [dpid for dpid in installed if switches[dpid].update.due]
        updates = {dpid: switches[dpid].drain_update(keep_meters=dpid in pending) for dpid in due}
        # An update whose meters all stay may be empty.
        return {dpid: update for dpid, update in updates.items() if update.due} if pending else updates

    # -- limits and algorithms

    def put_in_force(self, values: EffectiveSettings, now_s: float) -> None:
        """Apply these values, which must fit the fabric, from the next interval on."""
        apply_settings(self.fabric, values, now_s)
        self.reconciler.refused.limits_changed(now_s)
