"""Finds out whether frames reach the queues they are sent to, on the counters that are read anyway.

Open vSwitch's userspace datapath has queues, lists their counters, takes ``set_queue`` and puts every frame into the
default queue all the same; and whatever else shapes the interface of a port replaces its queues without a word. A queue
of a VLAN that counts a frame can only have got it by its number: then queues take effect. Where a port sends and none
of its VLANs' queues counts anything, they do not.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from controller.capability.capabilities import UNKNOWN, Ability, ProbeResult
from controller.columns import BoolArray, IntArray
from controller.openflow.constants import COUNTER_UNAVAILABLE

SAMPLE_INTERVAL_S = 0.25
WINDOW_S = 2.0
# Less than this may be frames that no queue of a VLAN is meant to have: the controller's, the switch's own.
PLENTY_BYTES = 1_000_000
# Test frames are sent again after so long, and when none of them has reached its queue, queues have no effect. The
# database's changes take effect milliseconds after they were written, what follows them (a classifier) somewhat later.
PROBE_BACKOFF_S = (0.5, 1.0, 2.0, 4.0)

IGNORED = Ability(ProbeResult.FAILS, "frames do not reach the queues that they are sent to (set_queue has no effect)")
NOT_LISTED = Ability(ProbeResult.ABSENT, "the switch lists no queue of its VLANs")


class QueueMonitor:
    """Watches the queues of a switch's edge ports; ``vlans_of_port`` gives the VLANs, and so the queues, of each.

    Columns have one row for each port, ascending.
    """

    def __init__(self, vlans_of_port: Mapping[int, Sequence[int]]) -> None:
        ports = sorted(vlans_of_port)
        keys = [(port_no << 32 | vid, row) for row, port_no in enumerate(ports) for vid in vlans_of_port[port_no]]
        keys.sort()
        self._port_no = np.array(ports, dtype=np.int64)
        self._key = np.array([key for key, _ in keys], dtype=np.int64)
        self._row_of_key = np.array([row for _, row in keys], dtype=np.int64)
        self._looked_s = -np.inf
        self._unlisted: tuple[NDArray[np.void], float] | None = None  # ports when no queue was there last, and when
        size = len(ports)
        self._listed: BoolArray = np.zeros(size, dtype=np.bool_)
        self._works: BoolArray = np.zeros(size, dtype=np.bool_)
        self._ignored: BoolArray = np.zeros(size, dtype=np.bool_)
        self._queued = np.zeros(size)  # packets that the VLANs' queues sent
        self._sent_bytes = np.full(size, np.nan)  # by the port, when the window began
        self._since_s = np.full(size, np.nan)
        self._found: tuple[tuple[object, ...], dict[int, Ability]] = ((), {})
        self._moved = True  # since findings were asked for last
        self._pending = False
        self._tries = np.zeros(size, dtype=np.int64)
        self._try_at_s = np.full(size, np.inf)

    def read(self, queues: NDArray[np.void], ports: NDArray[np.void], now_s: float) -> None:
        """Note QUEUE_STATS and PORT_STATS rows that were read at the same time; evaluated once in SAMPLE_INTERVAL_S."""
        if now_s - self._looked_s < SAMPLE_INTERVAL_S or not len(self._key):
            return
        first, self._looked_s = self._looked_s == -np.inf, now_s
        if not len(queues) and not self._listed.any():  # of all ports a window begins, whatever they sent
            self._unlisted = ports, now_s
            self._moved |= first
            return
        self._moved = True
        if self._unlisted is not None:
            self._sent_bytes, self._since_s[:] = self._port_bytes(self._unlisted[0]), self._unlisted[1]
            self._unlisted = None
        listed, queued = self._queue_packets(queues)
        appeared = listed & ~self._listed
        counted_before = np.where(queued < self._queued, 0.0, self._queued)  # a queue made again counts from zero
        moved = listed & ~appeared & (queued > counted_before)
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
        """Whether there are queues of which nothing is known yet."""
        self._evaluate()
        return self._pending

    def due(self, up: Container[int], now_s: float) -> list[int]:
        """Return the ports, of those that are ``up``, out of which test frames must be sent now.

        They are taken to have been sent; after the last of them queues that have counted nothing have no effect.
        """
        waiting = self._listed & ~self._works & ~self._ignored & (now_s >= self._try_at_s)
        waiting &= np.array([port_no in up for port_no in self._port_no.tolist()], dtype=np.bool_)
        out_of_tries = waiting & (self._tries == len(PROBE_BACKOFF_S))
        self._ignored |= out_of_tries
        self._moved = True
        rows = np.flatnonzero(waiting & ~out_of_tries)
        for row in rows.tolist():
            self._try_at_s[row] = now_s + PROBE_BACKOFF_S[self._tries[row]]
            self._tries[row] += 1
        return list(self._port_no[rows].tolist())

    def findings(self) -> dict[int, Ability]:
        """Return what is known of each port's queues; the same object until something has changed."""
        self._evaluate()
        return self._found[1]

    def _evaluate(self) -> None:
        """Find out what is known, unless nothing was read since that was done last."""
        if not self._moved:
            return
        self._moved = False
        self._pending = bool((self._listed & ~self._works & ~self._ignored).any())
        state = (np.isfinite(self._looked_s), *(row.tobytes() for row in (self._listed, self._works, self._ignored)))
        if state != self._found[0]:
            self._found = (state, self._findings(bool(state[0])))

    def _findings(self, seen: bool) -> dict[int, Ability]:
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
        """Doubt queues through which nothing goes while their port sends plenty."""
        begin = moved | ~self._listed | ~(sent_bytes >= self._sent_bytes)
        self._sent_bytes = np.where(begin, sent_bytes, self._sent_bytes)
        self._since_s = np.where(begin, now_s, self._since_s)
        silent = self._listed & (sent_bytes - self._sent_bytes >= PLENTY_BYTES) & (now_s - self._since_s >= WINDOW_S)
        self._works &= ~silent
        self._ignored |= silent

    def _queue_packets(self, queues: NDArray[np.void]) -> tuple[BoolArray, NDArray[np.float64]]:
        key = queues["port_no"].astype(np.int64) << 32 | queues["queue_id"].astype(np.int64)
        at = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
        mine = np.flatnonzero((self._key[at] == key) & (queues["tx_packets"] != COUNTER_UNAVAILABLE))
        row: IntArray = self._row_of_key[at[mine]]
        size = len(self._port_no)
        packets = np.bincount(row, weights=queues["tx_packets"][mine].astype(np.float64), minlength=size)
        return np.bincount(row, minlength=size) > 0, packets.astype(np.float64)

    def _port_bytes(self, ports: NDArray[np.void]) -> NDArray[np.float64]:
        sent = np.full(len(self._port_no), np.nan)
        port_no = ports["port_no"].astype(np.int64)
        at = np.minimum(np.searchsorted(self._port_no, port_no), len(self._port_no) - 1)
        mine = (self._port_no[at] == port_no) & (ports["tx_bytes"] != COUNTER_UNAVAILABLE)
        sent[at[mine]] = ports["tx_bytes"][mine].astype(np.float64)
        return sent
