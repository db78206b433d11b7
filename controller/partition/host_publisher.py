"""Publishes the hosts behind a node's switches to its peers: each change, until a peer acknowledges it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.cluster.ownership import Owner
from controller.columns import IntArray
from controller.fabric.vn_table import VnTable
from controller.forwarding.pairs import Host, HostChange
from controller.node_protocol.host_update import VnHosts

MAX_BATCH = 1000
"""hosts and VNs in one message, before the last VN"""
MAX_IN_FLIGHT = 4
"""unacknowledged messages to a peer"""
_MIN_LOG = 1024
_NOTHING = VnHosts(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass
class Subscriber:
    """A peer's progress with host updates: the last acknowledged change, ``acked``.

    ``in_flight`` has the last change of each unacknowledged message, in the order of sending.
    """

    acked: int = 0
    in_flight: list[int] = field(default_factory=list)
    progress_s: float = -np.inf  # the time of its last progress, or of the first message after none

    def acknowledge(self, number: int, now_s: float) -> None:
        """Process a peer's acknowledgement up to a number, which decreases if the peer lost its state."""
        if number != self.acked:
            self.progress_s = now_s
        self.in_flight = [until for until in self.in_flight if until > number] if number >= self.acked else []
        self.acked = number


class HostPublisher:
    """The hosts of VNs behind a node's switches, in the order of their changes.

    ``number`` is the last change. A VN is published with all its present hosts, so that only its last change counts;
    ``hosts_of_vn`` returns the hosts.
    """

    def __init__(self, vns: VnTable, hosts_of_vn: Callable[[int], Iterable[Host]]) -> None:
        self.number = 0
        self._vns, self._hosts_of_vn = vns, hosts_of_vn
        self._changed = np.zeros(len(vns), np.int64)  # by VN, the number of its last change; 0: not published
        self._first = np.zeros(len(vns), np.int64)  # and the number of its first publication since its switch is local
        self._learned: dict[Host, int] = {}  # hosts learned since then
        self._log, self._logged = np.zeros((2, _MIN_LOG), np.int64), 0  # numbers and VNs of changes, and their count
        self._owners: dict[int, Owner] = {}
        self._made: dict[int, tuple[int, VnHosts]] = {}  # results of ``_put_together`` by ``since``

    def set_owned_switches(self, owners: Mapping[int, Owner]) -> None:
        """Set the switches whose hosts this node publishes, by dpid.

        Hosts of a newly owned switch, or of one owned under an older lease, are published in full.
        """
        if owners == self._owners:
            return
        for dpid in self._owners.keys() | owners.keys():
            if self._owners.get(dpid) != owners.get(dpid):
                rows = np.flatnonzero(self._vns.dpid == dpid)
                self._changed[rows] = 0
                if dpid in owners:
                    self._add(rows)
                    self._first[rows] = self._changed[rows]
        self._owners, self._made = dict(owners), {}

    def note(self, change: HostChange) -> None:
        """Record that a host has moved, wherever it is now."""
        self._learned.pop(change.host, None)
        if change.before is not None and self._changed[change.before]:
            self._add(np.array([change.before]))
        if change.after is not None and self._changed[change.after]:
            self._add(np.array([change.after]))
            self._learned[change.host] = self.number

    def learned(self, host: Host) -> int:
        """Return the number of the change that placed a host behind a switch of this node; 0 if another event did."""
        return self._learned.get(host, 0)

    def due(self, hearer: Subscriber, now_s: float, retransmit_s: float) -> tuple[int, int, VnHosts]:
        """Return what a peer must be sent: since and until which number, and the VNs; equal numbers mean nothing.

        ``hearer`` is the state of the transfer to that peer, and is updated. Unacknowledged changes are retransmitted
        after ``retransmit_s`` without progress.
        """
        if hearer.in_flight and now_s - hearer.progress_s >= retransmit_s:
            hearer.in_flight, hearer.progress_s = [], now_s
        since = hearer.in_flight[-1] if hearer.in_flight else hearer.acked
        if since >= self.number or len(hearer.in_flight) >= MAX_IN_FLIGHT:
            return since, since, _NOTHING
        if not hearer.in_flight:
            hearer.progress_s = now_s
        if since not in self._made:
            self._made[since] = self._put_together(since)
        until, hosts = self._made[since]
        hearer.in_flight.append(until)
        return since, until, hosts

    def _put_together(self, since: int) -> tuple[int, VnHosts]:
        """Return the first VNs whose last change is after ``since``, and the number up to which they are complete."""
        at = int(np.searchsorted(self._log[0, : self._logged], since, side="right"))
        until, rows, macs, learned, counts = self.number, list[int](), list[int](), list[int](), list[int]()
        # The log is read in part, so that a message is fast to build even if most changes have been superseded.
        for number, row in self._log[:, at : min(at + 2 * MAX_BATCH, self._logged)].T.tolist():
            if len(macs) + len(rows) >= MAX_BATCH:
                break
            until = number
            if self._changed[row] != number:  # a later change of the VN follows
                continue
            hosts, first = self._hosts_of_vn(row), int(self._first[row])
            before = len(macs)
            macs += [host.mac for host in hosts]
            # A host that was there before the VN was published counts as learned with the first publication.
            learned += [max(self._learned.get(host, 0), first) for host in hosts]
            rows.append(row)
            counts.append(len(macs) - before)
        mac, number_of = np.array(macs, dtype=np.uint64), np.array(learned, dtype=np.uint64)
        return until, VnHosts(mac, number_of, np.array(rows, dtype=np.int64), np.array(counts, dtype=np.int64))

    def _add(self, rows: NDArray[np.intp] | IntArray) -> None:
        """Record a change of these VNs, each with its own number."""
        if self._logged + len(rows) > self._log.shape[1]:
            self._make_room(len(rows))
        numbers = np.arange(self.number + 1, self.number + 1 + len(rows))
        self._changed[rows] = numbers
        self._log[0, self._logged : self._logged + len(rows)] = numbers
        self._log[1, self._logged : self._logged + len(rows)] = rows
        self._logged += len(rows)
        self.number += len(rows)
        self._made = {}

    def _make_room(self, rows: int) -> None:
        """Discard all changes of each VN but the last, and size the log for twice as many as remain."""
        numbers, vns = log = self._log[:, : self._logged]
        left = log[:, self._changed[vns] == numbers]
        self._log = np.zeros((2, max(_MIN_LOG, 2 * (left.shape[1] + rows))), np.int64)
        self._logged = left.shape[1]
        self._log[:, : self._logged] = left
