"""HyGenICC's Algorithms 1 and 2 as printed, with their slips mended, frame by frame in plain Python: a reference.

Sources at one bottleneck (``experiments.model.packets``), updates every 0.5 ms. Each slip can be put back by a flag of
``Slips``, to see what it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from experiments.model.packets import FRAME_BITS, PacketLink, PacketNetwork, UdpFlow


@dataclass(frozen=True)
class Slips:
    """Slips of the listing that are left in. ``always_fed_back``: line 34 asks ``f >= 0``, which is always so."""

    always_fed_back: bool = False


@dataclass(frozen=True)
class PaperConstants:
    """The constants of the paper (sections IV and V)."""

    capacity_bps: float = 1e9
    update_s: float = 0.5e-3
    bucket_s: float = 1e-3  # the paper gives no depth B
    congestion_timeout_s: float = 20e-3  # nor this


@dataclass
class Source:
    """A VM: its token bucket (Algorithm 1, packet out) and its rate (timer).

    It drops what it has no tokens for, as line 10 says, or with ``queue_frames`` keeps so many for later.
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
    queue_frames: int = 0  # the listing drops
    hides_marks: bool = True

    def consume(self, now_s: float) -> bool:
        """Return whether a frame may go out now."""
        self.tokens_bits += self.rate_bps * (now_s - self.sent_s)
        self.tokens_bits = min(self.tokens_bits, max(self.paper.bucket_s * self.rate_bps, FRAME_BITS))
        self.sent_s = now_s  # at every refill: the listing does so only where a frame goes out
        if self.tokens_bits < FRAME_BITS:
            return False
        self.tokens_bits -= FRAME_BITS
        return True

    def feedback(self, now_s: float) -> None:
        """A mark came back."""
        self.marks += 1
        self.detected = True
        self.fed_back_s = now_s

    def update(self, now_s: float) -> None:
        """Run the timer (Algorithm 1, step 5), once for all flows of the VM."""
        capacity_bps = self.paper.capacity_bps
        if now_s - self.fed_back_s >= self.paper.congestion_timeout_s:
            self.detected = False
        if not self.detected:
            self.rate_bps += capacity_bps / 100
        elif self.marks > 0 or self.slips.always_fed_back:
            self.rate_bps -= self.marks * capacity_bps / 1000
        else:
            self.rate_bps += capacity_bps / 1000
        self.marks = 0
        self.rate_bps = max(0.01 * self.share_bps, min(self.share_bps, self.rate_bps))


@dataclass
class Tick:
    """What happened between two updates: by source the rate before, its marks and its frames, and the rate after."""

    before_bps: list[float]
    marks: list[int]
    frames: list[int]
    after_bps: list[float]


def run(sources: Sequence[Source], network: PacketNetwork, seconds: float) -> list[Tick]:
    """Go on for so long: the network carries frames, and every source updates its rate after each ``update_s``."""
    ticks = []
    begin_s = network.now_s
    for number in range(round(seconds / sources[0].paper.update_s)):
        before = network.delivered()
        network.run(begin_s + (number + 1) * sources[0].paper.update_s)
        rates, marks = [one.rate_bps for one in sources], [one.marks for one in sources]
        for one in sources:
            one.update(network.now_s)
        frames = [now - then for now, then in zip(network.delivered(), before, strict=True)]
        ticks.append(Tick(rates, marks, frames, [one.rate_bps for one in sources]))
    return ticks


def greedy(sources: Sequence[Source], seed: int = 1) -> PacketNetwork:
    """Return the paper's network, in which each source has something to send in every slot."""
    flows = [UdpFlow() for _ in sources]
    for flow in flows:
        flow.start(0)
    return PacketNetwork(PacketLink(), [(one, [flow]) for one, flow in zip(sources, flows, strict=True)], seed)


def used(ticks: list[Tick], paper: PaperConstants) -> float:
    """Return the part of the link that was used."""
    bits = FRAME_BITS * sum(sum(tick.frames) for tick in ticks)
    return bits / (paper.capacity_bps * paper.update_s * len(ticks))
