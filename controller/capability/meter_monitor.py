"""Detects switches that accept meters without effect, from the counters of every round.

Traffic arrives and no meter counts it; or a meter counts far more than its rate and drops nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.capability.capabilities import UNKNOWN, Ability, ProbeResult
from controller.columns import FloatArray, IntArray, UInt32Array
from controller.metering import measurement_native
from controller.metering.enforcement import from_kilo
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.units import BITS_PER_BYTE

WINDOW_S = 2.0
# Fewer bytes may be frames that bypass all meters: hosts' own LLDP, foreign VLANs.
MIN_EVIDENCE_BYTES = 1_000_000
# A meter passes what its rate and bucket allow. Twice that, at the highest rate within a window and with a bucket for
# every modify, without a drop and in two consecutive windows with much traffic, is impossible for a working meter.
EXCESS = 2.0
EXCESS_WINDOWS = 2

IDLE = Ability(ProbeResult.FAILS, "meters count nothing while its ports receive")
NOT_LIMITING = Ability(ProbeResult.FAILS, "meters count, and pass more than their rates")

NOT_KNOWN = 2**32 - 1
"""An unknown rate or burst, or one too large for the type."""
Settings = Callable[[IntArray], tuple[UInt32Array, UInt32Array]]
"""Maps meter ids to the meters' settings, in new arrays: rates in kb/s and bursts in kb, NOT_KNOWN for others."""


# The counters of a window, (3, meters): bytes at the last reading, and bytes in since the window began, NaN for a meter
# with drops. The allowance since then, (2, meters): the highest rate, and a bucket for every modify.
_IN_BYTES, _DROPPED_BYTES, _IN_SUM = range(3)
_RATE_KBPS, _BURST_KBITS = range(2)


