"""One shard: an interval of the switches that one node owns, in three phases, with messages of peers between them.

It is the senders' and the grants' side of the pairs that send behind its switches, and the receivers' side of the pairs
that receive there. The exception are network-wide policies: one shard, the allocator, is the receivers' side of all
their pairs (network_allocation.py). Decisions for local senders stay local: without peers an interval is
``control_step``. A shard is the ``RemoteSide`` of that step.

1) ``report``: meters are read. Peers get Report messages about traffic to their VNs. The allocator gets the readings of
   queues, ports and marks (``encode_readings``).
2) ``decide``: local and peers' reports are merged, limits are shared, and local senders apply the answers. Peers get
   Grants.
3) ``enforce``: local senders apply the peers' grants. Meters follow.

After the second phase the allocator gets the cross traffic on links (``encode_link_usage``).

A message may arrive at any time (``receive``), and counts from the next phase on: a cross-shard pair is decided at once
if the messages arrive within the interval, otherwise an interval later in each direction. Active senders are reported
before their receiver is congested, so that they come under control in the same interval as the receiver's local
senders.

If a peer is unresponsive:

- The grants of its receivers stay. After GRANT_HOLD_S they fall to an equal share of the receive limit, if they are
  higher.
- Before the peer's first report no grant rises above the effective limit, and no congestion ends, for at most
  GRANT_HOLD_S, because the peer may have senders. A receiver of limited senders in this report is congested.
- A receiver's shard that has no Report from this shard yet cannot free its senders.
- The peer's senders count as in its last report, and their grants stay reserved; after GRANT_HOLD_S an equal share is
  reserved.

Deviation: the paper's senders are unlimited again after a time without messages. Here the failure of a node would free
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, IntArray
from controller.dets.messages import InitializeTrafficControl, KeepAlive, ReceiverLoads, SetRate, TrafficReport
from controller.dets.rate_allocator import IntervalContext
from controller.dets.send_rate_controller import SendRateControllers, traffic_reports
from controller.errors import InvalidValueError
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.loop import control_step
from controller.loop.control_step import ControlState
from controller.loop.receiver_side import ReceiverSide
from controller.loop.remote_side import ReceiverInput, RemoteSide, SenderMessages
from controller.loop.sender_side import SenderSide
from controller.metering.counters import Readings
from controller.metering.fabric_readings import FabricReadings, ReadingKind
from controller.node_protocol.bundle import Bundle
from controller.node_protocol.header import Octets, fabric_digest
from controller.node_protocol.message_types import LinkUseMessage, OmittedColumns, ReportMessage
from controller.node_protocol.rejection import MessageRejectedError
from controller.policy.policy_groups import PolicyGroup, need_headroom
from controller.policy.shardability import check_shardable
from controller.shards.grant_replies import GrantReplies, PeerGrants, ReceiverStatus, for_idle_peer
from controller.shards.merged_reports import MergedReports, add_loads
from controller.shards.network_allocation import link_usage, network_wide_mask, sum_link_usage
from controller.shards.outbox import Outbox
from controller.shards.pair_partition import PairPartition
from controller.shards.peer import Peer, ShardScope
from controller.shards.peer_timeout import GRANT_HOLD_S, capacity_without_silent_peers
from controller.shards.readings_exchange import local_readings, merge_readings, with_readings
from controller.shards.received_grants import ReceivedGrants
from controller.shards.receiver_table import Pairs, ReceiverTable

NO_OWNER = -1
"""the owner of VNs that are unowned"""


class Shard(RemoteSide):
    """The VNs with ``owner`` (vns,) equal to ``number``; every other owner is a peer, except NO_OWNER.

    ``token`` grows with every change of the shard's owner. ``links`` are the names of links, equal for all shards.
    ``state`` has the local senders' pairs; it may be replaced between intervals, and so may ``vns`` by a table with the
    same VNs. Raises InvalidValueError for policies that cannot be sharded, and for receivers without a queue.
    """

    def __init__(
        self,
        vns: VnTable,
        groups: tuple[PolicyGroup, ...],
        owner: IntArray,
        number: int,
        token: int,
        interval_s: float,
        links: Sequence[str] = (),
    ) -> None:
        for group in groups:
            check_shardable(group.policy)
        if not vns.has_queue.all():
            row = int(np.flatnonzero(~vns.has_queue)[0])
            raise InvalidValueError("queues", vns.key(row), "has no queue, and its senders share a receive budget")
        self.vns, self.groups, self._number_of_shard = vns, groups, number
        self._interval_s, self._links, self._owners = interval_s, tuple(links), b""  # ``_owners``: the owners' digest
        self.scope, self._outbox = np.zeros(len(vns), dtype=np.bool_), Outbox()
        # (vns,) masks: the VNs for which this shard decides, and those of ``_kinds``.
        self.decided_mask, self._wide, self._no_shares = self.scope, *_kinds(groups, len(vns))
        self._owner, self.allocator = owner, NO_OWNER
        self.peers: dict[int, Peer] = {}
        self._reporting: set[int] = set()  # the peers whose reports have counted since owners changed
        self.state = ControlState.start(vns, groups)
        self._received_grants, self._began_s = ReceivedGrants(len(vns)), np.inf  # ``_began_s``: of the first interval
        self._memories = self._nothing = self.state.allocators.memories  # the policies' states, and their initial ones
        self._table = ReceiverTable.from_parts([])
        self._crossing: PairPartition | None = None
        self._granted: dict[int, PeerGrants] = {}  # the last grants to each peer
        self._read_result: control_step.ReadResult | None = None
        self._decide_result: control_step.DecideResult | None = None
        self._local_report: tuple[TrafficReport, int] | None = (
            None  # the local senders' reports, and their omitted columns
        )
        self._counted = np.zeros(len(vns), dtype=np.int64)  # (vns,) the number of senders that share each receiver
        self._answers: GrantReplies | None = None
        self._use: LinkUseMessage | None = None
        self.repartition(owner, token)

    def repartition(
        self, owner: IntArray, token: int, allocator: int | None = None, owners_digest: bytes = b""
    ) -> None:
        """Set the VNs' new owners; call it between intervals.

        ``allocator`` decides for network-wide policies; None: the owner of the first VN with an owner.
        ``owners_digest`` represents the owners that every shard knows. Shards with different owners reject each other's
        messages: the node that learns of a new owner last sends its reports to the old owner until then, and the new
        owner must not decide without them. VNs that this shard has decided for until now stay congested, if they were,
        until a peer's first Grant. Policies begin again, and the peers' reports are forgotten; the caller must freeze
        grants until all is known again (``with_frozen_grants``).
        """
        if allocator is None:
            allocator = next((one for one in owner.tolist() if one != NO_OWNER), NO_OWNER)
        self._owner, self.allocator, self._owners = owner, allocator, owners_digest
        fabric = fabric_digest(self.vns, self._links, owners_digest)
        self._outbox.set_identity(token, fabric)
        self._received_grants.congested = np.where(
            self.decided_mask, self.state.allocators.congested, self._received_grants.congested
        )
        decider = np.where(self._wide, allocator, owner)
        self.scope, self.decided_mask = (np.equal(column, self._number_of_shard) for column in (owner, decider))
        wide = self.is_network_wide
        local_scope = ShardScope(self.scope, self.decided_mask, wide and allocator == self._number_of_shard)
        peer_numbers = sorted({*owner.tolist(), allocator} - {self._number_of_shard, NO_OWNER})
        before_peers, self.peers = self.peers, {}
        for number in peer_numbers:
            peer_scope = ShardScope(np.equal(owner, number), np.equal(decider, number), wide and allocator == number)
            peer = before_peers.get(number) or Peer(peer_scope, local_scope, fabric, self._interval_s, len(self._links))
            peer.repartition(peer_scope, local_scope, fabric)
            self.peers[number] = peer
        self._granted, self._began_s, self._crossing, self._use = {}, np.inf, None, None
        self._reporting = set()
        self._received_grants.drain_forfeits()  # those of other owners of receivers are void
        self.reset_policies()

    def reset_policies(self) -> None:
        """Let policies begin again, because they have learned from a part of the senders only."""
        self._memories = self._nothing

    def set_policies(self, groups: tuple[PolicyGroup, ...]) -> None:
        """Set new policies or parameters of VLANs: all begin again. Raises InvalidValueError."""
        for group in groups:
            check_shardable(group.policy)
        self.groups = groups
        self._memories = self._nothing = ControlState.start(self.vns, groups).allocators.memories
        before = self._wide
        self._wide, self._no_shares = _kinds(groups, len(self.vns))
        if not np.array_equal(before, self._wide):
            self.repartition(self._owner, self._outbox.token, self.allocator, self._owners)

    @property
    def is_network_wide(self) -> bool:
        """Return whether some VLAN's policy is network-wide."""
        return bool(self._wide.any())

    def receive(self, peer: int, data: Octets, now_s: float) -> MessageRejectedError | None:
        """Receive a message of a peer; return why it was rejected, None if it was accepted."""
        return self.peers[peer].receive(data, now_s)

    def report(self, readings: Readings, now_s: float) -> dict[int, Octets]:
        """Begin an interval: read the local meters; return a Report message for each peer."""
        self._outbox.begin_interval(self.peers)
        self._began_s = min(self._began_s, now_s)
        self.state = self.state._replace(machines=self._obey(self.state.machines, now_s))
        vns, crossing, entries = self.vns, self._crossing_now(), self.state.entries
        senders, loads = control_step.read(self.state, vns, self.groups, readings, now_s, self)
        if self.is_network_wide:
            # The allocator gets reports of all pairs that are always under control, without an Initialize.
            begins = crossing.remote_mask & vns.always_controlled[entries.receiver] & ~senders.machines.controlled
            machines = senders.machines.on_initialize(InitializeTrafficControl(np.flatnonzero(begins)))
            senders = senders._replace(machines=machines)
        reports = traffic_reports(senders.machines, crossing.all_rows, entries, vns, senders.seen.measured)
        left = self._left(senders, reports)
        self._read_result, self._local_report = control_step.ReadResult(senders, loads), (reports, left)
        silent_intervals = senders.seen.measured.silent_intervals
        rows_by_peer = crossing.remote_rows  # if all pairs are active, all rows are reported
        if not left & OmittedColumns.ACTIVE:
            rows_by_peer = crossing.reportable_rows(senders.machines.control, silent_intervals)
        unread = senders.seen.unread_intervals
        # In the order of ReportMessage's fields; an omitted column need not have the message's type.
        columns: list[NDArray[Any]] = [
            entries.sender,
            entries.receiver,
            reports.measured_bps,
            reports.dropped_bps,
            reports.limit_bps,
            reports.available_bps,
            senders.seen.measured.passed_bps,
            unread if left & OmittedColumns.UNREAD else unread.astype(np.int64),
            reports.drops,
            reports.active,
        ]
        # By peer: the number of its Grant that equals the limits of all pairs to it; 0: none does.
        limits = {
            number: self._received_grants.granted(senders.machines, number)
            if rows is crossing.remote_rows[number]
            else 0
            for number, rows in rows_by_peer.items()
        }
        return self._outbox.write_reports(self.peers, loads, columns, rows_by_peer, left, limits, now_s)

    def _left(self, senders: SenderSide, reports: TrafficReport) -> int:
        """Return the columns of pairs that can be omitted, since all pairs have the same value or nobody needs them."""
        unread = bool(senders.seen.unread_intervals.max(initial=0))
        left = OmittedColumns.NONE if unread else OmittedColumns.UNREAD
        left |= OmittedColumns.ACTIVE if reports.active.all() else OmittedColumns.NONE
        return left | OmittedColumns.AMOUNTS

    def encode_readings(self, observed: FabricReadings | None, now_s: float) -> dict[int, list[Octets]]:
        """Return messages for the allocator, if it is a peer: local readings of queues, ports and marks.

        Call it after ``report`` and before ``decide``.
        """
        peer = self.peers.get(self.allocator)
        if peer is None or observed is None or not self.is_network_wide:
            return {}
        read = local_readings(observed, self.scope)
        return {self.allocator: [self._outbox.write(self.allocator, peer, frame, now_s) for frame in read]}

    def decide(
        self, now_s: float, links: LinkTable | None = None, observed: FabricReadings | None = None
    ) -> dict[int, Octets]:
        """Share the receivers' limits; return a message for each peer. Call it after ``report``.

        ``links`` are the links of the whole fabric; None: access links only. ``observed`` are the readings of local
        switches; None: no policy uses them.
        """
        assert self._read_result is not None
        self._decide_result = control_step.decide(
            self._read_result, self.state, self.vns, self.groups, now_s, links, observed, self
        )
        return self._encode_grants(self._decide_result.receivers.allocators.congested, now_s)

    def _encode_grants(self, congested: BoolArray, now_s: float) -> dict[int, Octets]:
        """Return a Grant message for each peer: the receivers that control their senders, and the peer's pairs' rates.

        ``congested`` (vns,) is the mask of congested receivers. An unresponsive peer gets no rates.
        """
        assert self._answers is not None
        answers, senders = self._answers, self._counted
        controls_senders = congested | (self.vns.always_controlled & (senders > 0))
        decided = np.flatnonzero(self.decided_mask & controls_senders)
        status = ReceiverStatus(decided, np.maximum(senders[decided], 1), congested[decided])
        grants_by_peer = answers.for_peers(status, list(self._live(now_s)))
        self._granted |= grants_by_peer
        to_unresponsive, frames = for_idle_peer(status), {}
        omitted = OmittedColumns.NONE if answers.has_forfeits else OmittedColumns.FORFEITS
        for number, peer in self.peers.items():
            grants = grants_by_peer.get(number, to_unresponsive)
            if number in grants_by_peer:
                peer.record_grant(self._outbox.number, answers.rate_bps, grants.rows)
            frames[number] = self._outbox.write(number, peer, grants.whole, now_s, grants.rows, omitted)
        return frames

    # -- the remote side in ``read`` and ``decide``

    def crosses(self, entries: PairTable) -> BoolArray:  # noqa: D102
        return self._crossing_now().remote_mask

    def with_loads(self, loads: ReceiverLoads) -> ReceiverLoads:  # noqa: D102
        add_loads(loads, [peer.report for peer in self.peers.values() if peer.report is not None])
        return loads

    def watched(self, receivers: ReceiverSide, now_s: float) -> ReceiverSide:
        """Return the receivers' side with the policies' states for the table of all pairs to local receivers.

        The table is built here; ``view`` returns input for its rows.
        """
        self._merge(self._crossing_now().local_pairs, list(self._live(now_s).values()))
        allocators = receivers.allocators
        # The rates of peers' receivers are unknown here: they do not count as calm when they become local.
        calm_mask = self.decided_mask & (not self._lacks_peers(now_s))
        calm_intervals = np.where(calm_mask, allocators.calm_intervals, 0)
        congested = np.where(self.decided_mask, allocators.congested, self._received_grants.congested)
        reporting = {number for number, peer in self.peers.items() if peer.report is not None}
        are_frozen = self.state.adopted_bps is not None  # grants, as after a change of owners
        congested |= self._held_by(reporting if are_frozen else reporting - self._reporting)
        self._reporting = reporting
        allocators = allocators._replace(congested=congested, calm_intervals=calm_intervals, memories=self._memories)
        return receivers._replace(allocators=allocators)

    def local_rows(self, rows: IntArray) -> IntArray:  # noqa: D102
        return rows[~self._crossing_now().remote_mask[rows]]

    def view(self, senders: SenderSide, receivers: ReceiverSide, vns: VnTable, seen: IntervalContext) -> ReceiverInput:
        """Return the input of the receivers' side: reports of local senders and of responsive peers.

        ``seen`` is the policies' further input for local pairs; the result has it for all pairs to local receivers.
        Capacities in the result lack what is reserved for senders of unresponsive peers. ``_counted`` becomes the
        number of senders of each receiver, with those.
        """
        assert self._local_report is not None
        (local_report, omitted), table, live = self._local_report, self._table, self._live(seen.now_s)
        # All pairs to receivers that control their senders count as under control: Initialize, at least, is in flight.
        controlled = table.controlled_rows(receivers.allocators.congested | vns.always_controlled)
        omitted &= ~OmittedColumns.AMOUNTS if self.is_network_wide else -1  # network-wide policies use the amounts
        merged = MergedReports.build(
            table, self._crossing_now().local_rows, senders, local_report, list(live.values()), omitted
        )
        reports, observed = merged.reports(controlled), seen.observed
        links = (seen.links or LinkTable.access_links(vns)) if self.is_network_wide else None
        seen = merged.interval_context(seen)
        remaining = capacity_without_silent_peers(self.peers, self._granted, vns, links, seen.now_s, self._no_shares)
        if links is not None and remaining.links is not None:
            seen = self._network_context(merged, seen, links, remaining.links)
            if observed is not None and self.allocator == self._number_of_shard:
                # The allocator's policies use the readings of all shards; those of unresponsive peers are old.
                unresponsive = [peer.owns for number, peer in self.peers.items() if number not in live]
                readings = merge_readings(observed, self.scope, self.peers.values(), len(table.entries))
                seen = with_readings(seen, readings, table.entries.receiver, unresponsive)
        self._counted = remaining.senders + table.senders(reports.entry, len(vns))
        self._received_grants.senders = np.where(
            self.decided_mask, np.maximum(self._counted, 1), self._received_grants.senders
        )
        return ReceiverInput(table.entries, remaining.vns, reports, seen)

    def answered(
        self, view: ReceiverInput, receivers: ReceiverSide, set_rate: SetRate, keep_alive: KeepAlive
    ) -> tuple[ReceiverSide, SenderMessages]:
        """Return the messages to local senders, and store the answers to peers and the policies' states."""
        allocators, local_rows = receivers.allocators, self._crossing_now().local_rows
        self._memories = allocators.memories
        if self._lacks_peers(view.seen.now_s):
            set_rate = _not_above(set_rate, view.reports)
            self._memories = self._nothing  # learned from part of the senders only
        self._answers = answers = GrantReplies.build(self._table, view.reports, set_rate, allocators.decisions)
        congested = np.where(self.decided_mask, allocators.congested, self._received_grants.congested)
        # States and decisions have the rows of ``_table``; ``state`` must have those of local senders' pairs only.
        allocators = allocators._replace(congested=congested, memories=self._nothing, decisions=())
        messages = SenderMessages(*answers.for_local_senders(local_rows), answers.local_forfeits(local_rows))
        return receivers._replace(allocators=allocators), messages

    # -- the end of an interval

    def encode_link_usage(self, now_s: float) -> dict[int, Octets]:
        """Return a message for the allocator, if it is a peer. Call it after ``decide``."""
        peer = self.peers.get(self.allocator)
        if peer is None or self._use is None:
            return {}
        return {self.allocator: self._outbox.write(self.allocator, peer, self._use, now_s)}

    def drain_messages(self) -> dict[int, Bundle]:
        """Return all messages of the interval, one bundle for each peer, and clear them."""
        return self._outbox.drain()

    def enforce(self, now_s: float) -> control_step.StepResult:
        """End an interval: apply the grants of local receivers and of peers. Call it after ``decide``."""
        decided = self._decide_result
        assert decided is not None
        senders = decided.senders._replace(machines=self._obey(decided.senders.machines, now_s))
        forfeits = np.concatenate([decided.messages.forfeits, *self._received_grants.drain_forfeits()])
        decided = decided._replace(senders=senders, messages=decided.messages._replace(forfeits=forfeits))
        self.state, result = control_step.enforce(decided, self.state, self.vns, now_s)
        self._read_result = self._decide_result = None
        return result

    @property
    def remote_senders(self) -> IntArray:
        """Return the number of each VN's senders at other shards, by the peers' last messages, (vns,).

        For VNs that this shard decides for it is known from reports; for others from Grants, and 0 if not congested.
        """
        vns, entries = len(self.vns), self.state.entries
        has_reports = any(len(sender) for sender, _ in self._table.parts[1:])
        receiver = self._table.entries.receiver
        all_senders = np.bincount(receiver, minlength=vns) if has_reports else np.zeros(vns, dtype=np.int64)
        granted_senders = np.where(self._received_grants.congested, self._received_grants.senders, 0)
        all_senders = np.where(self.decided_mask, all_senders, granted_senders)
        remote: IntArray = np.maximum(all_senders - np.bincount(entries.receiver, minlength=vns), 0)
        return remote

    def _obey(self, machines: SendRateControllers, now_s: float) -> SendRateControllers:
        """Return the machines after the grants of peers that arrived since the last call."""
        pairs, crossing = self.state.entries, self._crossing_now()
        return self._received_grants.apply(
            machines, pairs, self.state.adopted_bps, self.vns, crossing, self.peers, now_s
        )

    def _crossing_now(self) -> PairPartition:
        """Return the partition of the pairs; it is rebuilt when pairs or owners change."""
        if self._crossing is None or self._crossing.entries is not self.state.entries:
            decides = {number: peer.decides for number, peer in self.peers.items()}
            self._crossing = PairPartition.build(self.state.entries, self.decided_mask, decides)
        return self._crossing

    # -- receivers: what peers have reported

    def _live(self, now_s: float) -> dict[int, ReportMessage]:
        """Return the last reports of responsive peers."""
        reports = ((number, peer.report, peer.report_age_s(now_s)) for number, peer in self.peers.items())
        return {number: report for number, report, age_s in reports if report is not None and not age_s}

    def _held_by(self, reporting: set[int]) -> BoolArray:
        """Return the mask of local VNs with limited senders at these peers, (vns,): their last owner found congestion.

        All of the peers have sent a report.
        """
        limited = np.zeros(len(self.vns), dtype=np.bool_)
        for report in (self.peers[number].report for number in reporting):
            assert report is not None
            limited[report.receiver[np.isfinite(report.limit_bps)]] = True
        return limited & self.decided_mask & ~self.vns.always_controlled

    def _merge(self, local_pairs: Pairs, peer_reports: list[ReportMessage]) -> None:
        """Build the table of local and reported pairs; policies keep the state of pairs that remain."""
        parts = [local_pairs, *((report.sender, report.receiver) for report in peer_reports)]
        if not self._table.is_of(parts):
            before, self._table = self._table, ReceiverTable.from_parts(parts)
            old_row = self._table.old_rows(before)
            self._memories = tuple(memory.reindexed(old_row) for memory in self._memories)

    def _lacks_peers(self, now_s: float) -> bool:
        """Return whether a peer has not sent its first message yet, and is still waited for: it may report senders."""
        return now_s - self._began_s < GRANT_HOLD_S and any(peer.report is None for peer in self.peers.values())

    def _network_context(
        self, merged: MergedReports, context: IntervalContext, links: LinkTable, left: LinkTable
    ) -> IntervalContext:
        """Return the input of network-wide policies, with links and their cross traffic.

        ``left`` has the capacities less what unresponsive peers' senders may use. A shard that is not the allocator
        stores its link use, to be sent to the allocator.
        """
        context = merged.network_context(context, self.state, self.vns)
        if self.allocator != self._number_of_shard:
            self._use = link_usage(self._wide, merged.table.entries, self.vns, links, left, context)
            return context._replace(links=links)
        self._use = None
        uses = (peer.link_use for peer in self.peers.values() if peer.link_use is not None)
        return context._replace(links=left, remote_cross_traffic_bps=sum_link_usage(uses, len(links.names)))


def _kinds(groups: tuple[PolicyGroup, ...], vns: int) -> tuple[BoolArray, BoolArray]:
    """Return the masks, (vns,), of VNs under network-wide policies, and under ones that respond to drops or marks."""
    no_shares = need_headroom(groups, vns)
    for group in groups:
        if ReadingKind.MARKS in group.policy.required_readings:
            no_shares[group.vns] = True
    return network_wide_mask(groups, vns), no_shares


def _not_above(message: SetRate, reports: TrafficReport) -> SetRate:
    """Return the rates, each at most the pair's effective limit in ``reports``."""
    limit_bps = reports.limit_bps[np.searchsorted(reports.entry, message.entry)]
    return SetRate(message.entry, np.minimum(message.rate_bps, limit_bps))
