"""Traffic as rates: meters, flow entries, ports and queues of many switches advance without work per packet.

Every offered flow is traced once through the pipelines of the fabric. After that its bytes are only multiplied: in each
step of the path an array of lanes meets an array of meters, ports or entries. A *lane* is a flow, or a copy of a flow
that a switch sends to another port; its number is its index in the arrays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from controller.openflow.ethernet import FrameHeader, build_frame
from controller.units import BITS_PER_BYTE
from experiments.switch.datapath import Datapath
from experiments.switch.flow_tables import FlowTableEntry

_MAX_HOPS = 64
_TEST_ETH_TYPE = 0x0800
_QUEUE_BITS = 31
_NO_QUEUE = (1 << _QUEUE_BITS) - 1  # port and queue in one integer: ports are below 2**32, queue ids below this

_PortKey = tuple[int, int]
"""(dpid, port_no)"""
_Sample = tuple[int, FlowTableEntry | None, int, bytes, int, int]
"""(dpid, entry, in_port, frame, max_len, metadata) of a packet-in."""
Peer = Callable[[int, int], tuple[int, int] | None]
"""(dpid, port_no) to the (dpid, port_no) at the other end of the link, or None for a host."""


@dataclass(frozen=True, slots=True)
class OfferedFlow:
    """Traffic that a host offers at a port."""

    dpid: int
    port_no: int
    frame: bytes


@dataclass(slots=True)
class _Steps:
    """The objects that lanes meet in one step: (lane, key) pairs by dpid.

    A key is a port number in ``receive``, the row of an entry in ``entry``, a meter id in ``meter``, and port and queue
    in one integer in ``send``. ``born`` are (lane, parent lane): lanes of copies that begin in this step.
    """

    receive: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    entry: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    meter: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    send: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    born: list[tuple[int, int]] = field(default_factory=list)


class _StageLoad(NamedTuple):
    """The lanes that meet objects of one kind on one switch: lane ``lanes[i]`` meets object ``keys[key_index[i]]``.

    ``lanes`` and ``key_index`` (meetings,); ``keys`` (objects,), each key once.
    """

    dpid: int
    lanes: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]
    key_index: npt.NDArray[np.int64]

    def total(self, lane_bytes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the bytes that arrive at each key, (keys,), from the bytes of each lane, (lanes,)."""
        return np.bincount(self.key_index, lane_bytes[self.lanes], len(self.keys)).astype(np.float64)


@dataclass(frozen=True, slots=True)
class _Step:
    """The objects of one step as arrays, a ``_StageLoad`` for each switch; ``born`` (copies, 2): lane, parent lane."""

    receive: list[_StageLoad]
    entry: list[_StageLoad]
    meter: list[_StageLoad]
    send: list[_StageLoad]
    born: npt.NDArray[np.int64]


