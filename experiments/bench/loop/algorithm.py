"""``dets bench loop --algorithm``: what an interval costs under a policy, and how many times fp's its step takes.

Both run on the same switches, one after the other. Every pair goes over four links: the ports of its ends, and two of
known capacity between, through a switch in the middle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.policy.registry import make_policy
from experiments.bench.loop.bench import INTERVAL_MS, MEASURED_S, Size, check, measure_size
from experiments.bench.loop.report import SWITCHES, VARIED, summary
from experiments.machine.processors import machine

YARDSTICK = "fp"
GRID = (100, 1_000, 10_000)  # entries of each switch
TARGET_TIMES = 4.0
"""What a policy that shares out links may take of a step, against one that only looks at receivers."""


def run(
    algorithm: str,
    parameters: Mapping[str, object] | None = None,
    switches: int = SWITCHES,
    entries: int | None = None,
    interval_ms: int = INTERVAL_MS,
    seconds: float = MEASURED_S,
    output: Path = Path("results/bench-loop"),
    profile: bool = False,
) -> dict[str, Any]:
    """Measure a policy and fp with ``switches`` times ``entries`` entries, or with three sizes; write to ``output``.

    With ``profile`` the policy alone is sampled, as ``experiments.bench.loop.bench`` does. Raises InvalidValueError for
    a policy that there is none of, for its parameters, and for numbers that no fabric can have.
    """
    make_policy(algorithm, parameters, interval_ms=interval_ms)
    check(switches, entries, interval_ms, seconds)
    output.mkdir(parents=True, exist_ok=True)
    policies = [(algorithm, dict(parameters or {}))]
    if not profile and algorithm != YARDSTICK:
        policies.insert(0, (YARDSTICK, {}))
    rows: list[dict[str, Any]] = []
    for each in GRID if entries is None else (entries,):
        for policy in policies:
            size = Size(switches, each, interval_ms, baseline=False, policy=policy)
            made = [{**row, "algorithm": policy[0]} for row in measure_size(size, seconds, output if profile else None)]
            for row in made:
                step_ms = f"step {row['step_ms']['p50']:.2f} ms"
                print(
                    f"{row['entries']:>9,} {policy[0]:<16} {row['varied']:>4.0%}: {step_ms}, {summary(row)}", flush=True
                )
            rows += made
    settings = {"switches": switches, "interval_ms": interval_ms, "seconds": seconds, **machine()}
    result = {"settings": settings, "figures": {"rows": rows}, "targets": targets(algorithm, rows)}
    (output / f"loop-{algorithm}.json").write_text(json.dumps(result, indent=1))
    return result


def targets(algorithm: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the targets of the sizes where every receiver's load varies: the step's time, and intervals missed."""
    step_ms = {(row["algorithm"], row["entries"]): row["step_ms"]["p50"] for row in rows if row["varied"] == VARIED[0]}
    made = []
    for row in rows:
        if row["algorithm"] != algorithm or row["varied"] != VARIED[0]:
            continue
        entries, size = row["entries"], f"{row['entries']:,} entries"
        limits = [(f"{size}: round", row["total_ms"]["p50"], "ms", float(row["interval_ms"]))]
        if algorithm != YARDSTICK and (YARDSTICK, entries) in step_ms:
            times = row["step_ms"]["p50"] / step_ms[YARDSTICK, entries]
            limits.append((f"{size}: step, of {YARDSTICK}'s", times, "x", TARGET_TIMES))
        made += [
            {"name": name, "value": value, "unit": unit, "target": most, "met": value <= most}
            for name, value, unit, most in limits
        ]
    return made
