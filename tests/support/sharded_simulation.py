"""A fabric divided into shards, in virtual time; their network delays, loses, duplicates and reorders messages.

Also the same fabric in one process, for comparison.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from support.fluid_meters import INTERVAL_S, World, ints

from controller.loop import control_step
from controller.shards.peer import LATE_INTERVALS
from controller.shards.shard import Shard


@dataclass
class Network:
    """The network of the shards. ``delay`` is in intervals; with 0 messages arrive in the next phase."""

    delay: int = 0
    loss: float = 0.0
    duplicated: float = 0.0
    jitter: int = 0  # random additional intervals, at most: later messages may overtake earlier ones
    seed: int = 1
    cut: set[int] = field(default_factory=set)  # shards that neither send nor receive
    _in_flight: list[tuple[int, int, int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def send(self, interval: int, sender: int, receiver: int, data: bytes) -> None:
        if {sender, receiver} & self.cut:
            return
        for _ in range(1 + (self._random.random() < self.duplicated)):
            if self._random.random() >= self.loss:
                due = interval + self.delay + self._random.randint(0, self.jitter)
                self._in_flight.append((due, sender, receiver, data))

    def arrived(self, interval: int) -> list[tuple[int, int, bytes]]:
        due = [one for one in self._in_flight if one[0] <= interval]
        self._in_flight = [one for one in self._in_flight if one[0] > interval]
        return [one[1:] for one in due]


class ShardedSimulation:
    """A world, or that of an algorithm, whose VNs have the owning shards ``owner`` (vns,)."""

    def __init__(self, world: str | World, owner: list[int], network: Network | None = None) -> None:
        self.world = World(world) if isinstance(world, str) else world
        self.network, self.owner = network or Network(), ints(owner)
        self.interval, self.causes = 0, Counter()
        entries = self.world.entries
        self.rows = {one: np.flatnonzero(self.owner[entries.sender] == one) for one in sorted(set(owner))}
        self.shards = {one: self.shard(one, token=1) for one in self.rows}
        self.paused: set[int] = set()
        self.late: set[int] = set()  # shards that receive messages too late to accept them
        self.limit_bps = np.full(len(entries), np.inf)
        self.notified: dict[int, np.ndarray] = {}  # congestion notifications by shard, (vns,)

    def shard(self, number: int, token: int) -> Shard:
        """Return a new shard with its pairs."""
        world = self.world
        shard = Shard(world.vns, world.groups, self.owner, number, token, INTERVAL_S, world.links.names)
        shard.state = world.state(self.rows[number])
        return shard

    def run(self, offered_kbits: list[int], intervals: int = 1) -> np.ndarray:
        """Let every pair send for ``intervals``; return the effective limits, (pairs,)."""
        for _ in range(intervals):
            self.world.pass_interval(offered_kbits, self.limit_bps)
            self._interval()
        return self.limit_bps

    def _interval(self) -> None:
        self.interval += 1
        now_s = self.world.now_s
        running = {one: shard for one, shard in self.shards.items() if one not in self.paused}
        readings = {one: self.world.readings(self.rows[one]) for one in running}
        observed = {one: self.world.observed(self.owner == one) for one in running}
        self._deliver()
        phases = (
            lambda one, shard: one_each(shard.report(readings[one], now_s)),
            lambda one, shard: shard.encode_readings(observed[one], now_s),
            lambda one, shard: one_each(shard.decide(now_s, self.world.links, observed[one])),
            lambda _, shard: one_each(shard.encode_link_usage(now_s)),
        )
        for phase in phases:
            sent = {one: phase(one, shard) for one, shard in running.items()}
            for sender, frames in sent.items():
                for receiver, several in frames.items():
                    for data in several:
                        self.network.send(self.interval, sender, receiver, data)
            if not self.network.delay:
                self._deliver()
        for one, shard in running.items():
            result = shard.enforce(now_s)
            self.limit_bps[self.rows[one]], self.notified[one] = result.limit_bps, result.notified
            self.world.modified(self.rows[one][result.changes.rows])

    def _deliver(self) -> None:
        for sender, receiver, data in self.network.arrived(self.interval):
            if receiver not in self.paused:
                late_s = (LATE_INTERVALS + 1) * INTERVAL_S if receiver in self.late else 0.0
                error = self.shards[receiver].receive(sender, data, self.world.now_s + late_s)
                self.causes[error.cause if error else None] += 1

    def sums_bps(self) -> np.ndarray:
        """Return the sum of the effective limits of each receiver's senders, (vns,)."""
        world = self.world
        return np.bincount(world.entries.receiver, self.limit_bps, len(world.vns))


def cut(world: str | World, owner: list[int], settled: int = 4, **network: float) -> ShardedSimulation:
    """Return a simulation whose shards have heard each other; ``owner`` is by port, (ports,)."""
    world = World(world) if isinstance(world, str) else world
    made = ShardedSimulation(world, [owner[port_no - 1] for port_no in world.vns.port_no.tolist()], Network(**network))
    made.run([0], settled + 4 * (made.network.delay + made.network.jitter))
    return made


def one_each(frames: dict[int, bytes]) -> dict[int, list[bytes]]:
    """Return the message to each peer as a list."""
    return {receiver: [data] for receiver, data in frames.items()}


class OneProcess:
    """A world decided by one control step."""

    def __init__(self, world: str | World) -> None:
        self.world = World(world) if isinstance(world, str) else world
        self.everything = np.arange(len(self.world.entries))
        self.state, self.limit_bps = self.world.state(self.everything), np.full(len(self.everything), np.inf)

    def reset_policies(self) -> None:
        """Reset the policies' states, as ``Shard.reset_policies`` does."""
        nothing = control_step.ControlState.start(self.world.vns, self.world.groups).allocators.memories
        self.state = self.state._replace(allocators=self.state.allocators._replace(memories=nothing))

    def run(self, offered_kbits: list[int], intervals: int = 1) -> np.ndarray:
        world = self.world
        for _ in range(intervals):
            world.pass_interval(offered_kbits, self.limit_bps)
            readings, observed = world.readings(self.everything), world.observed(np.full(len(world.vns), True))
            self.state, result = control_step.control_step(
                self.state, world.vns, world.groups, readings, world.now_s, world.links, observed
            )
            self.limit_bps = result.limit_bps
            world.modified(result.changes.rows)
        return self.limit_bps