class MeterMonitor:
    """Compares what a switch's edge ports received with what its meters counted, in windows of WINDOW_S."""

    def __init__(self, edge_ports: IntArray, settings: Settings) -> None:
        self._edge_ports = edge_ports
        self.settings = settings
        self._meter_id: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._counts: FloatArray = np.empty((3, 0))
        self._most: UInt32Array = np.empty((2, 0), np.uint32)
        # The start of the window, and the received bytes of each port at that time.
        self._began: tuple[float, dict[int, int]] | None = None
        self._counted = False  # whether a meter has counted in this window
        self._idle = False  # whether none did in the last window with much traffic
        self._drops = False
        # Consecutive windows with an excess, without those of little traffic; from EXCESS_WINDOWS on, those since the
        # last drops.
        self._excesses = 0

    @property
    def ability(self) -> Ability:
        """Return what the counters show of the meters' ability to limit."""
        if self._idle:
            return IDLE
        if self._excesses >= EXCESS_WINDOWS:
            return NOT_LIMITING
        return Ability(ProbeResult.WORKS) if self._drops else UNKNOWN

    def read(self, meters: NDArray[np.void]) -> None:
        """Record METER_STATS rows."""
        self._counted = self._counted or bool(meters["byte_in_count"].any())
        in_bytes, dropped_bytes = _known(meters["byte_in_count"]), _known(meters["band_byte_count"])
        if not np.array_equal(self._meter_id, meters["meter_id"]):
            self._begin(meters)
            return
        counts, maximum = self._counts, self._most
        # A count below the last one has begun again at zero: the meter was modified.
        modified = (in_bytes < counts[_IN_BYTES]) | (dropped_bytes < counts[_DROPPED_BYTES])
        counts[_IN_SUM] += in_bytes - np.where(modified, 0.0, counts[_IN_BYTES])
        counts[_IN_SUM, dropped_bytes > np.where(modified, 0.0, counts[_DROPPED_BYTES])] = np.nan
        counts[_IN_BYTES], counts[_DROPPED_BYTES] = in_bytes, dropped_bytes
        if modified.any():  # the present settings count as well
            rate_kbps, burst_kbits = self.settings(self._meter_id[modified].astype(np.int64))
            maximum[_RATE_KBPS, modified] = np.maximum(maximum[_RATE_KBPS, modified], rate_kbps)
            maximum[_BURST_KBITS, modified] += np.minimum(burst_kbits, NOT_KNOWN - maximum[_BURST_KBITS, modified])

    def update(self, ports: NDArray[np.void], now_s: float) -> None:
        """Record PORT_STATS rows that were read together with the last meter rows: they end a window."""
        if self._began is not None and now_s - self._began[0] < WINDOW_S:
            return
        mine = np.isin(ports["port_no"], self._edge_ports) & (ports["rx_bytes"] != COUNTER_UNAVAILABLE)
        received_bytes = dict(zip(ports["port_no"][mine].tolist(), ports["rx_bytes"][mine].tolist(), strict=True))
        settings = self.settings(self._meter_id.astype(np.int64))
        if self._began is not None:
            # When a port that was not listed received its bytes is not known.
            before = self._began[1]
            new_bytes = (count - before.get(port_no, count) for port_no, count in received_bytes.items())
            if sum(max(count, 0) for count in new_bytes) >= MIN_EVIDENCE_BYTES:
                self._idle = not self._counted
            self._check_excess(now_s - self._began[0], settings[0])
        self._began = now_s, received_bytes
        self._counted = False
        self._counts[_IN_SUM] = 0.0
        self._most[:] = settings

    def _begin(self, meters: NDArray[np.void]) -> None:
        """Begin a new window: the set of meters changed."""
        self._meter_id = meters["meter_id"].copy()
        self._counts = np.zeros((3, len(meters)))
        self._counts[_IN_BYTES] = _known(meters["byte_in_count"])
        self._counts[_DROPPED_BYTES] = _known(meters["band_byte_count"])
        self._most = np.array(self.settings(self._meter_id.astype(np.int64)), np.uint32)

    def _check_excess(self, elapsed_s: float, rate_kbps: UInt32Array) -> None:
        """Look for meters that pass far more than allowed in the window, without a drop.

        Their present rates, ``rate_kbps``, count as well: ``read`` does not notice a modify that restarts no counter.
        """
        in_bytes = self._counts[_IN_SUM]
        plenty = np.flatnonzero(in_bytes >= MIN_EVIDENCE_BYTES)  # meters without drops
        most_bps = decode_kilo(np.maximum(self._most[_RATE_KBPS, plenty], rate_kbps[plenty]))
        allowed_bits = EXCESS * (most_bps * elapsed_s + decode_kilo(self._most[_BURST_KBITS, plenty]))
        if (in_bytes[plenty] * BITS_PER_BYTE > allowed_bits).any():
            self._excesses += 1
        elif np.isnan(in_bytes).any():
            self._drops = True
            self._excesses = 0
        elif len(plenty) and self._excesses < EXCESS_WINDOWS:
            self._excesses = 0


def update_monitors(
    watches: Sequence[MeterMonitor],
    stats: NDArray[np.void],
    ends: IntArray,
    rows: NDArray[np.int32],
    settings: tuple[UInt32Array, UInt32Array],
) -> None:
    """Update each monitor with the METER_STATS of its switch; the rows of a switch end at its ``ends``.

    ``settings`` are the rates (kb/s) and bursts (kb) of all pairs; ``rows`` (meters,) are the rows of the meters' pairs
    (-1: none).
    """
    found = [-1] * len(watches)  # as ``update_windows`` returns: below 0, the rows are read here
    if measurement_native.library is not None:
        windows = [(watch._meter_id, watch._counts, watch._most) for watch in watches]
        found = measurement_native.update_windows(ends, stats, rows, settings, windows)
    for number, (watch, counted) in enumerate(zip(watches, found, strict=True)):
        if counted < 0:
            watch.read(stats[ends[number - 1] if number else 0 : ends[number]])
        elif counted:
            watch._counted = True


def decode_kilo(kilos: UInt32Array) -> FloatArray:
    """Return kb/s as bit/s, or kb as bits; infinite where the value is NOT_KNOWN."""
    return np.where(kilos == NOT_KNOWN, np.inf, from_kilo(kilos))


def _known(count: NDArray[np.uint64]) -> FloatArray:
    return np.where(count == COUNTER_UNAVAILABLE, 0.0, count.astype(np.float64))
