"""Seawall in the real application, on software switches in real time: its readings come by OpenFlow."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.runs.wire_run import run_on_wire
from experiments.scenarios import scenarios

pytestmark = pytest.mark.rates
SECONDS = 12.0


def test_a_flow_next_to_a_flood_has_half_of_the_link(tmp_path):
    scenario = scenarios()["seawall-fig9-a"].lasting(SECONDS).on("wire", 0.05)
    run = run_on_wire(scenario, "seawall", 1, lambda _passed_s: None, tmp_path)
    last = run.time_s[1:] > SECONDS - 4.0  # a loop needs some 60 intervals
    rates_bps = run.delivered_bits[last].sum(axis=0) / np.diff(run.time_s)[last].sum()
    half_bps = 0.49 * scenario.link_rate_bps
    assert run.granted_bps[last].mean(axis=0) == pytest.approx([half_bps, half_bps], rel=0.15)
    assert rates_bps[0] >= 0.3 * scenario.link_rate_bps  # without control it is below 0.10
