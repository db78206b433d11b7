"""Phantom meters of receiving VNs: their settings and counters.

A *phantom meter* is behind the output and limits nothing: frames that it drops have been sent already, and count as
excess of the receiver.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.fabric.vn_table import VnTable
from controller.metering.counters import MeterCounters, MeterReadings, meter_rates
from controller.metering.enforcement import FRAME_BITS, RATE_STEP_BPS, whole_rates
from controller.metering.mark_readings import PHANTOM_BURST_S, PHANTOM_PART, MarkReadings
from controller.switch.meters.counter_meters import NO_METER, CounterMeters


@dataclass(frozen=True)
class PhantomMeters(CounterMeters):
    """A row for each VN; NO_METER where it has none."""

    @classmethod
    def initial(cls, vns: int) -> PhantomMeters:
        """Return the state without phantom meters."""
        return cls(np.full(vns, NO_METER, dtype=np.int64), MeterCounters.initial(vns))

    def __bool__(self) -> bool:
        return self._any

    @cached_property
    def _any(self) -> bool:
        return bool(self.meter_id.any())

    def added(self, rows: IntArray, meter_id: IntArray) -> PhantomMeters:
        """Return the state with these meters of VNs, whose counters are unknown yet; NO_METER removes them."""
        ids = self.meter_id.copy()
        ids[rows] = meter_id
        return PhantomMeters(ids, self.counters.invalidated(rows))

    def settings(self, dpid: int, vns: VnTable) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return ids, rates and bursts of a switch's meters."""
        rows = self.rows_at(dpid, vns)
        return self.meter_id[rows], *phantom_settings(vns.receive_limit_bps[rows])

    def read(
        self,
        vns: VnTable,
        marked_bps: FloatArray,
        now: MeterReadings,
    ) -> tuple[PhantomMeters, MarkReadings]:
        """Return the state after one more interval, and the mark readings.

        ``marked_bps`` (pairs,) are the rates of counting meters.
        """
        rates, counters = meter_rates(self.counters, now, vns.max_arrival_bps())
        readings = MarkReadings(marked_bps, rates.offered_bps, rates.dropped_bps)
        return replace(self, counters=counters), readings

    def dpid(self, vns: VnTable) -> NDArray[np.uint64]:
        """Return the dpid of each meter's switch, shape (vns,)."""
        return vns.dpid


def phantom_settings(receive_limit_bps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rates and bursts of phantom meters of VNs with these limits: whole kb/s and kb."""
    rate_bps = whole_rates(PHANTOM_PART * receive_limit_bps)
    burst_bits = np.maximum(receive_limit_bps * PHANTOM_BURST_S, 3 * FRAME_BITS)
    return rate_bps, np.ceil(burst_bits / RATE_STEP_BPS) * RATE_STEP_BPS
