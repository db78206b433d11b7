"""Hosts behind other nodes' switches, received in messages and applied in batches."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

from controller.fabric.vn_table import VnTable
from controller.forwarding.forwarding_state import ForwardingState
from controller.forwarding.pairs import Host
from controller.node_protocol.host_update import HostUpdateHeader, VnHosts
from controller.partition.host_publisher import MAX_IN_FLIGHT, HostPublisher

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class _Vn(NamedTuple):
    """The hosts of a VN: by address, the number of the change that placed each there."""

    row: int
    learned: dict[int, int]


@dataclass
class _PendingUpdate:
    """A message that is being applied: its remaining ``vns``, and the number up to which it is complete.

    Hosts placed after the number ``since`` are new. ``local_number`` is this node's own change number at its arrival.
    """

    since: int
    until: int
    local_number: int
    vns: Iterator[_Vn]


@dataclass
class HostSubscription:
    """Host updates from one peer: ``known`` is the last applied number, of the incarnation ``token``."""

    token: int = 0
    known: int = 0
    pending: deque[_PendingUpdate] = field(default_factory=deque)

    def receive(self, head: HostUpdateHeader, hosts: VnHosts, local_incarnation: int) -> None:
        """Accept a message that continues the last one; others will be retransmitted.

        ``local_incarnation`` is the number of this node's own last change.
        """
        if head.token != self.token:
            self.token, self.known, self.pending = head.token, 0, deque()
        until = self.pending[-1].until if self.pending else self.known
        if head.since <= until < head.until and len(self.pending) < MAX_IN_FLIGHT:
            self.pending.append(_PendingUpdate(until, head.until, local_incarnation, _vns(hosts)))


def _vns(hosts: VnHosts) -> Iterator[_Vn]:
    rest = zip(hosts.mac.tolist(), hosts.learned.tolist(), strict=True)
    for row, count in zip(hosts.vn.tolist(), hosts.hosts.tolist(), strict=True):
        yield _Vn(row, dict(islice(rest, count)))


class RemoteHosts:
    """Adds hosts behind other nodes' switches to a ``network``; ``publisher`` tells other nodes this node's hosts.

    A host that two nodes claim has moved: the newer claim wins. The other claim is remembered until its node withdraws
    it, and counts again if the host is forgotten before that.
    """

    def __init__(self, network: ForwardingState, vns: VnTable, publisher: HostPublisher) -> None:
        self._network, self._vns, self._publisher = network, vns, publisher
        self._claims: defaultdict[Host, set[int]] = defaultdict(set)  # the VNs (rows) at which other nodes claim a host
        self._claimed: defaultdict[int, set[Host]] = defaultdict(set)  # the same claims by row
        self._removed: list[Host] = []
        self.new_hosts: list[Host] = []
        self.now_s = math.nan  # the time of the last message

    def note_changes(self, local_dpids: frozenset[int]) -> None:
        """Process changes of hosts; ``local_dpids`` are the dpids of this node's switches."""
        for change in self._network.drain_host_changes():
            self._publisher.note(change)
            # The node of the earlier place claims the host until it withdraws that; a present place needs no claim.
            if change.before is not None and self._vns.key(change.before).dpid not in local_dpids:
                self._claim(change.host, change.before)
            if change.after is None:
                self._removed.append(change.host)
            else:
                self._unclaim(change.host, change.after)

    def restore_hosts(self, local_dpids: frozenset[int]) -> None:
        """Restore forgotten hosts that another node still claims."""
        while self._removed:
            host = self._removed.pop()
            if host in self._claims and not self._network.knows(host):
                self._place(host, max(self._claims[host]))  # any of the claims
                self.note_changes(local_dpids)

    def withdraw_claims(self, rows: list[int]) -> None:
        """Withdraw all claims on hosts of these VNs."""
        for row in rows:
            for host in list(self._claimed.get(row, ())):
                self._unclaim(host, row)

    def apply(self, words: _PendingUpdate, vn: _Vn, local_dpids: frozenset[int]) -> int:
        """Apply the update of one VN, ``vn``, of the message ``words``; return how many hosts came or went."""
        network, vid = self._network, self._vns.key(vn.row).vlan_vid
        claimed = {Host(vid, mac): number for mac, number in vn.learned.items()}
        gone = [host for host in network.hosts_of_vn(vn.row) if host not in claimed]
        for host in gone:
            network.leave(host, self.now_s)
        self.note_changes(local_dpids)  # makes claims of this VN, which are withdrawn next
        for host in [host for host in self._claimed.get(vn.row, ()) if host not in claimed]:
            self._unclaim(host, vn.row)
        changed = len(gone)
        for host, number in claimed.items():
            at = network.vn_of(host)
            if at == vn.row:
                continue
            # The message has moved the host, and this node has not placed it at one of its own switches since.
            if at is None or (number > words.since and self._publisher.learned(host) <= words.local_number):
                self._place(host, vn.row)
                changed += 1
            else:
                self._claim(host, vn.row)
        self.note_changes(local_dpids)
        self.restore_hosts(local_dpids)
        return changed

    def _place(self, host: Host, row: int) -> None:
        self._network.place_remote_host(host, row, self.now_s)
        self.new_hosts.append(host)

    def _claim(self, host: Host, row: int) -> None:
        self._claims[host].add(row)
        self._claimed[row].add(host)

    def _unclaim(self, host: Host, row: int) -> None:
        _discard(self._claims, host, row)
        _discard(self._claimed, row, host)


def _discard(index: dict[_Key, set[_Value]], key: _Key, value: _Value) -> None:
    values = index.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del index[key]
