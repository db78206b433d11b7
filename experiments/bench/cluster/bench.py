"""``dets bench cluster``: two controllers and an etcd of three members, all real, on software switches.

The active node is killed, alone or as if its machine had died, paused and stopped, in turn. A takeover lasts until the
other node sets the first meter by a decision; the switches log the time (``bench.loop.switch_process``). A tenth of the
receivers varies, so that every interval has decisions; the others show whether a guarantee is violated. With
``cross_shard_pairs``, the cost of that many pairs between two shards follows (cross_shard_cost.py), with ``kills``,
that many random kills and pauses in a row (random_failures.py), and with ``faults``, partitions, full disks and clock
steps (fault_runner.py). With ``sharded`` three nodes own the switches, owners change (ownership_changes.py), and kills
and faults are those of sharded nodes.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from experiments.bench.cluster.cross_shard_cost import measure_cross_shard
from experiments.bench.cluster.fault_runner import run_faults
from experiments.bench.cluster.ownership_changes import run_ownership_changes
from experiments.bench.cluster.random_failures import run_kills
from experiments.bench.cluster.takeover import INTERVAL_MS, measure
from experiments.bench.cluster.testbed.loaded_cluster import ClusterVerdict
from experiments.bench.harness import Target, check_bounds, finished
from experiments.machine.cluster_process import ETCD_MEMBERS

SWITCHES, PAIRS, REPEATS, SECONDS = 2, 10_000, 3, 20.0
MIN_PAIRS = 100  # with fewer, a receiver has too few senders to be congested
MIN_CROSS_SHARD = 1000  # below that, the cost of the interval itself counts
TARGET_CROSS_SHARD_NS = 300.0
TARGET_MOVES = {"moved": 2, "drained": 2, "killed": 20, "stopped": 20, "machine dead": 65, "paused": 65}
TARGET_INTERVALS = {"killed": 20, "machine dead": 65, "paused": 65}


def run(
    switches: Annotated[int, "How many switches."] = SWITCHES,
    pairs: Annotated[int, "Metered pairs of each switch."] = PAIRS,
    repeats: Annotated[int, "How often the active node fails by each cause."] = REPEATS,
    seconds: Annotated[float, "Duration of the measurement of costs."] = SECONDS,
    cross_shard_pairs: Annotated[int, "Also measure this many pairs between two shards, in one process."] = 0,
    kills: Annotated[int, "Also kill or pause processes this many times, at random."] = 0,
    faults: Annotated[bool, "Also cause partitions, full disks and clock steps (root)."] = False,
    sharded: Annotated[bool, "Three sharded nodes and ownership changes, not active-standby."] = False,
    node_failures: Annotated[int, "With --sharded: also let this many nodes fail, one a minute."] = 0,
    seed: Annotated[int, "Seed of the random choices."] = 1,
    output: Annotated[Path, "Folder of the results."] = Path("results/bench-cluster"),
) -> dict[str, Any]:
    """Time of a takeover, cost of a standby, and kills in a row (etcd-server)."""
    check_bounds(
        switches=(switches, 1, 20),
        pairs=(pairs, MIN_PAIRS, 60_000),
        repeats=(repeats, 0, 100),
        seconds=(seconds, 1, 600),
        cross_shard_pairs=(cross_shard_pairs, MIN_CROSS_SHARD if cross_shard_pairs else 0, 1_000_000),
        kills=(kills, 0, 10_000),
        node_failures=(node_failures, 0, 10_000 if sharded else 0),
        seed=(seed, 0, 2**32 - 1),
    )
    figures: dict[str, Any] = {}
    targets: list[Target] = []
    with TemporaryDirectory(prefix="dets-cluster-") as name:
        if sharded and (repeats or kills or node_failures):
            figures["moves"], targets = _sharded(repeats, kills, node_failures, seed, Path(name))
        if repeats and not sharded:
            figures |= measure(switches, pairs, repeats, seconds, Path(name))
            figures["takeover_intervals"] = {
                what: _intervals([takeover["last_s"] for takeover in made])
                for what, made in figures["takeovers"].items()
            }
            targets += takeover_targets(figures)
        if cross_shard_pairs:
            cost = figures["cross_shard"] = measure_cross_shard(cross_shard_pairs)
            title = "a cross-shard pair, both sides, without the network"
            targets.append(Target(title, cost["more_ns"], "ns more", TARGET_CROSS_SHARD_NS))
        if kills and not sharded:
            verdict = run_kills(kills, seed, Path(name) / "kills")
            figures["kills"] = asdict(verdict)
            targets.append(_no_problems(verdict, f"{kills} kills and pauses"))
        if faults:
            verdict = run_faults(Path(name) / "faults", sharded=sharded)
            figures["faults"] = asdict(verdict)
            targets.append(_no_problems(verdict, "partitions, full disks and clock steps"))
    options = {"switches": switches, "pairs": pairs, "repeats": repeats, "sharded": sharded}
    options |= {"cross_shard_pairs": cross_shard_pairs, "seed": seed}
    options |= {"kills": kills, "faults": faults, "node_failures": node_failures}
    settings = {**options, "interval_ms": INTERVAL_MS, "etcd_members": ETCD_MEMBERS}
    return finished("cluster", figures, targets, settings, output)


def _sharded(
    repeats: int, kills: int, node_failures: int, seed: int, folder: Path
) -> tuple[dict[str, Any], list[Target]]:
    """Return the figures of sharded nodes, and their targets."""
    report = run_ownership_changes(repeats, kills, node_failures, seed, folder)
    targets = [
        Target(f"{way}: a switch without a decision", max(made), "intervals", TARGET_MOVES[way])
        for way, made in report.undecided.items()
    ]
    if node_failures:
        title = f"changes that switches refused while nodes failed {node_failures} times"
        targets.append(Target(title, report.refused_writes, "", 0))
    what = f"{repeats} changes of owners in each way, {kills} kills and pauses, {node_failures} node failures"
    return asdict(report), [*targets, _no_problems(report.judgement, what)]


def _intervals(seconds: list[float]) -> dict[str, float]:
    intervals = [second * 1e3 / INTERVAL_MS for second in seconds]
    return {"median": statistics.median(intervals), "max": max(intervals)}


def takeover_targets(figures: dict[str, Any]) -> list[Target]:
    """Return the targets of the takeovers: durations, senders below their guarantee, and meters filled again.

    Each is judged by its worst repeat; a duration is that of the slowest switch. ``figures`` is what takeover.measure
    returns, with "takeover_intervals": median and max duration by how the active node ended.
    """
    targets = [
        Target(f"{what}: to the first meter set", took["max"], "intervals", TARGET_INTERVALS[what])
        for what, took in figures["takeover_intervals"].items()
        if what in TARGET_INTERVALS
    ]
    made = [takeover for takeovers in figures["takeovers"].values() for takeover in takeovers]
    missed = max(max(0, takeover["missed"] - takeover["missed_before"]) for takeover in made)
    targets.append(Target("senders below their guarantee in a takeover, above those before", missed, "", 0))
    targets.append(
        Target("meters that a takeover fills again", max(takeover["filled_again"] for takeover in made), "", 0)
    )
    return targets


def _no_problems(judgement: ClusterVerdict, what: str) -> Target:
    for problem in judgement.problems:
        print(problem, flush=True)
    return Target(f"concurrent writers, lost revisions, unlimited senders: {what}", len(judgement.problems), "", 0)
