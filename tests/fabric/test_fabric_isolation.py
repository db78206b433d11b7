"""Figure 5 on a small fabric: limits that the fabric itself can hold, and those of DETS."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.experiment_options import ExperimentOptions
from experiments.experiment_runner import run

pytestmark = pytest.mark.rates

OPTIONS = ExperimentOptions(
    senders=3,
    link_rate_bps=20_000_000,
    victim_limit_bps=8_000_000,
    aggressor_limit_bps=10_000_000,
    udp_rate_bps=15_000_000,  # with its share of TCP it fits the link of its sender
    warmup_s=4,
    blast_s=4,
    cooldown_s=1,
    congestion_control="reno",
    static=True,
    quiet=True,
)


def test_static_limits_hold_both_vlans_and_so_does_dets(tmp_path: Path) -> None:
    cell = run("dets-fig5", replace(OPTIONS, output=tmp_path, baseline=False))["fp"]
    summary = cell["figures"]
    seen = {
        name: json.loads((tmp_path / "dets-fig5" / name / "seed-1" / "seen.json").read_text())
        for name in ("static", "fp")
    }
    meters = seen["static"]["switches"]["s1"]["dump-meters"].replace("meter=", "meter:")
    assert [f"meter:{number} " in meters for number in (1, 6, 7)] == [True, True, False]
    assert summary["victim_goodput_bps_during"] > 0.7 * summary["victim_goodput_limit_bps"]
    assert summary["aggressor_received_bps_during"] < 1.1 * 10e6
    assert 0.0 <= cell["notes"]["cpu_idle_share"] <= 1.0
    assert any(vn["congested"] for vn in seen["fp"]["vns"]["vns"])
