"""A small OpenFlow 1.3 switch that executes what the controller produces, strictly: what a switch would refuse fails.

Frames run through its tables one at a time (OpenFlow 1.3.5, section 5); meters are token buckets as Open vSwitch has
them: a modify refills the bucket and zeroes the counters while the duration goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from controller.forwarding.flow_table import FlowKey, flow_key
from controller.forwarding.pipeline import MetadataFlag, Table
from controller.openflow.actions import Output, PopVlan, PushVlan, SetIpEcn, SetQueue, SetVlanVid
from controller.openflow.constants import ETH_TYPES_IP, PORT_CONTROLLER, VLAN_NONE, VLAN_PRIORITY, MeterModCommand
from controller.openflow.ethernet import FrameHeader, build_frame
from controller.openflow.flows import Flow
from controller.openflow.messages import FlowRemoved, PacketIn
from controller.openflow.meters import METER_CONFIG, METER_FLAGS, METER_STATS
from controller.switch.switch_record import MeterSetting, SwitchUpdate

BROADCAST = 2**48 - 1


class Frame(NamedTuple):
    """Addresses as integers; ``vlan_vid`` is None for an untagged frame, 0 for a priority tag.

    ``ip_ecn`` says nothing of frames that are no IP packets.
    """

    eth_dst: int
    eth_src: int
    vlan_vid: int | None = None
    eth_type: int = 0x0800
    ip_ecn: int = 0


class RefusedError(Exception):
    """The switch refuses a message, as Open vSwitch would."""


@dataclass
class Meter:
    """A token bucket and its counters; bits and seconds."""

    setting: MeterSetting
    added_s: float
    tokens: float = 0.0
    filled_s: float = 0.0
    in_bits: float = 0.0
    dropped_bits: float = 0.0

    def set(self, setting: MeterSetting, now_s: float) -> None:
        self.setting, self.tokens, self.filled_s = setting, setting.burst_kbits * 1e3, now_s
        self.in_bits = self.dropped_bits = 0.0

    def pass_bits(self, bits: float, now_s: float) -> float:
        """Return how much of ``bits`` passes at ``now_s``."""
        filled = self.tokens + (now_s - self.filled_s) * self.setting.rate_kbps * 1e3
        self.tokens, self.filled_s = min(filled, self.setting.burst_kbits * 1e3), now_s
        passed = min(bits, self.tokens)
        self.tokens -= passed
        self.in_bits += bits
        self.dropped_bits += bits - passed
        return passed


@dataclass
class Trace:
    """What became of one frame in one switch."""

    outputs: list[tuple[int, Frame, int | None]] = field(default_factory=list)  # port, frame, queue
    reports: list[PacketIn] = field(default_factory=list)
    meters: list[int] = field(default_factory=list)
    matched: list[FlowKey] = field(default_factory=list)


@dataclass
class Switch:
    """One switch: its flow entries and meters."""

    dpid: int
    flows: dict[FlowKey, Flow] = field(default_factory=dict)
    meters: dict[int, Meter] = field(default_factory=dict)
    version: int = 0
    meter_mods: int = 0

    def apply(self, update: SwitchUpdate, now_s: float = 0.0) -> None:
        """Do what an update says, in the order in which it is sent."""
        self.version += 1
        for flow in update.flow_deletes:
            self.flows.pop(flow_key(flow), None)
        for command, meter_id, rate, burst in update.meter_mods().T.tolist():
            self.meter_mods += 1
            if (command == MeterModCommand.ADD) == (meter_id in self.meters):
                raise RefusedError(f"switch {self.dpid}: {MeterModCommand(command).name} of meter {meter_id}")
            if min(rate, burst) < 1:
                raise RefusedError(f"meter {meter_id}: rate {rate} kb/s, burst {burst} kb")
            meter = self.meters.setdefault(meter_id, Meter(MeterSetting(rate, burst), now_s))
            meter.set(MeterSetting(rate, burst), now_s)
        for flow in update.flow_adds:
            if flow.meter_id is not None and flow.meter_id not in self.meters:
                raise RefusedError(f"switch {self.dpid}: no meter {flow.meter_id} for {flow}")
            self.flows[flow_key(flow)] = flow
        for meter_id in update.meter_deletes:
            self.meters.pop(meter_id, None)
            for key in [key for key, flow in self.flows.items() if flow.meter_id == meter_id]:
                del self.flows[key]

    def run(self, frame: Frame, in_port: int) -> Trace:
        """Run one frame through the tables."""
        trace, table_id, metadata = Trace(), 0, 0
        while table_id is not None:
            flow = self._lookup(table_id, frame, in_port, metadata)
            if flow is None:
                break
            trace.matched.append(flow_key(flow))
            if flow.meter_id is not None:
                trace.meters.append(flow.meter_id)
            frame = self._act(flow, frame, in_port, trace, metadata)
            if flow.write_metadata is not None:
                metadata = metadata & ~flow.write_metadata.mask | flow.write_metadata.value
            table_id = flow.goto_table
        return trace

    def _lookup(self, table_id: int, frame: Frame, in_port: int, metadata: int) -> Flow | None:
        fitting = [f for f in self.flows.values() if f.table_id == table_id and matches(f, frame, in_port, metadata)]
        if not fitting:
            return None
        best = max(flow.priority for flow in fitting)
        top = [flow for flow in fitting if flow.priority == best]
        assert len(top) == 1, f"which of {top} matches {frame} is not defined (section 5.2)"
        return top[0]

    def _act(self, flow: Flow, frame: Frame, in_port: int, trace: Trace, metadata: int) -> Frame:
        queue: int | None = None
        for action in flow.actions:
            match action:
                case Output(port_no, _) if port_no == PORT_CONTROLLER:
                    trace.reports.append(packet_in(frame, in_port, flow, metadata))
                case Output(port_no, _):
                    if port_no != in_port:
                        trace.outputs.append((port_no, frame, queue))
                case SetQueue(queue_id):
                    queue = queue_id
                case PushVlan():
                    assert frame.vlan_vid is None, "a second tag"
                    frame = frame._replace(vlan_vid=0)
                case SetVlanVid(vlan_vid):
                    assert frame.vlan_vid is not None, "set_field of vlan_vid without a tag"
                    frame = frame._replace(vlan_vid=vlan_vid)
                case SetIpEcn(ip_ecn):
                    assert flow.match.eth_type in ETH_TYPES_IP, "set_field of ip_ecn without its prerequisite"
                    frame = frame._replace(ip_ecn=ip_ecn)
                case PopVlan():
                    assert frame.vlan_vid is not None, "pop_vlan without a tag"
                    frame = frame._replace(vlan_vid=None)
        return frame

    def age(self, key: FlowKey) -> FlowRemoved:
        """Let an entry's idle time-out pass."""
        flow = self.flows.pop(key)
        self.version += 1
        assert flow.send_flow_removed
        assert flow.idle_timeout_s
        return FlowRemoved(flow.match, flow.cookie, flow.table_id, flow.priority, 0, 1.0, 1, 64)

    def meter_stats(self, now_s: float) -> np.ndarray:
        rows = [(i, 0, int(m.in_bits / 8), now_s - m.added_s, int(m.dropped_bits / 8)) for i, m in self.meters.items()]
        return np.array(rows, dtype=METER_STATS)

    def meter_config(self) -> np.ndarray:
        return meter_config({i: meter.setting for i, meter in self.meters.items()})


