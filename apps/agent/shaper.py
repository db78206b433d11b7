"""What shapes, and what it counts.

A *pair* is a VLAN id (0: untagged) and a destination of six octets. The destination OWN stands for all that the VN of
the VLAN sends: its send limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

VN_AGGREGATE = bytes(6)


class ShapedPair(NamedTuple):
    """What one rate is for."""

    vlan_vid: int
    destination: bytes


@dataclass(frozen=True, slots=True)
class PairCounters:
    """What was sent, dropped and waits, in the order in which the pairs were asked for; columns of shape (pairs,).

    Octets are those of frames with their tag, without the frame check sequence, as meters count them.
    """

    sent_octets: NDArray[np.int64]
    dropped_octets: NDArray[np.int64]
    backlog_octets: NDArray[np.int64]


class Shaper(Protocol):
    """Holds back what each pair sends. What is refused raises OSError with the kernel's words."""

    most_pairs: int

    def set_rates(self, rates: Sequence[tuple[ShapedPair, int]]) -> None:
        """Put rates (bit/s) in force; a pair that has none yet gets its own queue."""

    def remove(self, pairs: Sequence[ShapedPair]) -> None:
        """Let pairs go back to what their VN sends elsewhere."""

    def counters(self, pairs: Sequence[ShapedPair]) -> PairCounters:
        """Return what pairs have counted since they got their queues."""

    def close(self, *, keep: bool) -> None:
        """Stop; rates stay in force with ``keep``, otherwise nothing is left behind."""
