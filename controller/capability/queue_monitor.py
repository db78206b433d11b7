"""Detects whether frames reach the queues that they are sent to, from counters that are read anyway.

Open vSwitch's userspace datapath has queues, lists their counters, takes ``set_queue`` and still puts every frame into
the default queue. Another program that shapes a port's interface replaces its queues unnoticed. A VLAN's queue that
counts a frame received it by its number: then queues work. Where a port sends and no VLAN queue counts anything, they
do not.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.capability.capabilities import UNKNOWN, Ability, ProbeResult
from controller.columns import BoolArray
from controller.openflow.constants import COUNTER_UNAVAILABLE

SAMPLE_INTERVAL_S = 0.25
WINDOW_S = 2.0
# Fewer bytes may be frames outside the VLANs' queues: the controller's, the switch's own.
PLENTY_BYTES = 1_000_000
# Interval of test frames; if none of them has reached its queue, queues have no effect. The database's changes take
# effect milliseconds after they were written, dependent ones (a classifier) somewhat later.
PROBE_BACKOFF_S = (0.5, 1.0, 2.0, 4.0)

IGNORED = Ability(ProbeResult.FAILS, "frames do not reach the queues that they are sent to (set_queue has no effect)")
NOT_LISTED = Ability(ProbeResult.ABSENT, "the switch lists no queue of its VLANs")


class QueueMonitor:
    """Monitors the queues of a switch's edge ports.

    ``vlans_of_port`` gives the VLANs of each port, which are its queues.

    Columns have one row for each port, ascending.
    """

    def __init__(self, vlans_of_port: Mapping[int, Sequence[int]]) -> None:
        ports = sorted(vlans_of_port)
        # A queue's key is its port number and its VLAN in one number.
        keys = [(port_no << 32 | vid, row) for row, port_no in enumerate(ports) for vid in vlans_of_port[port_no]]
        keys.sort()
        self._port_no = np.array(ports, dtype=np.int64)
        self._key = np.array([key for key, _ in keys], dtype=np.int64)
        self._row_of_key = np.array([row for _, row in keys], dtype=np.int64)
        self._looked_s = -np.inf
        # The ports when there was no queue last, and the time.
        self._unlisted: tuple[NDArray[np.void], float] | None = None
        size = len(ports)
        # (ports,) masks: the switch lists queues of the port's VLANs; frames reach them; frames do not reach them.
        self._listed: BoolArray = np.zeros(size, dtype=np.bool_)
        self._works: BoolArray = np.zeros(size, dtype=np.bool_)
        self._ignored: BoolArray = np.zeros(size, dtype=np.bool_)
        self._queued = np.full(len(keys), np.nan)  # packets that each queue sent, in the order of ``_key``
        self._sent_bytes = np.full(size, np.nan)  # bytes that the port had sent when the window began
        self._since_s = np.full(size, np.nan)
        self._found: tuple[tuple[object, ...], dict[int, Ability]] = ((), {})  # the results, and the state behind them
        self._moved = True  # since the results were last requested
        self._pending = False
        self._tries = np.zeros(size, dtype=np.int64)  # rounds of test frames so far, and when the next one is due
        self._try_at_s = np.full(size, np.inf)

    def read(self, queues: NDArray[np.void], ports: NDArray[np.void], now_s: float) -> None:
        """Store QUEUE_STATS and PORT_STATS rows of the same time; they are evaluated once in SAMPLE_INTERVAL_S."""
        if now_s - self._looked_s < SAMPLE_INTERVAL_S or not len(self._key):
            return
        first, self._looked_s = self._looked_s == -np.inf, now_s
        if not len(queues) and not self._listed.any():  # a window begins for all ports, whatever they sent
            self._unlisted = ports, now_s
            self._moved |= first
            return
        self._moved = True
        if self._unlisted is not None:
            self._sent_bytes, self._since_s[:] = self._port_bytes(self._unlisted[0]), self._unlisted[1]
            self._unlisted = None
        listed, queued = self._queue_packets(queues)
        appeared = listed & ~self._listed
        # A recreated queue counts from zero; NaN, not listed now or before, is above nothing.
        counted_before = np.where(queued < self._queued, 0.0, self._queued)
        counted = np.bincount(self._row_of_key[queued > counted_before], minlength=len(listed)) > 0
        moved = listed & ~appeared & counted
        self._listed, self._queued = listed, queued
        for column in (self._works, self._ignored):
            column[~listed] = False
        self._tries[~listed] = 0
        self._try_at_s = np.where(appeared, now_s, np.where(listed, self._try_at_s, np.inf))
        self._works |= moved
        self._ignored &= ~moved
        self._suspect(moved, self._port_bytes(ports), now_s)

    @property
    def pending(self) -> bool:
        """Return whether some queues have no result yet."""
        self._evaluate()
        return self._pending

    def due(self, up: Container[int], now_s: float) -> list[int]:
        """Return the ports among ``up`` out of which test frames must be sent now.

        The frames count as sent; queues that have counted nothing after the last of them have no effect.
        """
        waiting = self._listed & ~self._works & ~self._ignored & (now_s >= self._try_at_s)
        waiting &= np.array([port_no in up for port_no in self._port_no.tolist()], dtype=np.bool_)
        out_of_tries = waiting & (self._tries == len(PROBE_BACKOFF_S))
        self._ignored |= out_of_tries
        self._moved |= bool(out_of_tries.any())
        rows = np.flatnonzero(waiting & ~out_of_tries)
        for row in rows.tolist():
            self._try_at_s[row] = now_s + PROBE_BACKOFF_S[self._tries[row]]
            self._tries[row] += 1
        return list(self._port_no[rows].tolist())

    def findings(self) -> dict[int, Ability]:
        """Return the result for each port's queues; the same object until a result changes."""
        self._evaluate()
        return self._found[1]

    def _evaluate(self) -> None:
        """Update the results, unless nothing that they depend on has changed since the last update."""
        if not self._moved:
            return
        self._moved = False
        self._pending = bool((self._listed & ~self._works & ~self._ignored).any())
        state = (np.isfinite(self._looked_s), *(row.tobytes() for row in (self._listed, self._works, self._ignored)))
        if state != self._found[0]:
            self._found = (state, self._findings(bool(state[0])))

    def _findings(self, seen: bool) -> dict[int, Ability]:
        """Return by port whether its queues work, as their counters show; ``seen``: the switch has sent them."""
        found = {}
        for row, port_no in enumerate(self._port_no.tolist()):
            if self._works[row]:
                found[port_no] = Ability(ProbeResult.WORKS)
            elif self._ignored[row]:
                found[port_no] = IGNORED
            else:
                found[port_no] = UNKNOWN if self._listed[row] or not seen else NOT_LISTED
        return found

    def _suspect(self, moved: BoolArray, sent_bytes: NDArray[np.float64], now_s: float) -> None:
        """Doubt queues that pass nothing while their port sends much."""
        begin = moved | ~self._listed | ~(sent_bytes >= self._sent_bytes)
        self._sent_bytes = np.where(begin, sent_bytes, self._sent_bytes)
        self._since_s = np.where(begin, now_s, self._since_s)
        silent = self._listed & (sent_bytes - self._sent_bytes >= PLENTY_BYTES) & (now_s - self._since_s >= WINDOW_S)
        self._works &= ~silent
        self._ignored |= silent

    def _queue_packets(self, queues: NDArray[np.void]) -> tuple[BoolArray, NDArray[np.float64]]:
        """Return (ports,) whether a queue of the port was read, and (queues,) the packets of each; NaN: not read."""
        key = queues["port_no"].astype(np.int64) << 32 | queues["queue_id"].astype(np.int64)
        at = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
        mine = np.flatnonzero((self._key[at] == key) & (queues["tx_packets"] != COUNTER_UNAVAILABLE))
        packets = np.full(len(self._key), np.nan)
        packets[at[mine]] = queues["tx_packets"][mine].astype(np.float64)
        return np.bincount(self._row_of_key[at[mine]], minlength=len(self._port_no)) > 0, packets

    def _port_bytes(self, ports: NDArray[np.void]) -> NDArray[np.float64]:
        sent = np.full(len(self._port_no), np.nan)
        port_no = ports["port_no"].astype(np.int64)
        at = np.minimum(np.searchsorted(self._port_no, port_no), len(self._port_no) - 1)
        mine = (self._port_no[at] == port_no) & (ports["tx_bytes"] != COUNTER_UNAVAILABLE)
        sent[at[mine]] = ports["tx_bytes"][mine].astype(np.float64)
        return sent
