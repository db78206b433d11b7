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
    """The columns of receivers in a Grant message: the VNs, the number of senders, and the congested mask."""

    decided: IntArray
    senders: IntArray
    congested: BoolArray


class PeerGrants(NamedTuple):
    """Grants to one peer: the ``rows`` of ``whole``, the message with the grants to all peers."""

    whole: GrantMessage
    rows: IntArray

    def materialize(self) -> GrantMessage:
        """Return the grants as separate columns."""
        full, rows = self.whole, self.rows
        status = full.decided, full.senders, full.congested
        return GrantMessage(*status, full.sender[rows], full.receiver[rows], full.rate_bps[rows], full.forfeits[rows])


@dataclass(frozen=True)
class GrantReplies:
    """The decision on the rows of ``table``, (rows,) each.

    ``rate_bps`` is NaN for rows that are not under control; ``all_controlled``: there are no such rows. ``changed``
    marks rows with a new rate, ``forfeits`` rows with senders that lose their saved bursts.
    """

    table: ReceiverTable
    rate_bps: FloatArray
    all_controlled: bool
    changed: BoolArray
    forfeits: BoolArray

    @classmethod
    def build(
        cls, table: ReceiverTable, reports: TrafficReport, set_rate: SetRate, decisions: Iterable[Decision]
    ) -> GrantReplies:
        """Return the answers to these reports, after these decisions."""
        entries, forfeits = len(table.entries), table.falses
        all_controlled = len(reports.entry) == entries
        if len(set_rate.entry) == entries:  # ascending, so that these are all rows
            rate_bps, changed = set_rate.rate_bps, table.trues
        elif all_controlled and shard_native.library is not None:
            rate_bps, changed = shard_native.granted(reports.limit_bps, set_rate.entry, set_rate.rate_bps)
        else:  # reported rows keep their limit, unless Set Rate has another
            rate_bps, changed = np.full(entries, np.nan), np.zeros(entries, dtype=np.bool_)
            rate_bps[slice(None) if all_controlled else reports.entry] = reports.limit_bps
            rate_bps[set_rate.entry] = set_rate.rate_bps
            changed[set_rate.entry] = True
        for decision in decisions:
            if decision.forfeits is not None:
                forfeits = forfeits.copy() if forfeits is table.falses else forfeits
                forfeits[decision.view.rows[decision.forfeits]] = True
        return cls(table, rate_bps, all_controlled, changed, forfeits)

    @property
    def has_forfeits(self) -> bool:
        """Return whether some senders lose their bursts."""
        return self.forfeits is not self.table.falses and bool(self.forfeits.any())

    def for_local_senders(self, local_rows: IntArray) -> tuple[SetRate, KeepAlive]:
        """Return the messages to local senders; ``local_rows`` are their rows of the pair table.

        Pairs that are not under control get none.
        """
        positions = self.table.part_rows[0]
        if self.changed is self.table.trues:
            return SetRate(local_rows, self.rate_bps[positions]), KeepAlive(local_rows[:0])
        if shard_native.library is not None:
            columns = self.rate_bps, self.changed, positions, local_rows
            changed_rows, changed_bps, unchanged_rows = shard_native.select_local(*columns)
            return SetRate(changed_rows, changed_bps), KeepAlive(unchanged_rows)
        local_bps, changed = self.rate_bps[positions], self.changed[positions]
        unchanged = ~changed & ~np.isnan(local_bps)
        return SetRate(local_rows[changed], local_bps[changed]), KeepAlive(local_rows[unchanged])

    def local_forfeits(self, local_rows: IntArray) -> IntArray:
        """Return the local pairs that lose their bursts, among ``local_rows``."""
        return local_rows[self.forfeits[self.table.part_rows[0]]] if self.has_forfeits else local_rows[:0]

    def for_peers(self, status: ReceiverStatus, peers: Sequence[int]) -> dict[int, PeerGrants]:
        """Return the Grant messages to these peers, in the order in which their reports are parts of the table."""
        entries = self.table.entries
        whole = GrantMessage(*status, entries.sender, entries.receiver, self.rate_bps, self.forfeits)
        peer_rows = self.table.part_rows[1:]
        if not self.all_controlled:
            peer_rows = tuple(rows[~np.isnan(self.rate_bps[rows])] for rows in peer_rows)
        return {number: PeerGrants(whole, rows) for number, rows in zip(peers, peer_rows, strict=True)}


def for_idle_peer(status: ReceiverStatus) -> PeerGrants:
    """Return the Grant message to an unresponsive peer: the columns of receivers, and no rates."""
    no_rows = np.empty(0, dtype=np.int64)
    return PeerGrants(GrantMessage(*status, no_rows, no_rows, np.empty(0), np.empty(0, dtype=np.bool_)), no_rows)
