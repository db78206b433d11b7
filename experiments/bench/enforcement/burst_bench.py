"""``dets bench enforcement --bursts``: what bursting senders gain and others lose, with queues and without.

Three UDP senders burst to a receiver with a limit of 11 Mb/s, at a port of 40 Mb/s. The port's other VLAN receives from
three TCP senders, with a limit of 25 Mb/s. Each UDP sender sends once before, then all pause until the bursts begin.
The bench runs on the model, and as root on Open vSwitch too. Targets: in no second does the UDP VLAN receive more than
10 % above its limit, and the TCP VLAN is below 95 % of its limit for at most two intervals in a row.
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
from experiments.bench.harness import Target, finished
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
SENDERS = 3  # of each VLAN
VICTIM_VLAN, BURST_VLAN = 1, 2
LINK_BPS, OFFERED_BPS = 40_000_000, 20_000_000  # of the receiver's port, and by each UDP sender in a burst
VICTIM_LIMIT_BPS, BURST_LIMIT_BPS = 25_000_000, 11_000_000
FIRST_SEND_S = 0.060  # each UDP sender sends first, one after the other
BEFORE_S = (1.5, 3.3)  # the UDP senders pause: TCP is measured for comparison
BEGIN_S, LASTS_S = 3.5, 4.0  # of the bursts
COLUMNS = {
    **{name: f"{{{name}}}" for name in ("fabric", "queues", "pattern", "algorithm")},
    "gain": "{gain:+.1%}",
    "most intervals in a row of TCP below 95 %": "{below_on_end}",
    "before the bursts": "{below_on_end_before}",
}
MAX_GAIN = 0.10
MAX_BELOW_INTERVALS = 2


def scenario(pattern: BurstPattern, *, queues: bool) -> Scenario:
    """Return the scenario of one pattern; ``queues``: the receiver's port has a queue for each VLAN."""
    receiver, sources = SENDERS + 1, []
    for number in range(SENDERS):
        sources.append(Source(VICTIM_VLAN, number + 1, receiver, "tcp"))
        first_send_s = 0.2 + number * FIRST_SEND_S
        spans = [(BEGIN_S + start_s, BEGIN_S + end_s) for start_s, end_s in pattern.spans(number, LASTS_S)]
        spans.insert(0, (first_send_s, first_send_s + FIRST_SEND_S))
        sources.append(Source(BURST_VLAN, number + 1, receiver, "udp", OFFERED_BPS, spans=tuple(spans)))
    limits_bps = {VICTIM_VLAN: VICTIM_LIMIT_BPS, BURST_VLAN: BURST_LIMIT_BPS}
    limits = {vid: Limits(limit_bps, limit_bps) for vid, limit_bps in limits_bps.items()}
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
    """Return the gain, and the most intervals in a row of the TCP VLAN below 95 % of its limit, before and in bursts.

    The shares of the processors tell whether this machine could carry the run.
    """
    column = {vid: index for index, (vid, _) in enumerate(run.receivers)}
    burst_bits, victim_bits = (run.received_bits[:, column[vid]] for vid in (BURST_VLAN, VICTIM_VLAN))
    after_first_sends = run.time_s >= BEFORE_S[0]
    total_bits = np.append(0.0, np.cumsum(burst_bits))
    below = victim_bits / np.diff(run.time_s) < RECOVERED_SHARE * VICTIM_LIMIT_BPS
    before = (run.time_s[:-1] >= BEFORE_S[0]) & (run.time_s[1:] <= BEFORE_S[1])
    during = (run.time_s[:-1] >= BEGIN_S) & (run.time_s[1:] <= BEGIN_S + LASTS_S)
    return {
        "gain": worst_gain(run.time_s[after_first_sends], total_bits[after_first_sends], BURST_LIMIT_BPS),
        "below_on_end_before": longest_run(below[before]),
        "below_on_end": longest_run(below[during]),
        "cpu_idle_share": run.notes.get("cpu_idle_share", 1.0),
        "cpu_stolen_share": run.notes.get("cpu_stolen_share", 0.0),
    }


def run_bursts(full: bool, seed: int, output: Path) -> dict[str, Any]:
    """Measure the default subset of patterns, or all; write JSON and table."""
    fabrics = ("model", "ovs") if os.geteuid() == 0 else ("model",)
    rows = list(_measure(fabrics, PATTERNS if full else DEFAULT_SUBSET, seed))
    return finished("bursts", {"rows": rows}, targets(rows), {"seed": seed}, output, COLUMNS)


def _measure(fabrics: Sequence[str], patterns: Sequence[BurstPattern], seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row of figures for each fabric, without and with queues, each pattern and each algorithm."""
    for fabric in fabrics:
        for queues in (False, True):
            for pattern in patterns:
                for algorithm in ALGORITHMS:
                    run = _run(fabric, scenario(pattern, queues=queues), algorithm, seed)
                    identity = {"fabric": fabric, "queues": "limit" if queues else "none"}
                    yield {**identity, "pattern": pattern.name, "algorithm": algorithm, **figures(run)}


def _run(fabric: str, planned: Scenario, algorithm: str, seed: int) -> ScenarioRun:
    """Run one scenario on a fabric, ``model`` or ``ovs``, under an algorithm; report no progress."""
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
            ("below_on_end", "TCP below 95 %", "intervals", MAX_BELOW_INTERVALS),
        ):
            worst = max(own_rows, key=itemgetter(key))
            name = f"{fabric}, queues {queues}: {quantity}, worst ({worst['algorithm']}, {worst['pattern']})"
            found.append(Target(name, float(worst[key]), unit, maximum))
    return found
