"""Learns hosts from their frames; each counts toward the limit of its VN, and a full VN causes an event.

A host that moves, moves once, or returns once. A host that moves back and forth is at two ports at the same time: its
address was copied, or its links are bonded and the configuration has two ports for them. Where many hosts do so between
the same two ports, frames loop between these ports.
"""

from __future__ import annotations

import math
from collections import deque
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np

from controller.events import EventKind, EventLog
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding.forwarding_state import ForwardingState
from controller.forwarding.known_hosts import ReportedSources
from controller.forwarding.pairs import Host
from controller.forwarding.token_buckets import MOVE_BURST, MOVES_PER_S, TokenBuckets
from controller.openflow.ethernet import format_mac

# Minimum time between two events of a kind about one VN: hosts can cause them repeatedly.
REPEAT_EVENT_S = 60.0
# After this many frames of hosts that a full VN cannot learn, only frames to broadcast or group addresses are reported
# for a while, and after more of them none: they are useless, and delay reports of new pairs.
FOREIGN_BURST, CALLER_BURST, UNREPORTED_S = 20, 100, 10.0


WINDOW_S = 10.0
TURNS = 6
"""moves of a host between two ports within the window after which it counts as being at both; a router's takeover needs
fewer"""
HOSTS_OF_LOOP = 3
LOOP_EVENT_GAP_S = 60.0
MAX_PAIRS, MAX_HOSTS = 256, 16
"""maximum of remembered pairs and hosts, since any host can cause moves"""


class _Why(Enum):
    """Why an event of a VN is recorded."""

    FLAP = 0
    FILLED = 1
    MOVED_IN = 2
    ONE_TOO_MANY = 3


class VnEvents(Protocol):
    """What ``Learning`` needs to name VNs and record events; ``FabricState`` has it."""

    network: ForwardingState
    events: EventLog

    @property
    def vns(self) -> VnTable:
        """The VNs."""

    def note(self, kind: EventKind, text: str, now_s: float, *, vn: int) -> None:
        """Record an event of a VN (row)."""

    def vn_name(self, row: int) -> str:
        """Return a VN's name in text form."""

    def location_name(self, row: int) -> str:
        """Return a VN's location in text form."""


class TwoLocations(NamedTuple):
    """A finding about two VNs (rows, ascending): a loop between them, or this host in both."""

    rows: tuple[int, int]
    host: Host
    is_loop: bool


class Movers:
    """Records recent moves of hosts between VNs."""

    def __init__(self) -> None:
        # By two VNs (rows, ascending): moves of each host between them since ``_since_s``, and the last finding's time.
        self._turns: dict[tuple[int, int], dict[Host, int]] = {}
        self._since_s: dict[tuple[int, int], float] = {}
        self._reported_s: dict[tuple[int, int], float] = {}

    def moved(self, host: Host, before: int, after: int, now_s: float) -> TwoLocations | None:
        """Record a move of a host to another VN; return the resulting finding, once in LOOP_EVENT_GAP_S."""
        rows = (min(before, after), max(before, after))
        if now_s - self._since_s.get(rows, -math.inf) > WINDOW_S:
            self._discard_turns(rows)
            while len(self._turns) >= MAX_PAIRS:
                self._discard_turns(next(iter(self._turns)))
            self._turns[rows], self._since_s[rows] = {}, now_s
        turns = self._turns[rows]
        if host in turns or len(turns) < MAX_HOSTS:
            turns[host] = turns.get(host, 0) + 1
        if turns.get(host, 0) < TURNS or now_s - self._reported_s.get(rows, -math.inf) < LOOP_EVENT_GAP_S:
            return None
        while len(self._reported_s) >= MAX_PAIRS:
            del self._reported_s[next(iter(self._reported_s))]
        self._reported_s[rows] = now_s
        alternating_hosts = sum(count > 1 for count in turns.values())
        return TwoLocations(rows, host, alternating_hosts >= HOSTS_OF_LOOP)

    def _discard_turns(self, rows: tuple[int, int]) -> None:
        self._turns.pop(rows, None)
        self._since_s.pop(rows, None)


