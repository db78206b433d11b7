"""Finds the meter settings that a switch accepts, on one unused meter: bursts, rates and their steps.

Each setting is tried by a meter-mod, then the meter's configuration is read. A setting is rejected if an error with its
xid arrives, or if the meter still reads as before: so switches with late or unspecific errors work as well.

1) Find a setting that is accepted.
2) Try the settings that the configuration may need, and some prime rates.
3) Rates that read differently have a common step; where all are rejected, usual steps are tried.
4) Bounds are found by bisection between accepted and rejected settings. A value that was accepted as another value
   shows the bound itself.
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
"""The meter's reading after a setting was tried; None: it was rejected."""
Search = Generator[list[Setting], list[Answer], MeterBounds | None]

# Most switches accept the first one; the others are above a minimum rate, or multiples of usual steps.
FIRST = ((1_000, 1_000), (64, 64), (520_000, 30_000), (1_024_000, 30_000), (10_000_000, 1_000_000))
PRIMES = (1_009, 2_003, 4_001, 8_009, 16_001, 32_003)
USUAL_STEPS = (8, 10, 16, 25, 32, 50, 64, 65, 100, 125, 128, 250, 256, 500, 512, 1_000, 1_024, 10_000, 100_000)
MIN_RATE_KBPS, MIN_BURST_KBITS = 1, 16


def search(need: Setting) -> Search:
    """Yield settings to try, in order, and receive the result of each; return the bounds, None if nothing is accepted.

    ``need`` is the largest rate and burst that the configuration may need. The caller sends the ``Answer`` of each
    setting of a yielded list, in the same order. The numbers are those of the module's steps.
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
    maximum, minimum = yield [
        Setting(need.rate_kbps // step * step, burst),
        Setting(-(-MIN_RATE_KBPS // step) * step, burst),
    ]
    # 4: for each extreme, bisect if it was rejected (None); if another value was accepted for it, that is the bound.
    bounds = UNBOUNDED._replace(rate_step_kbps=step)
    if large is None:
        bound = yield from _bisect(burst, need.burst_kbits, lambda value: Setting(rate, value))
        bounds = bounds._replace(max_burst_kbits=bound)
    elif MIN_BURST_KBITS < large.burst_kbits < need.burst_kbits:
        bounds = bounds._replace(max_burst_kbits=large.burst_kbits)
    if small is None:
        bound = yield from _bisect(burst, MIN_BURST_KBITS, lambda value: Setting(rate, value))
        bounds = bounds._replace(min_burst_kbits=bound)
    elif small.burst_kbits > MIN_BURST_KBITS:
        bounds = bounds._replace(min_burst_kbits=small.burst_kbits)
    steps = -(-rate // step)
    if maximum is None:
        bound = yield from _bisect(steps, need.rate_kbps // step, lambda value: Setting(value * step, burst))
        bounds = bounds._replace(max_rate_kbps=bound * step)
    elif maximum.rate_kbps < need.rate_kbps // step * step:
        bounds = bounds._replace(max_rate_kbps=maximum.rate_kbps)
    if minimum is None:
        bound = yield from _bisect(steps, 0, lambda value: Setting(value * step, burst))
        bounds = bounds._replace(min_rate_kbps=bound * step)
    elif minimum.rate_kbps > step:
        bounds = bounds._replace(min_rate_kbps=minimum.rate_kbps)
    return bounds


def _find_step(base: Setting, primes: list[Answer]) -> Generator[list[Setting], list[Answer], int]:
    """Return the step of rates, in kb/s; 1 where none is found. ``primes`` are the results for PRIMES.

    ``base`` is an accepted setting. A prime that reads as itself shows that there is no step. Otherwise a candidate is
    the step if three of its multiples read as themselves. The candidate is the common divisor of what the primes read
    as; if all primes were rejected, the candidates are USUAL_STEPS.
    """
    reads = [one.rate_kbps for one in primes if one is not None]
    if any(one is not None and one.rate_kbps == prime for one, prime in zip(primes, PRIMES, strict=True)):
        return 1
    if not reads:  # all of them may be below the minimum rate
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
    """Return the accepted value next to the rejected value ``bad``; ``good`` is accepted."""
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        (answer,) = yield [setting(middle)]
        if answer is None:
            bad = middle
        else:
            good = middle
    return good


class BoundTest:
    """The messages of a search on one meter, and the switch's replies."""

    def __init__(self, meter_id: int) -> None:
        self.meter_id = meter_id
        self.installed: Setting | None = None
        self._refused: set[int] = set()
        self._xids: set[int] = set()

    def attempt(self, setting: Setting, xid: int) -> bytes:
        """Return the meter-mod that tries a setting."""
        self._xids.add(xid)
        command = MeterModCommand.ADD if self.installed is None else MeterModCommand.MODIFY
        return encode_meter_mods(command, [self.meter_id], [setting.rate_kbps], [setting.burst_kbits], xid)

    def on_error(self, error: ErrorMessage) -> bool:
        """Record an error if it is about one of the settings, or may be; return whether it is."""
        self._refused.add(error.xid)
        return error.xid in self._xids or not error.data

    def on_packet_in(self, packet: PacketIn) -> bool:
        """Return False: no packet-in belongs to the search."""
        return False

    def answer(self, requested: Setting, xid: int, read: Setting | None, *, readable: bool) -> Answer:
        """Return the result of a setting; ``read`` is what the meter reads now, None if it is not installed.

        The result is what the meter reads; None if the switch sent an error, or left the meter as it was. If meters
        cannot be read (``readable``), a setting without an error counts as accepted as it is.
        """
        before, now = self.installed, read if readable else requested
        if xid in self._refused or now is None or (now == before != requested):
            return None
        self.installed = now
        return now
