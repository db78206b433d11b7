"""Agents on the model's hosts: the real agent, with queues of the model in the place of HTB's classes.

Its frames go through the edge switch's tables as bytes, and the controller's return as packet-outs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

import numpy as np

from apps.agent.agent import Agent, AgentOptions
from apps.agent.shaper import VN_AGGREGATE, PairCounters, ShapedPair
from controller.agents.control_frames import NO_RATE, ControlFrame, FrameRejection, decode
from controller.fabric.topology import PortId
from experiments.model.control.control_plane import ControlPlane
from experiments.model.fabric import ModelFabric, ModelFlow, mac_of
from experiments.model.queues import OutPort
from experiments.switch.ports import SwitchPort
from topologies.fabric import PhysicalNode

INTERVAL_S = 0.055
FRAME_BYTES = 1518  # assumed length of a dropped frame
_Key = TypeVar("_Key")


class HostPort(SwitchPort):
    """An uplink with two levels of sharing: VLANs share the link, and the queues of a VLAN share the VLAN's rate.

    ``vlan_of`` is the VLAN of each queue id, ``vlan_rate_bps`` the maximum rate of each VLAN that has one.
    """

    def __init__(self, name: str, rate_bps: float) -> None:
        super().__init__(1, name, 0, rate_bps)
        self.vlan_of: dict[int, int] = {}
        self.vlan_rate_bps: dict[int, float] = {}

    def serve(self, offered_bps: dict[int | None, float], used_bps: float = 0.0) -> dict[int | None, float]:
        """Return the rate of each queue, max-min fairly within its VLAN.

        A VLAN gets its own rate if the link carries the rates of all VLANs; otherwise VLANs share the link max-min
        fairly. The arguments are those of ``SwitchPort.serve``.
        """
        by_vlan: dict[int, dict[int | None, float]] = {}
        for queue_id, rate_bps in offered_bps.items():
            vid = self.vlan_of.get(queue_id or 0, 0)
            by_vlan.setdefault(vid, {})[queue_id] = min(rate_bps, self._max_bps(queue_id))
        vlan_bps = {vid: min(sum(offered.values()), self._max_vlan_bps(vid)) for vid, offered in by_vlan.items()}
        free_bps = max(self.rate_bps - used_bps, 0.0)
        if sum(vlan_bps.values()) > free_bps:
            vlan_bps = _fair(vlan_bps, free_bps)
        shares = [_fair(offered, vlan_bps[vid]) for vid, offered in by_vlan.items()]
        return {queue_id: queue_bps for share in shares for queue_id, queue_bps in share.items()}

    def _max_vlan_bps(self, vid: int) -> float:
        """Return the maximum rate of a VLAN; the link rate if the agent has set none."""
        return self.vlan_rate_bps.get(vid, self.rate_bps)


def _fair(offered_bps: Mapping[_Key, float], rate_bps: float) -> dict[_Key, float]:
    """Return the max-min fair shares of ``rate_bps`` for offered rates, by key."""
    shares_bps, free_bps = dict.fromkeys(offered_bps, 0.0), rate_bps
    ascending = sorted(offered_bps, key=offered_bps.__getitem__)
    for served, key in enumerate(ascending):
        shares_bps[key] = min(offered_bps[key], free_bps / (len(ascending) - served))
        free_bps -= shares_bps[key]
    return shares_bps


class ModelShaper:
    """The interface of ``apps.agent.shaper.Shaper`` on an uplink of the model."""

    most_pairs = 50_000

    def __init__(self, model: ModelFabric, pn: PhysicalNode) -> None:
        """Give the uplink of ``pn`` a default queue for each VLAN; ``set_rates`` adds one for each pair."""
        self._model = model
        self.port = HostPort(pn.trunk_interface, pn.link_rate_bps)
        self.uplink = OutPort(self.port, model.slot_s, model.options.queues, model.rng)
        self.uplink.on_count = self._count
        self._default_queue: dict[int, int] = {}
        self._pair_queue: dict[ShapedPair, int] = {}
        self._totals: dict[int, list[int]] = {}  # by queue id: bytes sent, frames dropped
        self._next_queue_id = 1
        self._reported_part, self._ignores_rates = 1.0, False  # an honest agent's; ``misreport`` changes both
        for vid in pn.vlans:
            self._default_queue[vid] = self._add(vid, pn.link_rate_bps)
        model.uplinks[pn.number] = self.uplink

    def queue_for(self, vid: int, destination: bytes) -> int:
        """Return the queue id of a frame.

        That of its pair if the pair has a rate, otherwise the default of its VLAN.
        """
        return self._pair_queue.get(ShapedPair(vid, destination), self._default_queue[vid])

    def set_rates(self, rates: Sequence[tuple[ShapedPair, int]]) -> None:
        """Set the rates of pairs or VN aggregates in bit/s; a pair without a queue gets a queue."""
        for pair, rate_bps in () if self._ignores_rates else rates:
            if pair.destination == VN_AGGREGATE:
                self.port.vlan_rate_bps[pair.vlan_vid] = rate_bps
                continue
            if pair not in self._pair_queue:
                self._pair_queue[pair] = self._add(pair.vlan_vid, rate_bps)
                self._model.uplinks_changed()
            self.port.set_queue(self._pair_queue[pair], 0.0, rate_bps)

    def misreport(self) -> None:
        """From now on report half of the bytes sent, and ignore new rates."""
        self._reported_part, self._ignores_rates = 0.5, True

    def remove(self, pairs: Sequence[ShapedPair]) -> None:
        """Return pairs to the default queue of their VLAN."""
        for pair in pairs:
            if pair.destination == VN_AGGREGATE:
                self.port.vlan_rate_bps.pop(pair.vlan_vid, None)
            elif pair in self._pair_queue:
                del self._pair_queue[pair]
        self._model.uplinks_changed()

    def counters(self, pairs: Sequence[ShapedPair]) -> PairCounters:
        """Return the sent, dropped and queued bytes of pairs, (pairs,) each; VN_AGGREGATE is the sum of a VLAN."""
        self._model.count_hits()
        found = [self._counted(pair) for pair in pairs]
        return PairCounters(*np.array(found, dtype=np.int64).reshape(-1, 3).T)

    def _counted(self, pair: ShapedPair) -> tuple[int, int, int]:
        """Return a pair's (sent, dropped, queued) bytes; those of all its queues for the VN aggregate."""
        queue_ids = [self._pair_queue[pair]] if pair in self._pair_queue else []
        if pair.destination == VN_AGGREGATE:
            queue_ids = [queue_id for queue_id, vid in self.port.vlan_of.items() if vid == pair.vlan_vid]
        sent, dropped = (sum(self._totals[queue_id][column] for queue_id in queue_ids) for column in (0, 1))
        queues = self.uplink.queues
        waiting = sum(queues[queue_id].waiting_bytes for queue_id in queue_ids if queue_id in queues)
        return round(sent * self._reported_part), dropped * FRAME_BYTES, waiting

    def close(self, *, keep: bool) -> None:
        """Do nothing: a model leaves nothing behind."""

    def _add(self, vid: int, rate_bps: float) -> int:
        """Add a queue of a VLAN with a maximum rate; return its id."""
        queue_id, self._next_queue_id = self._next_queue_id, self._next_queue_id + 1
        self._totals[queue_id] = [0, 0]
        self.port.vlan_of[queue_id] = vid
        self.port.set_queue(queue_id, 0.0, rate_bps)
        return queue_id

    def _count(self, queue_id: int, octets: int, dropped: int) -> None:
        """Add to the totals of a queue: (bytes sent, packets dropped)."""
        totals = self._totals.setdefault(queue_id, [0, 0])
        totals[0] += octets
        totals[1] += dropped