def meter_config(settings: dict[int, MeterSetting]) -> np.ndarray:
    """METER_CONFIG rows of meters by id."""
    return np.array([(i, int(METER_FLAGS), *setting) for i, setting in settings.items()], dtype=METER_CONFIG)


def matches(flow: Flow, frame: Frame, in_port: int, metadata: int = 0) -> bool:
    """Whether an entry matches; the Ethernet type is that behind the tag, as in Open vSwitch."""
    match = flow.match
    mask = BROADCAST if match.eth_dst_mask is None else match.eth_dst_mask
    return (
        match.in_port in (None, in_port)
        and (
            match.vlan_vid is None
            or match.vlan_vid == (VLAN_NONE if frame.vlan_vid is None else frame.vlan_vid or VLAN_PRIORITY)
        )
        and (match.eth_dst is None or match.eth_dst == frame.eth_dst & mask)
        and (match.eth_src is None or match.eth_src == frame.eth_src & (match.eth_src_mask or BROADCAST))
        and (match.metadata is None or match.metadata == metadata & (match.metadata_mask or 2**64 - 1))
        and match.eth_type in (None, frame.eth_type)
        and (match.ip_ecn is None or (frame.eth_type in ETH_TYPES_IP and match.ip_ecn == frame.ip_ecn))
    )


def packet_in(frame: Frame, in_port: int, flow: Flow, metadata: int = 0) -> PacketIn:
    """The packet-in that an entry's output to the controller causes."""
    header = FrameHeader(frame.eth_dst, frame.eth_src, frame.vlan_vid, frame.eth_type)
    return PacketIn(1, flow.table_id, flow.cookie, in_port, build_frame(header, bytes(46)), metadata)


def reported(in_port: int, vlan_vid: int, frame: bytes, why: MetadataFlag) -> PacketIn:
    """The packet-in of a frame that was marked on its way."""
    return PacketIn(1, Table.PACKET_IN, 0, in_port, frame, int(why) | vlan_vid)
