"""Partition of a shard's local pairs by their receiver's shard, local or remote.

The partition is cached while pairs and owners stay. So an interval's message to a peer usually has the same rows as
before, and grants find their rows at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from controller.columns import BoolArray, Int16Array, IntArray
from controller.dets.send_rate_controller import ControlArray, MachineState
from controller.fabric.pair_table import PairTable
from controller.metering.measurement import IDLE_INTERVALS
from controller.node_protocol.message_types import GrantMessage
from controller.shards import shard_native
from controller.shards.receiver_table import Pairs, match_pairs


@dataclass(frozen=True)
class PairPartition:
    """``local_rows`` are the rows of ``entries`` with receivers that this shard decides for; ``local_pairs``: the ends.

    ``remote_mask`` (pairs,) marks all other rows; nobody may decide for their receivers. ``remote_rows`` are the rows,
    ascending, with receivers that each peer decides for, ``receivers`` these receivers.
    """

    entries: PairTable
    local_rows: IntArray
    local_pairs: Pairs
    remote_mask: BoolArray
    remote_rows: Mapping[int, IntArray]
    receivers: Mapping[int, IntArray]
    # By peer: its last grants, and what ``granted`` returned for them.
    _granted: dict[int, tuple[GrantMessage, IntArray, IntArray | slice]] = field(default_factory=dict)

    @classmethod
    def build(cls, entries: PairTable, local_mask: BoolArray, owns: Mapping[int, BoolArray]) -> PairPartition:
        """Return the partition for the VNs that this shard (``local_mask``) and each peer (``owns``) decide for.

        The masks have shape (vns,).
        """
        local_rows = np.flatnonzero(local_mask[entries.receiver])
        remote_rows = {peer: np.flatnonzero(mask[entries.receiver]) for peer, mask in owns.items()}
        local_pairs = entries.sender[local_rows], entries.receiver[local_rows]
        receivers = {peer: np.unique(entries.receiver[rows]) for peer, rows in remote_rows.items()}
        return cls(entries, local_rows, local_pairs, ~local_mask[entries.receiver], remote_rows, receivers)

    def reportable_rows(self, control: ControlArray, silent_intervals: Int16Array) -> dict[int, IntArray]:
        """Return the rows to report to each peer: the pairs under control, and the pairs with traffic.

        If these are all rows to the peer, the same array as before is returned. ``control`` and ``silent_intervals``
        are (pairs,) columns of ``SendRateControllers`` and ``Measurement``.
        """
        return {number: _reportable_rows(rows, control, silent_intervals) for number, rows in self.remote_rows.items()}

    @cached_property
    def all_rows(self) -> IntArray:
        """The rows of all pairs."""
        return np.arange(len(self.entries))

    def granted(self, peer: int, grants: GrantMessage) -> tuple[IntArray, IntArray | slice]:
        """Return the rows of the pairs that a peer grants a rate, and their rows in ``grants``.

        The peer may grant rates to pairs that have ended since its last report. If all pairs to the peer have a rate,
        the first result is the array of ``remote_rows`` itself. Equal pairs are matched once.
        """
        cached = self._granted.get(peer)
        if cached is None or cached[0].sender is not grants.sender or cached[0].receiver is not grants.receiver:
            peer_rows, entries = self.remote_rows[peer], self.entries
            pairs = PairTable(entries.sender[peer_rows], entries.receiver[peer_rows], entries.meter_id[peer_rows])
            matched, grant_rows = match_pairs(pairs, grants)
            rows = peer_rows if len(matched) == len(peer_rows) else peer_rows[matched]
            all_match = len(grant_rows) == len(grants.sender)
            cached = self._granted[peer] = grants, rows, slice(None) if all_match else grant_rows
        return cached[1], cached[2]


def _reportable_rows(rows: IntArray, control: ControlArray, silent_intervals: Int16Array) -> IntArray:
    """Return the ``rows`` of pairs under control or with traffic; if all are, the same array."""
    settings = int(MachineState.IDLE), IDLE_INTERVALS
    if shard_native.library is not None and shard_native.all_reportable(*settings, rows, control, silent_intervals):
        return rows
    reportable = (control[rows] != MachineState.IDLE) | (silent_intervals[rows] < IDLE_INTERVALS)
    return rows if reportable.all() else rows[reportable]
