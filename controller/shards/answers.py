"""What a receivers' side answers: Set Rate and Keep Alive to the shard's own senders, Grants to peers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.messages import KeepAlive, SetRate, TrafficReport
from controller.policy.interface import Decision
from controller.shards.frames import Grants
from controller.shards.receiver_table import Pairs, ReceiverTable


class About(NamedTuple):
    """What is said of receivers, as in ``Grants``, (receivers,) each."""

    decided: IntArray
    senders: IntArray
    congested: BoolArray


@dataclass(frozen=True)
class Answers:
    """What was decided on the rows of ``table``, (rows,) each.

    ``rate_bps`` is NaN for rows that are not under control, ``changed`` says which have another rate than before,
    ``forfeits`` whose senders lose the bursts that they have saved.
    """

    table: ReceiverTable
    rate_bps: FloatArray
    changed: BoolArray
    forfeits: BoolArray

    @classmethod
    def of(
        cls, table: ReceiverTable, reports: TrafficReport, set_rate: SetRate, decisions: Iterable[Decision]
    ) -> Answers:
        """Return the answers to these reports, after these decisions."""
        rate_bps, changed = np.full(len(table.entries), np.nan), np.zeros(len(table.entries), dtype=np.bool_)
        everybody = len(reports.entry) == len(table.entries)
        rate_bps[slice(None) if everybody else reports.entry] = reports.limit_bps
        rate_bps[set_rate.entry] = set_rate.rate_bps
        changed[set_rate.entry] = True
        forfeits = np.zeros(len(table.entries), dtype=np.bool_)
        for decision in decisions:
            if decision.forfeits is not None:
                forfeits[decision.view.rows[decision.forfeits]] = True
        return cls(table, rate_bps, changed, forfeits)

    def to_own(self, own: IntArray) -> tuple[SetRate, KeepAlive]:
        """Return what the shard's own senders are told, whose rows of its entry table are ``own``."""
        here = self.table.places[0]
        own_bps, is_set = self.rate_bps[here], self.changed[here]
        return SetRate(own[is_set], own_bps[is_set]), KeepAlive(own[~is_set & ~np.isnan(own_bps)])

    def forfeits_of_own(self, own: IntArray) -> IntArray:
        """Return which of them lose their bursts, rows of the same."""
        return own[self.forfeits[self.table.places[0]]]

    def to_peers(self, about: About, said: Mapping[int, Pairs]) -> dict[int, Grants]:
        """Return what peers are told that reported these pairs, each a part of the table, in its order."""
        places = zip(said.items(), self.table.places[1:], strict=True)
        return {number: self._grants(about, pairs, at) for (number, pairs), at in places}

    def _grants(self, about: About, pairs: Pairs, at: IntArray) -> Grants:
        sender, receiver = pairs
        rate_bps, forfeits = self.rate_bps[at], self.forfeits[at]
        granted = ~np.isnan(rate_bps)
        if not granted.all():  # else the columns stay the arrays that they are
            sender, receiver = sender[granted], receiver[granted]
            rate_bps, forfeits = rate_bps[granted], forfeits[granted]
        return Grants(*about, sender, receiver, rate_bps, forfeits)


def to_the_silent(about: About) -> Grants:
    """Return what a peer is told that reports nothing: which receivers are congested."""
    nobody = np.empty(0, dtype=np.int64)
    return Grants(*about, nobody, nobody, np.empty(0), np.empty(0, dtype=np.bool_))
