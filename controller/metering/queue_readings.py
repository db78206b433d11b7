"""What the queue of each receiving VN carried and dropped since it was last read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray
from controller.metering.counters import PLAUSIBLE_LOAD
from controller.units import BITS_PER_BYTE

# Choice: queues count dropped packets, not bytes. They are taken to be as long as those that were sent meanwhile, and
# full frames where none was.
FULL_FRAME_BYTES = 1518


@dataclass(frozen=True)
class QueueChanges:
    """How far the counters of the VNs' queues moved, shape (vns,); NaN unknown, below zero where they went back.

    ``elapsed_s`` is the time on the queues' own clocks (the ``duration`` of their replies).
    """

    sent_bytes: FloatArray
    sent_packets: FloatArray
    dropped_packets: FloatArray
    elapsed_s: FloatArray

    @classmethod
    def initial(cls, vns: int) -> QueueChanges:
        """Return changes that no switch has filled in yet; their columns are there to be written to."""
        return cls(*(np.full(vns, np.nan) for _ in range(4)))


@dataclass(frozen=True)
class QueueReadings:
    """The receiving queues of all VNs, shape (vns,): what they sent to the hosts and what found no room (tx_errors).

    All are since the last reading, ``elapsed_s`` on the queue's own clock. NaN where ``known`` is False: the VN has no
    queue, no fresh reply, a queue that was made again, or counters that no traffic can have moved so
    (``implausible``).
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
        """Return what counter changes say, shape (vns,).

        ``capacity_bps`` is what the VN's edge port carries, ``arrival_bps`` what could arrive for it at most.

        1) A queue of which any counter is unknown is unknown.
        2) Counters that went back, or faster than PLAUSIBLE_LOAD times what is possible, are not believed.
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
