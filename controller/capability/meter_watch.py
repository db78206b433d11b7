"""Finds switches whose meters are there in name only, on the counters that are read anyway.

Traffic comes in and no meter counts any; or meters count, and let far more pass than their rate without a drop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.capability.capabilities import UNKNOWN, Ability, Finding
from controller.columns import FloatArray, IntArray
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


# The columns of a window, (6, meters): counts at the last reading; what was counted since the window began, and what is
# allowed since then, the highest rate and the bucket of every modify.
_IN_BYTES, _DROPPED_BYTES, _IN_SUM, _DROPPED_SUM, _RATE_BPS, _BURST_BITS = range(6)


class MeterWatch:
    """Compares what a switch's edge ports received with what its meters counted, one WINDOW_S after the other."""

    def __init__(self, edge_ports: IntArray, settings: Settings) -> None:
        self._edge_ports = edge_ports
        self.settings = settings
        self._meter_id: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._columns: FloatArray = np.empty((6, 0))
        self._began: tuple[float, int] | None = None  # when the window did, and what the ports had received by then
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

    def read(self, meters: NDArray[np.void]) -> None:
        """Note METER_STATS rows."""
        self._counted = self._counted or bool(meters["byte_in_count"].any())
        in_bytes, dropped_bytes = _known(meters["byte_in_count"]), _known(meters["band_byte_count"])
        if not np.array_equal(self._meter_id, meters["meter_id"]):
            self._begin(meters)
            return
        columns = self._columns
        modified = (in_bytes < columns[_IN_BYTES]) | (dropped_bytes < columns[_DROPPED_BYTES])
        columns[_IN_SUM] += in_bytes - np.where(modified, 0.0, columns[_IN_BYTES])
        columns[_DROPPED_SUM] += dropped_bytes - np.where(modified, 0.0, columns[_DROPPED_BYTES])
        columns[_IN_BYTES], columns[_DROPPED_BYTES] = in_bytes, dropped_bytes
        if modified.any():  # they may pass what they are set to now as well
            rate_bps, burst_bits = self.settings(self._meter_id[modified].astype(np.int64))
            columns[_RATE_BPS, modified] = np.maximum(columns[_RATE_BPS, modified], rate_bps)
            columns[_BURST_BITS, modified] += burst_bits

    def look(self, ports: NDArray[np.void], now_s: float) -> None:
        """Note PORT_STATS rows that were read at the same time as the meters last: they end a window."""
        if self._began is not None and now_s - self._began[0] < WINDOW_S:
            return
        mine = np.isin(ports["port_no"], self._edge_ports) & (ports["rx_bytes"] != COUNTER_UNAVAILABLE)
        received_bytes = int(ports["rx_bytes"][mine].sum())
        settings = self.settings(self._meter_id.astype(np.int64))
        if self._began is not None:
            if received_bytes - self._began[1] >= PLENTY_BYTES:
                self._idle = not self._counted
            self._look_for_excess(now_s - self._began[0], settings[0])
        self._began = now_s, received_bytes
        self._counted = False
        self._columns[_IN_SUM:_RATE_BPS] = 0.0
        self._columns[_RATE_BPS:] = settings

    def _begin(self, meters: NDArray[np.void]) -> None:
        """Meters came or went: the window no longer shows what they count."""
        self._meter_id = meters["meter_id"].copy()
        self._columns = np.zeros((6, len(meters)))
        self._columns[_IN_BYTES] = _known(meters["byte_in_count"])
        self._columns[_DROPPED_BYTES] = _known(meters["band_byte_count"])
        self._columns[_RATE_BPS:] = self.settings(self._meter_id.astype(np.int64))

    def _look_for_excess(self, elapsed_s: float, rate_bps: FloatArray) -> None:
        """``rate_bps`` is what meters are set to now, maybe by a modify so soon that its count went on."""
        in_bytes, dropped_bytes, most_bps, most_bits = self._columns[_IN_SUM:]
        drops = dropped_bytes > 0.0
        allowed_bits = EXCESS * (np.maximum(most_bps, rate_bps) * elapsed_s + most_bits)
        plenty = in_bytes >= PLENTY_BYTES
        if (~drops & plenty & (in_bytes * BITS_PER_BYTE > allowed_bits)).any():
            self._excesses += 1
        elif drops.any():
            self._drops = True
            self._excesses = 0


def read_all(
    watches: Sequence[MeterWatch],
    stats: NDArray[np.void],
    ends: IntArray,
    rows: NDArray[np.int32],
    settings: tuple[FloatArray, FloatArray],
) -> None:
    """Let each watch note the METER_STATS of its switch, which end at its ``ends``.

    ``settings`` are the rates (bit/s) and bursts (bits) of entries, of which ``rows`` are the meters' (-1: none).
    """
    found = [-1] * len(watches)
    if measure_kernel.library is not None:
        windows = [(watch._meter_id, watch._columns) for watch in watches]
        found = measure_kernel.watch(ends, stats, rows, settings, windows)
    for number, (watch, counted) in enumerate(zip(watches, found, strict=True)):
        if counted < 0:
            watch.read(stats[ends[number - 1] if number else 0 : ends[number]])
        elif counted:
            watch._counted = True


def _known(count: NDArray[np.uint64]) -> FloatArray:
    return np.where(count == COUNTER_UNAVAILABLE, 0.0, count.astype(np.float64))
