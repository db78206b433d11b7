"""Finds switches whose meters are there in name only, on the counters that are read anyway.

Traffic comes in and no meter counts any; or meters count, and let far more pass than their rate without a drop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.capabilities import UNKNOWN, Ability, Finding
from controller.columns import FloatArray, IntArray
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.units import BITS_PER_BYTE

WINDOW_S = 2.0
# Less than this may be frames that no meter is meant to see: hosts' own LLDP, foreign VLANs.
PLENTY_BYTES = 1_000_000
# A meter lets through what its rate and bucket allow; twice that, without one drop and in two windows running (a rate
# that was lowered in one of them explains one only), cannot be.
EXCESS = 2.0
EXCESS_WINDOWS = 2

IDLE = Ability(Finding.FAILS, "meters count nothing while its ports receive")
LET_THROUGH = Ability(Finding.FAILS, "meters count, and let through more than their rates")

Settings = Callable[[IntArray], tuple[FloatArray, FloatArray]]
"""Meter ids to what those meters are set to: rates in bit/s (infinite where that is not known) and bursts in bits."""


class _Window(NamedTuple):
    """What the counters were when a window began."""

    at_s: float
    received_bytes: int
    meter_id: NDArray[np.uint32]
    in_bytes: NDArray[np.uint64]
    dropped_bytes: NDArray[np.uint64]


class MeterWatch:
    """Compares what a switch's edge ports received with what its meters counted, one WINDOW_S after the other."""

    def __init__(self, edge_ports: IntArray, settings: Settings) -> None:
        self._edge_ports = edge_ports
        self._settings = settings
        self._window: _Window | None = None
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

    def read(self, meters: NDArray[np.void], ports: NDArray[np.void], now_s: float) -> None:
        """Note METER_STATS and PORT_STATS rows that were read at the same time."""
        self._counted = self._counted or bool(meters["byte_in_count"].any())
        before = self._window
        if before is not None and now_s - before.at_s < WINDOW_S:
            return
        mine = np.isin(ports["port_no"], self._edge_ports) & (ports["rx_bytes"] != COUNTER_UNAVAILABLE)
        received_bytes = int(ports["rx_bytes"][mine].sum())
        counts = (meters["meter_id"].copy(), meters["byte_in_count"].copy(), meters["band_byte_count"].copy())
        now = self._window = _Window(now_s, received_bytes, *counts)
        if before is not None:
            if received_bytes - before.received_bytes >= PLENTY_BYTES:
                self._idle = not self._counted
            self._look_for_excess(before, now)
        self._counted = False

    def _look_for_excess(self, before: _Window, now: _Window) -> None:
        if not np.array_equal(before.meter_id, now.meter_id):
            return
        # A meter that was modified in between counts from zero since then: too little, and so no reason to doubt it.
        drops = now.dropped_bytes > before.dropped_bytes
        in_bytes = now.in_bytes.astype(np.float64) - before.in_bytes.astype(np.float64)
        doubtful = np.flatnonzero(~drops & (in_bytes >= PLENTY_BYTES) & (now.in_bytes != COUNTER_UNAVAILABLE))
        if len(doubtful):
            rate_bps, burst_bits = self._settings(now.meter_id[doubtful].astype(np.int64))
            most_bits = EXCESS * (rate_bps * (now.at_s - before.at_s) + burst_bits)
            if (in_bytes[doubtful] * BITS_PER_BYTE > most_bits).any():
                self._excesses += 1
                return
        if drops.any():
            self._drops = True
            self._excesses = 0
