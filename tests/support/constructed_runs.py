"""Runs that are made by hand: columns, and summaries with several seeds. Fewer than three seeds decide nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from experiments.evaluation.claims import ClaimVerdict, Paper
from experiments.runs.scenario_run import ScenarioRun, receivers_of
from experiments.scenarios.scenario import INTERVAL_S, Scenario

SEEDS = (1, 2, 3)
FRAME_BITS = 8 * 1518


def with_seeds(runs: Iterable[dict[str, Any]], seeds: Iterable[int] = SEEDS) -> list[dict[str, Any]]:
    """Return the same runs for each of the seeds."""
    made = list(runs)
    return [{**one, "seed": seed} for seed in seeds for one in made]


def summary(
    experiment: str, control: str, *, seed: int = 1, fabric: str = "model", phases: dict[str, Any] | None = None,
    **figures: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the summary of a run."""
    names = {"experiment": experiment, "control": control, "seed": seed, "fabric": fabric}
    return {**names, "figures": figures, "phases": phases or {}, "notes": {}}


def verdict(paper: Paper, key: str, *runs: dict[str, Any]) -> ClaimVerdict:
    """Return a paper's verdict on a claim or an aim after these runs with three seeds."""
    (claim,) = (one for one in (*paper.claims, *paper.aims) if one.key == key)
    return paper.verdict(claim.judge, with_seeds(runs))


def scenario_run(
    scenario: Scenario, delivered_bps: ArrayLike, granted_bps: ArrayLike = np.inf, **given: Any
) -> ScenarioRun:
    """Return a run whose sources deliver full frames at these rates, in all its intervals or in each.

    ``given`` replaces columns and what the run is called by.
    """
    intervals, sources = round(scenario.duration_s / INTERVAL_S), scenario.sources
    bits = np.broadcast_to(np.asarray(delivered_bps, dtype=float), (intervals, len(sources))) * INTERVAL_S
    receivers = receivers_of(scenario)
    received = np.zeros((intervals, len(receivers)))
    np.add.at(received.T, [receivers.index((one.vlan_vid, one.receiver)) for one in sources], bits.T)
    granted = np.broadcast_to(np.asarray(granted_bps, dtype=float), (intervals, len(scenario.pairs)))
    made = {"control": "fp", "fabric": "model", "seed": 1, "notes": {}, "time_s": np.arange(intervals + 1) * INTERVAL_S}
    packets = {"received_packets": received / FRAME_BITS, "sent_packets": np.ones(len(sources))}
    made |= {"delivered_bits": bits, "received_bits": received, "granted_bps": granted, **packets}
    made |= {"lost_packets": np.zeros(len(sources)), "transfers": np.zeros((0, 3))}
    return ScenarioRun(scenario, **{**made, **given})
