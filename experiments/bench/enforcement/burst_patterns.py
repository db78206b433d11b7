"""Senders that burst to get more than their receiver's limit: when they send, and what that gains.

A receiving VN has a limit; several senders of its VLAN offer far more, in bursts. The *gain* is what the receiver took
in over the worst second, above what its limit allows in a second, as a part of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

WINDOW_S = 1.0  # over which a gain counts


@dataclass(frozen=True, slots=True)
class BurstPattern:
    """Each sender sends for ``on_s``, then is silent for ``off_s``; sender n is later by n times ``stagger_s``.

    ``off_s`` 0: it never stops.
    """

    on_s: float
    off_s: float
    stagger_s: float = 0.0

    @property
    def name(self) -> str:
        """Its name in tables."""
        if not self.off_s:
            return "steady"
        text = f"{self.on_s * 1e3:g} ms on, {self.off_s * 1e3:g} off"
        return f"{text}, staggered" if self.stagger_s else text

    def spans(self, sender: int, until_s: float) -> list[tuple[float, float]]:
        """Return when a sender sends, (start, end) each, up to a time."""
        start_s, found = sender * self.stagger_s, []
        while start_s < until_s:
            end_s = min(start_s + self.on_s, until_s) if self.off_s else until_s
            found.append((start_s, end_s))
            start_s = end_s + self.off_s
        return found


def worst_gain(time_s: FloatArray, bits: FloatArray, limit_bps: float) -> float:
    """Return by how much the worst window of WINDOW_S exceeds the limit, as a part of it; below 0 where none does.

    ``bits`` are those received up to each of ``time_s``; in between they are taken to come evenly.
    """
    ends_s = time_s[time_s >= time_s[0] + WINDOW_S]
    within = np.interp(ends_s, time_s, bits) - np.interp(ends_s - WINDOW_S, time_s, bits)
    return float(within.max() / (limit_bps * WINDOW_S) - 1.0)
