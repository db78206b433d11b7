"""Links that are filled by greedy entities in rounds of one interval: enough to see what a law does with them."""

from dataclasses import dataclass, field

import numpy as np

from controller.seawall import laws
from controller.seawall.entity_allocator import Law, LoopConstants, PairTraffic, RateLoopState, allocate
from controller.seawall.link_feedback import LinkBacklog, along_paths, link_loads, marked_shares
from controller.seawall.loops import Loops

INTERVAL_S = 0.055
DEFAULTS = {"alpha": 0.5, "alpha_lost": 0.2, "a": 0.05, "gamma": 1 / 16, "delta": 0.4, "t_s": 10.0, "hold": 2.0}


def constants_of(loops, beta=0.9, kappa=2.0, **given):
    values = DEFAULTS | given
    named = (values[name] for name in ("alpha", "alpha_lost", "a", "gamma", "delta", "t_s", "hold"))
    columns = [np.full(len(loops), float(one)) for one in named]
    return LoopConstants(np.full(len(loops), beta), np.full(len(loops), kappa), laws.CurveConstants(*columns))


@dataclass
class World:
    """Entries over links with FIFO queues; ``demand_bps`` may be changed between rounds."""

    ways: list
    sender: list
    capacity_bps: list
    law: Law = Law.PROPORTIONAL
    weight_of: dict = field(default_factory=dict)
    demand_bps: np.ndarray = None
    options: dict = field(default_factory=dict)
    lag: int = 0
    ceiling_bps: float = np.inf
    feedback_known: bool = True

    def __post_init__(self):
        offsets = np.concatenate([[0], np.cumsum([len(way) for way in self.ways])]).astype(np.int64)
        links = np.array([link for way in self.ways for link in way], dtype=np.int64)
        self.capacity_bps = np.array(self.capacity_bps, dtype=np.float64)
        self.loops = Loops.build(np.array(self.sender, dtype=np.int64), offsets, links, len(self.capacity_bps))
        self.state = RateLoopState.new(len(self.loops))
        if self.demand_bps is None:
            self.demand_bps = np.full(len(self.ways), 1e12)
        self.demand_bps = np.array(self.demand_bps, dtype=np.float64)
        self.grant_bps = np.full(len(self.ways), self.capacity_bps.min() / len(self.ways))
        self.waiting = [self.grant_bps] * (self.lag + 1)
        self.queued_bits = np.zeros(len(self.capacity_bps))
        self.lost_share = 0.0
        self.ledger = LinkBacklog.empty(len(self.capacity_bps))

    def constants(self):
        return constants_of(self.loops, **self.options)

    def round(self):
        """One interval: all send what they were granted, the links lose what is too much, the law decides."""
        in_force = self.waiting.pop(0)
        passed = np.minimum(in_force, self.demand_bps)
        load = link_loads(self.loops, passed, np.zeros(len(self.capacity_bps)))
        self.queued_bits += (load - self.capacity_bps) * INTERVAL_S
        lost_bits = np.maximum(self.queued_bits - 0.030 * self.capacity_bps, 0.0)
        self.queued_bits = np.clip(self.queued_bits, 0.0, 0.030 * self.capacity_bps)
        lost = np.divide(lost_bits, load * INTERVAL_S, out=np.zeros(len(load)), where=load > 0)
        self.lost_share = float(lost.max())
        self.load_bps = load
        options = DEFAULTS | self.options
        alpha, a = (np.full(len(load), options[name]) for name in ("alpha", "a"))
        marked = marked_shares(load, self.capacity_bps, alpha, a, 0.98)
        uses = self.loops.use_link
        nothing = np.full(len(uses), np.nan)
        traffic = PairTraffic(passed, in_force < self.demand_bps, self.demand_bps > 0)
        weight = np.array([self.weight_of.get(sender, 1.0) for sender in self.loops.sender.tolist()])
        active = self.loops.sum_of_entries(traffic.active) > 0
        decided = allocate(
            self.law,
            self.loops,
            self.state,
            traffic,
            along_paths(self.loops, lost[uses]) if self.feedback_known else nothing,
            along_paths(self.loops, marked[uses]) if self.feedback_known else nothing,
            laws.idle_shares(self.loops, active, weight, self.capacity_bps),
            weight,
            np.full(len(self.loops), self.ceiling_bps),
            self.capacity_bps,
            self.constants(),
        )
        self.state, self.grant_bps = decided.state, decided.rate_bps
        self.waiting.append(decided.rate_bps)
        return np.minimum(self.grant_bps, self.demand_bps)

    def run(self, rounds):
        """Return (rounds, entries) what was sent in each."""
        return np.array([self.round() for _ in range(rounds)])
