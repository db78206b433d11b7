"""Shards of many nodes in virtual time: the real step of each, with messages that take as long as measured ones.

1) Each node has an interval of its own every INTERVAL_S, at a phase drawn by the seed. What has arrived is heard first,
   then the shard reports, decides and enforces; what it says leaves when the interval's work is done (COST_S,
   ENTRY_COST_S), as one message for each peer.
2) A node that dies says nothing more. Its switches' meters stand. LEASE_S later each of its switches
   has a new owner, drawn by the seed, of which each node hears within ASK_S.
3) Who hears of new owners freezes its grants (``step.frozen``). A new owner takes over what the meters hold, so many
   seconds for an entry, and says so; grants rise again where all switches are known to be under control.

Not modelled: OpenFlow, etcd, hosts and links. ``controller.nodes`` does 2 and 3 with them.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray
from controller.frames.layout import Octets
from controller.loop import entry_changes, step
from controller.metering.enforcement import whole_rates
from controller.shards.shard import Shard
from experiments.bench.shards.delays import draw
from experiments.bench.shards.world import RECEIVE_LIMIT_BPS, Meters, World

INTERVAL_S = 0.055
COST_S, ENTRY_COST_S = 3.3e-3, 232e-9
"""processor time of an interval (docs/scale.md)"""
LEASE_S = 3.5
"""from a machine's death to the end of its lease, when others take its switches"""
ASK_S = 0.25
"""how often nodes ask etcd whose switches are"""
ADOPT_S = 19e-6
"""processor time to take over an entry (docs/scale.md)"""
SAY_S, AGAIN_S = 0.2, 1.0
"""how often nodes say which switches they have, at most, and at least (``controller.nodes.sharing``)"""
WITHIN = 0.05
"""a grant within this part of the fair share stands"""

Taken = tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]
"""what a switch's meters hold: senders, receivers, meter ids, rates, bursts"""


@dataclass
class Node:
    """A node and what is counted of it. ``off`` is how many of its senders' grants are not what they should be."""

    number: int
    shard: Shard
    meters: Meters = field(default_factory=Meters)
    offered_bps: FloatArray = field(default_factory=lambda: np.empty(0))
    inbox: list[tuple[float, int, list[Octets]]] = field(default_factory=list)
    last_s: dict[int, float] = field(default_factory=dict)  # when the last message from a peer arrived
    alive: bool = True
    missing: set[int] = field(default_factory=set)  # switches that are not known to be under control
    frozen_s: float = 0.0  # when it heard of new owners last; NaN: it has not yet
    released_s: float = 0.0
    sent_octets: int = 0
    heard_octets: int = 0
    off: int = 0
    received_bps: FloatArray = field(default_factory=lambda: np.empty(0))


