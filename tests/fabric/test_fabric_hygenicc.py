"""HyGenICC's law on Open vSwitch: TCP at its meters, whose buckets pass a cut rate's savings for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.runs.ovs_run import run_on_ovs
from experiments.scenarios.scenario import Limits, Scenario, Source

pytestmark = pytest.mark.rates

LINK_BPS = 50_000_000
JOIN_S, SETTLED_S, END_S = 2.0, 4.0, 9.0
SCENARIO = Scenario(
    name="hygenicc-tcp",
    title="two TCP senders to one receiver",
    pns=3,
    link_rate_bps=LINK_BPS,
    limits={1: Limits(LINK_BPS, LINK_BPS)},
    sources=(Source(1, 1, 3, "tcp"), Source(1, 2, 3, "tcp", spans=((JOIN_S, END_S),))),
    duration_s=END_S,
)


def test_two_tcp_senders_fill_the_link_and_share_it(tmp_path: Path) -> None:
    """A law that cuts on while buckets are spent leaves 20 to 46 % of it in use."""
    run = run_on_ovs(SCENARIO, "hygenicc", 1, lambda _passed_s: None, tmp_path)
    settled = run.time_s[:-1] >= SETTLED_S
    rates_bps = run.delivered_bits[settled].sum(axis=0) / (run.time_s[-1] - run.time_s[:-1][settled][0])
    assert rates_bps.sum() >= 0.7 * LINK_BPS
    assert rates_bps.sum() ** 2 / (2 * (rates_bps**2).sum()) >= 0.9
