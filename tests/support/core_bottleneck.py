"""Two senders over a core link of half their links, under a law that never cuts: only that link drops frames."""

from __future__ import annotations

import numpy as np

from controller.policy.interface import Decision
from experiments.scenarios.scenario import Scenario, Source, Span
from experiments.scenarios.seawall import LINK_BPS, shared

NEVER_CUTS = "seawall-cubic alpha=0.000000001 a=1 kappa=100"
CORE = "out of s1:1001"
SENDERS, RECEIVER = (1, 2), 3


def core_bottleneck_scenario(*phases: tuple[float, str, Span]) -> Scenario:
    """Return the scenario: in each phase (part, protocol, span) each sender offers that part of its link."""
    return shared(
        "seawall-lost",
        "a narrow core link, without control",
        {1: None},
        topology="dumbbell",
        topology_options={"core_rate_bps": LINK_BPS // 2, "receivers": 1},
        pns=3,
        sources=tuple(
            Source(1, pn, RECEIVER, protocol, int(part * LINK_BPS), spans=(span,))
            for part, protocol, span in phases
            for pn in SENDERS
        ),
        duration_s=phases[-1][2][1],
        phases={},
    )


def reported_lost_bits(decision: Decision) -> float:
    """Return what Seawall's ledger says that the core link lost in the last interval."""
    assert decision.view.links is not None
    core = decision.view.links.names.index(CORE)
    lost_bps = np.nan_to_num(decision.state.ledger.lost[core]) * decision.state.load_bps[core]
    return float(lost_bps * decision.view.elapsed_s)
