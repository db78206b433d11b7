"""Finds out what a switch takes of a meter, on one meter that nobody uses: bursts, rates and their steps.

Each setting is tried by a meter-mod and by asking what the meter is set to after it. A setting counts as refused by an
error with its xid, or when the meter reads as before it and not as asked: so a switch whose errors come late, or say
nothing, is understood as well.

1) Find a setting that is taken at all.
2) Try all that the configuration may need, and some rates that are multiples of nothing.
3) Rates that read otherwise have a step in common; where all are refused, usual steps are tried.
4) Bounds of what was refused are found by bisection. What was taken as another value shows the bound itself.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import gcd
from typing import NamedTuple

from controller.fabric.meter_bounds import UNBOUNDED, MeterBounds
from controller.openflow.constants import MeterModCommand
from controller.openflow.messages import ErrorMessage, PacketIn
from controller.openflow.meters import encode_meter_mods


class Setting(NamedTuple):
    """Rate and burst of a meter."""

    rate_kbps: int
    burst_kbits: int


Answer = Setting | None
"""What a meter reads after a setting was tried; None: that was refused."""
Search = Generator[list[Setting], list[Answer], MeterBounds | None]

# The first is taken by most; the others are above a least rate, or multiples of usual steps.
FIRST = ((1_000, 1_000), (64, 64), (520_000, 30_000), (1_024_000, 30_000), (10_000_000, 1_000_000))
PRIMES = (1_009, 2_003, 4_001, 8_009, 16_001, 32_003)
USUAL_STEPS = (8, 10, 16, 25, 32, 50, 64, 65, 100, 125, 128, 250, 256, 500, 512, 1_000, 1_024, 10_000, 100_000)
MIN_RATE_KBPS, MIN_BURST_KBITS = 1, 16


def search(need: Setting) -> Search:
    """Yield settings to try, in order, and take what became of them; return the bounds, None if nothing is taken.

    ``need`` is the largest rate and burst that the configuration may want.
    """
    # 1
    base: Answer = None
    for setting in FIRST:
        (base,) = yield [Setting(*setting)]
        if base is not None:
            break
    if base is None:
        return None
    rate, burst = base
    need = Setting(max(need.rate_kbps, rate), max(need.burst_kbits, burst))
    # 2
    tried = [Setting(rate, need.burst_kbits), Setting(rate, MIN_BURST_KBITS)]
    large, small, *primes = yield tried + [Setting(prime, burst) for prime in PRIMES]
    # 3
    step = yield from _find_step(base, primes)
    most, least = yield [
        Setting(need.rate_kbps // step * step, burst),
        Setting(-(-MIN_RATE_KBPS // step) * step, burst),
    ]
    # 4
    bounds = UNBOUNDED._replace(rate_step_kbps=step)
    if large is None:
        found = yield from _bisect(burst, need.burst_kbits, lambda at: Setting(rate, at))
        bounds = bounds._replace(max_burst_kbits=found)
    elif MIN_BURST_KBITS < large.burst_kbits < need.burst_kbits:
        bounds = bounds._replace(max_burst_kbits=large.burst_kbits)
    if small is None:
        found = yield from _bisect(burst, MIN_BURST_KBITS, lambda at: Setting(rate, at))
        bounds = bounds._replace(min_burst_kbits=found)
    elif small.burst_kbits > MIN_BURST_KBITS:
        bounds = bounds._replace(min_burst_kbits=small.burst_kbits)
    steps = -(-rate // step)
    if most is None:
        found = yield from _bisect(steps, need.rate_kbps // step, lambda at: Setting(at * step, burst))
        bounds = bounds._replace(max_rate_kbps=found * step)
    elif most.rate_kbps < need.rate_kbps // step * step:
        bounds = bounds._replace(max_rate_kbps=most.rate_kbps)
    if least is None:
        found = yield from _bisect(steps, 0, lambda at: Setting(at * step, burst))
        bounds = bounds._replace(min_rate_kbps=found * step)
    elif least.rate_kbps > step:
        bounds = bounds._replace(min_rate_kbps=least.rate_kbps)
    return bounds


def _find_step(base: Setting, primes: list[Answer]) -> Generator[list[Setting], list[Answer], int]:
    """Return the step of rates, 1 where none is found. ``primes`` is what became of PRIMES."""
    reads = [one.rate_kbps for one in primes if one is not None]
    if any(one is not None and one.rate_kbps == prime for one, prime in zip(primes, PRIMES, strict=True)):
        return 1
    if not reads:  # they may all be below the least rate
        beside = Setting(base.rate_kbps + 1, base.burst_kbits)
        if (yield [beside]) == [beside]:
            return 1
    steps = [gcd(*reads)] if reads else list(USUAL_STEPS)
    for step in steps:
        first = -(-base.rate_kbps // step)
        tried = [Setting(number * step, base.burst_kbits) for number in range(first, first + 3)]
        if (yield tried) == tried:
            return step
    return 1


def _bisect(good: int, bad: int, setting: Callable[[int], Setting]) -> Generator[list[Setting], list[Answer], int]:
    """Return the value next to ``bad`` that is taken; ``good`` is."""
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        (answer,) = yield [setting(middle)]
        if answer is None:
            bad = middle
        else:
            good = middle
    return good


class BoundTest:
    """The messages of a search on one meter, and what the switch says of them."""

    def __init__(self, meter_id: int) -> None:
        self.meter_id = meter_id
        self.stands: Setting | None = None
        self._refused: set[int] = set()
        self._xids: set[int] = set()

    def attempt(self, setting: Setting, xid: int) -> bytes:
        """Return the meter-mod that tries a setting."""
        self._xids.add(xid)
        command = MeterModCommand.ADD if self.stands is None else MeterModCommand.MODIFY
        return encode_meter_mods(command, [self.meter_id], [setting.rate_kbps], [setting.burst_kbits], xid)

    def on_error(self, error: ErrorMessage) -> bool:
        """Return whether an error is about one of the settings, or may be; it is noted."""
        self._refused.add(error.xid)
        return error.xid in self._xids or not error.data

    def on_packet_in(self, packet: PacketIn) -> bool:
        """Return whether a packet-in belongs to the search: none does."""
        return False

    def answer(self, asked: Setting, xid: int, read: Setting | None, *, readable: bool) -> Answer:
        """Return what became of a setting; ``read`` is what the meter reads now, if it stands and can be read."""
        before, now = self.stands, read if readable else asked
        if xid in self._refused or now is None or (now == before != asked):
            return None
        self.stands = now
        return now
