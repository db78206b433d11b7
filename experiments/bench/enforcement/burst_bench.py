"""``dets bench enforcement --bursts``: what bursting senders gain and others lose, with queues and without.

Three UDP senders with a receive limit of 11 Mb/s burst behind a port of 40 Mb/s, next to three TCP senders of another
VLAN with a limit of 25 Mb/s. All have sent before; then the UDP senders paused. On the model, and as root on Open
vSwitch. Targets: in no second more than 10 % above the limit, and the TCP VLAN below 95 % of its limit for at most two
intervals in a row.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from experiments.bench.enforcement.burst_patterns import BurstPattern, worst_gain
from experiments.bench.harness import Target, finished, markdown
from experiments.measure.rate_series import RECOVERED_SHARE, longest_run
from experiments.runs.model_run import run_on_model
from experiments.runs.scenario_run import ScenarioRun
from experiments.scenarios.scenario import Limits, Scenario, Source

ALGORITHMS = ("fs", "sp", "fp", "fe", "level", "max-min")
PATTERNS = (
    BurstPattern(1.0, 0.0),
    BurstPattern(0.060, 0.050),
    BurstPattern(0.110, 0.110),
    BurstPattern(0.030, 0.080),
    BurstPattern(0.060, 0.050, 0.022),
    BurstPattern(0.300, 0.300),
    BurstPattern(1.5, 1.5),
)
DEFAULT_SUBSET = PATTERNS[:2]
SENDERS = 3
VICTIM_VLAN, BURST_VLAN = 1, 2
LINK_BPS, VICTIM_BPS, BURST_BPS, OFFERED_BPS = 40_000_000, 25_000_000, 11_000_000, 20_000_000
MEASURED_S = 0.060  # each UDP sender sends first, one after the other
BEFORE_S, BEGIN_S, LASTS_S = (1.5, 3.3), 3.5, 4.0
MAX_GAIN = 0.10
MAX_BELOW = 2


def scenario(pattern: BurstPattern, *, queues: bool) -> Scenario:
    """Return the scenario of one pattern."""
    receiver, sources = SENDERS + 1, []
    for number in range(SENDERS):
        sources.append(Source(VICTIM_VLAN, number + 1, receiver, "tcp"))
        begin_s = 0.2 + number * MEASURED_S
        spans = [(BEGIN_S + start_s, BEGIN_S + end_s) for start_s, end_s in pattern.spans(number, LASTS_S)]
        spans.insert(0, (begin_s, begin_s + MEASURED_S))
        sources.append(Source(BURST_VLAN, number + 1, receiver, "udp", OFFERED_BPS, spans=tuple(spans)))
    limits = {VICTIM_VLAN: Limits(VICTIM_BPS, VICTIM_BPS), BURST_VLAN: Limits(BURST_BPS, BURST_BPS)}
    return Scenario(
        name="bursts",
        title=pattern.name,
        limits=limits,
        sources=tuple(sources),
        duration_s=BEGIN_S + LASTS_S + 0.2,
        pns=SENDERS + 1,
        link_rate_bps=LINK_BPS,
        queues=queues,
    )


def figures(run: ScenarioRun) -> dict[str, float | int]:
    """Return the gain, and in how many intervals the TCP VLAN got less than its guarantee, in total and in a row."""
    column = {vid: index for index, (vid, _) in enumerate(run.receivers)}
    burst, victim = (run.received_bits[:, column[vid]] for vid in (BURST_VLAN, VICTIM_VLAN))
    after_first_sends = run.time_s >= BEFORE_S[0]
    total_bits = np.append(0.0, np.cumsum(burst))
    rate_bps = victim / np.diff(run.time_s)
    below = rate_bps < RECOVERED_SHARE * VICTIM_BPS
    before = (run.time_s[:-1] >= BEFORE_S[0]) & (run.time_s[1:] <= BEFORE_S[1])
    during = (run.time_s[:-1] >= BEGIN_S) & (run.time_s[1:] <= BEGIN_S + LASTS_S)
    return {
        "gain": worst_gain(run.time_s[after_first_sends], total_bits[after_first_sends], BURST_BPS),
        "below_on_end_before": longest_run(below[before]),
        "below_share_before": float(below[before].mean()),
        "below_on_end": longest_run(below[during]),
        "below_share": float(below[during].mean()),
        "victim_share_before": float(rate_bps[before].mean() / VICTIM_BPS),
        "victim_share": float(rate_bps[during].mean() / VICTIM_BPS),
        "cpu_idle_share": run.notes.get("cpu_idle_share", 1.0),
        "cpu_stolen_share": run.notes.get("cpu_stolen_share", 0.0),
    }


def run_bursts(full: bool, seed: int, output: Path) -> dict[str, Any]:
    """Measure the default subset of patterns, or all; write JSON, CSV and table."""
    fabrics = ("model", "ovs") if os.geteuid() == 0 else ("model",)
    rows = list(_measure(fabrics, PATTERNS if full else DEFAULT_SUBSET, seed))
    print(table(rows))
    return finished("bursts", {"rows": rows}, targets(rows), {"seed": seed}, output, table(rows), rows)


def _measure(fabrics: Sequence[str], patterns: Sequence[BurstPattern], seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each fabric, with and without queues, each pattern and each algorithm."""
    for fabric in fabrics:
        for queues in (False, True):
            for pattern in patterns:
                for algorithm in ALGORITHMS:
                    run = _run(fabric, scenario(pattern, queues=queues), algorithm, seed)
                    identity = {"fabric": fabric, "queues": "limit" if queues else "none"}
                    yield {**identity, "pattern": pattern.name, "algorithm": algorithm, **figures(run)}


def _run(fabric: str, planned: Scenario, algorithm: str, seed: int) -> ScenarioRun:
    """Run one scenario on a fabric under an algorithm."""
    if fabric == "model":
        return run_on_model(planned, algorithm, seed, lambda _passed_s: None)
    from experiments.runs.ovs_run import run_on_ovs

    with tempfile.TemporaryDirectory(prefix="dets-bursts-") as folder:
        return run_on_ovs(planned, algorithm, seed, lambda _passed_s: None, Path(folder))


def targets(rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    """Return the worst gain and the longest time below 95 % by fabric and queues, compared with the targets."""
    found = []
    for fabric, queues in dict.fromkeys((row["fabric"], row["queues"]) for row in rows):
        own_rows = [row for row in rows if (row["fabric"], row["queues"]) == (fabric, queues)]
        for key, quantity, unit, maximum in (
            ("gain", "gain over any second", "of the limit", MAX_GAIN),
            ("below_on_end", "TCP below 95 %", "intervals", MAX_BELOW),
        ):
            worst = max(own_rows, key=itemgetter(key))
            name = f"{fabric}, queues {queues}: {quantity}, worst ({worst['algorithm']}, {worst['pattern']})"
            found.append(Target(name, float(worst[key]), unit, maximum))
    return found


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table: a row per fabric, queues and pattern, the algorithms side by side.

    A cell is the gain, then the longest time of the TCP VLAN below 95 % (in brackets: before the bursts), intervals.
    """
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        text = f"{row['gain']:+.1%}, {row['below_on_end']} ({row['below_on_end_before']})"
        key = row["fabric"], row["queues"], row["pattern"]
        cells.setdefault(key, dict(zip(("fabric", "queues", "pattern"), key, strict=True)))[row["algorithm"]] = text
    columns = {name: itemgetter(name) for name in ("fabric", "queues", "pattern", *ALGORITHMS)}
    return markdown(list(cells.values()), columns)
