"""HyGenICC's Algorithms 1 and 2 as printed, with slips repaired, frame by frame in plain Python: a reference.

Sources at one bottleneck (``experiments.model.packets``), updates every 0.5 ms. A flag of ``Slips`` restores a slip, to
show its effect. Deviation: a rate does not fall below 1 % of its share; in line 39 it may become 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.model.packets import FRAME_BITS, PacketLink, PacketNetwork, UdpFlow


@dataclass(frozen=True)
class Slips:
    """Slips of the listing that are kept. ``always_fed_back``: the condition of line 34, ``f >= 0``, always holds."""

    always_fed_back: bool = False


@dataclass(frozen=True)
class PaperConstants:
    """The constants of the paper: 1 Gb/s (section V.A), and updates every 5 round trips (V) of 100 us (V.A)."""

    capacity_bps: float = 1e9
    update_s: float = 0.5e-3
    bucket_s: float = 1e-3  # the paper gives no depth B
    congestion_timeout_s: float = 20e-3  # the paper gives no time-out


@dataclass
class Source:
    """A VM with its token bucket (Algorithm 1, packet out) and its rate (Algorithm 1, timer).

    A frame without tokens is dropped, as in line 10, or kept for later if fewer than ``queue_frames`` wait. Guests do
    not see marks if it ``hides_marks``.
    """

    paper: PaperConstants
    share_bps: float
    rate_bps: float
    slips: Slips = field(default_factory=Slips)
    tokens_bits: float = 0.0
    sent_s: float = 0.0
    marks: int = 0
    detected: bool = False
    fed_back_s: float = 0.0
    queue_frames: int = 0  # the listing drops frames
    hides_marks: bool = True

    def consume(self, now_s: float) -> bool:
        """Return whether a frame may be sent now."""
        self.tokens_bits += self.rate_bps * (now_s - self.sent_s)
        self.tokens_bits = min(self.tokens_bits, max(self.paper.bucket_s * self.rate_bps, FRAME_BITS))
        self.sent_s = now_s  # at every refill: the listing does so only for a sent frame
        if self.tokens_bits < FRAME_BITS:
            return False
        self.tokens_bits -= FRAME_BITS
        return True

    def feedback(self, now_s: float) -> None:
        """Count a mark that came back."""
        self.marks += 1
        self.detected = True
        self.fed_back_s = now_s

    def update(self, now_s: float) -> None:
        """Run the timer (Algorithm 1, lines 29 to 39), once for all flows of the VM."""
        capacity_bps = self.paper.capacity_bps
        if now_s - self.fed_back_s >= self.paper.congestion_timeout_s:
            self.detected = False  # 31
        if not self.detected:
            self.rate_bps += capacity_bps / 100  # 33
        elif self.marks > 0 or self.slips.always_fed_back:
            self.rate_bps -= self.marks * capacity_bps / 1000  # 35
        else:
            self.rate_bps += capacity_bps / 1000  # 37
        self.marks = 0  # 38
        self.rate_bps = max(0.01 * self.share_bps, min(self.share_bps, self.rate_bps))  # 39


@dataclass
class Tick:
    """One update interval: by source the rate before, its marks and its frames, and the rate after."""

    before_bps: list[float]
    marks: list[int]
    frames: list[int]
    after_bps: list[float]


def run(sources: Sequence[Source], network: PacketNetwork, seconds: float) -> list[Tick]:
    """Run for ``seconds``: the network carries frames, and every source updates its rate after each ``update_s``."""
    ticks = []
    begin_s = network.now_s
    for number in range(round(seconds / sources[0].paper.update_s)):
        before = network.delivered()
        network.run(begin_s + (number + 1) * sources[0].paper.update_s)
        rates, marks = [source.rate_bps for source in sources], [source.marks for source in sources]
        for source in sources:
            source.update(network.now_s)
        frames = [after - earlier for after, earlier in zip(network.delivered(), before, strict=True)]
        ticks.append(Tick(rates, marks, frames, [source.rate_bps for source in sources]))
    return ticks


def greedy(sources: Sequence[Source], seed: int = 1) -> PacketNetwork:
    """Return the paper's network, in which each source has traffic in every slot."""
    flows = [UdpFlow() for _ in sources]
    for flow in flows:
        flow.start(0)
    return PacketNetwork(PacketLink(), [(source, [flow]) for source, flow in zip(sources, flows, strict=True)], seed)


def used(ticks: list[Tick], paper: PaperConstants) -> float:
    """Return the used part of the link."""
    bits = FRAME_BITS * sum(sum(tick.frames) for tick in ticks)
    return bits / (paper.capacity_bps * paper.update_s * len(ticks))
