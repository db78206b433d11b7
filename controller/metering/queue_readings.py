"""Queue counters: what the queue of each receiving VN carried and dropped since it was last read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray
from controller.metering.counters import PLAUSIBLE_LOAD
from controller.units import BITS_PER_BYTE

# Choice: queues count dropped packets, not bytes. Their assumed size is the mean of the sent ones in the same time, or
# a full frame if none was sent.
FULL_FRAME_BYTES = 1518


@dataclass(frozen=True)
class QueueChanges:
    """The counter changes of the VNs' queues, shape (vns,); NaN unknown, below zero where counters went back.

    ``elapsed_s`` is the time on the queues' own clocks (the ``duration`` of their replies).
    """

    sent_bytes: FloatArray
    sent_packets: FloatArray
    dropped_packets: FloatArray
    elapsed_s: FloatArray

    @classmethod
    def initial(cls, vns: int) -> QueueChanges:
        """Return empty changes, to be filled in place."""
        return cls(*(np.full(vns, np.nan) for _ in range(4)))


@dataclass(frozen=True)
class QueueReadings:
    """The receiving queues of all VNs, shape (vns,): what they sent to the hosts, and what they dropped (tx_errors).

    All are since the last reading, ``elapsed_s`` on the queue's own clock. NaN where ``known`` is False: the VN has no
    queue, no recent reply, a recreated queue, or impossible counter changes (``implausible``).
    """

    served_bps: FloatArray
    served_packets: FloatArray
    dropped_bps: FloatArray
    dropped_packets: FloatArray
    elapsed_s: FloatArray
    known: BoolArray
    implausible: BoolArray

    @classmethod
    def from_changes(cls, changes: QueueChanges, capacity_bps: FloatArray, arrival_bps: FloatArray) -> QueueReadings:
        """Return the readings from counter changes, shape (vns,).

        ``capacity_bps`` is the capacity of the VN's edge port, ``arrival_bps`` the most that can arrive for it.

        1) A queue with any unknown counter is unknown.
        2) Counters that went back, or grew faster than PLAUSIBLE_LOAD times what is possible, are rejected.
        """
        packets, drops, elapsed_s = changes.sent_packets, changes.dropped_packets, changes.elapsed_s
        with np.errstate(divide="ignore", invalid="ignore"):
            frame_bytes = np.where(packets > 0.0, changes.sent_bytes / packets, FULL_FRAME_BYTES)
            served_bps = changes.sent_bytes * BITS_PER_BYTE / elapsed_s
            dropped_bps = drops * frame_bytes * BITS_PER_BYTE / elapsed_s
            # 1
            known = ~np.isnan(served_bps + packets + drops)
            # 2
            implausible = known & (
                (changes.sent_bytes < 0.0)
                | (packets < 0.0)
                | (drops < 0.0)
                | (served_bps > PLAUSIBLE_LOAD * capacity_bps)
                | (dropped_bps > PLAUSIBLE_LOAD * arrival_bps)
            )
        known &= ~implausible
        served_bps, packets, dropped_bps, drops, elapsed_s = (
            np.where(known, column, np.nan) for column in (served_bps, packets, dropped_bps, drops, elapsed_s)
        )
        return cls(served_bps, packets, dropped_bps, drops, elapsed_s, known, implausible)
