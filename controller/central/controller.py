"""The central controller: one DETS for a whole fabric, from what switches report to what is sent to them.

It does no input and output and reads no clock: a fabric calls it with what happened and takes the messages that follow
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

# A link that comes or goes changes an entry for each host and switch. So many are seen to in an interval.
MAX_FLOW_CHANGES = 500


class CentralController:
    """DETS for the fabric of one configuration.

    ``reconciler`` holds all that belongs to one configuration: the ``fabric``, with hosts, links and paths
    (``network``) and ``switches`` (by dpid), the ``pairs`` that talk and their meters, and the ``agents`` on hosts.
    Another configuration replaces all of it at once (``controller.central.reconfiguration``), so that whoever refers to
    this object need not know.
    ``epoch`` is random at every start: agents on hosts tell by it that what was said before is void.
    ``on_event`` is called with every event as it happens. Raises InvalidValueError as ``FabricState`` does.
    """

    def __init__(
        self, config: Config, on_event: Callable[[EventKind, str], None] | None = None, epoch: int = 0
    ) -> None:
        self.events = EventLog(on_event)
        self.set_reconciler(Reconciler(FabricState(config, self.events), epoch))
        self.recorder: Recorder | None = None
        self._search = HostProber()
        self._decide_by: tuple[object, ...] = (None, None, None)  # what ``_reads`` was found out for
        self._reads = False

    def set_reconciler(self, reconciler: Reconciler) -> None:
        """Let all that belongs to a configuration be this."""
        self.reconciler = reconciler
        self.fabric: FabricState = reconciler.fabric
        self.network: ForwardingState = reconciler.fabric.network
        self.switches: Mapping[int, SwitchRecord] = reconciler.fabric.switches
        self.pairs: PairMeterManager = reconciler.pairs
        self.agents: NoAgents = reconciler.agents

    @property
    def config(self) -> Config:
        """The configuration, with the values of VLANs that are in force."""
        return self.fabric.config

    @property
    def vns(self) -> VnTable:
        """The VNs, with the values that are in force."""
        return self.fabric.vns

    @property
    def state(self) -> control_step.ControlState:
        """What one interval hands to the next."""
        return self.fabric.state

    def note(self, kind: EventKind, text: str, now_s: float, *, dpid: int | None = None) -> None:
        """Note an event, of a switch if it is about one."""
        self.fabric.note(kind, text, now_s, dpid=dpid)

    # -- switches

    def switch_connected(
        self, dpid: int, flows: Iterable[Flow | UnknownFlow], meters: NDArray[np.void], now_s: float
    ) -> None:
        """Bring a switch of the configuration up in one piece, with what is in its tables (meters: METER_CONFIG)."""
        for _ in self.reconciler.bring_up(dpid, *split_own_flows(flows), meters, now_s):
            pass
        self.reconciler.record_switch_up(dpid, now_s)

    def switch_disconnected(self, dpid: int, now_s: float) -> None:
        """A switch has gone; its meters and entries stand as they are."""
        record = self.switches[dpid]
        record.connected = False
        record.deferred = DeferredAdoption()
        record.drain_update()
        self.network.paths.switch_down(dpid)
        self.note(EventKind.SWITCH_DOWN, f"switch {record.switch.name} ({dpid:016x}) is down", now_s, dpid=dpid)

    def on_switch_released(self, dpid: int, now_s: float) -> None:
        """A switch is there and no longer this node's to change: it stands as it is, and paths lead through it."""
        record = self.switches[dpid]
        record.connected = False
        record.drain_update()
        self.note(EventKind.SWITCH_DOWN, f"switch {record.switch.name} ({dpid:016x}) is given up", now_s, dpid=dpid)

    def port_down(self, dpid: int, port_no: int, now_s: float) -> None:
        """A port has lost its link, or is no more."""
        self.network.port_down(self.network.numbers.port(dpid, port_no), now_s)

    def ports_known(self, dpid: int, states: Mapping[int, PortState], now_s: float) -> None:
        """A switch has said what its ports are; edge ports that may be others than are meant carry nothing."""
        edge_ports.apply_port_states(self.fabric, dpid, states, now_s)

    def reset(self, config: Config, values: EffectiveSettings, epoch: int) -> None:
        """Forget hosts, pairs and grants: another controller has changed the switches since they were known.

        ``config`` is the file's, ``values`` are those in force over it. What tests have shown of switches stays. No
        switch may be connected.
        """
        fabric = FabricState(config, self.events)
        fabric.control = fabric.control.with_values(values)
        for dpid, record in fabric.switches.items():
            record.capabilities = self.switches[dpid].capabilities
        self.set_reconciler(Reconciler(fabric, epoch))
        self._search = HostProber()

    # -- what switches report

    def on_packet_in(self, dpid: int, packet: PacketIn, now_s: float) -> bool:
        """A frame came up (REPORT): from an unknown source, from a pair without an entry, or both, as its mark says.

        It is looked at while its VN has not had too many of them; return whether it was. Raises ProtocolError when the
        frame is cut short.
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

    def _probe_host(self, sought: Host, header: FrameHeader, port: PortId, frame: bytes, now_s: float) -> None:
        edge = self.network.edge_port(port)
        if header.is_multicast or edge is None or self.network.knows(sought):
            return
        payload = frame[TAGGED_HEADER_BYTES if header.vlan_vid is not None else HEADER_BYTES :]
        as_sent = header._replace(vlan_vid=edge.tag_of(sought.vlan_vid))
        self._search.probe_host(sought, port, as_sent, payload, now_s)

    def meter_refused(self, dpid: int, message: bytes, code: str) -> bool:
        """A switch refused a meter-mod; return whether the next interval sees to it, so that no audit is needed."""
        return self.reconciler.refused.note(dpid, message, code)

    def on_control_frame(self, dpid: int, port_no: int, frame: bytes, now_s: float) -> bool:
        """A control frame came in by an edge port: its host's agent speaks. Return whether it was looked at."""
        port = self.network.numbers.port(dpid, port_no)
        return port not in self.network.fenced and self.agents.receive_frame(port, frame, now_s)

    def drain_agent_frames(self) -> list[AgentFrame]:
        """Return what agents are to be told, by the switches' numbers; nothing goes to a port that is fenced."""
        frames = [frame for frame in self.agents.drain_frames() if frame.port not in self.network.fenced]
        numbers = self.network.numbers
        return [frame._replace(port=frame.port._replace(port_no=numbers.number(frame.port))) for frame in frames]

    def drain_host_probes(self, now_s: float) -> list[HostProbe]:
        """Return the frames that ask silent hosts where they are; each is to pass its switch's tables."""
        return self._search.due_probes(self.network.knows, now_s)

    def on_discovery_frame(self, sender: PortId, receiver: PortId, now_s: float) -> bool:
        """A hello of one switch reached another; return whether that brought a link up."""
        up = self.network.paths.on_discovery_frame(sender, receiver, now_s)
        if up:
            ends = " and ".join(f"{self.fabric.switch_name(end.dpid)}:{end.port_no}" for end in (sender, receiver))
            self.note(EventKind.LINK_UP, f"link between {ends} is up", now_s)
        return up

    def on_flow_removed(self, dpid: int, removed: FlowRemoved, now_s: float) -> None:
        """An entry of the controller has aged."""
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
        """Whether the counters of ports or queues are needed in every interval: a policy decides by them."""
        control = self.fabric.control
        decide_by = control.groups, control.shadow.groups, self.recorder
        if not all(map(is_, decide_by, self._decide_by)):
            self._decide_by, self._reads = decide_by, control_interval.reads_ports_or_queues(control, self.recorder)
        return self._reads

    def interval(
        self,
        stats: Mapping[int, control_interval.MeterStats],
        received_s: Mapping[int, float],
        now_s: float,
        confirmed_s: Mapping[int, float] | None = None,
    ) -> control_step.StepResult:
        """Run one control interval on the meter-stats (METER_STATS) of the switches, which came at ``received_s``.

        ``confirmed_s`` is when switches had carried out their last meter-mods, where that is known.
        """
        self.reconciler.refused.tick(now_s)
        self.reconciler.scarce.tick(now_s)
        self.pairs.flush()
        self.pairs.swap_shapers(*self.agents.meter_changes(), now_s)
        return control_interval.run_interval(
            self.fabric, self.agents, self.recorder, stats, received_s, now_s, confirmed_s or {}
        )

    def tick(self, now_s: float) -> None:
        """Let links expire and the tree settle; call it every interval."""
        network = self.network
        before = network.topology.links()
        network.paths.tick(now_s)
        self.fabric.learning.tick(now_s)
        after = network.topology.links()
        if after is not before and (gone := before - after):
            self.note(EventKind.LINK_DOWN, f"{len(gone)} links are silent and so are down", now_s)

    def extend_timeouts(self, seconds: float) -> None:
        """Nothing was heard for so long since nobody listened: links are not down for that."""
        self.network.topology.extend_timeouts(seconds)

    def finalize(self, now_s: float) -> None:
        """The controller is about to stop, and its meters stay: set them to the exact rates of their limits.

        Those are what policies say for a time when nobody decides; otherwise the limits in force.
        """
        fabric = self.fabric
        before = control_step.with_settled_limits(fabric.state)
        enforcement, changes = finalize(before, now_s)
        if (bounds := fabric.vns.meter_bounds) is not None:
            of_entries, measured = bounds.select(fabric.state.entries.sender), fabric.state.measured
            enforcement, changes = within_bounds(before, enforcement, changes, measured, of_entries, now_s)
        counters = fabric.state.counters.modified(changes.rows, now_s)
        fabric.state = fabric.state._replace(enforcement=enforcement, counters=counters)
        control_interval.queue_meter_mods(fabric, changes)

    def drain_updates(self) -> dict[int, SwitchUpdate]:
        """Return the messages that are due, by dpid, for the switches that are connected.

        Of flow entries MAX_FLOW_CHANGES follow what is wanted; the others wait for the next call.
        """
        self.pairs.flush()
        network, switches = self.network, self.switches
        network.update_paths()
        installed = {dpid: record.installed for dpid, record in switches.items() if record.connected}
        for dpid, keys in network.desired.pop_changed(MAX_FLOW_CHANGES, installed).items():
            wanted = network.desired.of_switch(dpid)
            switches[dpid].set_flows(plan_flows(wanted, installed[dpid], keys))
        waiting = network.desired.pending
        due = [dpid for dpid in installed if switches[dpid].update.due]
        taken = {dpid: switches[dpid].drain_update(keep_meters=dpid in waiting) for dpid in due}
        return {dpid: update for dpid, update in taken.items() if update.due} if waiting else taken

    # -- limits and algorithms

    def put_in_force(self, values: EffectiveSettings, now_s: float) -> None:
        """Let these values, which must fit the fabric, hold from the next interval on."""
        apply_settings(self.fabric, values, now_s)
        self.reconciler.refused.limits_changed(now_s)
