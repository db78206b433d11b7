"""The interface of a shaper and its counters.

A *pair* is a VLAN id (0: untagged) and a destination of six bytes. The destination VN_AGGREGATE stands for all that the
VN of the VLAN sends: its send limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

VN_AGGREGATE = bytes(6)


class ShapedPair(NamedTuple):
    """The target of one rate."""

    vlan_vid: int
    destination: bytes


@dataclass(frozen=True, slots=True)
class PairCounters:
    """Sent, dropped and queued bytes, in the order of the requested pairs; columns of shape (pairs,).

    Bytes are those of frames with their tag, without the frame check sequence, as meters count them.
    """

    sent_octets: NDArray[np.int64]
    dropped_octets: NDArray[np.int64]
    backlog_octets: NDArray[np.int64]


class Shaper(Protocol):
    """Limits what each pair sends. Rejected requests raise OSError with the kernel's message."""

    most_pairs: int

    def set_rates(self, rates: Sequence[tuple[ShapedPair, int]]) -> None:
        """Apply rates (bit/s); a pair without a queue gets one."""

    def remove(self, pairs: Sequence[ShapedPair]) -> None:
        """Remove pairs: they share their VN's limit again."""

    def counters(self, pairs: Sequence[ShapedPair]) -> PairCounters:
        """Return the pairs' counts since they got their queues."""

    def close(self, *, keep: bool) -> None:
        """Stop; with ``keep`` the rates stay, otherwise nothing remains."""
