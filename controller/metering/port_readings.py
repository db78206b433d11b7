"""Port counters: what each link of the fabric carried since its port was last read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray
from controller.metering.counters import PLAUSIBLE_LOAD
from controller.units import BITS_PER_BYTE


@dataclass(frozen=True)
class PortChanges:
    """The counter changes of the links' ports, shape (links,); NaN unknown, below zero where counters went back."""

    sent_bytes: FloatArray
    dropped_packets: FloatArray
    elapsed_s: FloatArray

    @classmethod
    def initial(cls, links: int) -> PortChanges:
        """Return empty changes, to be filled in place."""
        return cls(*(np.full(links, np.nan) for _ in range(3)))


@dataclass(frozen=True)
class PortReadings:
    """All directions of links (rows of ``LinkTable``), shape (links,): their traffic since the last reading.

    For the links that a switch sends into, it counts sent bytes and earlier drops (``tx_bytes``, ``tx_dropped``); for
    the links from hosts it counts arrivals (``rx_bytes``), so that their ``dropped_packets`` is always NaN.
    ``elapsed_s`` is the port's own clock. All are NaN where ``known`` is False: no recent reply, a recreated port, or
    impossible counter changes (``implausible``).

    ``tx_dropped`` need not count what a queueing discipline behind a port drops.
    """

    transmitted_bps: FloatArray
    dropped_packets: FloatArray
    elapsed_s: FloatArray
    known: BoolArray
    implausible: BoolArray

    @classmethod
    def from_changes(cls, changes: PortChanges, capacity_bps: FloatArray) -> PortReadings:
        """Return the readings from counter changes; ``capacity_bps`` (links,) are the links' capacities.

        Counters that went back, or grew faster than PLAUSIBLE_LOAD times the capacity, are rejected.
        """
        with np.errstate(invalid="ignore"):
            transmitted_bps = changes.sent_bytes * BITS_PER_BYTE / changes.elapsed_s
            implausible = (transmitted_bps < 0.0) | (changes.dropped_packets < 0.0)
            implausible |= transmitted_bps > PLAUSIBLE_LOAD * capacity_bps
        known = ~np.isnan(transmitted_bps) & ~implausible
        transmitted_bps, dropped_packets, elapsed_s = (
            np.where(known, column, np.nan) for column in (transmitted_bps, changes.dropped_packets, changes.elapsed_s)
        )
        return cls(transmitted_bps, dropped_packets, elapsed_s, known, implausible)
