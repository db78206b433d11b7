"""The senders' side of an interval: meter readings, summed up and reported (DETS, section III and figure 4).

This side has sending VNs, their pairs and meters. It may run on another machine than the receivers' side: it sends only
``ReceiverLoads`` and ``TrafficReport`` there, and receives only the other four messages.
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
    """The state of sending VNs in one interval; ``seen`` is what their meters show."""

    entries: PairTable
    seen: MeterObservation
    machines: SendRateControllers

    def after_messages(self, begin: InitializeTrafficControl, end: DeactivateTrafficControl) -> SenderSide:
        """Return the senders' side after Initialize and Deactivate messages of receivers."""
        return self._replace(machines=self.machines.on_initialize(begin).on_deactivate(end))

    def loads(self, before: Enforcement, vns: VnTable, now_s: float) -> ReceiverLoads:
        """Return the load of these pairs on each receiver. ``before`` has the meters' settings during the interval."""
        seen = self.seen
        if vns.all_shaped:  # a VN with a queue needs no receive budget
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
    stays_controlled: BoolArray | bool,
) -> SenderSide:
    """Return the senders' side with the rates of an interval, from the meters' counters.

    ``counters`` to ``unread_intervals`` are the state before, (pairs,). Pairs in the mask ``stays_controlled`` (pairs,)
    stay under control even without messages from their receivers.
    """
    seen = evaluate_readings(
        (entries.sender, entries.receiver), counters, measured, unread_intervals, readings, vns.capacity_bps
    )
    return SenderSide(entries, seen, machines.on_interval(stays_controlled))
