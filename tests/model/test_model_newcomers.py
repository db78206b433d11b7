"""Without receiving queues, UDP senders that begin at once, known or not, do not hurt TCP of another VLAN."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from experiments.evaluation.measures import isolation_measures, rates_at
from experiments.runs.model_run import run_on_model
from experiments.runs.scenario_run import ScenarioRun
from experiments.scenarios.dets_fig5 import joined_by_udp
from experiments.scenarios.scenario import Scenario

BLAST_S = 5.02  # in the middle of an interval: where it begins with one, TCP loses some (docs/enforcement.md)


def scenario(*, known: bool) -> Scenario:
    """Figure 5 at the paper's speed; the UDP senders blast for the second time if they are ``known``."""
    made = joined_by_udp("dets-fig5", "", warmup_s=BLAST_S, blast_s=1.1, cooldown_s=1.0, queues=False)
    earlier = ((0.5, 0.8),) if known else ()
    sources = (
        source if source.protocol == "tcp" else dataclasses.replace(source, spans=(*earlier, *source.spans))
        for source in made.sources
    )
    return dataclasses.replace(made, sources=tuple(sources))


def run(control: str, *, known: bool) -> ScenarioRun:
    return run_on_model(scenario(known=known), control, 1, lambda _passed_s: None)


@pytest.mark.parametrize("known", [False, True], ids=["unknown", "known"])
@pytest.mark.parametrize("control", ["fs", "max-min"])
def test_tcp_is_back_within_two_intervals_and_stays(control: str, known: bool) -> None:
    ran = run(control, known=known)
    figures = isolation_measures(ran)
    assert figures["victim_intervals_below_95_percent_before_total"] <= 1
    assert figures["victim_recovery_intervals"] <= 2
    assert figures["victim_intervals_below_95_percent_total"] <= 2
    assert figures["victim_goodput_bps_during"] >= 0.97 * figures["victim_goodput_limit_bps"]


def test_all_unknown_senders_together_bring_what_fits_beside_the_others() -> None:
    """In the first interval: their limit and the reserve; not the whole port."""
    ran = run("fs", known=False)
    udp = rates_at(ran, (2, 11))
    first = int(np.argmax(udp.wire_bps > 0.0))
    assert udp.wire_bps[first : first + 3].max() < 0.65e9  # 1 Gb/s less TCP's 400 Mb/s, and what a queue holds


@pytest.mark.parametrize("control", ["fs", "fp", "max-min"])
def test_slow_senders_that_time_out_at_their_meters_have_their_limit(control: str) -> None:
    """2 Mb/s for each of ten: each sends for a tenth of the time, beside a blast that meters hold to a tenth."""
    rates = {"link_rate_bps": 50_000_000, "victim_limit_bps": 20_000_000, "aggressor_limit_bps": 25_000_000}
    made = joined_by_udp("slow", "", **rates, udp_rate_bps=16_000_000, queues=False)
    figures = isolation_measures(run_on_model(made, control, 1, lambda _passed_s: None))
    assert figures["victim_goodput_bps_during"] >= 0.97 * figures["victim_goodput_limit_bps"]