class FluidTraffic:
    """The offered flows of a fabric, and the counters that they advance.

    ``packet_bytes`` is the frame size of all flows. Changed tables take effect at once, or at most every ``retrace_s``;
    until then the old entries count the traffic. Packet-ins are sent every ``sample_s``.
    """

    def __init__(
        self,
        switches: dict[int, Datapath],
        peer: Peer,
        *,
        packet_bytes: int = 1514,
        retrace_s: float = 0.0,
        sample_s: float = 0.1,
    ) -> None:
        self.flows: list[OfferedFlow] = []
        self._rate_bps: npt.NDArray[np.float64] = np.zeros(16)
        self.delivered_bps: npt.NDArray[np.float64] = np.zeros(0)
        """The rate of each flow at which it reached hosts in the last step of time, all copies together, (flows,)."""
        self._switches = switches
        self._peer = peer
        self._packet_bytes = packet_bytes
        self._retrace_s = retrace_s
        self._sample_s = sample_s
        self._steps: list[_Step] = []
        self._flow_of_lane: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._leaves: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._samples: list[_Sample] = []
        self._versions: list[int] | None = None
        self._traced_s = -np.inf
        self._sampled_s = -np.inf
        self._now_s: float | None = None

    def offer(
        self, dpid: int, port_no: int, rate_bps: float, *, eth_src: int, eth_dst: int, vlan_vid: int | None
    ) -> int:
        """Add a flow that enters at a port, tagged with ``vlan_vid`` or untagged; return its number.

        ``rate_bps`` counts whole frames (L2).
        """
        frame = build_frame(FrameHeader(eth_dst, eth_src, vlan_vid, _TEST_ETH_TYPE), b"").ljust(60, b"\0")
        number = len(self.flows)
        self.flows.append(OfferedFlow(dpid, port_no, frame))
        if number == len(self._rate_bps):
            self._rate_bps = np.concatenate([self._rate_bps, np.zeros(number)])
        self._rate_bps[number] = rate_bps
        self._versions = None
        return number

    def set_rates(self, numbers: npt.ArrayLike, rate_bps: npt.ArrayLike) -> None:
        """Change the rates of flows, in bit/s of whole frames, from the next step on."""
        self._rate_bps[np.asarray(numbers)] = rate_bps

    def advance(self, now_s: float) -> None:
        """Advance every counter by the traffic since the last call."""
        last_s, self._now_s = self._now_s, now_s
        if last_s is None or not self.flows:
            return
        if now_s > last_s:
            self._retrace_when_due(now_s)
            self._move(now_s, now_s - last_s)
        if now_s - self._sampled_s >= self._sample_s:
            self._sampled_s = now_s
            for dpid, entry, in_port, frame, max_len, metadata in self._samples:
                self._switches[dpid].packet_in(entry, in_port, frame, max_len, metadata)

    def _move(self, now_s: float, elapsed_s: float) -> None:
        """Move the bytes of ``elapsed_s`` through all steps.

        A meter or a port multiplies the bytes of the lanes that meet it by the share, 0 to 1, that it passes.
        """
        flow_bytes = self._rate_bps[: len(self.flows)] / BITS_PER_BYTE * elapsed_s
        lane_bytes = flow_bytes[self._flow_of_lane]
        used_bps: dict[_PortKey, float] = {}
        for step in self._steps:
            if len(step.born):
                lane_bytes[step.born[:, 0]] = lane_bytes[step.born[:, 1]]
            for load in step.receive:
                self._receive(load, lane_bytes)
            for load in step.entry:
                tables = self._switches[load.dpid].tables
                tables.hit_rates(load.keys, load.total(lane_bytes), self._packet_bytes, now_s)
            for load in step.meter:
                meters = self._switches[load.dpid].meters
                shares = meters.police_rates(load.keys, load.total(lane_bytes), self._packet_bytes, now_s)
                lane_bytes[load.lanes] *= shares[load.key_index]
            for load in step.send:
                shares = self._send(load, lane_bytes, elapsed_s, used_bps)
                lane_bytes[load.lanes] *= shares[load.key_index]
        delivered_bytes = np.bincount(self._flow_of_lane[self._leaves], lane_bytes[self._leaves], len(self.flows))
        self.delivered_bps = delivered_bytes * BITS_PER_BYTE / elapsed_s

    def _receive(self, load: _StageLoad, lane_bytes: npt.NDArray[np.float64]) -> None:
        """Count the bytes that lanes bring to ports."""
        ports = self._switches[load.dpid].ports
        for port_no, received_bytes in zip(load.keys.tolist(), load.total(lane_bytes).tolist(), strict=True):
            if port_no in ports:
                ports[port_no].receive(received_bytes, received_bytes / self._packet_bytes)

    def _send(
        self,
        load: _StageLoad,
        lane_bytes: npt.NDArray[np.float64],
        elapsed_s: float,
        used_bps: dict[_PortKey, float],
    ) -> npt.NDArray[np.float64]:
        """Serve the queues of each port, and return the share of the offered bytes that each queue sends, (keys,).

        ``used_bps`` is the rate that earlier steps have used of each port; it is updated.
        """
        offered_bytes = load.total(lane_bytes)
        port_of_key, queue_of_key = load.keys >> _QUEUE_BITS, load.keys & _NO_QUEUE
        shares = np.zeros(len(load.keys))
        for port_no in np.unique(port_of_key).tolist():
            port = self._switches[load.dpid].ports.get(port_no)
            if port is None or not port.up:
                continue
            rows = np.flatnonzero(port_of_key == port_no)
            queue_ids = [None if number == _NO_QUEUE else number for number in queue_of_key[rows].tolist()]
            offered_bps = (offered_bytes[rows] * BITS_PER_BYTE / elapsed_s).tolist()
            port_used_bps = used_bps.get((load.dpid, port_no), 0.0)
            served_bps = port.serve(dict(zip(queue_ids, offered_bps, strict=True)), port_used_bps)
            used_bps[load.dpid, port_no] = port_used_bps + sum(served_bps.values())
            for row, queue_id, queue_bps in zip(rows, queue_ids, offered_bps, strict=True):
                sent_bytes = served_bps[queue_id] * elapsed_s / BITS_PER_BYTE
                lost_bytes = offered_bytes[row] - sent_bytes
                port.send(queue_id, sent_bytes, sent_bytes / self._packet_bytes, lost_bytes / self._packet_bytes)
                shares[row] = served_bps[queue_id] / queue_bps if queue_bps else 1.0
        return shares

    def _retrace_when_due(self, now_s: float) -> None:
        """Follow all flows through the switches again if tables have changed, at most once in ``_retrace_s``."""
        versions = [datapath.tables.version for datapath in self._switches.values()]
        forced = self._versions is None  # a flow was added, or none was followed yet
        if versions == self._versions or (not forced and now_s - self._traced_s < self._retrace_s):
            return
        self._versions, self._traced_s = versions, now_s
        _Trace(self._switches, self._peer).run(self)

    def adopt(self, trace: _Trace) -> None:
        """Replace the steps of the traffic, its lanes and its packet-ins by those of a trace."""
        self._steps = [
            _Step(
                _stage_loads(step.receive),
                _stage_loads(step.entry),
                _stage_loads(step.meter),
                _stage_loads(step.send),
                _pairs(step.born),
            )
            for step in trace.steps
        ]
        self._flow_of_lane = np.array(trace.flow_of_lane, np.int64)
        self._leaves = np.array(trace.leaves, np.int64)
        self._samples = trace.samples


