"""The known hosts, in columns: the VN of each, since when, and the VN before that."""

from __future__ import annotations

import math
from collections import defaultdict
from enum import Enum
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.forwarding.pairs import Host

NOWHERE = -1
# A VN may learn a number of hosts. The same number again may move there: this is the factor.
WITH_MOVED = 2
_MIN_ROWS = 64
_MAC_BITS = 48
_MAC = (1 << _MAC_BITS) - 1
# The lowest address of a VN without hosts: above all addresses.
_NO_MAC = 1 << _MAC_BITS


class ReportedSources(Enum):
    """Which unknown hosts of a full VN are reported: all, only senders to broadcast or group addresses, none."""

    ALL = 0
    CALLERS = 1
    NONE = 2


class HostColumns(NamedTuple):
    """Some hosts, in ascending order of VLAN and address, (hosts,): ``vn`` and ``moved_from`` are rows of VNs.

    ``since_s`` is when a host appeared at its VN, NaN if unknown; ``moved_from`` is NOWHERE for a host without an
    earlier VN.
    """

    vlan_vid: IntArray
    mac: IntArray
    vn: IntArray
    since_s: FloatArray
    moved_from: IntArray


class KnownHosts:
    """The hosts of ``vns`` VNs; each VN may learn ``max_hosts``.

    A host that leaves with its port is remembered for ``remembered_s``, at most ``max_hosts`` of each VN. ``count`` and
    ``lowest_mac`` are columns of shape (vns,): the number of hosts of a VN, and their lowest address, which is
    undefined without hosts.
    """

    def __init__(self, vns: int, max_hosts: int, remembered_s: float) -> None:
        self._max_hosts, self._remembered_s = max_hosts, remembered_s
        self.count = np.zeros(vns, dtype=np.int64)
        self.lowest_mac = np.full(vns, _NO_MAC, dtype=np.int64)
        self._slots: dict[Host, int] = {}
        self._of_vn: defaultdict[int, dict[Host, None]] = defaultdict(dict)  # in the order of arrival
        # By slot; the key is VLAN and address, NOWHERE in a free slot.
        self._key, self._vn, self._moved_from = np.full((3, _MIN_ROWS), NOWHERE, dtype=np.int64)
        self._since_s = np.full(_MIN_ROWS, np.nan)
        self._free = list(range(_MIN_ROWS))
        self._left: dict[Host, tuple[int, float]] = {}  # the last VN, and the time of leaving, oldest first
        self._left_count = np.zeros(vns, dtype=np.int64)

    def __contains__(self, host: Host) -> bool:
        return host in self._slots

    def vn_of(self, host: Host) -> int | None:
        """Return the row of the VN of a host, None if unknown."""
        slot = self._slots.get(host)
        return None if slot is None else int(self._vn[slot])

    def all(self) -> list[Host]:
        """Return the known hosts."""
        return list(self._slots)

    def row_of(self, host: Host) -> int:
        """Return the row of the VN of a known host."""
        row = self.vn_of(host)
        assert row is not None, "it is a known host"
        return row

    def hosts_of_vn(self, row: int) -> list[Host]:
        """Return the known hosts of a VN, in the order in which they came."""
        return list(self._of_vn.get(row, ()))

    # -- changes

    def come(self, host: Host, row: int, now_s: float, moved_from: int | None) -> None:
        """Add an unknown host to the VN of ``row``; ``moved_from`` is the row of the VN that it left, if any."""
        if not self._free:
            self._grow()
        slot = self._slots[host] = self._free.pop()
        self._key[slot], self._vn[slot] = _key_of(host), row
        self._since_s[slot], self._moved_from[slot] = now_s, NOWHERE if moved_from in (None, row) else moved_from
        self._of_vn[row][host] = None
        self.count[row] += 1
        self.lowest_mac[row] = min(int(self.lowest_mac[row]), host.mac)
        self._drop_left(host)

    def go(self, host: Host) -> int | None:
        """Remove a host; return the row of its VN, None if it was unknown."""
        slot = self._slots.pop(host, None)
        if slot is None:
            return None
        row = int(self._vn[slot])
        self._key[slot] = NOWHERE
        self._free.append(slot)
        del self._of_vn[row][host]
        self.count[row] -= 1
        if host.mac == self.lowest_mac[row]:
            self.lowest_mac[row] = min((other.mac for other in self._of_vn[row]), default=_NO_MAC)
        return row

    def _grow(self) -> None:
        """Double the number of slots."""
        size = len(self._key)
        new_slots = np.full(size, NOWHERE, dtype=np.int64)
        columns = self._key, self._vn, self._moved_from
        self._key, self._vn, self._moved_from = (np.concatenate([column, new_slots]) for column in columns)
        self._since_s = np.concatenate([self._since_s, np.full(size, np.nan)])
        self._free += range(size, 2 * size)

    def leave(self, host: Host, now_s: float) -> int | None:
        """Remove a host whose port is gone, as ``go`` does, and remember it: it may reappear at another port."""
        row = self.go(host)
        while self._left and now_s - next(iter(self._left.values()))[1] >= self._remembered_s:
            self._drop_left(next(iter(self._left)))
        if row is not None and not math.isnan(now_s) and self._left_count[row] < self._max_hosts:
            self._left[host] = row, now_s
            self._left_count[row] += 1
        return row

    def _drop_left(self, host: Host) -> None:
        row, _ = self._left.pop(host, (None, 0.0))
        if row is not None:
            self._left_count[row] -= 1

    # -- how many a VN may have

    def full(self, row: int) -> bool:
        """Return whether a VN has as many hosts as it may learn."""
        return bool(self.count[row] >= self._max_hosts)

    def full_vns(self) -> BoolArray:
        """Return the mask of the full VNs, (vns,)."""
        return self.count >= self._max_hosts

    def has_room(self, row: int, *, moved: bool) -> bool:
        """Return whether a VN may have one more host, which is new or has ``moved``."""
        return bool(self.count[row] < self._max_hosts * (WITH_MOVED if moved else 1))

    def came_from(self, host: Host, now_s: float) -> int | None:
        """Return the row of the VN of a host, or of the VN that it just left with its port, or None."""
        row = self.vn_of(host)
        if row is None and host in self._left:
            row, left_s = self._left[host]
            return row if now_s - left_s < self._remembered_s else None
        return row

    # -- what is shown

    def moved_from(self, host: Host) -> int | None:
        """Return the row of the previous VN of a known host, or None."""
        row = int(self._moved_from[self._slots[host]])
        return None if row == NOWHERE else row

    def inherit(self, host: Host, before: KnownHosts, new_row: IntArray) -> None:
        """Keep the times and the previous VN of a known host from ``before``; ``new_row`` is indexed by old rows."""
        old_slot, slot = before._slots[host], self._slots[host]
        moved_from = int(before._moved_from[old_slot])
        self._since_s[slot] = before._since_s[old_slot]
        self._moved_from[slot] = NOWHERE if moved_from == NOWHERE else new_row[moved_from]

    def some(self, vns: BoolArray, mac: int | None, after: Host | None, max_hosts: int) -> HostColumns:
        """Return at most ``max_hosts`` hosts of the VNs in the mask ``vns``, (vns,), with address ``mac`` if given.

        They are the first ones in the order of VLAN and address, after the host ``after`` if given.
        """
        chosen = self._key != NOWHERE
        chosen &= vns[self._vn]  # whatever a free slot reads here, it is not chosen
        if mac is not None:
            chosen &= self._key & _MAC == mac
        if after is not None:
            chosen &= self._key > _key_of(after)
        slots = np.flatnonzero(chosen)
        if len(slots) > max_hosts:
            slots = slots[np.argpartition(self._key[slots], max_hosts)[:max_hosts]]
        slots = slots[np.argsort(self._key[slots])]
        key = self._key[slots]
        return HostColumns(key >> _MAC_BITS, key & _MAC, self._vn[slots], self._since_s[slots], self._moved_from[slots])


def _key_of(host: Host) -> int:
    return host.vlan_vid << _MAC_BITS | host.mac
