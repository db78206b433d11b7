"""Hosts that are seen at two edge ports by turns: one address in two places, or two ports that are joined to a loop.

A host that moves, moves once, or comes back once. One that goes to and fro is at both ports at the same time: somebody
has copied its address, or its links are bonded and the configuration has two ports for them. Where many hosts do so
between the same two ports, what leaves by one comes back by the other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from controller.forwarding.pairs import Host

WINDOW_S = 10.0
TURNS = 6
"""times that a host moves between two ports in the window until it is at both: a router's takeover needs fewer"""
HOSTS_OF_LOOP = 3
TOLD_EVERY_S = 60.0
MOST_PAIRS, MOST_HOSTS = 256, 16
"""that are kept in mind: anybody can make hosts move"""


class TwoPlaces(NamedTuple):
    """What was found of two VNs (rows, ascending): a loop, or this host in both."""

    rows: tuple[int, int]
    host: Host
    is_loop: bool


class Movers:
    """Remembers who moved between which VNs lately."""

    def __init__(self) -> None:
        self._turns: dict[tuple[int, int], dict[Host, int]] = {}
        self._since_s: dict[tuple[int, int], float] = {}
        self._told_s: dict[tuple[int, int], float] = {}

    def moved(self, host: Host, before: int, after: int, now_s: float) -> TwoPlaces | None:
        """A host was seen at another VN (row) than before; return what that shows, once in TOLD_EVERY_S."""
        rows = (min(before, after), max(before, after))
        if now_s - self._since_s.get(rows, -math.inf) > WINDOW_S:
            self._forget(rows)
            while len(self._turns) >= MOST_PAIRS:
                self._forget(next(iter(self._turns)))
            self._turns[rows], self._since_s[rows] = {}, now_s
        turns = self._turns[rows]
        if host in turns or len(turns) < MOST_HOSTS:
            turns[host] = turns.get(host, 0) + 1
        if turns.get(host, 0) < TURNS or now_s - self._told_s.get(rows, -math.inf) < TOLD_EVERY_S:
            return None
        while len(self._told_s) >= MOST_PAIRS:
            del self._told_s[next(iter(self._told_s))]
        self._told_s[rows] = now_s
        to_and_fro = sum(count > 1 for count in turns.values())
        return TwoPlaces(rows, host, to_and_fro >= HOSTS_OF_LOOP)

    def _forget(self, rows: tuple[int, int]) -> None:
        self._turns.pop(rows, None)
        self._since_s.pop(rows, None)
