"""Senders that burst to get more than their receiver's limit: their times of sending, and the gain.

A receiving VN has a limit; several senders of its VLAN offer far more, in bursts. The *gain* is the excess over the
limit in the second in which the receiver got most, as a part of the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

WINDOW_S = 1.0  # over which a gain is measured


@dataclass(frozen=True, slots=True)
class BurstPattern:
    """Each sender sends for ``on_s``, then pauses for ``off_s``, and so on; ``off_s`` 0: it never pauses.

    Sender n, from 0 on, begins n * ``stagger_s`` late.
    """

    on_s: float
    off_s: float
    stagger_s: float = 0.0

    @property
    def name(self) -> str:
        """The name in tables."""
        if not self.off_s:
            return "steady"
        text = f"{self.on_s * 1e3:g} ms on, {self.off_s * 1e3:g} off"
        return f"{text}, staggered" if self.stagger_s else text

    def spans(self, sender: int, until_s: float) -> list[tuple[float, float]]:
        """Return the spans in which a sender sends, (start, end) seconds each, up to ``until_s``."""
        start_s, sending_spans = sender * self.stagger_s, []
        while start_s < until_s:
            end_s = min(start_s + self.on_s, until_s) if self.off_s else until_s
            sending_spans.append((start_s, end_s))
            start_s = end_s + self.off_s
        return sending_spans


def worst_gain(time_s: FloatArray, bits: FloatArray, limit_bps: float) -> float:
    """Return the excess over the limit of the worst window of WINDOW_S, as a part of the limit; without excess below 0.

    ``bits`` (times,) is the number of bits received up to each of ``time_s`` (times,); it is interpolated between them.
    """
    ends_s = time_s[time_s >= time_s[0] + WINDOW_S]
    window_bits = np.interp(ends_s, time_s, bits) - np.interp(ends_s - WINDOW_S, time_s, bits)
    return float(window_bits.max() / (limit_bps * WINDOW_S) - 1.0)
