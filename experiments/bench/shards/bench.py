"""``dets bench shards``: many nodes in virtual time, with pairs that nearly all cross.

1) All senders begin, far above what receivers may get; 2) a tenth of them stops; 3) a node's machine dies, and a second
later another tenth stops; 4) a switch is moved to another node, and one more tenth stops. What counts is how many
intervals pass until every grant is, and stays, within 5 % of its fair share, for how long grants are held, and what
nodes say to each other.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from controller.errors import InvalidValueError
from controller.policy.cuts import check_cut
from controller.policy.registry import make_policy
from experiments.bench.shards.model import INTERVAL_S, LEASE_S, Model
from experiments.bench.shards.world import World
from experiments.machine.processors import machine

SHARDS, PAIRS, PORTS, ALGORITHM, SEED = 64, (1_000_000,), 64, "fp", 1
SWITCHES = 4  # of each node
HELLO, BEGINS, STOPS, MOVES = 6, 30, 20, 40  # intervals of each phase
STOPS_S = 1.0  # after the death
MOST_DEATH_S = 60.0
MOST_ABOVE_PERCENT = 5.0


def run(
    shards: int = SHARDS,
    pairs: Sequence[int] = PAIRS,
    ports: int = PORTS,
    algorithm: str = ALGORITHM,
    seed: int = SEED,
    output: Path = Path("results/bench-shards"),
) -> dict[str, Any]:
    """Run ``shards`` nodes of SWITCHES switches, with ``ports`` ports each, and about so many ``pairs``, one by one.

    Writes shards.json and shards.png to ``output``. Raises InvalidValueError for numbers outside of their bounds, and
    for policies that cannot be cut.
    """
    check_cut(type(make_policy(algorithm)))
    vns = shards * SWITCHES * ports
    bounds = [("shards", shards, 2, 256), ("ports", ports, 1, 4096), ("seed", seed, 0, 2**32 - 1)]
    for name, value, low, high in (*bounds, *(("pairs", each, 10 * vns, vns * (vns - 1)) for each in pairs)):
        if not low <= value <= high:
            raise InvalidValueError(name, value, f"is outside {low} to {high}")
    output.mkdir(parents=True, exist_ok=True)
    sizes, series = [], {}
    for each in pairs:
        made = simulate(World.of(shards * SWITCHES, ports, each // vns, algorithm, seed), shards, seed, _tell)
        _tell(f"{made['pairs']:,} pairs: {_summary(made)}")
        series[made["pairs"]] = made.pop("series")
        sizes.append(made)
    result = {
        "settings": {
            "shards": shards,
            "algorithm": algorithm,
            "seed": seed,
            **machine(),
            "command": "dets bench " + " ".join(["shards", *sys.argv[3:]]),
        },
        "figures": {"sizes": sizes},
        "targets": [target for made in sizes for target in targets(made)],
    }
    (output / "shards.json").write_text(json.dumps({**result, "series": series}))
    (output / "shards.md").write_text(table(sizes))
    if plot(series, output / "shards.png"):
        print(f"wrote {output}/shards.png")
    return result


def _tell(line: str) -> None:
    print(line, flush=True)


def simulate(world: World, shards: int, seed: int, tell: Callable[[str], None] = lambda _line: None) -> dict[str, Any]:
    """Return what happens in the four phases, and ``series``: see ``Model.series``. ``tell`` hears of each phase."""
    began_s, model = time.process_time(), Model(world, shards, seed)

    def done(name: str, phase: dict[str, Any]) -> None:
        phases[name] = phase
        tell(f"{name}: {json.dumps(phase)}; {time.process_time() - began_s:.0f} s of processor time so far")

    everybody = np.ones(len(world.vns), dtype=np.bool_)
    tenth = np.arange(len(everybody)) % 10
    model.run(HELLO * INTERVAL_S)
    phases: dict[str, dict[str, Any]] = {}
    # 1
    model.now_sends(everybody)
    done("all begin", _phase(model, BEGINS))
    # 2
    model.now_sends(tenth > 0)
    before = [(node.sent_octets, node.heard_octets) for node in model.nodes]
    done("a tenth stops", _phase(model, STOPS))
    said = [
        (node.sent_octets - sent, node.heard_octets - heard)
        for node, (sent, heard) in zip(model.nodes, before, strict=True)
    ]
    # 3
    died_s, since = model.now_s, len(model.series)
    model.kill(shards // 2)
    model.run(died_s + STOPS_S)
    model.now_sends(tenth > 1)
    model.run(died_s + LEASE_S)
    while not model.released and model.now_s < died_s + MOST_DEATH_S:
        model.run(model.now_s + INTERVAL_S)
    done("a node dies", {**_phase(model, STOPS), **_held(model, died_s), **_above(model, since)})
    # 4
    moved_s = model.now_s
    model.move(model.dpids[0], shards - 1)
    model.now_sends(tenth > 2)
    done("a switch is moved", {**_phase(model, MOVES), **_held(model, moved_s)})
    return {
        "pairs": model.entries,
        "crossing": 1.0 - 1.0 / shards,
        "phases": phases,
        "sent_octets_per_s": _spread([sent / (STOPS * INTERVAL_S) for sent, _ in said]),
        "heard_octets_per_s": _spread([heard / (STOPS * INTERVAL_S) for _, heard in said]),
        "refused_frames": dict(model.refused),
        "cpu_s": time.process_time() - began_s,
        "resident_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "series": model.series,
    }


def _phase(model: Model, intervals: int) -> dict[str, Any]:
    """Let so many intervals pass; return after how many all grants stand (None: not yet), and what receivers got."""
    since = len(model.series)
    model.run(model.now_s + intervals * INTERVAL_S)
    off = [one[1] for one in model.series[since:]]
    wrong = [number for number, part in enumerate(off, 1) if part > 0.0]
    last = wrong[-1] if wrong else 0
    return {"stands_after": None if last == len(off) else last, **_above(model, since)}


def _above(model: Model, since: int) -> dict[str, float]:
    return {"most_received": max(one[3] for one in model.series[since:])}


def _held(model: Model, since_s: float) -> dict[str, Any]:
    """Return for how long, s: from ``since_s`` until grants rise again, and how long of that nodes knew it."""
    live = [node for node in model.nodes if node.alive]
    return {
        "held_s": _spread([node.released_s - since_s for node in live]),
        "frozen_s": _spread([node.released_s - node.frozen_s for node in live]),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "most": float(np.max(values))}


def targets(made: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how far above its limit a receiver gets once grants have stood; no death may free anybody."""
    phases = list(made["phases"].values())[1:]
    above = 100 * (max(phase["most_received"] for phase in phases) - 1)
    name = f"{made['pairs']:,} pairs: most that a receiver gets above its limit while nodes die and switches move"
    most = MOST_ABOVE_PERCENT
    return [{"name": name, "value": round(above, 1), "unit": "%", "target": most, "met": above <= most}]


