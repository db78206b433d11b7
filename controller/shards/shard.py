"""One shard: an interval of the switches that one controller owns, in three phases, with frames of peers between them.

It is the senders' and the grants' side of the pairs that send behind its switches, and the receivers' side of those
that receive there, but for VLANs whose policy sees the whole network: one shard, the allocator, is the receivers'
side of all of those (network_allocation.py). What it decides for its own senders never leaves it: without peers an
interval is ``control_step``. The order of both is that of ``loop.control_step``, to which a shard says what is
elsewhere.

1) ``report``: meters are read. What is sent to VNs of peers goes to them, as Report. The allocator gets what was read
   of queues, ports and marks (``encode_readings``).
2) ``decide``: own senders' and peers' reports are summed up and shared out, and own senders obey. Peers get Grants.
3) ``enforce``: own senders obey what peers have granted. Meters follow.

After the second phase the allocator gets what others use of links (``use_of_links``).

A frame may come at any time (``hear``), and counts from the next phase on: a pair that crosses is decided on as soon as
frames are there, and else an interval later for each way. Senders that have traffic are reported before their receiver
is congested, so that they come under control in the same interval as the receiver's own.

When nothing comes from a peer:

- Its receivers' grants are held. After HOLD_S they go down to an equal share of the receive limit, if they are above.
- While one has never spoken, no grant rises above the limit in force, for HOLD_S at most: it may have senders.
- Its senders count as they did last, and what they had been granted is given to nobody, after HOLD_S that equal share.

Deviation: the paper's senders are free again when the receiver is silent. Here the end of a node would set them free.
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
"""the owner of VNs that none has taken yet"""


class Shard(RemoteSide):
    """The VNs of ``owner`` (vns,) that are ``number``; whoever else is there is a peer, but for NOBODY.

    ``token`` grows with every change of the shard's owner. ``links`` are the names of links, as all shards have them.
    ``state`` holds the entries of its own senders; it may be replaced between intervals, as ``vns`` may by others of
    the same names. Raises InvalidValueError for policies that cannot be cut, and for receivers that no queue holds.
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
            raise InvalidValueError("queues", vns.key(row), "has no queue, and its senders share an account")
        self.vns, self.groups, self._number_of_shard = vns, groups, number
        self._interval_s, self._links, self._owners = interval_s, tuple(links), b""
        self.mine, self._outbox = np.zeros(len(vns), dtype=np.bool_), Outbox()
        self.decided_mask, self._wide, self._no_shares = self.mine, *_kinds(groups, len(vns))
        self._owner, self.allocator = owner, NO_OWNER
        self.peers: dict[int, Peer] = {}
        self.state = ControlState.start(vns, groups)
        self._received_grants, self._began_s = ReceivedGrants(len(vns)), np.inf
        self._memories = self._nothing = self.state.allocators.memories
        self._table = ReceiverTable.from_parts([])
        self._crossing: PairPartition | None = None
        self._granted: dict[int, PeerGrants] = {}
        self._began: control_step.Began | None = None
        self._decided: control_step.Decided | None = None
        self._said: tuple[TrafficReport, int] | None = None  # what own senders report, and what need not be said of it
        self._counted = np.zeros(len(vns), dtype=np.int64)  # (vns,) how many senders each receiver shares among
        self._answers: GrantReplies | None = None
        self._use: LinkUseMessage | None = None
        self.repartition(owner, token)

    def repartition(
        self, owner: IntArray, token: int, allocator: int | None = None, owners_digest: bytes = b""
    ) -> None:
        """The VNs belong to others from now on; call it between intervals.

        ``allocator`` decides for VLANs whose policy sees the whole network; None: who owns the first VN that has an
        owner. ``owners_digest`` stands for the owners as every shard knows them. Shards that know other ones do not
        hear each other: who hears of a new owner last reports its senders elsewhere until then, and these must not be
        left out. Congestion at VNs that others decide for now goes on as it was. Policies begin again, and what peers
        have reported is forgotten: that grants stay where they are until all is known again is for the caller to see to
        (``frozen``).
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
        self.mine, self.decided_mask = (np.equal(column, self._number_of_shard) for column in (owner, decider))
        wide = self.is_network_wide
        mine = ShardScope(self.mine, self.decided_mask, wide and allocator == self._number_of_shard)
        others = sorted({*owner.tolist(), allocator} - {self._number_of_shard, NO_OWNER})
        before_peers, self.peers = self.peers, {}
        for one in others:
            theirs = ShardScope(np.equal(owner, one), np.equal(decider, one), wide and allocator == one)
            peer = before_peers.get(one) or Peer(theirs, mine, fabric, self._interval_s, len(self._links))
            peer.repartition(theirs, mine, fabric)
            self.peers[one] = peer
        self._granted, self._began_s, self._crossing, self._use = {}, np.inf, None, None
        self._received_grants.forget_forfeits()
        self.reset_policies()

    def reset_policies(self) -> None:
        """Let policies begin again: what they have learned they learned of a part of the senders."""
        self._memories = self._nothing

    def set_policies(self, groups: tuple[PolicyGroup, ...]) -> None:
        """VLANs have other policies, or others of their parameters: all begin again. Raises InvalidValueError."""
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
        """Whether the policy of some VLAN sees the whole network."""
        return bool(self._wide.any())

    def receive(self, peer: int, data: Octets, now_s: float) -> MessageRejectedError | None:
        """Take a frame of a peer; return why it was refused, None if it was not."""
        return self.peers[peer].receive(data, now_s)

    def report(self, readings: Readings, now_s: float) -> dict[int, Octets]:
        """Begin an interval; return a frame for each peer."""
        self._outbox.begin_interval(self.peers)
        self._began_s = min(self._began_s, now_s)
        self.state = self.state._replace(machines=self._obey(self.state.machines, now_s))
        vns, crossing, entries = self.vns, self._crossing_now(), self.state.entries
        senders, loads = control_step.read(self.state, vns, self.groups, readings, now_s, self)
        if self.is_network_wide:
            always = crossing.remote_mask & vns.always_controlled[entries.receiver] & ~senders.machines.controlled
            machines = senders.machines.on_initialize(InitializeTrafficControl(np.flatnonzero(always)))
            senders = senders._replace(machines=machines)
        reports = traffic_reports(senders.machines, crossing.all_rows, entries, vns, senders.seen.measured)
        left = self._left(senders, reports)
        self._began, self._said = control_step.Began(senders, loads), (reports, left)
        silent_intervals, told = (
            senders.seen.measured.silent_intervals,
            crossing.remote_rows,
        )  # who has traffic is told of
        if not left & OmittedColumns.ACTIVE:
            told = crossing.reportable_rows(senders.machines.control, silent_intervals)
        unread = senders.seen.unread_intervals
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
        limits = {
            number: self._received_grants.granted(senders.machines, number)
            if rows is crossing.remote_rows[number]
            else 0
            for number, rows in told.items()
        }
        return self._outbox.write_reports(self.peers, loads, columns, told, left, limits, now_s)

    def _left(self, senders: SenderSide, reports: TrafficReport) -> int:
        """Return what need not be said of entries: all were read, have traffic, and nobody looks at more."""
        unread = bool(senders.seen.unread_intervals.max(initial=0))
        left = OmittedColumns.NONE if unread else OmittedColumns.UNREAD
        left |= OmittedColumns.ACTIVE if reports.active.all() else OmittedColumns.NONE
        return left | OmittedColumns.AMOUNTS

    def encode_readings(self, observed: FabricReadings | None, now_s: float) -> dict[int, list[Octets]]:
        """Return frames for the allocator, if that is a peer: what was read of queues, ports and marks at own switches.

        ``report`` comes before it, ``decide`` after it.
        """
        peer = self.peers.get(self.allocator)
        if peer is None or observed is None or not self.is_network_wide:
            return {}
        read = local_readings(observed, self.mine)
        return {self.allocator: [self._outbox.write(self.allocator, peer, frame, now_s) for frame in read]}

    def decide(
        self, now_s: float, links: LinkTable | None = None, observed: FabricReadings | None = None
    ) -> dict[int, Octets]:
        """Share the receivers' limits out; return a frame for each peer. ``report`` comes before it.

        ``links`` are those of the whole fabric; None: access links alone. ``observed`` is what was read at own
        switches; None: no policy reads it.
        """
        assert self._began is not None
        self._decided = control_step.decide(
            self._began, self.state, self.vns, self.groups, now_s, links, observed, self
        )
        return self._encode_grants(self._decided.receivers.allocators.congested, now_s)

    def _encode_grants(self, congested: BoolArray, now_s: float) -> dict[int, Octets]:
        """Return Grants for each peer: which receivers, (vns,), are congested, and what its senders may send.

        Of those of silent peers nothing is decided.
        """
        assert self._answers is not None
        answers, counted = self._answers, self._counted
        decided = np.flatnonzero(self.decided_mask & (congested | (self.vns.always_controlled & (counted > 0))))
        about = ReceiverStatus(decided, np.maximum(counted[decided], 1), congested[decided])
        told = answers.for_peers(about, list(self._live(now_s)))
        self._granted |= told
        silent, frames = for_idle_peer(about), {}
        left_out = OmittedColumns.NONE if answers.has_forfeits else OmittedColumns.FORFEITS
        for number, peer in self.peers.items():
            one = told.get(number, silent)
            if number in told:
                peer.record_grant(self._outbox.number, answers.rate_bps, one.rows)
            frames[number] = self._outbox.write(number, peer, one.whole, now_s, one.rows, left_out)
        return frames

    # -- what is elsewhere, in ``read`` and ``decide``

    def crosses(self, entries: PairTable) -> BoolArray:  # noqa: D102
        return self._crossing_now().remote_mask

    def with_loads(self, loads: ReceiverLoads) -> ReceiverLoads:  # noqa: D102
        add_loads(loads, [peer.report for peer in self.peers.values() if peer.report is not None])
        return loads

    def watched(self, receivers: ReceiverSide, now_s: float) -> ReceiverSide:
        """Return also what policies remember, of the table of all that send here: ``view`` has the rows of that."""
        self._merge(self._crossing_now().own_pairs, list(self._live(now_s).values()))
        allocators = receivers.allocators
        # What others' receivers get is not known here: they are not calm for that when they become own ones.
        calm_intervals = np.where(self.decided_mask, allocators.calm_intervals, 0)
        congested = np.where(self.decided_mask, allocators.congested, self._received_grants.congested)
        if self.state.adopted_bps is not None:
            congested |= self._held_by_peers()
        allocators = allocators._replace(congested=congested, calm_intervals=calm_intervals, memories=self._memories)
        return receivers._replace(allocators=allocators)

    def own(self, rows: IntArray) -> IntArray:  # noqa: D102
        return rows[~self._crossing_now().remote_mask[rows]]

    def view(self, senders: SenderSide, receivers: ReceiverSide, vns: VnTable, seen: IntervalContext) -> ReceiverInput:
        """Return what own senders and those of peers that are not silent report."""
        assert self._said is not None
        (said_here, left_out), table, live = self._said, self._table, self._live(seen.now_s)
        # Initialize is on its way, at least.
        under = table.controlled_rows(receivers.allocators.congested | vns.always_controlled)
        left_out &= ~OmittedColumns.AMOUNTS if self.is_network_wide else -1
        gathered = MergedReports.build(
            table, self._crossing_now().own, senders, said_here, list(live.values()), left_out
        )
        reports, observed = gathered.reports(under), seen.observed
        links = (seen.links or LinkTable.of_access(vns)) if self.is_network_wide else None
        seen = gathered.interval_context(seen)
        left = capacity_without_silent_peers(self.peers, self._granted, vns, links, seen.now_s, self._no_shares)
        if links is not None and left.links is not None:
            seen = self._of_network(gathered, seen, links, left.links)
            if observed is not None and self.allocator == self._number_of_shard:
                unheard = [peer.owns for number, peer in self.peers.items() if number not in live]
                read = merge_readings(observed, self.mine, self.peers.values(), len(table.entries))
                seen = with_readings(seen, read, table.entries.receiver, unheard)
        self._counted = left.senders + table.senders(reports.entry, len(vns))
        self._received_grants.senders = np.where(
            self.decided_mask, np.maximum(self._counted, 1), self._received_grants.senders
        )
        return ReceiverInput(table.entries, left.vns, reports, seen)

    def answered(
        self, view: ReceiverInput, receivers: ReceiverSide, set_rate: SetRate, keep_alive: KeepAlive
    ) -> tuple[ReceiverSide, SenderMessages]:
        """Return what is told to own senders alone, and keep what peers are told, and what policies remember."""
        allocators, own = receivers.allocators, self._crossing_now().own
        self._memories = allocators.memories
        if self._lacks_peers(view.seen.now_s):
            set_rate = _not_above(set_rate, view.reports)
            self._memories = self._nothing  # learned from part of the senders
        self._answers = answers = GrantReplies.build(self._table, view.reports, set_rate, allocators.decisions)
        congested = np.where(self.decided_mask, allocators.congested, self._received_grants.congested)
        allocators = allocators._replace(congested=congested, memories=self._nothing, decisions=())
        told = SenderMessages(*answers.for_local_senders(own), answers.forfeits_of_own(own))
        return receivers._replace(allocators=allocators), told

    # -- the end of an interval

    def encode_link_usage(self, now_s: float) -> dict[int, Octets]:
        """Return a frame for the allocator, if that is a peer. ``decide`` comes before it."""
        peer = self.peers.get(self.allocator)
        if peer is None or self._use is None:
            return {}
        return {self.allocator: self._outbox.write(self.allocator, peer, self._use, now_s)}

    def drain_messages(self) -> dict[int, Bundle]:
        """Return all frames of the interval, one message for each peer: the bytes that other phases have returned."""
        return self._outbox.drain()

    def enforce(self, now_s: float) -> control_step.StepResult:
        """End an interval: put in force what own receivers and peers have granted. ``decide`` comes before it."""
        decided = self._decided
        assert decided is not None
        senders = decided.senders._replace(machines=self._obey(decided.senders.machines, now_s))
        forfeits = np.concatenate([decided.answered.forfeits, *self._received_grants.drain_forfeits()])
        decided = decided._replace(senders=senders, answered=decided.answered._replace(forfeits=forfeits))
        self.state, result = control_step.enforce(decided, self.state, self.vns, now_s)
        self._began = self._decided = None
        return result

    @property
    def remote_senders(self) -> IntArray:
        """How many senders each VN has that are not this shard's, as peers have reported or said last, (vns,)."""
        vns, entries = len(self.vns), self.state.entries
        reported = sum(len(part[0]) for part in self._table.parts[1:])
        known = np.bincount(self._table.entries.receiver, minlength=vns) if reported else np.zeros(vns, dtype=np.int64)
        known = np.where(
            self.decided_mask, known, np.where(self._received_grants.congested, self._received_grants.senders, 0)
        )
        elsewhere: IntArray = np.maximum(known - np.bincount(entries.receiver, minlength=vns), 0)
        return elsewhere

    def _obey(self, machines: SendRateControllers, now_s: float) -> SendRateControllers:
        state = self.state
        crossing = self._crossing_now()
        return self._received_grants.apply(
            machines, state.entries, state.adopted_bps, self.vns, crossing, self.peers, now_s
        )

    def _crossing_now(self) -> PairPartition:
        """Return where the entries lead; it is made again when there are others, or other owners."""
        if self._crossing is None or self._crossing.entries is not self.state.entries:
            decides = {number: peer.decides for number, peer in self.peers.items()}
            self._crossing = PairPartition.build(self.state.entries, self.decided_mask, decides)
        return self._crossing

    # -- receivers: what peers have reported

    def _live(self, now_s: float) -> dict[int, ReportMessage]:
        """Return what peers have reported last that are not silent."""
        said = ((number, peer.report, peer.report_age_s(now_s)) for number, peer in self.peers.items())
        return {number: report for number, report, silent_s in said if report is not None and not silent_s}

    def _held_by_peers(self) -> BoolArray:
        """Return the own VNs, (vns,), whose senders peers have under control: the last owner found them congested."""
        limited = np.zeros(len(self.vns), dtype=np.bool_)
        for peer in self.peers.values():
            if (said := peer.report) is not None:
                limited[said.receiver[np.isfinite(said.limit_bps)]] = True
        return limited & self.decided_mask & ~self.vns.always_controlled

    def _merge(self, own: Pairs, peer_reports: list[ReportMessage]) -> None:
        """Let the table be of these entries; policies remember what they knew of those that were there."""
        parts = [own, *((one.sender, one.receiver) for one in peer_reports)]
        if not self._table.is_of(parts):
            before, self._table = self._table, ReceiverTable.from_parts(parts)
            old_row = self._table.old_rows(before)
            self._memories = tuple(memory.reindexed(old_row) for memory in self._memories)

    def _lacks_peers(self, now_s: float) -> bool:
        """Whether a peer has yet to speak for the first time, and is waited for: it may report senders."""
        return now_s - self._began_s < GRANT_HOLD_S and any(peer.report is None for peer in self.peers.values())

    def _of_network(
        self, gathered: MergedReports, seen: IntervalContext, links: LinkTable, left: LinkTable
    ) -> IntervalContext:
        """Return what policies see, with links and what others use of them; that goes to the allocator, too."""
        seen = gathered.network_context(seen, self.state, self.vns)
        if self.allocator != self._number_of_shard:
            self._use = link_usage(self._wide, gathered.table.entries, self.vns, links, left, seen)
            return seen._replace(links=links)
        self._use = None
        uses = (peer.link_use for peer in self.peers.values() if peer.link_use is not None)
        return seen._replace(links=left, remote_cross_traffic_bps=sum_link_usage(uses, len(links.names)))


def _kinds(groups: tuple[PolicyGroup, ...], vns: int) -> tuple[BoolArray, BoolArray]:
    """Return for which VNs one shard decides, and which are under policies that answer to drops or marks, (vns,)."""
    marks = [group.vns for group in groups if ReadingKind.MARKS in group.policy.required_readings]
    no_shares = need_headroom(groups, vns)
    no_shares[np.concatenate([np.empty(0, dtype=np.int64), *marks])] = True
    return network_wide_mask(groups, vns), no_shares


def _not_above(message: SetRate, reports: TrafficReport) -> SetRate:
    """Return the rates, none above the limit in force, where there is one."""
    limit_bps = reports.limit_bps[np.searchsorted(reports.entry, message.entry)]
    return SetRate(message.entry, np.minimum(message.rate_bps, limit_bps))
