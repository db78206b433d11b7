"""``dets bench cluster``: two controllers and an etcd of three members, all real, on software switches.

The active node is killed, alone or as if its machine had died, paused and stopped, by turns. The take-over
lasts until the other node sets the first meter by a decision; the switches say when (``bench.loop.loop_fabric``). A
tenth of the receivers varies, so that there is something to decide in every interval; the others show whether somebody
misses a guarantee. With ``crossing``, the cost of so many entries between two shards follows (crossing.py), with
``shared``, what a node of one, two and four takes with so many entries each (nodes.py), with ``hosts``, what a change
of one of so many costs (hosts.py), with ``kills``, so many random kills and pauses in a row (kills.py), and with
``faults``, partitions, full disks and clocks that step (faults.py).
With ``moves`` three nodes share switches out instead, and these change hands (shared_nodes.py); kills and faults are
theirs then.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from controller.errors import InvalidValueError
from experiments.bench.cluster.crossing import measure_crossing
from experiments.bench.cluster.faults import run_faults
from experiments.bench.cluster.hosts import LEAST_HOSTS, MOST_HOSTS, measure_hosts
from experiments.bench.cluster.kills import run_kills
from experiments.bench.cluster.nodes import LOOP, NODES, WHOLE, WITH_OPENFLOW, crossing_ns, efficiency, measure_nodes
from experiments.bench.cluster.shared_nodes import run_shared
from experiments.bench.cluster.takeover import INTERVAL_MS, measure
from experiments.bench.cluster.testbed.loaded_cluster import Judgement
from experiments.machine.cluster import ETCD_MEMBERS
from experiments.machine.processors import machine

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
TARGET_MANY = 2.0
TARGET_INTERVALS = {"killed": 20, "machine dead": 65, "paused": 65}


def run(
    switches: int = SWITCHES,
    entries: int = ENTRIES,
    repeats: int = REPEATS,
    seconds: float = SECONDS,
    crossing: int = 0,
    shared: int = 0,
    hosts: int = 0,
    kills: int = 0,
    faults: bool = False,
    moves: bool = False,
    deaths: int = 0,
    seed: int = 1,
    output: Path = Path("results/bench-cluster"),
) -> dict[str, Any]:
    """Measure with ``switches`` of ``entries`` metered pairs, each end ``repeats`` times, then ``kills`` by ``seed``.

    ``crossing`` entries between two shards are measured, nodes with ``shared`` entries each, and a change among so many
    ``hosts``, none if these are 0; ``faults`` need root.
    With ``moves`` it is three nodes that share three switches, without costs (shared_nodes.py), of which so many
    ``deaths`` follow, one a minute.
    ``seconds`` is how long costs are measured. Writes cluster.json and cluster.png to ``output``. Raises
    InvalidValueError for numbers outside of their bounds.
    """
    for name, value, low, high in (
        ("switches", switches, 1, 20),
        ("entries", entries, LEAST_ENTRIES, 60_000),
        ("repeats", repeats, 0, 100),
        ("seconds", seconds, 1, 600),
        ("crossing", crossing, LEAST_CROSSING if crossing else 0, 1_000_000),
        ("shared", shared, LEAST_SHARED if shared else 0, MOST_SHARED),
        ("hosts", hosts, LEAST_HOSTS if hosts else 0, MOST_HOSTS),
        ("kills", kills, 0, 10_000),
        ("deaths", deaths, 0, 10_000 if moves else 0),
        ("seed", seed, 0, 2**32 - 1),
    ):
        if not low <= value <= high:
            raise InvalidValueError(name, value, f"is outside {low} to {high}")
    output.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    targets: list[dict[str, Any]] = []
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
            cost = figures["crossing"] = measure_crossing(crossing)
            _tell(f"an entry: {cost['one_step_ns']:.0f} ns in one step, {cost['crossing_ns']:.0f} ns if it crosses")
            title = "an entry that crosses between shards, both sides, without the network"
            targets.append(_target(title, cost["more_ns"], "ns more", TARGET_CROSSING_NS))
        if shared:
            figures["shared"] = measure_nodes(shared, _tell)
            targets += shared_targets(figures["shared"])
        if hosts:
            figures["hosts"] = measure_hosts(hosts, _tell)
            targets += hosts_targets(figures["hosts"])
        if kills and not moves:
            killed = run_kills(kills, seed, Path(name) / "kills", _tell)
            figures["kills"] = asdict(killed)
            targets.append(_no_problems(killed.judgement, f"{kills} kills and pauses"))
        if faults:
            faulted = run_faults(Path(name) / "faults", _tell, shared=moves)
            figures["faults"] = asdict(faulted)
            targets.append(_no_problems(faulted.judgement, "partitions, full disks and clocks that step"))
    result = {
        "settings": {
            "switches": switches,
            "entries": entries,
            "repeats": repeats,
            "crossing": crossing,
            "shared": shared,
            "hosts": hosts,
            "kills": kills,
            "faults": faults,
            "moves": moves,
            "deaths": deaths,
            "seed": seed,
            "interval_ms": INTERVAL_MS,
            "etcd_members": ETCD_MEMBERS,
            **machine(),
            "command": "dets bench " + " ".join(["cluster", *sys.argv[3:]]),
        },
        "figures": figures,
        "targets": targets,
    }
    (output / "cluster.json").write_text(json.dumps(result, indent=1))
    if "takeovers" in figures and plot(figures, output / "cluster.png"):
        print(f"wrote {output}/cluster.png")
    return result


def _tell(line: str) -> None:
    print(line, flush=True)


def _moves(
    repeats: int, kills: int, deaths: int, seed: int, folder: Path
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the figures of nodes that share switches, and their targets."""
    report = run_shared(repeats, kills, seed, folder, _tell, deaths)
    targets = [
        _target(f"{way}: a switch without a decision", max(made), "intervals", TARGET_MOVES[way])
        for way, made in report.undecided.items()
    ]
    if deaths:
        title = f"changes that switches refused while nodes died {deaths} times"
        targets.append(_target(title, report.refused_writes, "", 0))
    what = f"{repeats} changes of owners in each way, {kills} kills and pauses, {deaths} deaths"
    return asdict(report), [*targets, _no_problems(report.judgement, what)]


