"""Finds switches whose meters are there in name only, on the counters that are read anyway.

Traffic comes in and no meter counts any; or meters count, and let far more pass than their rate without a drop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.capability.capabilities import UNKNOWN, Ability, Finding
from controller.columns import BoolArray, FloatArray, IntArray
from controller.metering import measure_kernel
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.units import BITS_PER_BYTE

WINDOW_S = 2.0
# Less than this may be frames that no meter is meant to see: hosts' own LLDP, foreign VLANs.
PLENTY_BYTES = 1_000_000
# A meter lets through what its rate and bucket allow; twice that, at the highest rate that it had in a window and with
# the bucket of every modify, without one drop and in two windows running, cannot be.
EXCESS = 2.0
EXCESS_WINDOWS = 2

IDLE = Ability(Finding.FAILS, "meters count nothing while its ports receive")
LET_THROUGH = Ability(Finding.FAILS, "meters count, and let through more than their rates")

Settings = Callable[[IntArray], tuple[FloatArray, FloatArray]]
"""Meter ids to what those meters are set to, in new arrays: rates in bit/s (infinite: not known) and bursts in bits."""


class _Counts(NamedTuple):
    """What the meters counted at a reading."""

    meter_id: NDArray[np.uint32]
    in_bytes: FloatArray
    dropped_bytes: FloatArray


class _Window(NamedTuple):
    """What the ports had received when a window began; since then, by meter, what was counted and what is allowed."""

    at_s: float
    received_bytes: int
    in_bytes: FloatArray
    dropped_bytes: FloatArray
    rate_bps: FloatArray
    burst_bits: FloatArray


class MeterWatch:
    """Compares what a switch's edge ports received with what its meters counted, one WINDOW_S after the other."""

    def __init__(self, edge_ports: IntArray, settings: Settings) -> None:
        self._edge_ports = edge_ports
        self._settings = settings
        self._window: _Window | None = None
        self._last: _Counts | None = None
        self._counted = False
        self._idle = False
        self._drops = False
        self._excesses = 0

    @property
    def ability(self) -> Ability:
        """What the counters show of the meters' ability to limit."""
        if self._idle:
            return IDLE
        if self._excesses >= EXCESS_WINDOWS:
            return LET_THROUGH
        return Ability(Finding.WORKS) if self._drops else UNKNOWN

    def read(self, meters: NDArray[np.void], ports: NDArray[np.void] | None, now_s: float) -> None:
        """Note METER_STATS rows, and PORT_STATS rows where they were read at the same time: they end a window."""
        self._counted = self._counted or bool(meters["byte_in_count"].any())
        self._last = self._follow(meters, self._last)
        if ports is None or (self._window is not None and now_s - self._window.at_s < WINDOW_S):
            return
        mine = np.isin(ports["port_no"], self._edge_ports) & (ports["rx_bytes"] != COUNTER_UNAVAILABLE)
        received_bytes = int(ports["rx_bytes"][mine].sum())
        if self._window is not None:
            if received_bytes - self._window.received_bytes >= PLENTY_BYTES:
                self._idle = not self._counted
            self._look_for_excess(self._window, self._last.meter_id, now_s)
        self._window = self._begin(self._last, now_s, received_bytes)
        self._counted = False

    def _follow(self, meters: NDArray[np.void], before: _Counts | None) -> _Counts:
        """Add what was counted since the last reading to the window; return what is counted now."""
        window = self._window
        if window is not None and before is not None:
            if measure_kernel.library is not None:
                counts = (before.in_bytes, before.dropped_bytes)
                sums = (window.in_bytes, window.dropped_bytes)
                found = measure_kernel.watch(meters, before.meter_id, counts, sums)
                if found is not None:
                    self._allow(window, before.meter_id, found[1])
                    return _Counts(before.meter_id, *found[0])
            elif np.array_equal(before.meter_id, meters["meter_id"]):
                now = _counts_of(meters)
                self._allow(window, now.meter_id, _add(window, before, now))
                return now
        now = _counts_of(meters)
        if window is not None:  # meters came or went: it no longer shows what they count
            self._window = self._begin(now, window.at_s, window.received_bytes)
        return now

    def _begin(self, now: _Counts, at_s: float, received_bytes: int) -> _Window:
        rate_bps, burst_bits = self._settings(now.meter_id.astype(np.int64))
        nothing = np.zeros(len(rate_bps))
        return _Window(at_s, received_bytes, nothing, nothing.copy(), rate_bps, burst_bits)

    def _allow(self, window: _Window, meter_id: NDArray[np.uint32], modified: BoolArray | None) -> None:
        """Let meters that were modified pass what they are set to now as well."""
        if modified is not None and modified.any():
            rate_bps, burst_bits = self._settings(meter_id[modified].astype(np.int64))
            window.rate_bps[modified] = np.maximum(window.rate_bps[modified], rate_bps)
            window.burst_bits[modified] += burst_bits

    def _look_for_excess(self, window: _Window, meter_id: NDArray[np.uint32], now_s: float) -> None:
        drops = window.dropped_bytes > 0.0
        rate_bps, _ = self._settings(meter_id.astype(np.int64))  # of a modify after so little that its count went on
        most_bits = EXCESS * (np.maximum(window.rate_bps, rate_bps) * (now_s - window.at_s) + window.burst_bits)
        plenty = window.in_bytes >= PLENTY_BYTES
        if (~drops & plenty & (window.in_bytes * BITS_PER_BYTE > most_bits)).any():
            self._excesses += 1
        elif drops.any():
            self._drops = True
            self._excesses = 0


def _counts_of(meters: NDArray[np.void]) -> _Counts:
    return _Counts(meters["meter_id"].copy(), _known(meters["byte_in_count"]), _known(meters["band_byte_count"]))


def _add(window: _Window, before: _Counts, now: _Counts) -> BoolArray:
    """Add what was counted since the last reading; return which meters were modified in between and began at zero."""
    modified = (now.in_bytes < before.in_bytes) | (now.dropped_bytes < before.dropped_bytes)
    window.in_bytes[:] += now.in_bytes - np.where(modified, 0.0, before.in_bytes)
    window.dropped_bytes[:] += now.dropped_bytes - np.where(modified, 0.0, before.dropped_bytes)
    return modified


def _known(count: NDArray[np.uint64]) -> FloatArray:
    return np.where(count == COUNTER_UNAVAILABLE, 0.0, count.astype(np.float64))