class _Output(NamedTuple):
    """A copy of a frame that leaves a switch.

    ``objects_met`` is the number of objects that the frame met in the switch before. ``lane`` is the lane of the copy;
    ``parent`` is the lane from which it branches off, or None if the copy keeps the lane of the arriving frame.
    """

    objects_met: int
    lane: int
    parent: int | None
    port_and_queue: int


@dataclass(slots=True)
class _Hop:
    """A frame's path through one switch: the objects that it meets, and its copies that leave.

    ``previous_port`` is the port by which the frame left the switch before; None at the fabric's edge. ``met`` are the
    objects as (kind, lane, key), in order; a kind is a field of ``_Steps``. ``next`` are the hops that follow, by the
    index in ``outputs``.
    """

    dpid: int
    previous_port: _PortKey | None
    met: list[tuple[str, int, int]]
    outputs: list[_Output] = field(default_factory=list)
    next: dict[int, _Hop] = field(default_factory=dict)

    def port_of(self, output: _Output) -> _PortKey:
        """Return the port by which a copy leaves."""
        return self.dpid, output.port_and_queue >> _QUEUE_BITS


class _Trace:
    """The paths of the flows, recorded hop by hop; also the visitor that a switch's pipeline calls for a frame.

    1) Walk every flow through the fabric.
    2) Find the step in which each port is served: after everything that its lanes meet before, so that it serves all
    lanes at once.
    3) Put the objects that the lanes meet into steps.

    Results: ``steps``; ``flow_of_lane``, the number of each lane's flow; ``leaves``, the lanes that reach a host; and
    ``samples``, the packet-ins that the flows cause.
    """

    def __init__(self, switches: dict[int, Datapath], peer: Peer) -> None:
        self.steps: list[_Steps] = []
        self.flow_of_lane: list[int] = []
        self.leaves: list[int] = []
        self.samples: list[_Sample] = []
        self._switches = switches
        self._peer = peer
        self._hop = _Hop(0, None, [])
        self._lane = 0
        self._sent: list[tuple[int, int, int, bytes]] = []
        """(objects met, port_no, queue id, frame) of each copy that leaves the switch of ``_hop``."""

    def run(self, traffic: FluidTraffic) -> None:
        """Trace all flows of ``traffic``, and give the steps to it."""
        hops: list[_Hop] = []
        first_hops: list[_Hop] = []
        for flow_number, flow in enumerate(traffic.flows):  # 1
            lane = self._new_lane(flow_number)
            arrivals: list[_Arrival] = [_Arrival(None, 0, lane, 0, flow.dpid, flow.port_no, flow.frame)]
            while arrivals:
                arrival = arrivals.pop()
                hop = self._walk(flow_number, arrival, arrivals)
                if hop is None:
                    continue
                hops.append(hop)
                if arrival.previous_hop is None:
                    first_hops.append(hop)
                else:
                    arrival.previous_hop.next[arrival.output_index] = hop
        step_of_port = _serving_steps(hops)  # 2
        for hop in first_hops:  # 3
            self._put_in_steps(hop, step_of_port)
        traffic.adopt(self)

    def _walk(self, flow_number: int, arrival: _Arrival, arrivals: list[_Arrival]) -> _Hop | None:
        """Walk a frame through the switch at which it arrives, and return its hop there.

        Its arrivals at the next switches are appended to ``arrivals``. None if the port is down or absent, or after
        _MAX_HOPS hops: a loop.
        """
        previous_hop, output_index, lane, hop_count, dpid, port_no, frame = arrival
        datapath = self._switches[dpid]
        port = datapath.ports.get(port_no)
        if port is None or not port.up or hop_count >= _MAX_HOPS:
            return None
        previous_port = None if previous_hop is None else previous_hop.port_of(previous_hop.outputs[output_index])
        hop = self._hop = _Hop(dpid, previous_port, [("receive", lane, port_no)])
        self._lane, self._sent = lane, []
        datapath.pipeline.run(port_no, frame, self)
        for index, (objects_met, out_port, queue_id, sent_frame) in enumerate(self._sent):
            # A copy that leaves before the walk ends gets its own lane, since later meters do not apply to it.
            leaves_early = index < len(self._sent) - 1 or objects_met < len(hop.met)
            copy_lane, parent = (self._new_lane(flow_number), lane) if leaves_early else (lane, None)
            hop.outputs.append(_Output(objects_met, copy_lane, parent, out_port << _QUEUE_BITS | queue_id))
            peer = self._peer(dpid, out_port)
            if peer is None:
                self.leaves.append(copy_lane)
            else:
                arrivals.append(_Arrival(hop, index, copy_lane, hop_count + 1, *peer, sent_frame))
        return hop

    def _put_in_steps(self, first_hop: _Hop, step_of_port: dict[_PortKey, int]) -> None:
        """Put the objects that the lanes meet from ``first_hop`` on into steps, one step after the other.

        A port is served in its step of ``step_of_port``, at which all its lanes have arrived.
        """
        to_place = [(first_hop, 0)]
        while to_place:
            hop, first_step = to_place.pop()
            for step, (kind, lane, key) in enumerate(hop.met, start=first_step):
                getattr(self._step(step), kind)[hop.dpid].append((lane, key))
            for index, output in enumerate(hop.outputs):
                leaves_in = first_step + output.objects_met
                if output.parent is not None:
                    self._step(leaves_in).born.append((output.lane, output.parent))
                served_in = max(leaves_in, step_of_port[hop.port_of(output)])
                self._step(served_in).send[hop.dpid].append((output.lane, output.port_and_queue))
                if index in hop.next:
                    to_place.append((hop.next[index], served_in + 1))

    def hit(self, entry: FlowTableEntry, octets: int) -> None:
        self._hop.met.append(("entry", self._lane, entry.row))

    def police(self, meter_id: int, octets: int) -> bool:
        self._hop.met.append(("meter", self._lane, meter_id))
        return self._switches[self._hop.dpid].meters.exists(meter_id)

    def output(self, port_no: int, queue_id: int | None, frame: bytes) -> None:
        self._sent.append((len(self._hop.met), port_no, _NO_QUEUE if queue_id is None else queue_id, frame))

    def to_controller(
        self, entry: FlowTableEntry | None, in_port: int, frame: bytes, max_len: int, metadata: int
    ) -> None:
        self.samples.append((self._hop.dpid, entry, in_port, frame, max_len, metadata))

    def _new_lane(self, flow_number: int) -> int:
        """Add a lane of a flow; return its number."""
        self.flow_of_lane.append(flow_number)
        return len(self.flow_of_lane) - 1

    def _step(self, number: int) -> _Steps:
        """Return a step, made if it does not exist yet."""
        while len(self.steps) <= number:
            self.steps.append(_Steps())
        return self.steps[number]


