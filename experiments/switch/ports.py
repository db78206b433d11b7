"""Ports and their queues: descriptions, and counters as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from controller.openflow import constants as ofp
from experiments.switch import replies

_PORT_COUNTERS = ("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped")
_QUEUE_COUNTERS = ("tx_bytes", "tx_packets", "tx_errors")
# HTB shares what is above the min rates by the quantum. Open vSwitch leaves the quantum to the kernel: the bytes of a
# tenth of a second at the min rate, from 1,000 to 200,000. These are the min rates at which it stops shrinking and
# growing.
_QUANTUM_MIN_BPS = 80e3
_QUANTUM_MAX_BPS = 16e6


@dataclass(slots=True)
class QueueSetting:
    """An HTB-like queue: its guaranteed rate and its maximum."""

    min_rate_bps: float
    max_rate_bps: float
    added_s: float


@dataclass(slots=True)
class SwitchPort:
    """A port; ``rate_bps`` is the rate of its link."""

    port_no: int
    name: str
    hw_addr: int
    rate_bps: float
    up: bool = True
    added_s: float = 0.0
    queues: dict[int, QueueSetting] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_PORT_COUNTERS, 0.0))
    queue_counters: dict[int, dict[str, float]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    queue_offsets: dict[tuple[int, str], int] = field(default_factory=dict)

    def description(self) -> bytes:
        """Return the ofp_port."""
        state = 0 if self.up else ofp.PORT_STATE_LINK_DOWN
        return replies.port(self.port_no, self.name, self.hw_addr, 0, state, int(min(self.rate_bps / 1000, 2**32 - 1)))

    def set_queue(self, queue_id: int, min_rate_bps: float, max_rate_bps: float, now_s: float = 0.0) -> None:
        """Create or change a queue, as OVSDB would; the counters and the clock of an existing queue continue."""
        added_s = self.queues[queue_id].added_s if queue_id in self.queues else now_s
        self.queues[queue_id] = QueueSetting(min_rate_bps, max_rate_bps, added_s)
        self.queue_counters.setdefault(queue_id, dict.fromkeys(_QUEUE_COUNTERS, 0.0))

    def remove_queue(self, queue_id: int) -> None:
        """Remove a queue and its counters."""
        del self.queues[queue_id], self.queue_counters[queue_id]

    def receive(self, octets: float, packets: float) -> None:
        """Count received traffic."""
        self.counters["rx_bytes"] += octets
        self.counters["rx_packets"] += packets

    def send(self, queue_id: int | None, octets: float, packets: float, dropped_packets: float = 0.0) -> None:
        """Count sent traffic, by the queue if a queue of that number exists, and packets dropped for lack of space."""
        self.counters["tx_bytes"] += octets
        self.counters["tx_packets"] += packets
        self.counters["tx_dropped"] += dropped_packets
        if queue_id in self.queue_counters:
            queue = self.queue_counters[queue_id]
            queue["tx_bytes"] += octets
            queue["tx_packets"] += packets
            queue["tx_errors"] += dropped_packets

    def serve(self, offered_bps: dict[int | None, float], used_bps: float = 0.0) -> dict[int | None, float]:
        """Return the rate of each queue in bit/s (None: traffic without a queue): minima first, the rest by quantum.

        ``offered_bps`` are the offered rates, of which the link serves ``rate_bps`` less ``used_bps``. Traffic without
        a queue has the largest quantum. Queues that need less than their part leave it to the others.
        """
        rate_bps = max(self.rate_bps - used_bps, 0.0)
        demand_bps = {queue_id: min(rate, self._max_bps(queue_id)) for queue_id, rate in offered_bps.items()}
        served_bps = {queue_id: min(rate, self._min_bps(queue_id)) for queue_id, rate in demand_bps.items()}
        free_bps = rate_bps - sum(served_bps.values())
        if free_bps < 0:
            shrink = rate_bps / sum(served_bps.values())
            return {queue_id: rate * shrink for queue_id, rate in served_bps.items()}
        quanta = {
            queue_id: self._quantum(queue_id) for queue_id in demand_bps if served_bps[queue_id] < demand_bps[queue_id]
        }
        while quanta and free_bps > 1e-3:
            per_quantum_bps = free_bps / sum(quanta.values())
            for queue_id, quantum in list(quanta.items()):
                more_bps = min(per_quantum_bps * quantum, demand_bps[queue_id] - served_bps[queue_id])
                served_bps[queue_id] += more_bps
                free_bps -= more_bps
                if more_bps < per_quantum_bps * quantum:
                    del quanta[queue_id]
        return served_bps

    def reset_counters(self) -> None:
        """Zero the counters of the port and of its queues."""
        self.counters = dict.fromkeys(_PORT_COUNTERS, 0.0)
        self.queue_counters = {queue_id: dict.fromkeys(_QUEUE_COUNTERS, 0.0) for queue_id in self.queue_counters}

    def _min_bps(self, queue_id: int | None) -> float:
        """Return the guaranteed rate of a queue; 0 without a queue."""
        return self.queues[queue_id].min_rate_bps if queue_id in self.queues else 0.0

    def _quantum(self, queue_id: int | None) -> float:
        """Return the quantum of a queue as a part of the largest quantum, which traffic without a queue has."""
        min_bps = self.queues[queue_id].min_rate_bps if queue_id in self.queues else _QUANTUM_MAX_BPS
        return min(max(min_bps, _QUANTUM_MIN_BPS), _QUANTUM_MAX_BPS) / _QUANTUM_MAX_BPS

    def _max_bps(self, queue_id: int | None) -> float:
        """Return the maximum rate of a queue; without a queue that of the link."""
        return self.queues[queue_id].max_rate_bps if queue_id in self.queues else self.rate_bps


def port_stats(ports: Iterable[SwitchPort], now_s: float) -> npt.NDArray[np.void]:
    """Return the records of a port-stats reply."""
    chosen = list(ports)
    rows = np.zeros(len(chosen), replies.PORT_STATS)
    rows["port_no"] = [port.port_no for port in chosen]
    for name in _PORT_COUNTERS:
        rows[name] = [_reported(port.counters[name], port.offsets.get(name, 0)) for port in chosen]
    replies.fill_duration(rows, np.array([now_s - port.added_s for port in chosen]))
    return rows


def queue_stats(ports: Iterable[SwitchPort], queue_id: int, now_s: float) -> npt.NDArray[np.void]:
    """Return the records of a queue-stats reply for one queue of each port, or for all its queues."""
    chosen = [(port, number) for port in ports for number in port.queues if queue_id in (ofp.QUEUE_ALL, number)]
    rows = np.zeros(len(chosen), replies.QUEUE_STATS)
    rows["port_no"] = [port.port_no for port, _number in chosen]
    rows["queue_id"] = [number for _port, number in chosen]
    for name in _QUEUE_COUNTERS:
        rows[name] = [
            _reported(port.queue_counters[number][name], port.queue_offsets.get((number, name), 0))
            for port, number in chosen
        ]
    replies.fill_duration(rows, np.array([now_s - port.queues[number].added_s for port, number in chosen]))
    return rows


def _reported(count: float, offset: int) -> int:
    """Return a counter as it is reported: a whole number with an injected offset, modulo 2**64."""
    return (int(count) + offset) % 2**64