def _summary(made: dict[str, Any]) -> str:
    parts = [f"{name}: grants stand after {phase['stands_after']}" for name, phase in made["phases"].items()]
    return ", ".join(parts) + f"; {made['sent_octets_per_s']['mean'] / 1e6:.1f} MB/s a node"


def table(sizes: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table, a column for each size."""
    rows: list[tuple[str, list[str]]] = [("pairs", [f"{made['pairs']:,}" for made in sizes])]

    def add(title: str, values: list[str]) -> None:
        rows.append((title, values))

    for name in sizes[0]["phases"]:
        found = [made["phases"][name] for made in sizes]
        add(f"{name}: intervals until all grants stand", [str(one["stands_after"]) for one in found])
        add(f"{name}: most that a receiver gets, of its limit", [f"{one['most_received']:.1%}" for one in found])
        if "held_s" in found[0]:
            add(f"{name}: grants held, mean and most, s", [_both(one["held_s"]) for one in found])
            add(f"{name}: of that frozen at live nodes, s", [_both(one["frozen_s"]) for one in found])
    add("a node says, MB/s", [f"{made['sent_octets_per_s']['mean'] / 1e6:.1f}" for made in sizes])
    add("a node hears at most, MB/s", [f"{made['heard_octets_per_s']['most'] / 1e6:.1f}" for made in sizes])
    head, *body = rows
    lines = ["| " + " | ".join([head[0], *head[1]]) + " |", "|---" * (1 + len(sizes)) + "|"]
    return "\n".join([*lines, *("| " + " | ".join([title, *values]) + " |" for title, values in body)]) + "\n"


def _both(spread: dict[str, float]) -> str:
    return f"{spread['mean']:.2f}, {spread['most']:.2f}"


def plot(series: Mapping[int, Sequence[Any]], path: Path) -> bool:
    """Draw wrong grants and what receivers get over time; return whether matplotlib is there to do it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    figure = Figure(figsize=(9, 2.6 * 2), layout="constrained")
    FigureCanvasAgg(figure)
    wrong, got = figure.subplots(2, 1, sharex=True)
    for pairs, rows in series.items():
        at_s, off, mean, most = np.array(rows).T
        label = f"{pairs:,} pairs"
        wrong.plot(at_s, 100 * off, label=label)
        (line,) = got.plot(at_s, 100 * mean, label=f"{label}, mean")
        got.plot(at_s, 100 * most, ":", color=line.get_color(), label=f"{label}, most")
    wrong.set_ylabel("grants not within 5 %, %")
    got.set(xlabel="s", ylabel="a receiver gets, % of its limit", ylim=(80, 130))
    for box in (wrong, got):
        box.grid(alpha=0.3)
        box.legend(fontsize="x-small")
    figure.savefig(path, dpi=120)
    return True
