"""The experiment's machinery on a small fabric: iperf3 sources, sampler, baseline, limits that the fabric can hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.isolation import run_isolation
from experiments.options import ExperimentOptions

OPTIONS = ExperimentOptions(
    senders=3,
    link_rate_bps=20_000_000,
    victim_limit_bps=8_000_000,
    aggressor_limit_bps=10_000_000,
    udp_rate_bps=15_000_000,  # with its share of TCP it fits the link of its sender
    warmup_s=6,
    blast_s=6,
    cooldown_s=1,
    congestion_control="reno",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("isolation")


def test_without_control_tcp_starves(folder: Path) -> None:
    phases: dict[str, float] = {}

    def tell(phase: str, passed_s: float) -> None:
        phases[phase] = phases.get(phase, 0) + passed_s

    run = run_isolation(OPTIONS, "none", folder / "none", tell)
    assert run.figures["victim_goodput_bps_before"] > 15e6
    assert run.figures["victim_goodput_bps_during"] < 0.3 * run.figures["victim_goodput_limit_bps"]
    assert run.figures["aggressor_received_bps_during"] > 15e6
    assert phases["UDP blast"] == pytest.approx(OPTIONS.blast_s, abs=0.01)
    report = json.loads((folder / "none" / "v1_1-to-v1_4.json").read_text())
    assert report["end"]["sender_tcp_congestion"] == "reno"


def test_static_limits_hold_both_vlans(folder: Path) -> None:
    run = run_isolation(OPTIONS, "static", folder / "static", lambda _phase, _passed_s: None)
    assert run.figures["victim_goodput_bps_during"] > 0.7 * run.figures["victim_goodput_limit_bps"]
    assert run.figures["aggressor_received_bps_during"] == pytest.approx(10e6, rel=0.1)
    meters = run.switches["s1"]["dump-meters"].replace("meter=", "meter:")
    assert [f"meter:{number} " in meters for number in (1, 6, 7)] == [True, True, False]
