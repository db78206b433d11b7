"""The send-rate controllers: one state machine per (sending VN, receiving VN) (DETS, section III and figure 4).

A machine is idle until its receiver initializes traffic control. Then the machine reports the sender's rate, and
applies each granted rate. It becomes idle again on Deactivate, or after KEEP_ALIVE_INTERVALS without a message, so that
a receiver that is gone does not limit its senders for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, Int16Array, IntArray, incremented, reindex, with_rows
from controller.dets import messages_native
from controller.dets.messages import (
    DeactivateTrafficControl,
    InitializeTrafficControl,
    KeepAlive,
    SetRate,
    TrafficReport,
)
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering import measurement_native
from controller.metering.measurement import IDLE_INTERVALS, Measurement, sum_by_row
from controller.native_loader import choose

# Choice: the paper does not say how long a sender waits for Keep Alive. After this many intervals (1.1 s at 55 ms) with
# neither Set Rate nor Keep Alive a machine is idle again: a few lost messages do not free a sender. An allocator waits
# the same time until congestion is over.
KEEP_ALIVE_INTERVALS = 20


ControlArray = NDArray[np.int8]


class MachineState(IntEnum):
    """The states of a machine."""

    IDLE = 0
    REPORTING = 1  # initialized, without a granted rate yet
    LIMITED = 2  # limited to the granted rate


_IDLE = np.int8(MachineState.IDLE)  # an IntEnum would be compared as eight bytes


@dataclass(frozen=True)
class SendRateControllers:
    """All machines, one per pair; columns of shape (pairs,).

    ``limit_bps`` is the granted rate, inf before the first grant. ``intervals_since_message`` counts the intervals
    since the receiver's last message, up to MAX_COUNTED.
    """

    control: ControlArray
    limit_bps: FloatArray
    intervals_since_message: Int16Array

    @classmethod
    def initial(cls, entries: int) -> SendRateControllers:
        """Return machines that are all idle."""
        free = np.full(entries, MachineState.IDLE, dtype=np.int8)
        return cls(free, np.full(entries, np.inf), np.zeros(entries, dtype=np.int16))

    def reindexed(self, old_row: IntArray) -> SendRateControllers:
        """Return the machines for a re-arranged pair table; new ones are idle."""
        return SendRateControllers(
            reindex(self.control, old_row, MachineState.IDLE),
            reindex(self.limit_bps, old_row, np.inf),
            reindex(self.intervals_since_message, old_row, 0),
        )

    @cached_property
    def controlled(self) -> BoolArray:
        """The mask of the pairs under control, (pairs,); cached like ``rows``."""
        return np.not_equal(self.control, _IDLE)

    @cached_property
    def rows(self) -> IntArray:
        """The rows of the pairs under control, ascending; cached while no machine begins or ends."""
        return np.flatnonzero(self.control)

    def on_initialize(self, message: InitializeTrafficControl) -> SendRateControllers:
        """Return the machines after Initialize: IDLE -> REPORTING.

        Choice: the paper does not say what a second Initialize does. A machine under control keeps its state.
        """
        if not len(message.entry):
            return self
        is_controlled = self.control[message.entry] != _IDLE
        begun = self._message_received(message.entry[~is_controlled], MachineState.REPORTING, None)
        return begun._alive(message.entry[is_controlled])

    def on_set_rate(self, message: SetRate) -> SendRateControllers:
        """Return the machines after Set Rate: REPORTING, LIMITED -> LIMITED, with the granted rate as the limit.

        Choice: an idle machine stays unlimited. Only Initialize puts a machine under control: a rate without
        Initialize, such as one that arrives after Deactivate, is ignored.
        """
        is_controlled = self.control[message.entry] != _IDLE
        rows, rate_bps = message.entry, message.rate_bps
        if not is_controlled.all():
            rows, rate_bps = rows[is_controlled], rate_bps[is_controlled]
        return self._message_received(rows, MachineState.LIMITED, rate_bps)

    def on_keep_alive(self, message: KeepAlive) -> SendRateControllers:
        """Return the machines after Keep Alive: all states stay."""
        return self._alive(message.entry)

    def on_deactivate(self, message: DeactivateTrafficControl) -> SendRateControllers:
        """Return the machines after Deactivate: any state -> IDLE, without a limit."""
        return self._message_received(message.entry, MachineState.IDLE, np.inf)

    def on_interval(self, holds: BoolArray | bool = False) -> SendRateControllers:
        """Return the machines after one more interval: IDLE after KEEP_ALIVE_INTERVALS without a message.

        Machines in the mask ``holds`` (pairs,) keep their state: their policy fails closed.
        """
        intervals, may_be_late = _count(KEEP_ALIVE_INTERVALS, self.control, self.intervals_since_message)
        counted = self._with_columns(self.limit_bps, intervals)
        if not may_be_late:
            return counted
        late_rows = np.flatnonzero(self.controlled & (intervals > KEEP_ALIVE_INTERVALS))
        if not len(late_rows):
            return counted
        holds_late = np.broadcast_to(holds, len(intervals))[late_rows]
        return counted.on_deactivate(DeactivateTrafficControl(late_rows[~holds_late]))

    def after_messages(
        self, set_rate: SetRate, keep_alive: KeepAlive, ceiling_bps: FloatArray
    ) -> tuple[SendRateControllers, FloatArray]:
        """Return the machines after Set Rate and then Keep Alive, and the effective limits, (pairs,).

        A pair's effective limit is its machine's limit, or ``ceiling_bps`` (pairs,) where that is lower.
        """
        return _obey(self, set_rate, keep_alive, ceiling_bps)

    def _alive(self, rows: IntArray) -> SendRateControllers:
        """Return the machines in which ``rows`` got a message that changes no state."""
        if not len(rows):
            return self
        return self._with_columns(self.limit_bps, with_rows(self.intervals_since_message, rows, 0))

    def _with_columns(self, limit_bps: FloatArray, intervals_since_message: Int16Array) -> SendRateControllers:
        """Return machines with other columns but the same states, and so with the same cached masks and rows."""
        after = SendRateControllers(self.control, limit_bps, intervals_since_message)
        after.__dict__.update(self.__dict__ | after.__dict__)
        return after

    def _message_received(
        self, rows: IntArray, control: MachineState, limit_bps: FloatArray | float | None
    ) -> SendRateControllers:
        """Return the machines in which ``rows`` got a message: with the state ``control``, and a limit unless None."""
        if not len(rows):
            return self
        limits_bps = self.limit_bps.copy() if limit_bps is None else with_rows(self.limit_bps, rows, limit_bps)
        intervals = with_rows(self.intervals_since_message, rows, 0)
        return SendRateControllers(with_rows(self.control, rows, control), limits_bps, intervals)


def _plain_count(
    max_intervals: int, control: ControlArray, intervals_since_message: Int16Array
) -> tuple[Int16Array, bool]:
    """Return the intervals since the last message, counted up by one, and whether some may exceed ``max_intervals``."""
    return incremented(intervals_since_message), True


def _native_obey(
    machines: SendRateControllers, set_rate: SetRate, keep_alive: KeepAlive, ceiling_bps: FloatArray
) -> tuple[SendRateControllers, FloatArray]:
    """Return the result of ``after_messages``, by the native function."""
    before = (machines.control, machines.limit_bps, machines.intervals_since_message)
    control, limit_bps, intervals, effective_bps = messages_native.obey(before, set_rate, keep_alive.entry, ceiling_bps)
    if control is machines.control:
        return machines._with_columns(limit_bps, intervals), effective_bps
    return SendRateControllers(control, limit_bps, intervals), effective_bps


def _plain_obey(
    machines: SendRateControllers, set_rate: SetRate, keep_alive: KeepAlive, ceiling_bps: FloatArray
) -> tuple[SendRateControllers, FloatArray]:
    """Return the result of ``after_messages``."""
    after = machines.on_set_rate(set_rate).on_keep_alive(keep_alive)
    return after, np.minimum(after.limit_bps, ceiling_bps)


def _native_reports(
    machines: SendRateControllers, rows: IntArray, entries: PairTable, vns: VnTable, measured: Measurement
) -> TrafficReport:
    """Return what ``_plain_reports`` returns, by the native function."""
    chosen = rows if len(rows) < len(entries) else slice(None)  # all rows need no selection
    rates = (measured.passed_bps, measured.smoothed_bps, measured.dropped_bps, measured.silent_intervals)
    columns = (rows, entries.sender, *rates, machines.limit_bps, vns.send_limit_bps)
    measured_bps, available_bps, drops, active = messages_native.reports(IDLE_INTERVALS, columns)
    dropped_bps, limit_bps = measured.dropped_bps[chosen], machines.limit_bps[chosen]
    return TrafficReport(rows, measured_bps, dropped_bps, drops, limit_bps, available_bps, active)


def _plain_reports(
    machines: SendRateControllers, rows: IntArray, entries: PairTable, vns: VnTable, measured: Measurement
) -> TrafficReport:
    """Return the Traffic Reports of the machines in ``rows``: measured rate, effective limit and available rate.

    A sender's available rate towards one receiver is its send limit less its rate to all other receivers (section
    III.A: a VN that sends 80 of its 100 Mb/s to another receiver can send at most 20 Mb/s to this one).

    Deviation: in the paper the set rate caps the measurements. A meter passes its burst in addition, so the measured
    rate is capped here.
    """
    chosen = rows if len(rows) < len(entries) else slice(None)  # all rows need no selection
    limit_bps, dropped_bps = machines.limit_bps[chosen], measured.dropped_bps[chosen]
    (sent_bps,) = sum_by_row(entries.sender, (measured.smoothed_bps,), len(vns))
    sender = entries.sender[chosen]
    to_other_receivers_bps = np.maximum(sent_bps[sender] - measured.smoothed_bps[chosen], 0.0)
    return TrafficReport(
        entry=rows,
        measured_bps=np.minimum(measured.measured_bps[chosen], limit_bps),
        dropped_bps=dropped_bps,
        drops=dropped_bps > 0.0,
        limit_bps=limit_bps,
        available_bps=np.maximum(vns.send_limit_bps[sender] - to_other_receivers_bps, 0.0),
        active=measured.active[chosen],
    )


_count = choose(measurement_native, messages_native.count, _plain_count)
_obey = choose(measurement_native, _native_obey, _plain_obey)
traffic_reports = choose(measurement_native, _native_reports, _plain_reports)
