"""HyGenICC's claims, on figures made by hand."""

from __future__ import annotations

import pytest
from support.constructed_runs import summary, verdict, with_seeds

from experiments.papers.hygenicc import BEST, FIGURES, LAW, SENDERS, paper
from experiments.scenarios.hygenicc.fig2 import BOTH, LINK_BPS


def run(experiment, control, swing, idle=0, fabric="model"):
    """A run whose tagged sender, the last, swings by a part of its share; ``idle`` intervals are below 80 %."""
    scale = 1.0 if fabric == "model" else 0.05
    senders = SENDERS[experiment]
    share_bps = LINK_BPS * scale / senders
    phase = {"swing_bps_by_sender": [0.0] * (senders - 1) + [swing * share_bps]}
    phase["delivered_bps_by_sender"] = [share_bps] * senders
    return summary(experiment, control, fabric=fabric, phases={BOTH: phase}, idle_longest=idle)


@pytest.mark.parametrize(
    ("fabric", "swing", "holds"), [("model", 0.14, True), ("model", 0.16, False), ("ovs", 0.24, True)]
)
def test_the_tagged_sender_must_not_swing_whoever_it_competes_with(fabric, swing, holds):
    runs = [run(name, LAW, 0.05, fabric=fabric) for name in FIGURES[:-1]]
    assert verdict(paper, "smooth", *runs, run(FIGURES[-1], LAW, swing, fabric=fabric)).holds is holds


def test_the_link_must_not_be_idle_for_long_and_the_cut_that_mends_it_is_named():
    good = [run(name, control, 0.1, idle=5) for name in FIGURES for control in (LAW, BEST)]
    assert verdict(paper, "utilised", *good).holds is True
    bad = with_seeds(run(name, cut, 0.1, idle=idle) for name in FIGURES for cut, idle in ((LAW, 6), (BEST, 5)))
    found = verdict(paper, "utilised", *bad)
    assert (found.holds, found.result) == (False, "cut 0: 6; cut 1: -; cut 2: 5 intervals in a row")
    assert paper.deciding(bad)["utilised"].startswith("cut 2: ")


@pytest.mark.parametrize(("none", "holds"), [(0.31, True), (0.29, False)])
def test_without_control_rates_must_swing_three_times_as_much(none, holds):
    assert (
        verdict(paper, "unstable", run("hygenicc-fig2-tcp", "none", none), run("hygenicc-fig2-tcp", BEST, 0.1)).holds
        is holds
    )


def test_the_least_and_the_most_of_several_experiments_are_told():
    found = verdict(
        paper, "smooth", run(FIGURES[0], BEST, 0.05), run(FIGURES[1], BEST, 0.125), run(FIGURES[1], LAW, 0.3)
    )
    assert found.result == "cut 0: 30.0 %; cut 1: -; cut 2: 5.0 to 12.5 %"
