"""What hosts send: unresponsive traffic at a rate, and the paper's on/off generator that drives any source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from random import Random
from typing import Protocol

from controller.errors import InvalidValueError
from experiments.measure.frame_sizes import UDP_FRAME_BYTES
from experiments.model.queues import Hop, OutPort


class ModelSource(ABC):
    """A flow from one host to another; a subclass decides what it sends and how it reacts to delivery and loss.

    ``reliable`` sources are told how many packets were ahead of lost ones. ``hops`` is the path through the fabric.
    With ``ecn`` packets are ECN-capable, ECT(0). ``sent``, ``delivered``, ``marked`` (delivered with a mark) and
    ``lost`` count packets of ``frame_bytes`` (tagged frames). ``running``: the application has data to send.
    """

    ecn = False
    reliable = False

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.frame_bits = frame_bytes * 8
        self.running = False
        self.sent = self.delivered = self.marked = self.lost = 0
        self.hops: list[Hop] = []
        self._next: dict[OutPort, Hop] = {}
        self._markable: set[OutPort] = set()

    def set_path(self, hops: list[Hop]) -> None:
        """Send along these hops from now on; packets waiting at ports of the old path follow where paths overlap."""
        self.hops = hops
        self._next = {hop.port: after for hop, after in pairwise(hops)}
        self._markable = {hop.port for hop in hops if hop.markable}

    def markable(self, port: OutPort) -> bool:
        """Return whether a port on the path may mark the packets."""
        return port in self._markable

    def hop_after(self, port: OutPort) -> Hop | None:
        """Return the hop that follows a port on the path; None if the receiver follows."""
        return self._next.get(port)

    def port_after(self, port: OutPort) -> OutPort | None:
        """Return the port that follows another port on the path; None if the receiver follows."""
        hop = self._next.get(port)
        return None if hop is None else hop.port

    def start(self, slot: int) -> None:
        """Have data to send from this slot on."""
        self.running = True

    def stop(self, slot: int) -> None:
        """Have no more data to send."""
        self.running = False

    @abstractmethod
    def offer(self, slot: int) -> int:
        """Return how many packets the source sends in this slot; called once in every slot."""

    def lose(self, packets: int, ahead: int) -> None:
        """Count dropped packets; ``ahead`` earlier packets were still in the network (0 unless ``reliable``)."""
        self.lost += packets

    def arrive(self, packets: int, sent_slot: int, marked: int, slot: int) -> None:
        """Count packets that reached the receiver; ``marked`` of them are ECN-marked."""
        self.delivered += packets
        self.marked += marked


class UdpSource(ModelSource):
    """A flow at ``rate_bps`` (wire rate of tagged frames), whether packets arrive or not.

    ``phase``, 0 to 1, is the part of the first packet that is ready at the start.
    """

    def __init__(self, rate_bps: float, slot_s: float, phase: float = 0.0) -> None:
        super().__init__(UDP_FRAME_BYTES)
        if rate_bps <= 0:
            raise InvalidValueError("rate_bps", rate_bps, "is not above 0")
        self.rate_bps = rate_bps
        self._per_bit = slot_s / self.frame_bits
        self._ready = phase

    def offer(self, slot: int) -> int:
        """Return the whole packets that are ready; the fraction of a packet remains for the next slot."""
        if not self.running:
            return 0
        self._ready += self.rate_bps * self._per_bit
        packets = int(self._ready)
        self._ready -= packets
        self.sent += packets
        return packets


class Generator(Protocol):
    """An object that starts, stops or feeds sources."""

    def step(self, slot: int) -> None:
        """Do what is due in this slot; called once in every slot."""


class OnOff:
    """The generator of the DETS paper (section IV): bursts and pauses of random length, uniform in [0, ``most_s``]."""

    def __init__(self, source: ModelSource, most_s: float, slot_s: float, rng: Random) -> None:
        if most_s <= 0:
            raise InvalidValueError("most_s", most_s, "is not above 0")
        self.source = source
        self._most_slots = most_s / slot_s
        self._rng = rng
        self._change_slot = 0

    def step(self, slot: int) -> None:
        """Start or stop the source when it is time to."""
        if slot < self._change_slot:
            return
        if self.source.running:
            self.source.stop(slot)
        else:
            self.source.start(slot)
        self._change_slot = slot + max(1, round(self._rng.uniform(0.0, self._most_slots)))
