"""A fabric cut into shards, in virtual time, and a network between them that delays, loses, doubles and reorders.

And the same fabric in one process, to compare it with.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from support.fluid_meters import INTERVAL_S, World, ints

from controller.loop import control_step
from controller.shards.shard import Shard


@dataclass
class Network:
    """What happens to frames. ``delay`` is in intervals, 0: they are there in the next phase."""

    delay: int = 0
    loss: float = 0.0
    doubled: float = 0.0
    jitter: int = 0  # intervals more at most, by chance: later frames may overtake earlier ones
    seed: int = 1
    cut: set[int] = field(default_factory=set)  # shards that nobody hears, and which hear nobody
    _under_way: list[tuple[int, int, int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def send(self, interval: int, speaker: int, hearer: int, data: bytes) -> None:
        if {speaker, hearer} & self.cut:
            return
        for _ in range(1 + (self._random.random() < self.doubled)):
            if self._random.random() >= self.loss:
                due = interval + self.delay + self._random.randint(0, self.jitter)
                self._under_way.append((due, speaker, hearer, data))

    def arrived(self, interval: int) -> list[tuple[int, int, bytes]]:
        due = [one for one in self._under_way if one[0] <= interval]
        self._under_way = [one for one in self._under_way if one[0] > interval]
        return [one[1:] for one in due]


class CutFabric:
    """A world, or that of an algorithm, whose VNs belong to ``owner`` (vns,)."""

    def __init__(self, world: str | World, owner: list[int], network: Network | None = None) -> None:
        self.world = World(world) if isinstance(world, str) else world
        self.network, self.owner = network or Network(), ints(owner)
        self.interval, self.causes = 0, Counter()
        entries = self.world.entries
        self.rows = {one: np.flatnonzero(self.owner[entries.sender] == one) for one in sorted(set(owner))}
        self.shards = {one: self.shard(one, token=1) for one in self.rows}
        self.paused: set[int] = set()
        self.limit_bps = np.full(len(entries), np.inf)
        self.told: dict[int, np.ndarray] = {}  # of congestion, by each shard (vns,)

    def shard(self, number: int, token: int) -> Shard:
        """Return a shard that begins with its entries."""
        world = self.world
        shard = Shard(world.vns, world.groups, self.owner, number, token, INTERVAL_S, world.links.names)
        shard.state = world.state(self.rows[number])
        return shard

    def run(self, offered_kbits: list[int], intervals: int = 1) -> np.ndarray:
        """Let every entry send for so long; return the limits in force, (entries,)."""
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
            said = {one: phase(one, shard) for one, shard in running.items()}
            for speaker, frames in said.items():
                for hearer, several in frames.items():
                    for data in several:
                        self.network.send(self.interval, speaker, hearer, data)
            if not self.network.delay:
                self._deliver()
        for one, shard in running.items():
            result = shard.enforce(now_s)
            self.limit_bps[self.rows[one]], self.told[one] = result.limit_bps, result.notified
            self.world.modified(self.rows[one][result.changes.rows])

    def _deliver(self) -> None:
        for speaker, hearer, data in self.network.arrived(self.interval):
            if hearer not in self.paused:
                error = self.shards[hearer].receive(speaker, data, self.world.now_s)
                self.causes[error.cause if error else None] += 1

    def sums_bps(self) -> np.ndarray:
        """Return what the limits in force of each receiver's senders come to, (vns,)."""
        world = self.world
        return np.bincount(world.entries.receiver, self.limit_bps, len(world.vns))


def one_each(frames: dict[int, bytes]) -> dict[int, list[bytes]]:
    """Return one frame for each peer as a list."""
    return {hearer: [data] for hearer, data in frames.items()}


class OneProcess:
    """The same world, decided by one control step."""

    def __init__(self, world: str | World) -> None:
        self.world = World(world) if isinstance(world, str) else world
        self.everything = np.arange(len(self.world.entries))
        self.state, self.limit_bps = self.world.state(self.everything), np.full(len(self.everything), np.inf)

    def reset_policies(self) -> None:
        """Let policies begin again, as ``Shard.forget`` does."""
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