class _Arrival(NamedTuple):
    """A frame that reaches a port. ``hop_count`` is the number of switches that it has passed.

    It left ``previous_hop`` as its output ``output_index``; ``previous_hop`` is None if a host sent it.
    """

    previous_hop: _Hop | None
    output_index: int
    lane: int
    hop_count: int
    dpid: int
    port_no: int
    frame: bytes


def _serving_steps(hops: list[_Hop]) -> dict[_PortKey, int]:
    """Return the step in which each port is served: the last in which one of its lanes arrives.

    A depth-first search: a port comes after the ports from which its lanes come. If ports wait for each other in a
    circle, one of them is served more than once in a step of time; its later lanes get what the earlier lanes left.
    """
    # By port, and by the port before it on a path (None: the fabric's edge): the most objects met between the two.
    steps_between: defaultdict[_PortKey, dict[_PortKey | None, int]] = defaultdict(dict)
    for hop in hops:
        for output in hop.outputs:
            steps_from = steps_between[hop.port_of(output)]
            steps_from[hop.previous_port] = max(output.objects_met, steps_from.get(hop.previous_port, 0))
    step_of_port: dict[_PortKey, int] = {}
    visited: set[_PortKey] = set()
    for first_port in steps_between:
        stack = [first_port]
        while stack:
            port = stack[-1]
            not_served = [
                previous
                for previous in steps_between[port]
                if previous is not None and previous not in step_of_port and previous not in visited
            ]
            visited.add(port)
            if not_served:
                stack += not_served[:1]
                continue
            stack.pop()
            if port not in step_of_port:
                step_of_port[port] = max(
                    steps + (step_of_port.get(previous, 0) + 1 if previous is not None else 0)
                    for previous, steps in steps_between[port].items()
                )
    return step_of_port


def _pairs(rows: list[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return pairs as an array, (pairs, 2)."""
    return np.array(rows, np.int64).reshape(-1, 2)


def _stage_loads(by_switch: dict[int, list[tuple[int, int]]]) -> list[_StageLoad]:
    """Return the (lane, key) pairs of each dpid as arrays, a ``_StageLoad`` for each."""
    loads = []
    for dpid, rows in by_switch.items():
        lanes, keys = _pairs(rows).T
        loads.append(_StageLoad(dpid, lanes, *np.unique(keys, return_inverse=True)))
    return loads