class ModelFrames:
    """The host's end of the link to its edge switch, for control frames; ``loss``, 0 to 1, is the part that is lost."""

    def __init__(self, plane: ControlPlane, port: PortId, address: int, rng: Random) -> None:
        self.address, self.loss, self.arrived = address, 0.0, list[ControlFrame]()
        self._plane, self._port, self._rng = plane, port, rng

    def fileno(self) -> int:
        """Raise OSError: the model has no files."""
        raise OSError("the model has no files")

    def send(self, frames: list[bytes]) -> None:
        """Send frames to the edge switch."""
        for frame in frames:
            if self._rng.random() >= self.loss:
                self._plane.model.switches[self._port.dpid].inject(self._port.port_no, frame, self._plane.model.now_s)
        self._plane.listen(self._port.dpid)

    def receive(self, max_frames: int) -> list[ControlFrame]:
        """Return and remove up to ``max_frames`` received frames."""
        frames, self.arrived = self.arrived[:max_frames], self.arrived[max_frames:]
        return frames

    def deliver(self, octets: bytes) -> bool:
        """Receive a frame from the switch; return whether it arrived and was valid."""
        frame = decode(octets)
        if self._rng.random() < self.loss or isinstance(frame, FrameRejection):
            return False
        self.arrived.append(frame)
        return True


