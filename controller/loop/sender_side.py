"""The senders' side of an interval: what their meters say, summed up and reported (DETS, section III and figure 4).

It knows sending VNs, their entries and meters. It may sit on another machine than the receivers' side: all that goes
there are ``Loads`` and ``TrafficReport``, all that comes from there are the other four messages.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, Int16Array
from controller.dets.messages import DeactivateTrafficControl, InitializeTrafficControl, ReceiverLoads
from controller.dets.send_rate_controller import SendRateControllers
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.counters import MeterCounters, Readings
from controller.metering.enforcement import Enforcement, passed_bits_by
from controller.metering.measurement import Measurement, MeterObservation, evaluate_readings


class SenderSide(NamedTuple):
    """What is known of sending VNs in one interval; ``seen`` is what their meters show."""

    entries: PairTable
    seen: MeterObservation
    machines: SendRateControllers

    def after_messages(self, begin: InitializeTrafficControl, end: DeactivateTrafficControl) -> SenderSide:
        """Obey the receivers' first messages."""
        return self._replace(machines=self.machines.on_initialize(begin).on_deactivate(end))

    def loads(self, before: Enforcement, vns: VnTable, now_s: float) -> ReceiverLoads:
        """Return what these entries bring to each receiver. ``before`` is how their meters stood in the interval."""
        seen = self.seen
        if vns.all_shaped:  # a VN that a queue holds needs no account
            taken_bits = np.zeros(len(vns))
        else:
            taken_bits = passed_bits_by(before, seen.measured, seen.seen_s, now_s, self.entries.receiver, len(vns))
        return ReceiverLoads(seen.passed_bps, seen.smoothed_bps, seen.dropped_bps, taken_bits)


def read_meters(
    entries: PairTable,
    counters: MeterCounters,
    measured: Measurement,
    machines: SendRateControllers,
    unread_intervals: Int16Array,
    readings: Readings,
    vns: VnTable,
    holds: BoolArray | bool,
) -> SenderSide:
    """Turn counters into rates, and rates into what each sender sends.

    Entries that ``holds`` marks, (entries,), stay under control however long their receivers are silent.
    """
    seen = evaluate_readings(
        (entries.sender, entries.receiver), counters, measured, unread_intervals, readings, vns.capacity_bps
    )
    return SenderSide(entries, seen, machines.on_interval(holds))
