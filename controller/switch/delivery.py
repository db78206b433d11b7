"""What ports and queues carried: the rates that receivers really get, after every meter and queue.

Rates come from port- and queue-stats, which Open vSwitch renews at every request. Unknown is NaN, never zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.units import BITS_PER_BYTE


@dataclass(frozen=True)
class CounterRates:
    """Rates per second of counters that belong to ascending ``key``; ``rate`` maps a counter's name to its column."""

    key: IntArray
    rate: dict[str, FloatArray]
    count: dict[str, NDArray[np.uint64]]
    duration_s: FloatArray

    @classmethod
    def unread(cls) -> CounterRates:
        """Return the rates before the first reading."""
        return cls(np.empty(0, dtype=np.int64), {}, {}, np.empty(0))

    def read(self, key: IntArray, counters: NDArray[np.void], names: tuple[str, ...]) -> CounterRates:
        """Return the rates from the last reading to this one.

        ``counters`` are PORT_STATS or QUEUE_STATS rows, ``key`` one distinct key a row. Where a key is new, its
        counters went back or are not kept, or its clock did not go on, the rate is unknown.
        """
        order = np.argsort(key, kind="stable")
        key, counters = key[order], counters[order]
        duration_s = counters["duration_s"].astype(np.float64)
        old = np.searchsorted(self.key, key)
        known = old < len(self.key)
        known[known] = self.key[old[known]] == key[known]
        old = np.where(known, old, 0)
        elapsed_s = np.full(len(key), np.nan)
        elapsed_s[known] = duration_s[known] - self.duration_s[old[known]]
        elapsed_s[~(elapsed_s > 0.0)] = np.nan
        rates = {}
        for name in names:
            count = counters[name]
            moved = np.full(len(key), np.nan)
            kept = known & (count != COUNTER_UNAVAILABLE)
            if kept.any():
                moved[kept] = count[kept].astype(np.float64) - self.count[name][old[kept]].astype(np.float64)
            rates[name] = np.where(moved >= 0.0, moved, np.nan) / elapsed_s
        return CounterRates(key, rates, {name: counters[name].copy() for name in names}, duration_s)

    def at(self, name: str, key: IntArray) -> FloatArray:
        """Return the rates of ``name`` for any keys; NaN for those that were not read."""
        found = np.full(len(key), np.nan)
        if len(self.key):
            row = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
            same = self.key[row] == key
            found[same] = self.rate[name][row[same]]
        return found


class LatestCounters:
    """The last two readings of some counters; their rates are worked out when somebody asks, not in every interval.

    ``key_of`` gives each row its key; ``names`` are the counters.
    """

    def __init__(self, key_of: Callable[[NDArray[np.void]], IntArray], names: tuple[str, ...]) -> None:
        self._key_of, self._names = key_of, names
        self._readings: tuple[NDArray[np.void], ...] = ()
        self._rates: CounterRates | None = CounterRates.unread()

    def note(self, counters: NDArray[np.void]) -> None:
        """Note a reading."""
        self._readings, self._rates = (*self._readings[-1:], counters), None

    @property
    def rates(self) -> CounterRates:
        """What they say."""
        if self._rates is None:
            self._rates = CounterRates.unread()
            for counters in self._readings:
                self._rates = self._rates.read(self._key_of(counters), counters, self._names)
        return self._rates


class Delivery:
    """The rates of one switch's queues and ports."""

    def __init__(self) -> None:
        self._queues = LatestCounters(_queue_key_of, ("tx_bytes", "tx_errors"))
        self._ports = LatestCounters(lambda rows: rows["port_no"].astype(np.int64), ("tx_bytes", "rx_bytes"))

    def read_queues(self, queue_stats: NDArray[np.void]) -> None:
        """Note QUEUE_STATS rows."""
        self._queues.note(queue_stats)

    def read_ports(self, port_stats: NDArray[np.void]) -> None:
        """Note PORT_STATS rows."""
        self._ports.note(port_stats)

    def queue_bps(self, port_no: IntArray, queue_id: IntArray) -> FloatArray:
        """Return what queues sent, in bit/s."""
        return self._queues.rates.at("tx_bytes", _queue_key(port_no, queue_id)) * BITS_PER_BYTE

    def queue_drops_pps(self, port_no: IntArray, queue_id: IntArray) -> FloatArray:
        """Return what queues dropped, in packets per second."""
        return self._queues.rates.at("tx_errors", _queue_key(port_no, queue_id))

    def port_sent_bps(self, port_no: IntArray) -> FloatArray:
        """Return what ports sent towards their hosts, in bit/s."""
        return self._ports.rates.at("tx_bytes", port_no) * BITS_PER_BYTE

    def port_received_bps(self, port_no: IntArray) -> FloatArray:
        """Return what ports received from their hosts, in bit/s."""
        return self._ports.rates.at("rx_bytes", port_no) * BITS_PER_BYTE


def _queue_key_of(rows: NDArray[np.void]) -> IntArray:
    return _queue_key(rows["port_no"].astype(np.int64), rows["queue_id"].astype(np.int64))


def _queue_key(port_no: IntArray, queue_id: IntArray) -> IntArray:
    # Both are 32 bits on the wire; ports above 2^31 are reserved ones, which have none of the controller's queues.
    return (port_no << 32) | queue_id
