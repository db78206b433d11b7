"""HyGenICC's Algorithms 1 and 2 as printed, with their slips mended, frame by frame in plain Python: a reference.

Sources at one bottleneck, updates every 0.5 ms. Each slip can be put back by a flag of ``Slips``, to see what it does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

FRAME_BITS = 1500 * 8


@dataclass(frozen=True)
class Slips:
    """Slips of the listing that are left in. ``always_fed_back``: line 34 asks ``f >= 0``, which is always so."""

    always_fed_back: bool = False


@dataclass(frozen=True)
class PaperConstants:
    """The constants of the paper (sections IV and V)."""

    capacity_bps: float = 1e9
    update_s: float = 0.5e-3
    buffer_frames: int = 100
    marked_above: int = 20
    bucket_s: float = 1e-3  # the paper gives no depth B
    congestion_timeout_s: float = 20e-3  # nor this
    round_trip_s: float = 100e-6


@dataclass
class Source:
    """A VM: its token bucket (Algorithm 1, packet out) and its rate (timer)."""

    paper: PaperConstants
    share_bps: float
    rate_bps: float
    slips: Slips = field(default_factory=Slips)
    tokens_bits: float = 0.0
    sent_s: float = 0.0
    marks: int = 0
    detected: bool = False
    fed_back_s: float = 0.0
    active: bool = True

    def take(self, now_s: float) -> bool:
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
class Bottleneck:
    """A FIFO link that marks frames that find more than ``marked_above`` before them."""

    paper: PaperConstants
    queue: deque[tuple[int, bool]] = field(default_factory=deque)
    lost: int = 0

    def offer(self, source: int) -> None:
        """A frame of a source comes."""
        if len(self.queue) >= self.paper.buffer_frames:
            self.lost += 1
            return
        self.queue.append((source, len(self.queue) > self.paper.marked_above))


@dataclass
class Tick:
    """What happened between two updates: by source the rate before, its marks and its frames, and the rate after."""

    before_bps: list[float]
    marks: list[int]
    frames: list[int]
    after_bps: list[float]


def run(sources: list[Source], link: Bottleneck, seconds: float, start_s: float = 0.0) -> list[Tick]:
    """Send greedily for so long; a frame time of the link is a step, and sources take turns."""
    paper, ticks = link.paper, []
    step_s = FRAME_BITS / paper.capacity_bps
    steps = round(paper.update_s / step_s)
    returning: deque[tuple[float, int]] = deque()
    count, now_s = len(sources), start_s
    for number in range(round(seconds / paper.update_s)):
        marks, frames = [0] * count, [0] * count
        for step in range(steps):
            now_s = start_s + (number * steps + step) * step_s
            while returning and returning[0][0] <= now_s:
                source = returning.popleft()[1]
                sources[source].feedback(now_s)
                marks[source] += 1
            for turn in range(count):
                source = (turn + step) % count
                if sources[source].active and sources[source].take(now_s):
                    link.offer(source)
            if link.queue:
                source, marked = link.queue.popleft()
                frames[source] += 1
                if marked:
                    returning.append((now_s + paper.round_trip_s, source))
        before = [source.rate_bps for source in sources]
        for one in sources:
            if one.active:
                one.update(now_s)
        ticks.append(Tick(before, marks, frames, [source.rate_bps for source in sources]))
    return ticks


def used(ticks: list[Tick], paper: PaperConstants) -> float:
    """Return the part of the link that was used."""
    bits = FRAME_BITS * sum(sum(tick.frames) for tick in ticks)
    return bits / (paper.capacity_bps * paper.update_s * len(ticks))
