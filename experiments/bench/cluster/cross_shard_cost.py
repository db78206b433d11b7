"""The cost of a cross-shard pair: processor time of both sides, messages encoded and decoded, no network.

Two shards of ``controller.shards`` run in one process, and all pairs are between VNs of different shards. One control
step decides the same pairs as well: the additional time of the shards is the cost of crossing. Every receiver is
congested, so all pairs are reported and granted in every interval. Both setups are measured in turn, and the median of
the differences counts.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import numpy as np
import yaml

from controller.config.loader import parse_config
from controller.fabric.vn_table import VnTable
from controller.loop import control_step, pair_changes
from controller.metering.counters import MeterReadings
from controller.node_protocol.header import Octets
from controller.policy.policy_groups import PolicyGroup, choices_of, groups_of
from controller.shards.shard import Shard

INTERVAL_S = 0.055
LIMIT_BPS, OFFERED_BPS = 8_000_000, 2e6
SETTLE, MEASURED, TURNS = 20, 20, 7
ALGORITHM = "fp"


def measure_cross_shard(pairs: int) -> dict[str, Any]:
    """Return what a pair costs in one control step and as a cross-shard pair, ns, on about ``pairs`` pairs."""
    # Half of n VNs is in each shard: n/2 senders times n/2 receivers, in both directions, are n²/2 pairs.
    vns, groups = fabric_of(2 * math.ceil(math.sqrt(pairs / 2)))
    turns = []
    for _ in range(TURNS):
        whole, crossing = Whole(vns, groups), Crossing(vns, groups)
        turns.append((whole.pair_ns(), crossing.pair_ns()))
    additional_ns = [cross_shard_ns - whole_ns for whole_ns, cross_shard_ns in turns]
    return {
        "pairs": crossing.pairs,
        "report_octets": crossing.octets,
        "one_step_ns": statistics.median(whole_ns for whole_ns, _ in turns),
        "cross_shard_ns": statistics.median(cross_shard_ns for _, cross_shard_ns in turns),
        "more_ns": statistics.median(additional_ns),
        "more_ns_of_turns": additional_ns,
    }


def fabric_of(ports: int) -> tuple[VnTable, tuple[PolicyGroup, ...]]:
    """Return the VNs, and the policy, of a switch with ``ports`` ports."""
    vlan = {"send_limit": LIMIT_BPS, "receive_limit": LIMIT_BPS, "algorithm": ALGORITHM}
    edge = {number: {"capacity": "1G", "access": 10} for number in range(1, ports + 1)}
    switch = {"dpid": 1, "ovsdb": "tcp:127.0.0.1:6640", "ports": edge}
    config = parse_config(yaml.safe_dump({"vlans": {10: vlan}, "switches": {"s1": switch}}), "crossing.yaml")
    vns = VnTable.from_config(config)
    return vns, groups_of(vns, choices_of(config))


class _Setup:
    """The meters of all cross-shard pairs, and one way to decide, with ``parts`` shards."""

    def __init__(self, vns: VnTable, groups: tuple[PolicyGroup, ...], parts: int) -> None:
        self.vns, self.groups, self.now_s = vns, groups, 1000.0
        self.owner = (np.arange(len(vns)) >= len(vns) // 2).astype(np.int64)  # the shard of each VN: 0 or 1
        sender, receiver = np.divmod(np.arange(len(vns) ** 2), len(vns))  # every VN with every VN
        is_cross_shard = self.owner[sender] != self.owner[receiver]
        self.pairs = int(np.count_nonzero(is_cross_shard))
        self._octets_in, self._dropped, self._limit_bps = [], [], []
        for part in range(parts):
            # A pair's meter is at its sender.
            rows = np.flatnonzero(is_cross_shard & ((self.owner[sender] == part) | (parts == 1)))
            rate_bps = np.full(len(rows), float(LIMIT_BPS))
            state = control_step.ControlState.start(vns, groups)
            pairs = sender[rows], receiver[rows], np.arange(1, len(rows) + 1)
            meters = rate_bps, pair_changes.first_bursts(rate_bps)
            self.begin(pair_changes.add_entries(state, vns, *pairs, *meters, self.now_s, added_now=True))
            self._octets_in.append(np.zeros(len(rows)))
            self._dropped.append(np.zeros(len(rows)))
            self._limit_bps.append(np.full(len(rows), np.inf))

    def begin(self, state: control_step.ControlState) -> None:
        """Take the state with the pairs of the next part: called once for each of the ``parts``."""
        raise NotImplementedError

    def decide(self, readings: list[MeterReadings]) -> list[control_step.StepResult]:
        """Run one interval, each part on its readings."""
        raise NotImplementedError

    def pair_ns(self) -> float:
        """Return what a pair costs in an interval, in ns: the mean of MEASURED intervals."""
        for _ in range(SETTLE):
            self._interval()
        return sum(self._interval() for _ in range(MEASURED)) / MEASURED / self.pairs * 1e9

    def _interval(self) -> float:
        """Run one interval; return the processor time of its decisions in seconds, without that of making readings."""
        self.now_s += INTERVAL_S
        readings = self._readings()
        begun_s = time.thread_time()
        results = self.decide(readings)
        duration_s = time.thread_time() - begun_s
        for part, result in enumerate(results):
            self._limit_bps[part] = result.limit_bps
            # A modified meter counts from zero.
            self._octets_in[part][result.changes.rows] = self._dropped[part][result.changes.rows] = 0.0
        return duration_s

    def _readings(self) -> list[MeterReadings]:
        """Return the meter readings of each part after one more interval of the offered load."""
        readings = []
        for octets, dropped, limit_bps in zip(self._octets_in, self._dropped, self._limit_bps, strict=True):
            octets += OFFERED_BPS * INTERVAL_S / 8
            dropped += np.maximum(OFFERED_BPS - limit_bps, 0.0) * INTERVAL_S / 8
            times_s = (np.full(len(octets), self.now_s - 1000.0), np.full(len(octets), self.now_s))
            is_fresh = np.ones(len(octets), dtype=np.bool_)
            readings.append(
                MeterReadings(octets.copy(), dropped.copy(), *times_s, is_fresh, np.full(len(octets), np.nan))
            )
        return readings


class Whole(_Setup):
    """One control step."""

    def __init__(self, vns: VnTable, groups: tuple[PolicyGroup, ...]) -> None:
        super().__init__(vns, groups, 1)

    def begin(self, state: control_step.ControlState) -> None:  # noqa: D102
        self.state = state

    def decide(self, readings: list[MeterReadings]) -> list[control_step.StepResult]:  # noqa: D102
        self.state, result = control_step.control_step(self.state, self.vns, self.groups, readings[0], self.now_s)
        return [result]


class Crossing(_Setup):
    """Two shards; ``octets`` is the size of the largest message that one has sent to the other."""

    def __init__(self, vns: VnTable, groups: tuple[PolicyGroup, ...]) -> None:
        self.octets = 0
        self.shards: list[Shard] = []
        super().__init__(vns, groups, 2)

    def begin(self, state: control_step.ControlState) -> None:  # noqa: D102
        shard = Shard(self.vns, self.groups, self.owner, len(self.shards), 1, INTERVAL_S)
        shard.state = state
        self.shards.append(shard)

    def decide(self, readings: list[MeterReadings]) -> list[control_step.StepResult]:  # noqa: D102
        both = list(zip(self.shards, readings, strict=True))
        self._pass([shard.report(read, self.now_s) for shard, read in both])
        self._pass([shard.decide(self.now_s) for shard in self.shards])
        return [shard.enforce(self.now_s) for shard, _ in both]

    def _pass(self, frames_by_sender: list[dict[int, Octets]]) -> None:
        """Deliver the messages of each shard to the other shards."""
        for sender, frames in enumerate(frames_by_sender):
            for receiver, data in frames.items():
                self.octets = max(self.octets, len(data))
                self.shards[receiver].receive(sender, data, self.now_s)
