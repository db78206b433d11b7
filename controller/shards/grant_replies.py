"""The receivers' side's answers: Set Rate and Keep Alive to local senders, Grant messages to peers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.messages import KeepAlive, SetRate, TrafficReport
from controller.node_protocol.message_types import GrantMessage
from controller.policy.interface import Decision
from controller.shards import shard_native
from controller.shards.receiver_table import ReceiverTable


class ReceiverStatus(NamedTuple):
    """The receivers' part of a Grant message, (receivers,) each."""

    decided: IntArray
    senders: IntArray
    congested: BoolArray


class PeerGrants(NamedTuple):
    """Grants of one peer: the ``rows`` of the grants of all."""

    whole: GrantMessage
    rows: IntArray

    def materialize(self) -> GrantMessage:
        """Return the grants as separate columns."""
        one, rows = self.whole, self.rows
        about = one.decided, one.senders, one.congested
        return GrantMessage(*about, one.sender[rows], one.receiver[rows], one.rate_bps[rows], one.forfeits[rows])


@dataclass(frozen=True)
class GrantReplies:
    """The decision on the rows of ``table``, (rows,) each.

    ``rate_bps`` is NaN for rows that are not under control; ``of_all``: there are no such rows. ``changed`` marks rows
    with a new rate, ``forfeits`` rows with senders that lose their saved bursts.
    """

    table: ReceiverTable
    rate_bps: FloatArray
    of_all: bool
    changed: BoolArray
    forfeits: BoolArray

    @classmethod
    def build(
        cls, table: ReceiverTable, reports: TrafficReport, set_rate: SetRate, decisions: Iterable[Decision]
    ) -> GrantReplies:
        """Return the answers to these reports, after these decisions."""
        entries, forfeits = len(table.entries), table.falses
        of_all = len(reports.entry) == entries
        if len(set_rate.entry) == entries:  # ascending, so that these are all rows
            rate_bps, changed = set_rate.rate_bps, table.trues
        elif of_all and shard_native.library is not None:
            rate_bps, changed = shard_native.granted(reports.limit_bps, set_rate.entry, set_rate.rate_bps)
        else:
            rate_bps, changed = np.full(entries, np.nan), np.zeros(entries, dtype=np.bool_)
            rate_bps[slice(None) if of_all else reports.entry] = reports.limit_bps
            rate_bps[set_rate.entry] = set_rate.rate_bps
            changed[set_rate.entry] = True
        for decision in decisions:
            if decision.forfeits is not None:
                forfeits = forfeits.copy() if forfeits is table.falses else forfeits
                forfeits[decision.view.rows[decision.forfeits]] = True
        return cls(table, rate_bps, of_all, changed, forfeits)

    @property
    def has_forfeits(self) -> bool:
        """Return whether some senders lose their bursts."""
        return self.forfeits is not self.table.falses and bool(self.forfeits.any())

    def for_local_senders(self, local_rows: IntArray) -> tuple[SetRate, KeepAlive]:
        """Return the messages to local senders; ``local_rows`` are their rows of the pair table."""
        here = self.table.part_rows[0]
        if self.changed is self.table.trues:
            return SetRate(local_rows, self.rate_bps[here]), KeepAlive(local_rows[:0])
        if shard_native.library is not None:
            moved, moved_bps, stay = shard_native.select_local(self.rate_bps, self.changed, here, local_rows)
            return SetRate(moved, moved_bps), KeepAlive(stay)
        local_bps = self.rate_bps[here]
        is_set = self.changed[here]
        return SetRate(local_rows[is_set], local_bps[is_set]), KeepAlive(local_rows[~is_set & ~np.isnan(local_bps)])

    def local_forfeits(self, local_rows: IntArray) -> IntArray:
        """Return the local pairs that lose their bursts, among ``local_rows``."""
        return local_rows[self.forfeits[self.table.part_rows[0]]] if self.has_forfeits else local_rows[:0]

    def for_peers(self, status: ReceiverStatus, peers: Sequence[int]) -> dict[int, PeerGrants]:
        """Return the Grant messages to these peers, in the order in which their reports are parts of the table."""
        entries = self.table.entries
        whole = GrantMessage(*status, entries.sender, entries.receiver, self.rate_bps, self.forfeits)
        places = self.table.part_rows[1:]
        rows = places if self.of_all else [at[~np.isnan(self.rate_bps[at])] for at in places]
        return {number: PeerGrants(whole, at) for number, at in zip(peers, rows, strict=True)}


def for_idle_peer(status: ReceiverStatus) -> PeerGrants:
    """Return the Grant message to a peer without reported pairs: the congested receivers."""
    nobody = np.empty(0, dtype=np.int64)
    return PeerGrants(GrantMessage(*status, nobody, nobody, np.empty(0), np.empty(0, dtype=np.bool_)), nobody)
