"""What a node tells its peers of the hosts behind its switches: what has changed, until they say that they know it."""

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
"""hosts and VNs in one frame, and one VN more"""
MAX_IN_FLIGHT = 4
"""frames that a peer is told at most before it has said that it knows the first one"""
_MIN_LOG = 1024
_NOTHING = VnHosts(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass
class Subscriber:
    """A peer, as far as it is told of hosts: up to which change it ``known`` them, and what is ``under_way`` to it."""

    acked: int = 0
    in_flight: list[int] = field(default_factory=list)
    progress_s: float = -np.inf  # when it has said last that it knows more, or was told something after nothing

    def acknowledge(self, number: int, now_s: float) -> None:
        """It says that it knows what was said up to a number; a lower one than before, when it has lost it."""
        if number != self.acked:
            self.progress_s = now_s
        self.in_flight = [until for until in self.in_flight if until > number] if number >= self.acked else []
        self.acked = number


class HostPublisher:
    """The hosts of VNs behind a node's switches, in the order in which they have changed.

    ``number`` is that of the last change. A VN is said with all its hosts as they are, so that of its changes only the
    last one counts; ``hosts_of_vn`` returns them.
    """

    def __init__(self, vns: VnTable, hosts_of_vn: Callable[[int], Iterable[Host]]) -> None:
        self.number = 0
        self._vns, self._hosts_of_vn = vns, hosts_of_vn
        self._changed = np.zeros(len(vns), np.int64)  # by VN, the number of its last change; 0: it is not said
        self._first = np.zeros(len(vns), np.int64)  # and that under which it was said first since its switch is here
        self._learned: dict[Host, int] = {}  # of hosts that were learned since then
        self._log, self._logged = np.zeros((2, _MIN_LOG), np.int64), 0  # numbers and VNs of changes, and how many
        self._owners: dict[int, Owner] = {}
        self._made: dict[int, tuple[int, VnHosts]] = {}

    def set_owned_switches(self, owners: Mapping[int, Owner]) -> None:
        """These are the switches to speak for, by dpid; all is said of one that was none of them or another life's."""
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
        """A host has changed its place, wherever that is."""
        self._learned.pop(change.host, None)
        if change.before is not None and self._changed[change.before]:
            self._add(np.array([change.before]))
        if change.after is not None and self._changed[change.after]:
            self._add(np.array([change.after]))
            self._learned[change.host] = self.number

    def learned(self, host: Host) -> int:
        """Return the number of the change by which a host got behind a switch of this node; 0: it did otherwise."""
        return self._learned.get(host, 0)

    def due(self, hearer: Subscriber, now_s: float, again_s: float) -> tuple[int, int, VnHosts]:
        """Return what a peer is to be told: since and until which number, and the VNs.

        What it does not say that it knows is said again after ``again_s``.
        """
        if hearer.in_flight and now_s - hearer.progress_s >= again_s:
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
        """Return the first VNs whose last change is after ``since``, and up to which number these are all."""
        at = int(np.searchsorted(self._log[0, : self._logged], since, side="right"))
        until, rows, macs, learned, counts = self.number, list[int](), list[int](), list[int](), list[int]()
        for number, row in self._log[:, at : min(at + 2 * MAX_BATCH, self._logged)].T.tolist():
            if len(macs) + len(rows) >= MAX_BATCH:
                break
            until = number
            if self._changed[row] != number:
                continue
            hosts, first = self._hosts_of_vn(row), int(self._first[row])
            before = len(macs)
            macs += [host.mac for host in hosts]
            learned += [max(self._learned.get(host, 0), first) for host in hosts]
            rows.append(row)
            counts.append(len(macs) - before)
        mac, number_of = np.array(macs, dtype=np.uint64), np.array(learned, dtype=np.uint64)
        return until, VnHosts(mac, number_of, np.array(rows, dtype=np.int64), np.array(counts, dtype=np.int64))

    def _add(self, rows: NDArray[np.intp] | IntArray) -> None:
        """These VNs have changed, each with a number of its own."""
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
        """Forget of each VN all changes but the last, and let the log have room for twice as much as is left."""
        numbers, vns = log = self._log[:, : self._logged]
        left = log[:, self._changed[vns] == numbers]
        self._log = np.zeros((2, max(_MIN_LOG, 2 * (left.shape[1] + rows))), np.int64)
        self._logged = left.shape[1]
        self._log[:, : self._logged] = left
