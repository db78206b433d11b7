"""The central controller on the model fabric: OpenFlow bytes in both directions, in virtual time.

This module does with events what ``apps.southbound`` does with sockets and real time: it reads counters every interval,
runs the control step when they have arrived, and delivers the messages to the switches a little later. The switches
receive encoded messages, and their own messages are decoded, so a run on the model also tests the codecs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.central.controller import CentralController
from controller.errors import InvalidValueError, ProtocolError
from controller.events import Event
from controller.fabric.agent_ports import AgentFrame
from controller.fabric.config_model import Config
from controller.fabric.topology import PROBE_INTERVAL_S, PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding.pipeline import Table
from controller.openflow.actions import Output
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import PORT_CONTROLLER, MessageType
from controller.openflow.ethernet import BROADCAST, is_control
from controller.openflow.messages import encode_packet_out, parse_error, parse_flow_removed, parse_packet_in
from controller.openflow.meters import METER_CONFIG, decode_meter_stats
from controller.openflow.multipart import (
    decode_port_stats,
    decode_queue_stats,
    encode_meter_stats_request,
    encode_port_stats_request,
    encode_queue_stats_request,
)
from controller.switch.desired_queues import desired_queues
from experiments.model.control.settings_operator import Operator
from experiments.model.fabric import ModelFabric, mac_of
from experiments.model.flow_tracing import frame_of

_SETTLE_TICKS = 3  # rounds of probes and messages until the links are up and all paths are installed
_MULTIPART_HEAD = Struct("!HH4x")


@dataclass(frozen=True, slots=True)
class ControlTiming:
    """The timing of the control loop: it runs every ``interval_s``, late by up to ``jitter_s`` (uniform).

    ``loop_delay_s`` pass from the reading of the counters to the new meters, with the control step half-way. The
    default was measured with the application on one Open vSwitch.
    """

    interval_s: float = 0.055
    loop_delay_s: float = 0.002
    jitter_s: float = 0.001

    def __post_init__(self) -> None:
        if self.interval_s <= 0:
            raise InvalidValueError("interval_s", self.interval_s, "is not above 0")
        for name in ("loop_delay_s", "jitter_s"):
            if not 0 <= getattr(self, name) < self.interval_s:
                raise InvalidValueError(name, getattr(self, name), f"is outside 0 to {self.interval_s:g} seconds")


def write_queues(model: ModelFabric, config: Config, vns: VnTable) -> None:
    """Configure the queues that a controller would write over OVSDB for the effective limits.

    The ports of a switch without an OVSDB address keep their single queue.
    """
    written = {switch.dpid for switch in config.switches.values() if switch.ovsdb is not None}
    model.set_queues(
        {
            PortId(dpid, port_no): {q.queue_id: (q.min_rate_bps, q.max_rate_bps) for q in queues.queues}
            for dpid, ports in desired_queues(config, vns).items()
            if dpid in written
            for port_no, queues in ports.items()
        }
    )


class Messages(NamedTuple):
    """The messages to one switch at one time; ``restarts_counts`` as in ``SwitchUpdate``."""

    data: bytes
    restarts_counts: bool


@dataclass(slots=True)
class Counts:
    """Counters of the loop since the start."""

    intervals: int = 0
    meter_mods: int = 0
    packet_ins: int = 0
    cpu_s: float = 0.0
    """of the controller's steps, from counters to encoded messages"""


