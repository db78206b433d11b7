"""The rates of ports and queues: what receivers really get, after every meter and queue.

They come from port- and queue-stats, which Open vSwitch updates at every request. Unknown is NaN, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.metering.counters import MIN_ELAPSED_S
from controller.switch.counter_deltas import CounterDeltas
from controller.units import BITS_PER_BYTE


class CounterHistory:
    """The last two readings of some counters; changes are computed when they are asked for, not in every interval.

    ``key_of`` gives each row its key; ``names`` are the counters.
    """

    def __init__(self, key_of: Callable[[NDArray[np.void]], IntArray], names: tuple[str, ...]) -> None:
        self._key_of, self._names = key_of, names
        self._before: NDArray[np.void] | None = None
        self._latest: NDArray[np.void] | None = None
        self._changes: CounterDeltas | None = None
        self.received_s = -math.inf
        """The time of the round of replies with the last reading."""

    def note(self, counters: NDArray[np.void], received_s: float) -> None:
        """Record a reading from a round of replies at ``received_s``.

        A reading right after the last one is too short for a rate: it is ignored, and the next one covers both.
        """
        if received_s - self.received_s < MIN_ELAPSED_S:
            return
        self._before, self._latest, self._changes = self._latest, counters, None
        self.received_s = received_s

    @property
    def latest(self) -> NDArray[np.void] | None:
        """The last reading; None before the first."""
        return self._latest

    @property
    def changes(self) -> CounterDeltas | None:
        """Return the counter changes between the last two readings; None before the first, NaN before the second."""
        if self._changes is None and self._latest is not None:
            before = None if self._before is None else (self._key_of(self._before), self._before)
            self._changes = CounterDeltas.between(self._names, before, (self._key_of(self._latest), self._latest))
        return self._changes

    def per_second(self, name: str, key: IntArray) -> FloatArray:
        """Return a counter's rate, by key; NaN where unknown."""
        changes = self.changes
        return np.full(len(key), np.nan) if changes is None else changes.per_second(name, key)


class DeliveredRates:
    """The rates of one switch's queues and ports, by ``queue_key`` and by port number."""

    def __init__(self) -> None:
        self.queues = CounterHistory(_queue_key_of, ("tx_bytes", "tx_packets", "tx_errors"))
        self.ports = CounterHistory(_port_key_of, ("tx_bytes", "rx_bytes", "tx_dropped"))

    def read_queues(self, queue_stats: NDArray[np.void], received_s: float) -> None:
        """Record QUEUE_STATS rows."""
        self.queues.note(queue_stats, received_s)

    def read_ports(self, port_stats: NDArray[np.void], received_s: float) -> None:
        """Record PORT_STATS rows."""
        self.ports.note(port_stats, received_s)

    def queue_bps(self, port_no: IntArray, queue_id: IntArray) -> FloatArray:
        """Return the sent rates of queues, in bit/s."""
        return self.queues.per_second("tx_bytes", queue_key(port_no, queue_id)) * BITS_PER_BYTE

    def port_sent_bps(self, port_no: IntArray) -> FloatArray:
        """Return the rates that ports sent to their hosts, in bit/s."""
        return self.ports.per_second("tx_bytes", port_no) * BITS_PER_BYTE

    def port_received_bps(self, port_no: IntArray) -> FloatArray:
        """Return the rates that ports received from their hosts, in bit/s."""
        return self.ports.per_second("rx_bytes", port_no) * BITS_PER_BYTE


def queue_key(port_no: IntArray, queue_id: IntArray) -> IntArray:
    """Return the key of a queue within its switch, shape of the arguments."""
    # Both are 32 bits on the wire; ports above 2^31 are reserved ones, without queues of the controller.
    return (port_no << 32) | queue_id


def _queue_key_of(rows: NDArray[np.void]) -> IntArray:
    return queue_key(rows["port_no"].astype(np.int64), rows["queue_id"].astype(np.int64))


def _port_key_of(rows: NDArray[np.void]) -> IntArray:
    """Return the port numbers of PORT_STATS rows, as keys."""
    return rows["port_no"].astype(np.int64)
