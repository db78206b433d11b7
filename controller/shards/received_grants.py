"""Grants that a shard's senders receive from peers: the congested receivers, and each sender's rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.messages import DeactivateTrafficControl, InitializeTrafficControl, SetRate
from controller.dets.send_rate_controller import MachineState, SendRateControllers
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.loop.control_step import cap_at_adopted
from controller.node_protocol.header import is_omitted
from controller.node_protocol.message_types import GrantMessage
from controller.shards import shard_native
from controller.shards.pair_partition import PairPartition
from controller.shards.peer import Peer
from controller.shards.peer_timeout import GRANT_HOLD_S, equal_share_bps

_LIMITED = np.int8(MachineState.LIMITED)


class PairsToPeer(NamedTuple):
    """The rows of the pairs to a peer, and their receivers.

    ``is_informed``: the peer has a Report about them from this shard.
    """

    rows: IntArray
    receivers: IntArray
    is_informed: bool


class ReceivedGrants:
    """The last message about each VN, (vns,) each: the ``congested`` mask, and the number of ``senders`` that share it.

    Only VNs that peers decide for are used.
    """

    def __init__(self, vns: int) -> None:
        self.congested = np.zeros(vns, dtype=np.bool_)
        self.senders = np.ones(vns, dtype=np.int64)
        self._forfeits = list[IntArray]()
        # The last limits of all pairs, and by peer the number of the Grant that equals those of the pairs to it.
        self._granted: tuple[FloatArray | None, dict[int, int]] = None, {}

    def drain_forfeits(self) -> list[IntArray]:
        """Return the rows of pairs that lose their saved bursts, and clear them."""
        rows, self._forfeits = self._forfeits, []
        return rows

    def apply(
        self,
        machines: SendRateControllers,
        entries: PairTable,
        adopted_bps: FloatArray | None,
        vns: VnTable,
        crossing: PairPartition,
        peers: Mapping[int, Peer],
        now_s: float,
    ) -> SendRateControllers:
        """Return the machines of ``entries`` after the grants that arrived since the last call.

        Pairs to a peer that has been unresponsive for GRANT_HOLD_S get at most an equal share. ``adopted_bps`` (pairs,)
        is as in ``ControlState``.
        """
        received, unresponsive, granted = list[PairsToPeer](), list[IntArray](), list[SetRate]()
        unchanged_rows = [crossing.local_rows]
        complete = dict[int, int]()  # by peer: the number of a Grant that has a rate for all pairs to the peer
        for number, peer in peers.items():
            grants = peer.drain_grants()
            if grants is not None:
                self._receive(peer, grants)
                received.append(
                    PairsToPeer(crossing.remote_rows[number], crossing.receivers[number], peer.has_local_report)
                )
                rows, grant_rows = crossing.granted(number, grants)
                granted.append(SetRate(rows, grants.rate_bps[grant_rows]))
                if rows is crossing.remote_rows[number]:
                    complete[number] = peer.granted
                if not is_omitted(grants.forfeits) and grants.forfeits.any():
                    self._forfeits.append(rows[grants.forfeits[grant_rows]])
                continue
            unchanged_rows.append(crossing.remote_rows[number])
            if GRANT_HOLD_S < peer.grant_age_s(now_s) < np.inf:  # infinite: it never granted a rate
                unresponsive.append(crossing.remote_rows[number])
        if received:
            machines = self.apply_grants(machines, entries, adopted_bps, vns, received, granted, unchanged_rows)
        if unresponsive:
            rows = np.concatenate(unresponsive)
            share_bps = equal_share_bps(vns, self.senders)[entries.receiver[rows]]
            above = machines.controlled[rows] & (machines.limit_bps[rows] > share_bps)
            machines = machines.on_set_rate(SetRate(rows[above], share_bps[above]))
        if adopted_bps is None and complete:  # adopted grants cap the rates, which then need not equal the Grant's
            limited = machines.control == _LIMITED  # the limit of any other pair is not its grant
            all_limited = limited.all()
            numbers = {
                to: number for to, number in complete.items() if all_limited or limited[crossing.remote_rows[to]].all()
            }
            self._granted = machines.limit_bps, numbers
        return machines

    def granted(self, machines: SendRateControllers, peer: int) -> int:
        """Return the number of the peer's Grant that equals the effective limits of all pairs to it; 0: none does."""
        limit_bps, numbers = self._granted
        return numbers.get(peer, 0) if limit_bps is machines.limit_bps else 0

    def apply_grants(
        self,
        machines: SendRateControllers,
        entries: PairTable,
        adopted_bps: FloatArray | None,
        vns: VnTable,
        received: Sequence[PairsToPeer],
        granted: Sequence[SetRate],
        unchanged_rows: Sequence[IntArray],
    ) -> SendRateControllers:
        """Return the machines after Grants of peers were received, one after another.

        ``received`` are the pairs to each of these peers; ``granted`` are the rates that each grants.
        ``unchanged_rows`` are the rows to local receivers and to peers without Grants.

        A new owner of a receiver may not know yet that the receiver is congested. So only a peer with this shard's
        Report can free senders.
        """
        must_control = self.congested | vns.always_controlled
        if adopted_bps is None and shard_native.library is not None:
            after = _apply_without_state_changes(machines, entries, must_control, received, granted, unchanged_rows)
            if after is not None:
                return after
        rows = np.concatenate([pairs.rows for pairs in received])
        was_controlled, is_controlled = machines.controlled[rows], must_control[entries.receiver[rows]]
        if adopted_bps is None:  # otherwise no pair is freed
            informed = np.repeat([pairs.is_informed for pairs in received], [len(pairs.rows) for pairs in received])
            freed = was_controlled & ~is_controlled & informed
            machines = machines.on_deactivate(DeactivateTrafficControl(rows[freed]))
        new = rows[is_controlled & ~was_controlled]
        machines = machines.on_initialize(InitializeTrafficControl(new))
        # Until the receiver's shard has replied, a new sender gets an equal share, as one more sender.
        new = new[~vns.always_controlled[entries.receiver[new]]]
        first = SetRate(new, equal_share_bps(vns, self.senders + 1)[entries.receiver[new]])
        # ``first`` comes first: where a peer has granted a rate already, that replaces the equal share.
        rows = np.concatenate([message.entry for message in (first, *granted)])
        rate_bps = np.concatenate([message.rate_bps for message in (first, *granted)])
        return machines.on_set_rate(cap_at_adopted(SetRate(rows, rate_bps), adopted_bps))

    def _receive(self, peer: Peer, grants: GrantMessage) -> None:
        """Store which of a peer's VNs are congested, and their numbers of senders."""
        if peer.has_local_report:
            self.congested[peer.decides] = False
        self.congested[grants.decided] = grants.congested
        self.senders[grants.decided] = grants.senders


def _apply_without_state_changes(
    machines: SendRateControllers,
    entries: PairTable,
    receivers_mask: BoolArray,
    received: Sequence[PairsToPeer],
    granted: Sequence[SetRate],
    unchanged_rows: Sequence[IntArray],
) -> SendRateControllers | None:
    """Fast path of ``apply_grants``: return the machines if no pair changes its state; otherwise None."""
    # The receivers at each peer that grants all pairs to it a rate.
    complete = [pairs.receivers for pairs, one in zip(received, granted, strict=True) if one.entry is pairs.rows]
    if not all(receivers_mask[receivers].all() for receivers in complete):
        return None
    before = (receivers_mask, entries.receiver, machines.control, machines.limit_bps, machines.intervals_since_message)
    parts = [(pairs.rows, one.entry, one.rate_bps) for pairs, one in zip(received, granted, strict=True)]
    after = shard_native.apply_grants((MachineState.IDLE, MachineState.LIMITED), before, parts, unchanged_rows)
    return None if after is None else SendRateControllers(machines.control, *after)