class ControlPlane:
    """Connects a central controller to all switches of a model and runs its loop.

    ``operator`` changes limits and algorithms of the controller while it runs.
    """

    def __init__(self, model: ModelFabric, central: CentralController, timing: ControlTiming | None = None) -> None:
        self.model, self.central = model, central
        self.timing = timing or ControlTiming(central.config.interval_s)
        self.operator = Operator(central)
        self.counts = Counts()
        self._xid = 0
        self._began_s = self._read_s = 0.0  # the start of the loop; the last reading of the counters
        self._confirmed_s: dict[int, float] = {}  # by dpid: when meters of pairs last began to count from zero
        self._probed_s = -PROBE_INTERVAL_S
        self.on_control_frame: Callable[[PortId, bytes], None] = lambda _port, _frame: None

    def start(self) -> None:
        """Connect the switches, bring up links, send one frame from every VN, and start the loop."""
        model = self.model
        self._began_s = model.now_s
        for dpid in model.switches:
            self.central.switch_connected(dpid, (), np.empty(0, METER_CONFIG), model.now_s)
        self.push()
        for _ in range(_SETTLE_TICKS):
            self._send_probes()
            self.central.tick(model.now_s)
            self.push()
        self.write_queues()
        for vn in model.received:
            port = model.edge_port(vn)
            frame = frame_of(mac_of(vn), BROADCAST, vn.vlan_vid)
            model.switches[port.dpid].inject(port.port_no, frame, model.now_s)
            self._listen(port.dpid)
        self.push()
        self._schedule()

    def listen(self, dpid: int) -> None:
        """Process the messages of a switch."""
        self._listen(dpid)

    def write_queues(self) -> None:
        """Give the edge ports the queues for the effective limits."""
        write_queues(self.model, self.central.config, self.central.vns)

    def push(self) -> None:
        """Send due messages now, as the application does after a change over REST."""
        self._push(self._drain())

    def events(self) -> list[Event]:
        """Return the events that the controller recorded."""
        return list(self.central.events.newer_than(0))

    # -- the loop

    def _schedule(self) -> None:
        """Schedule the next interval, with its jitter."""
        due_s = self._began_s + (self.counts.intervals + 1) * self.timing.interval_s
        self.model.at(due_s + self.model.rng.uniform(0.0, self.timing.jitter_s), self._read)

    def _read(self) -> None:
        """Read all counters, and schedule the control step on them half of the loop delay later.

        Then schedule the next reading.
        """
        model = self.model
        self.counts.intervals += 1
        model.count_hits()
        stats = {}
        self._read_s = model.now_s
        for dpid, datapath in model.switches.items():
            datapath.advance(model.now_s)
            stats[dpid] = decode_meter_stats(self._ask(dpid, encode_meter_stats_request))
            delivery = self.central.fabric.deliveries[dpid]
            delivery.read_ports(decode_port_stats(self._ask(dpid, encode_port_stats_request)), self._read_s)
            delivery.read_queues(decode_queue_stats(self._ask(dpid, encode_queue_stats_request)), self._read_s)
        model.report_frames()  # packet-ins of pairs without a flow entry
        for dpid in model.switches:
            self._listen(dpid)
        model.at(model.now_s + self.timing.loop_delay_s / 2, lambda: self._step(stats))
        self._schedule()

    def _step(self, stats: dict[int, NDArray[np.void]]) -> None:
        """Run the control step and encode its messages; the switches receive them half of the delay later."""
        began_s = time.process_time()
        now_s = self.model.now_s
        self.central.interval(stats, dict.fromkeys(stats, self._read_s), now_s, self._confirmed_s)
        if now_s - self._probed_s >= PROBE_INTERVAL_S:
            self._send_probes()
        self.central.tick(now_s)
        updates, agent_frames = self._drain(), self.central.drain_agent_frames()
        self.counts.cpu_s += time.process_time() - began_s

        def push() -> None:
            self._push(updates)
            self._send_agent_frames(agent_frames)

        self.model.at(now_s + self.timing.loop_delay_s / 2, push)

    def _send_probes(self) -> None:
        """Deliver a discovery probe over every link, in both directions."""
        self._probed_s = self.model.now_s
        for receiver, sender in self.model.links.items():
            self.central.on_discovery_frame(sender, receiver, self.model.now_s)

    # -- bytes

    def _drain(self) -> dict[int, Messages]:
        """Return the messages due now, encoded, by dpid."""
        messages = {}
        for dpid, update in self.central.drain_updates().items():
            messages[dpid] = Messages(update.encode(self._xid), update.restarts_counts)
            self._xid += len(update)
        return messages

    def _push(self, updates: dict[int, Messages]) -> None:
        """Deliver messages to the switches, process their replies, and count the meter-mods."""
        self.model.count_hits()  # the traffic so far passed the present meters and flow entries
        mods_before = self._meter_mods()
        for dpid, messages in updates.items():
            self.model.switches[dpid].receive(messages.data, self.model.now_s)
            if messages.restarts_counts:
                self._confirmed_s[dpid] = self.model.now_s
            self._listen(dpid)
        self.counts.meter_mods += self._meter_mods() - mods_before

    def _send_agent_frames(self, frames: list[AgentFrame]) -> None:
        """Send the frames for agents by packet-out; frames that leave by agents' ports reach the agents."""
        for port, octets in frames:
            message = encode_packet_out(self._xid, PORT_CONTROLLER, (Output(port.port_no),), octets)
            self._xid += 1
            datapath = self.model.switches[port.dpid]
            datapath.receive(message, self.model.now_s)
            for port_no, frame in datapath.drain_frames():
                self.on_control_frame(PortId(port.dpid, port_no), frame)

    def _meter_mods(self) -> int:
        """Return the number of meter-mods that all switches have processed so far."""
        return sum(datapath.handled.get(MessageType.METER_MOD, 0) for datapath in self.model.switches.values())

    def _ask(self, dpid: int, encode: Callable[[int], bytes]) -> bytes:
        """Send the request that ``encode`` makes for an xid; return the bodies of the reply, joined."""
        self.model.switches[dpid].receive(encode(self._xid), self.model.now_s)
        self._xid += 1
        return self._listen(dpid)

    def _listen(self, dpid: int) -> bytes:
        """Process the messages of a switch; return the bodies of its multipart replies, joined.

        Raises ProtocolError for an error reply: none is expected on the model.
        """
        datapath, now_s = self.model.switches[dpid], self.model.now_s
        datapath.drain_frames()
        data, offset, bodies = datapath.drain_messages(), 0, []
        while offset < len(data):
            _version, kind, length, _xid = HEADER.unpack_from(data, offset)
            message = data[offset : offset + length]
            offset += length
            if kind == MessageType.PACKET_IN:
                self.counts.packet_ins += 1
                packet = parse_packet_in(message)
                if packet.table_id == Table.CLASSIFY and is_control(packet.data):
                    self.central.on_control_frame(dpid, packet.in_port, packet.data, now_s)
                else:
                    self.central.on_packet_in(dpid, packet, now_s)
            elif kind == MessageType.FLOW_REMOVED:
                self.central.on_flow_removed(dpid, parse_flow_removed(message), now_s)
            elif kind == MessageType.MULTIPART_REPLY:
                bodies.append(message[HEADER.size + _MULTIPART_HEAD.size :])
            elif kind == MessageType.ERROR:
                raise ProtocolError(f"switch {dpid:016x} refused a message: {parse_error(message).text}")
        return b"".join(bodies)
