"""The isolation experiment with the real application on software switches that carry the model's traffic."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.experiment_options import ExperimentOptions
from experiments.experiment_runner import run
from experiments.measure.rate_series import goodput_limit_bps
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.runs.wire_run import _warnings
from experiments.wire.real_time_model import WireModel
from topologies.builders import fig1

pytestmark = pytest.mark.rates
OPTIONS = ExperimentOptions(
    senders=4,
    udp_rate_bps=15_000_000,
    warmup_s=3.0,
    blast_s=4.0,
    cooldown_s=1.0,
    topology="dets-fig7",
    fabric="wire",
    quiet=True,
)


def test_the_victim_keeps_its_rate_under_the_real_application(tmp_path: Path) -> None:
    """Two edge switches and the links between them: hellos, hosts, entries, meters and counters go over TCP."""
    done = run("dets-fig5", replace(OPTIONS, output=tmp_path))
    summary, baseline = (done[control]["figures"] for control in ("fp", "none"))
    allowed_bps = goodput_limit_bps(OPTIONS.victim_limit_bps)
    assert done["fp"]["fabric"] == "wire"
    baseline_bps = baseline["victim_goodput_bps_during"]
    assert 3 * baseline_bps < 0.9 * allowed_bps < summary["victim_goodput_bps_during"] < 1.05 * allowed_bps
    assert summary["aggressor_received_bps_during"] == pytest.approx(OPTIONS.aggressor_limit_bps, rel=0.05)
    assert {"summary.json", "manifest.json"} <= {path.name for path in tmp_path.iterdir()}
    folder = tmp_path / "dets-fig5" / "fp" / "seed-1"
    assert (folder / "series.csv").exists()
    seen = json.loads((folder / "seen.json").read_text())
    meters = [meters for switch in seen["switches"].values() for meters in switch["meters"].values()]
    assert len(meters) > len(seen["switches"]), "the application's meters stand on the switches"
    assert any(vn["congested"] for vn in seen["vns"]["vns"]), "the application saw the traffic"
    assert "stale" not in (folder / "controller.log").read_text(), "the switches' meters were found to count"


def test_a_machine_that_is_too_busy_is_told_of() -> None:
    wire = WireModel(ModelFabric(fig1(pns=2), ModelOptions()), ("127.0.0.1", 1))
    assert not _warnings(wire)
    wire.longest_step_s = 0.2
    assert "200 ms" in _warnings(wire)[0]


def test_what_stops_the_model_is_raised() -> None:
    model = ModelFabric(fig1(pns=2), ModelOptions())
    with WireModel(model, ("127.0.0.1", 1)) as wire:
        wire.run(0.02)
        with wire.locked():
            model.at(model.now_s, lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            wire.run(60.0)
        wire.stop(check=False)