class Model:
    """A world whose switches belong to ``nodes`` nodes, as many to each.

    ``series`` has for each interval: when it was, the part of all grants that are not within WITHIN of the fair share,
    what receivers get on average, and what one gets at most, in receive limits.
    """

    def __init__(self, world: World, nodes: int, seed: int) -> None:
        self.world, self.now_s = world, 0.0
        self._random = np.random.default_rng(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.dpids = np.unique(world.vns.dpid).tolist()
        self.owner = {dpid: at * nodes // len(self.dpids) for at, dpid in enumerate(self.dpids)}
        self.sends = np.zeros(len(world.vns), dtype=np.bool_)
        self.refused: Counter[str] = Counter()
        self.series: list[tuple[float, float, float, float]] = []
        owner = self._owner_of_vns()
        self.nodes = [
            Node(number, Shard(world.vns, world.groups, owner, number, 1, INTERVAL_S)) for number in range(nodes)
        ]
        for node in self.nodes:
            node.shard.recut(owner, 1, owners_digest=owner.tobytes())
        first_id = 1
        for node in self.nodes:
            senders, receivers = world.pairs_of(np.flatnonzero(owner == node.number))
            ids = np.arange(first_id, first_id + len(senders))
            first_id += len(senders)
            rate_bps = np.full(len(senders), RECEIVE_LIMIT_BPS)
            self._add(node, (senders, receivers, ids, rate_bps, entry_changes.first_bursts(rate_bps)), added_now=True)
            self._at(float(self._random.uniform(0, INTERVAL_S)), partial(self._interval, node))
        self.entries = first_id - 1
        self.now_sends(self.sends)
        self._at(INTERVAL_S, self._sample)

    # -- what happens in the world

    def now_sends(self, sends: BoolArray) -> None:
        """From now on the VNs of ``sends`` (vns,) send, and no others."""
        self.sends, self._fair_bps = sends, self.world.fair_bps(sends)
        for node in self.nodes:
            self._offer(node)

    def kill(self, number: int) -> None:
        """A node's machine dies; its lease ends later."""
        self.nodes[number].alive = False
        self.nodes[number].inbox = []
        self._at(self.now_s + LEASE_S, lambda: self._inherit(number))

    def move(self, dpid: int, number: int) -> None:
        """A switch is moved to another node."""
        self._change_owners({dpid: number})

    def run(self, until_s: float) -> None:
        """Let it be ``until_s``."""
        while self._events[0][0] <= until_s:
            self.now_s, _, happens = heapq.heappop(self._events)
            happens()
        self.now_s = until_s

    def _at(self, at_s: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._numbers), happens))

    @property
    def released(self) -> bool:
        """Whether grants may rise again at all nodes that live."""
        return not any(np.isnan(node.released_s) for node in self.nodes if node.alive)

    # -- 1: intervals

    def _interval(self, node: Node) -> None:
        if not node.alive:
            return
        now_s, shard = self.now_s, node.shard
        for arrival in sorted(node.inbox, key=lambda one: one[0]):
            if arrival[0] > now_s:
                continue
            for data in arrival[2]:
                error = shard.hear(arrival[1], data, now_s)
                if error is not None:
                    self.refused[error.cause.value] += 1
        node.inbox = [one for one in node.inbox if one[0] > now_s]
        if not node.missing and np.isnan(node.released_s) and not np.isnan(node.frozen_s):
            shard.state, node.released_s = step.released(shard.state), now_s
            shard.forget()
        readings = node.meters.read(shard.state, node.offered_bps, now_s)
        said = shard.report(readings, now_s), shard.decide(now_s)
        result = shard.enforce(now_s)
        node.meters.modified(result.changes.rows)
        self._account(node)
        leaves_s = now_s + COST_S + ENTRY_COST_S * len(shard.state.entries)
        for number in shard.peers:
            peer, frames = self.nodes[number], [one[number] for one in said if number in one]
            octets = sum(map(len, frames))
            node.sent_octets += octets
            if peer.alive:
                peer.heard_octets += octets
                arrives_s = max(leaves_s + draw(self._random, octets), peer.last_s.get(node.number, 0.0))
                peer.last_s[node.number] = arrives_s
                peer.inbox.append((arrives_s, node.number, frames))
        self._at(now_s + INTERVAL_S, lambda: self._interval(node))

    def _account(self, node: Node) -> None:
        entries, limit_bps = node.shard.state.entries, node.shard.state.enforcement.limit_bps
        got_bps = np.minimum(node.offered_bps, limit_bps)
        node.received_bps = np.bincount(entries.receiver, got_bps, len(self.world.vns)).astype(np.float64)
        fair_bps = self._fair_bps[entries.receiver]
        wrong = (node.offered_bps > 0.0) & (np.abs(limit_bps - fair_bps) > WITHIN * fair_bps)
        node.off = int(np.count_nonzero(wrong))

    def _sample(self) -> None:
        received_bps = np.sum([node.received_bps for node in self.nodes if len(node.received_bps)], axis=0)
        used = received_bps / RECEIVE_LIMIT_BPS if np.ndim(received_bps) else np.zeros(1)
        off = sum(node.off for node in self.nodes) / self.entries
        self.series.append((self.now_s, off, float(np.mean(used)), float(np.max(used))))
        self._at(self.now_s + INTERVAL_S, self._sample)

    def _offer(self, node: Node) -> None:
        node.offered_bps = np.where(self.sends[node.shard.state.entries.sender], self.world.offered_bps, 0.0)

    # -- 2: owners

    def _inherit(self, dead: int) -> None:
        live = [node.number for node in self.nodes if node.alive]
        orphans = [dpid for dpid, owner in self.owner.items() if owner == dead]
        self._change_owners({dpid: int(self._random.choice(live)) for dpid in orphans})

    def _change_owners(self, changed: dict[int, int]) -> None:
        before = {dpid: self.owner[dpid] for dpid in changed}
        self.owner.update(changed)
        for node in self.nodes:
            node.missing, node.frozen_s, node.released_s = set(changed), np.nan, np.nan
            if node.alive:
                at_s = self.now_s + float(self._random.uniform(0, ASK_S))
                self._at(at_s, partial(self._hear_owners, node, changed, before))

    def _hear_owners(self, node: Node, changed: dict[int, int], before: dict[int, int]) -> None:
        node.frozen_s = self.now_s
        node.shard.state = step.frozen(node.shard.state)
        owner = self._owner_of_vns()
        node.shard.recut(owner, 1, owners_digest=owner.tobytes())
        mine = [dpid for dpid, owner in changed.items() if owner == node.number]
        for dpid in mine:
            entries = self.nodes[before[dpid]].shard.state.entries
            held = int(np.count_nonzero(self.world.vns.dpid[entries.sender] == dpid))
            self._at(self.now_s + held * ADOPT_S, partial(self._adopt, node, dpid, self.nodes[before[dpid]]))

    # -- 3: taking over

    def _adopt(self, node: Node, dpid: int, before: Node) -> None:
        self._add(node, self._take(before, dpid), added_now=False)
        node.missing.discard(dpid)
        for other in self.nodes:
            if other is not node:
                delay_s = float(self._random.uniform(0, SAY_S)) + draw(self._random, 1000)
                self._at(self.now_s + delay_s, partial(self._say, other, dpid))

    def _say(self, hearer: Node, dpid: int) -> None:
        """The new owner says that it has a switch; who has not heard of new owners yet does not believe it."""
        if hearer.alive and np.isnan(hearer.frozen_s):
            self._at(self.now_s + AGAIN_S, lambda: self._say(hearer, dpid))
        else:
            hearer.missing.discard(dpid)

    def _take(self, node: Node, dpid: int) -> Taken:
        """Return what a switch's meters hold; the node that had it has its entries no more."""
        state = node.shard.state
        entries, stands = state.entries, state.enforcement
        gone = self.world.vns.dpid[entries.sender] == dpid
        rows = np.flatnonzero(gone)
        ends = entries.sender[rows], entries.receiver[rows], entries.meter_id[rows]
        node.shard.state = entry_changes.remove_entries(state, rows)
        node.meters.without(~gone)
        self._offer(node)
        self._account(node)
        return *ends, stands.rate_bps[rows], stands.burst_bits[rows]

    def _add(self, node: Node, taken: Taken, *, added_now: bool) -> None:
        senders, receivers, ids, rate_bps, bursts_bits = taken
        vns, before = self.world.vns, node.shard.state
        meters = whole_rates(rate_bps), bursts_bits
        state = entry_changes.add_entries(
            before, vns, senders, receivers, ids, *meters, self.now_s, added_now=added_now
        )
        node.meters.carried(np.flatnonzero(~np.isin(state.entries.meter_id, ids)), len(state.entries))
        node.shard.state = state
        self._offer(node)

    def _owner_of_vns(self) -> IntArray:
        of_dpid = np.zeros(max(self.dpids) + 1, dtype=np.int64)
        of_dpid[list(self.owner)] = list(self.owner.values())
        owner: IntArray = of_dpid[self.world.vns.dpid.astype(np.int64)]
        return owner
