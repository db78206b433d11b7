"""``dets bench cluster``: two controllers and an etcd of three members, all real, on software switches.

The active node is killed, alone or as if its machine had died, paused and stopped, by turns. The take-over lasts
until the other node sets the first meter by a decision; the switches say when (``bench.loop.switch_process``). A
tenth of the receivers varies, so that there is something to decide in every interval; the others show whether
somebody misses a guarantee. With ``crossing``, the cost of so many entries between two shards follows
(cross_shard_cost.py), with ``shared``, what a node of one, two and four takes with so many entries each
(node_scaling.py), with ``kills``, so many random kills and pauses in a row (random_failures.py), and with ``faults``,
partitions, full disks and clocks that step (fault_runner.py). With ``moves`` three nodes share switches out instead,
and these change hands (ownership_changes.py); kills and faults are theirs then.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from experiments.bench.cluster.cross_shard_cost import measure_cross_shard
from experiments.bench.cluster.fault_runner import run_faults
from experiments.bench.cluster.node_scaling import (
    LOOP,
    NODES,
    WHOLE,
    WITH_OPENFLOW,
    cross_shard_ns,
    efficiency,
    measure_nodes,
)
from experiments.bench.cluster.ownership_changes import run_ownership_changes
from experiments.bench.cluster.random_failures import run_kills
from experiments.bench.cluster.takeover import INTERVAL_MS, measure
from experiments.bench.cluster.testbed.loaded_cluster import ClusterVerdict
from experiments.bench.harness import Panel, Target, check_bounds, finished
from experiments.machine.cluster_process import ETCD_MEMBERS

SWITCHES, ENTRIES, REPEATS, SECONDS = 2, 10_000, 3, 20.0
LEAST_ENTRIES = 100  # with fewer senders of a receiver there is nothing to decide
LEAST_CROSSING = 1000  # below that, the cost of the interval itself counts
TARGET_CROSSING_NS = 300.0
LEAST_SHARED, MOST_SHARED = 1000, 300_000
TARGET_EFFICIENCY = 0.8
COUNTED = {
    WITH_OPENFLOW: "by the control loop",
    LOOP: "by the control loop without its OpenFlow",
    WHOLE: "by all of a node's processor time, with ZeroMQ's thread",
}
TARGET_MOVES = {"moved": 2, "drained": 2, "killed": 20, "stopped": 20, "machine dead": 65, "paused": 65}
TARGET_INTERVALS = {"killed": 20, "machine dead": 65, "paused": 65}


def run(
    switches: Annotated[int, "How many switches."] = SWITCHES,
    entries: Annotated[int, "Metered entries of each."] = ENTRIES,
    repeats: Annotated[int, "How often the active node ends in each way."] = REPEATS,
    seconds: Annotated[float, "How long costs are measured."] = SECONDS,
    crossing: Annotated[int, "Then so many entries between two shards, in one process."] = 0,
    shared: Annotated[int, "Then 1, 2 and 4 nodes with so many entries each, in one process."] = 0,
    kills: Annotated[int, "Then so many random kills and pauses in a row."] = 0,
    faults: Annotated[bool, "Then partitions, full disks and clocks that step (root)."] = False,
    moves: Annotated[bool, "Three nodes whose switches change hands, instead of a pair."] = False,
    deaths: Annotated[int, "With --moves: then so many nodes die, one a minute."] = 0,
    seed: Annotated[int, "Which ones."] = 1,
    output: Annotated[Path, "Folder of figures and plot."] = Path("results/bench-cluster"),
) -> dict[str, Any]:
    """How soon a standby takes over, what a pair costs, and kills in a row (etcd-server)."""
    check_bounds(
        switches=(switches, 1, 20),
        entries=(entries, LEAST_ENTRIES, 60_000),
        repeats=(repeats, 0, 100),
        seconds=(seconds, 1, 600),
        crossing=(crossing, LEAST_CROSSING if crossing else 0, 1_000_000),
        shared=(shared, LEAST_SHARED if shared else 0, MOST_SHARED),
        kills=(kills, 0, 10_000),
        deaths=(deaths, 0, 10_000 if moves else 0),
        seed=(seed, 0, 2**32 - 1),
    )
    figures: dict[str, Any] = {}
    targets: list[Target] = []
    with TemporaryDirectory(prefix="dets-cluster-") as name:
        if moves and (repeats or kills or deaths):
            figures["moves"], targets = _moves(repeats, kills, deaths, seed, Path(name))
        if repeats and not moves:
            figures |= measure(switches, entries, repeats, seconds, Path(name), _tell)
            figures["takeover_intervals"] = {
                what: _intervals([one["last_s"] for one in made]) for what, made in figures["takeovers"].items()
            }
            targets += takeover_targets(figures)
        if crossing:
            cost = figures["crossing"] = measure_cross_shard(crossing)
            _tell(f"an entry: {cost['one_step_ns']:.0f} ns in one step, {cost['cross_shard_ns']:.0f} ns if it crosses")
            title = "an entry that crosses between shards, both sides, without the network"
            targets.append(Target(title, cost["more_ns"], "ns more", TARGET_CROSSING_NS))
        if shared:
            figures["shared"] = measure_nodes(shared, _tell)
            targets += shared_targets(figures["shared"])
        if kills and not moves:
            killed = run_kills(kills, seed, Path(name) / "kills", _tell)
            figures["kills"] = asdict(killed)
            targets.append(_no_problems(killed.judgement, f"{kills} kills and pauses"))
        if faults:
            faulted = run_faults(Path(name) / "faults", _tell, shared=moves)
            figures["faults"] = asdict(faulted)
            targets.append(_no_problems(faulted.judgement, "partitions, full disks and clocks that step"))
    asked = {"switches": switches, "entries": entries, "repeats": repeats, "crossing": crossing, "shared": shared}
    asked |= {"kills": kills, "faults": faults, "moves": moves, "deaths": deaths, "seed": seed}
    settings = {**asked, "interval_ms": INTERVAL_MS, "etcd_members": ETCD_MEMBERS}
    panels = [_panel(figures["takeovers"])] if "takeovers" in figures else []
    return finished("cluster", figures, targets, settings, output, panels=panels)


def _tell(line: str) -> None:
    print(line, flush=True)


def _moves(repeats: int, kills: int, deaths: int, seed: int, folder: Path) -> tuple[dict[str, Any], list[Target]]:
    """Return the figures of nodes that share switches, and their targets."""
    report = run_ownership_changes(repeats, kills, seed, folder, _tell, deaths)
    targets = [
        Target(f"{way}: a switch without a decision", max(made), "intervals", TARGET_MOVES[way])
        for way, made in report.undecided.items()
    ]
    if deaths:
        title = f"changes that switches refused while nodes died {deaths} times"
        targets.append(Target(title, report.refused_writes, "", 0))
    what = f"{repeats} changes of owners in each way, {kills} kills and pauses, {deaths} deaths"
    return asdict(report), [*targets, _no_problems(report.judgement, what)]


def _intervals(seconds: list[float]) -> dict[str, float]:
    intervals = [one * 1e3 / INTERVAL_MS for one in seconds]
    return {"median": statistics.median(intervals), "max": max(intervals)}


def takeover_targets(figures: dict[str, Any]) -> list[Target]:
    """Return the targets of the take-overs. Every switch counts, and the slowest of all repeats."""
    targets = [
        Target(f"{what}: to the first meter set", took["max"], "intervals", TARGET_INTERVALS[what])
        for what, took in figures["takeover_intervals"].items()
        if what in TARGET_INTERVALS
    ]
    made = [one for takeovers in figures["takeovers"].values() for one in takeovers]
    missed = max(max(0, one["missed"] - one["missed_before"]) for one in made)
    targets.append(Target("senders that miss their guarantee in a take-over, above those before", missed, "", 0))
    targets.append(Target("meters that a take-over fills again", max(one["filled_again"] for one in made), "", 0))
    return targets


def shared_targets(found: dict[str, Any]) -> list[Target]:
    """Return how many entries nodes manage together, in nodes alone of the same processor time, and what one costs."""
    targets = []
    for nodes in (nodes for nodes in NODES if nodes > 1):
        for parts, of_what in COUNTED.items():
            together, least = nodes * efficiency(found, nodes, parts), TARGET_EFFICIENCY * nodes
            name = f"{nodes} nodes: entries an interval, {of_what}"
            targets.append(Target(name, together, "of one node's", least, least=True))
        title = f"{nodes} nodes: an entry that crosses, both sides and transport"
        targets.append(Target(title, cross_shard_ns(found, nodes), "ns more", TARGET_CROSSING_NS))
    return targets


def _no_problems(judgement: ClusterVerdict, what: str) -> Target:
    for problem in judgement.problems:
        _tell(problem)
    return Target(f"writers at once, revisions lost, senders freed: {what}", len(judgement.problems), "", 0)


def _panel(takeovers: Mapping[str, list[dict[str, Any]]]) -> Panel:
    """Return a picture of every take-over as a dot, in intervals."""
    lines = {
        what: ([what] * len(made), [one["last_s"] * 1e3 / INTERVAL_MS for one in made])
        for what, made in takeovers.items()
    }
    return Panel(
        "A standby takes over", "", f"intervals of {INTERVAL_MS} ms to the first meter set", lines, joined=False
    )