class Learning:
    """Adds hosts to the ``fabric``'s network."""

    def __init__(self, fabric: VnEvents, max_hosts: int) -> None:
        self._fabric, self._max_hosts = fabric, max_hosts
        self._moves = TokenBuckets(len(fabric.vns), MOVES_PER_S, MOVE_BURST)
        self._movers = Movers()
        self._logged_s: dict[tuple[_Why, int], float] = {}
        self._unlearned: dict[int, int] = {}  # by row: frames of hosts that a full VN cannot learn
        self._unreported: deque[tuple[float, int]] = deque()  # until when these VNs' unknown hosts are not reported

    def learn(self, host: Host, port: PortId, now_s: float, *, installed: bool) -> None:
        """Record where a host is; record an event if the host's VN is full.

        ``installed``: the switch's tables have flow entries of the host already. A host that moves counts toward the VN
        that it moves to. Where hosts move too often, moves are ignored.
        """
        fabric, known = self._fabric, self._fabric.network.known
        row = fabric.vns.row_of(host.vlan_vid, *port)
        if row is None:
            return
        before, mac, name = known.vn_of(host), format_mac(host.mac), fabric.vn_name(row)
        if before is not None and before != row:
            self._note_two_places(self._movers.moved(host, before, row, now_s), now_s)
            if not self._moves.consume(row, now_s):
                text = f"{name}: hosts move there too often, such as {mac}; moves are ignored"
                self._report(_Why.FLAP, EventKind.HOST_FLAPPING, text, row, now_s)
                return
        was_full = known.full(row)
        is_new = fabric.network.learn_host(host, port, now_s, installed=installed)
        if is_new:
            self._note_move(host, row, now_s)
        if is_new and known.full(row):
            has = f"{name} has {known.count[row]} hosts"
            if was_full:
                text = f"{has}, and may learn {self._max_hosts}; {mac} was known before it came there, and has a place"
                self._report(_Why.MOVED_IN, EventKind.HOST_LIMIT_REACHED, text, row, now_s)
            else:
                text = f"{has}, the most it may have; the last is {mac}"
                self._report(_Why.FILLED, EventKind.HOST_LIMIT_REACHED, text, row, now_s)
        elif was_full and host not in known:
            text = f"{name} may have {self._max_hosts} hosts; {mac} is one too many: frames to it are flooded"
            self._report(_Why.ONE_TOO_MANY, EventKind.HOST_LIMIT_REACHED, text, row, now_s)
            self._count_unlearned(row, now_s)

    def tick(self, now_s: float) -> None:
        """Report hosts of VNs again after their waiting time; call it every interval."""
        while self._unreported and self._unreported[0][0] <= now_s:
            _, row = self._unreported.popleft()
            del self._unlearned[row]
            self._fabric.network.of_hosts.set_reported_sources(row, ReportedSources.ALL)

    def _count_unlearned(self, row: int, now_s: float) -> None:
        """Count a frame of a host that a full VN cannot learn; stop such packet-ins if there are many."""
        count = self._unlearned[row] = self._unlearned.get(row, 0) + 1
        if count == FOREIGN_BURST:
            self._unreported.append((now_s + UNREPORTED_S, row))
            self._fabric.network.of_hosts.set_reported_sources(row, ReportedSources.CALLERS)
        elif count == CALLER_BURST:
            self._fabric.network.of_hosts.set_reported_sources(row, ReportedSources.NONE)

    def _note_move(self, host: Host, row: int, now_s: float) -> None:
        """Note that a host has moved to the VN of ``row``."""
        fabric = self._fabric
        moved_from = fabric.network.known.moved_from(host)
        if moved_from is None:
            return
        for named in fabric.events.limit_named(EventKind.HOST_MOVED, np.array([row]), now_s):
            places = f"from {fabric.location_name(moved_from)} to {fabric.location_name(named)}"
            text = f"{format_mac(host.mac)} of VLAN {host.vlan_vid} has moved {places}"
            fabric.note(EventKind.HOST_MOVED, text, now_s, vn=named)

    def _note_two_places(self, found: TwoLocations | None, now_s: float) -> None:
        """Note that a host alternates between two VNs: a loop, or two hosts with one address."""
        kind = EventKind.LOOP_SUSPECTED if found is not None and found.is_loop else EventKind.HOST_TWICE
        # It is one event, so one of both rows is enough for its limit.
        if found is None or not self._fabric.events.limit_named(kind, np.array(found.rows[:1]), now_s):
            return
        one, other = (self._fabric.location_name(row) for row in found.rows)
        if found.is_loop:
            text = f"VLAN {found.host.vlan_vid}: hosts are at {one} and at {other} by turns: these ports make a loop"
        else:
            text = f"VLAN {found.host.vlan_vid}: {format_mac(found.host.mac)} is at {one} and at {other} by turns: "
            text += "two hosts have this address, or its links are bonded (docs/switches.md)"
        self._fabric.note(kind, text, now_s, vn=found.rows[1])

    def _report(self, why: _Why, kind: EventKind, text: str, row: int, now_s: float) -> None:
        """Record an event of a VN, at most once in REPEAT_EVENT_S for each reason."""
        if now_s - self._logged_s.get((why, row), -math.inf) >= REPEAT_EVENT_S:
            self._logged_s[why, row] = now_s
            self._fabric.note(kind, text, now_s, vn=row)