class ModelAgents:
    """The agents of some PNs, started before any traffic: ``by_pn`` by PN number."""

    def __init__(self, plane: ControlPlane, pns: Iterable[PhysicalNode]) -> None:
        self._plane, model = plane, plane.model
        self.by_pn: dict[int, Agent] = {}
        self.frames: dict[int, ModelFrames] = {}
        self._shapers: dict[int, ModelShaper] = {}
        self._number_of_port: dict[PortId, int] = {}
        self.running: set[int] = set()
        rng = Random(model.options.seed)
        for pn in pns:
            port = PortId(model.fabric.switch(pn.switch).dpid, pn.port_no)
            shaper = self._shapers[pn.number] = ModelShaper(model, pn)
            # The agent's address is local (02:...), and no VN's.
            frames = self.frames[pn.number] = ModelFrames(plane, port, 0x02_0000_F000_00 + pn.number, rng)
            options = AgentOptions(tuple(pn.vlans), pn.link_rate_bps)
            self.by_pn[pn.number] = Agent(options, shaper, frames, lambda: model.now_s, epoch=pn.number)
            self._number_of_port[port] = pn.number
            self.running.add(pn.number)
            self._schedule(pn.number, rng.uniform(0.0, INTERVAL_S))
        model.uplink_queue = self._queue_of
        plane.on_control_frame = self._deliver

    def kill(self, number: int) -> None:
        """End the agent of a PN abruptly; its rates stay."""
        self.running.discard(number)

    def drop_rates(self, number: int) -> None:
        """Delete all rates of a PN, as an operator of the host could."""
        shaper = self._shapers[number]
        shaper.remove(list(self.by_pn[number].pairs.rate_kbps))

    def misreport(self, number: int) -> None:
        """Let the agent of a PN stop shaping and report half of what is sent."""
        self.drop_rates(number)
        self._shapers[number].misreport()

    def cut_off(self) -> None:
        """Drop all frames to all agents from now on."""
        self._plane.on_control_frame = lambda _port, _frame: None

    def rates_kbps(self, number: int, vlan_vid: int, receiver: int) -> int:
        """Return the effective rate at a PN towards another PN's VN; 0 without one."""
        destination = mac_of(self._plane.model.fabric.vn(vlan_vid, receiver)).to_bytes(6)
        rate_kbps = self.by_pn[number].pairs.rate_kbps.get(ShapedPair(vlan_vid, destination), NO_RATE)
        return 0 if rate_kbps == NO_RATE else rate_kbps

    def _queue_of(self, flow: ModelFlow) -> int:
        """Return the queue id of a flow on its PN's uplink: the agent's, if the PN has one."""
        shaper = self._shapers.get(flow.sender.pn.number)
        if shaper is None:
            return self._plane.model.class_on_uplink(flow)
        return shaper.queue_for(flow.sender.vlan_vid, mac_of(flow.receiver).to_bytes(6))

    def _schedule(self, number: int, wait_s: float) -> None:
        """Schedule the next interval of an agent ``wait_s`` from now."""
        self._plane.model.at(self._plane.model.now_s + wait_s, lambda: self._interval(number))

    def _interval(self, number: int) -> None:
        """Run one interval of an agent and schedule the next, unless the agent was killed."""
        if number in self.running:
            self.by_pn[number].run_interval()
            self._schedule(number, self.by_pn[number].interval_s)

    def _deliver(self, port: PortId, octets: bytes) -> None:
        """Deliver a control frame that left by an edge port to the agent behind that port."""
        number = self._number_of_port.get(port)
        if number in self.running and self.frames[number].deliver(octets):
            self.by_pn[number].receive_frames()