def _intervals(seconds: list[float]) -> dict[str, float]:
    intervals = [one * 1e3 / INTERVAL_MS for one in seconds]
    return {"median": statistics.median(intervals), "max": max(intervals)}


def takeover_targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the targets of the take-overs. Every switch counts, and the slowest of all repeats."""
    most = {what: figures["takeover_intervals"][what]["max"] for what in TARGET_INTERVALS}
    targets = [
        _target(f"{what}: to the first meter set", most[what], "intervals", target)
        for what, target in TARGET_INTERVALS.items()
    ]
    made = [one for takeovers in figures["takeovers"].values() for one in takeovers]
    missed = max(max(0, one["missed"] - one["missed_before"]) for one in made)
    targets.append(_target("senders that miss their guarantee in a take-over, above those before", missed, "", 0))
    targets.append(_target("meters that a take-over fills again", max(one["filled_again"] for one in made), "", 0))
    return targets


def shared_targets(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how many entries nodes manage together, in nodes alone of the same processor time, and what one costs."""
    targets = []
    for nodes in (nodes for nodes in NODES if nodes > 1):
        for parts, of_what in COUNTED.items():
            together, least = nodes * efficiency(found, nodes, parts), TARGET_EFFICIENCY * nodes
            name = f"{nodes} nodes: entries an interval, {of_what}"
            row = {"name": name, "value": round(together, 2), "unit": "of one node's", "target": least}
            targets.append(row | {"met": together >= least})
        title = f"{nodes} nodes: an entry that crosses, both sides and transport"
        targets.append(_target(title, crossing_ns(found, nodes), "ns more", TARGET_CROSSING_NS))
    return targets


def hosts_targets(found: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Return the targets of a change of one host: it costs what it does among a hundredth of the hosts."""
    few, *_, all_of_them = found.values()
    return [
        _target(f"a change among many hosts, {where}, of one among few", all_of_them[part] / few[part], "", TARGET_MANY)
        for part, where in (("say_ms", "where it is"), ("hear_ms", "at a peer"))
    ]


def _no_problems(judgement: Judgement, what: str) -> dict[str, Any]:
    for problem in judgement.problems:
        _tell(problem)
    return _target(f"writers at once, revisions lost, senders freed: {what}", len(judgement.problems), "", 0)


def _target(name: str, value: float, unit: str, most: float) -> dict[str, Any]:
    return {"name": name, "value": round(value, 1), "unit": unit, "target": most, "met": value <= most}


def plot(figures: dict[str, Any], path: Path) -> bool:
    """Draw every take-over as a dot, in intervals; return whether matplotlib is there to do it."""
    try:
        from matplotlib import pyplot
    except ImportError:
        return False
    figure, axes = pyplot.subplots(figsize=(7, 3.2), layout="constrained")
    for row, (what, made) in enumerate(figures["takeovers"].items()):
        intervals = [one["last_s"] * 1e3 / INTERVAL_MS for one in made]
        axes.plot(intervals, [row] * len(intervals), "o", color="tab:blue", alpha=0.6)
        if what in TARGET_INTERVALS:
            axes.plot([TARGET_INTERVALS[what]], [row], "|", color="tab:red", markersize=22, markeredgewidth=2)
    axes.set_yticks(range(len(figures["takeovers"])), list(figures["takeovers"]))
    axes.set(
        xlabel=f"intervals of {INTERVAL_MS} ms to the first meter set by the other node; red: at most", xlim=(0, None)
    )
    axes.set_title("A standby takes over")
    axes.invert_yaxis()
    axes.grid(alpha=0.3, axis="x")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
