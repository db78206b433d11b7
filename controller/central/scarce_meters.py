"""Which pairs get a meter where a switch has too few: those of congested receivers first, then the largest.

What a pair without a meter sends is not counted. What all of a VN's pairs without one send together is: it passed the
meter of the VN's send limit, and none of the pairs' meters. Each of them is taken to send an equal part of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from controller.central.pair_meters import PairMeters
from controller.central.state import FabricState
from controller.forwarding.pairs import Pair
from controller.switch.record import SwitchRecord

TURN_S = 1.0
MOST_AT_ONCE = 4  # at one switch in a turn: who has just got a meter has to be measured first
# A pair is as large as another one unless it sends so many times as much, and so much more.
LARGER, LARGER_BPS = 2.0, 100_000.0


class _Claim(NamedTuple):
    congested: bool
    rate_bps: float
    pair: Pair

    def beats(self, other: _Claim) -> bool:
        if self.congested != other.congested:
            return self.congested and self.rate_bps > 0.0
        return self.rate_bps > LARGER * other.rate_bps + LARGER_BPS


class ScarceMeters:
    """Passes meters on from pairs that need them less to pairs that need them more."""

    def __init__(self, fabric: FabricState, pairs: PairMeters) -> None:
        self._fabric, self._pairs = fabric, pairs
        self._turned_s = -np.inf

    def tick(self, now_s: float) -> None:
        """Look once in TURN_S at the switches that have too few meters; call it every interval."""
        if now_s - self._turned_s < TURN_S:
            return
        self._turned_s = now_s
        waiting: defaultdict[int, list[Pair]] = defaultdict(list)
        for pair in self._pairs.waiting():
            waiting[self._fabric.vns.key(pair.sender).dpid].append(pair)
        for dpid, pairs in waiting.items():
            record = self._fabric.switches[dpid]
            if record.connected and record.can.uses_meters and not record.meter_ids.available:
                self._turn(record, pairs)

    def _turn(self, record: SwitchRecord, pairs: list[Pair]) -> None:
        holding = sorted(self._holding(record))
        asking = sorted(self._asking(pairs), reverse=True)
        turns = list(zip(asking[:MOST_AT_ONCE], holding, strict=False))
        for claim, holder in turns:
            if claim.beats(holder):
                self._pairs.pass_on(holder.pair, claim.pair)

    def _holding(self, record: SwitchRecord) -> list[_Claim]:
        state, rows = self._fabric.state, record.metered_rows()
        sender, receiver = state.entries.sender[rows], state.entries.receiver[rows]
        columns = state.allocators.congested[receiver], state.measured.smoothed_bps[rows], sender, receiver
        return [_Claim(one, rate, Pair(*ends)) for one, rate, *ends in zip(*(c.tolist() for c in columns), strict=True)]

    def _asking(self, pairs: list[Pair]) -> list[_Claim]:
        fabric, state = self._fabric, self._fabric.state
        sent = np.bincount(state.entries.sender, state.measured.smoothed_bps, len(fabric.vns))
        left_bps = np.nan_to_num(fabric.send_limits.offered_bps - fabric.send_limits.dropped_bps) - sent
        sharers = Counter(pair.sender for pair in pairs)
        congested = state.allocators.congested
        return [
            _Claim(bool(congested[one.receiver]), max(float(left_bps[one.sender]), 0.0) / sharers[one.sender], one)
            for one in pairs
        ]
