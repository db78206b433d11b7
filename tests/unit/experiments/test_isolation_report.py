"""What an experiment leaves behind: summary, series, picture, manifest; the runs themselves are made up."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from support.constructed_runs import scenario_run

from experiments import experiment_runner
from experiments.evaluation import run_matrix
from experiments.evaluation.measures import rates_at
from experiments.evaluation.run_matrix import RunSpec
from experiments.experiment_options import ExperimentOptions
from experiments.measure.manifest import manifest
from experiments.measure.rate_series import goodput_limit_bps
from experiments.runs.scenario_run import ScenarioRun
from experiments.scenarios.scenario import INTERVAL_S

OPTIONS = ExperimentOptions(
    link_rate_bps=100_000_000,
    victim_limit_bps=40_000_000,
    aggressor_limit_bps=50_000_000,
    senders=2,
    warmup_s=2.0,
    blast_s=2.0,
    cooldown_s=1.0,
)
KEYS = [
    *("victim_limit_bps", "victim_goodput_limit_bps", "victim_goodput_bps_before", "victim_goodput_bps_during"),
    *("victim_intervals_below_95_percent", "victim_intervals_below_95_percent_total", "victim_recovery_intervals"),
    *("victim_intervals_below_95_percent_before", "victim_intervals_below_95_percent_before_total"),
    *("intervals_before_blast", "intervals_during_blast", "longest_interval_s", "aggressor_limit_bps"),
    "aggressor_received_bps_during",
]


def made_up(cell) -> ScenarioRun:
    """Return a run in which TCP keeps 40 Mb/s, or 1 Mb/s without control, in full frames of 1518 bytes."""
    sources = cell.scenario.sources
    time_s = np.arange(round(cell.scenario.duration_s / INTERVAL_S)) * INTERVAL_S
    blast = (time_s >= 2.0) & (time_s < 4.0)
    tcp_bps = np.where(blast, 1e6 if cell.control == "none" else 40e6, 40e6)
    udp_bps = np.where(blast, 50e6, 0.0)
    count = {protocol: sum(one.protocol == protocol for one in sources) for protocol in ("tcp", "udp")}
    rates = [(tcp_bps if one.protocol == "tcp" else udp_bps) / count[one.protocol] for one in sources]
    return scenario_run(
        cell.scenario,
        np.stack(rates, axis=1),
        control=cell.control,
        fabric=cell.fabric,
        seed=cell.seed,
        notes={"warnings": ["busy"], "cpu_idle_share": 0.5, "cpu_stolen_share": 0.0},
        seen={"switches": {"s1": {"dump-meters": "none"}}, "vns": None},
    )


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs are made up; returns the controls that were asked for."""
    asked: list[str] = []

    def run(cell, _folder, progress) -> ScenarioRun:
        asked.append(cell.control)
        progress(1.0)
        return made_up(cell)

    monkeypatch.setattr(run_matrix, "run_scenario", run)
    return asked


@pytest.mark.parametrize("quiet", [True, False])
def test_summary_has_the_figures_and_those_of_the_baseline(tmp_path, ran, quiet: bool, capsys) -> None:
    done = experiment_runner.run(
        "dets-fig5", replace(OPTIONS, output=tmp_path / "out", quiet=quiet, parameters={"d": 2})
    )
    assert ran == ["none", "fp d=2"]
    written = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert list(written) == list(done) == ["none", "fp d=2"]
    baseline, kept = (one["figures"] for one in written.values())
    assert set(KEYS) <= set(kept)
    assert kept["victim_goodput_bps_during"] == pytest.approx(goodput_limit_bps(40e6))
    assert baseline["victim_goodput_bps_during"] == pytest.approx(goodput_limit_bps(1e6))
    assert baseline["victim_recovery_intervals"] is None
    assert written["fp d=2"]["manifest"]["options"]["topology"] == "dets-fig5"
    shown = capsys.readouterr()
    assert ("Picture" in shown.out) is not quiet
    assert (shown.out + shown.err == "") is quiet
    if not quiet:
        assert all(words in shown.out for words in ("without control", "with DETS", "Note: busy"))


@pytest.mark.parametrize(
    ("changes", "controls"),
    [({"static": True}, ["none", "static", "fp"]), ({"baseline": False, "algorithm": "level"}, ["level"])],
)
def test_the_baselines_asked_for_come_first(tmp_path, ran, changes, controls) -> None:
    experiment_runner.run("dets-fig5", replace(OPTIONS, output=tmp_path, quiet=True, **changes))
    assert ran == controls


def test_manifest_holds_settings_versions_and_what_the_switch_said(tmp_path, ran) -> None:
    experiment_runner.run("dets-fig2", replace(OPTIONS, output=tmp_path, quiet=True, seed=77))
    assert ran == ["none"]
    made = json.loads((tmp_path / "manifest.json").read_text())
    assert made["options"]["seed"] == 77
    seen = json.loads((tmp_path / "dets-fig2" / "none" / "seed-77" / "seen.json").read_text())
    assert seen == {"switches": {"s1": {"dump-meters": "none"}}, "vns": None}
    assert made["packages"]["numpy"] == np.__version__
    assert made["machine"]["cpus"] >= 1


def test_what_a_kill_did_to_tcp_is_in_the_summary_and_the_picture(tmp_path, monkeypatch) -> None:
    owners = {"s1": "n1", "s2": "n2", "c1": "n2"}

    def run(cell, _folder, _progress) -> ScenarioRun:
        made = made_up(cell)
        if cell.control == "none":
            return made
        made.received_bits[56, 0] *= 0.9
        notes = {"killed": "n2", "killed_at_s": 3.0, "out_of_control_s": 0.5}
        after = {"s1": "n1", "s2": "n3", "c1": "n1"}
        return replace(made, notes={**made.notes, **notes, "owners": owners, "owners_after": after})

    monkeypatch.setattr(run_matrix, "run_scenario", run)
    done = experiment_runner.run("dets-fig5", replace(OPTIONS, output=tmp_path, quiet=True))
    summary, baseline = (done[control]["figures"] for control in ("fp", "none"))
    assert (summary["killed"], summary["out_of_control_s"]) == ("n2", 0.5)
    assert summary["new_owners"] == ["s2 by n3", "c1 by n1"]
    assert (summary["intervals_below_before_kill"], summary["intervals_below_after_kill"]) == (0, 1)
    full_bps = goodput_limit_bps(40e6)
    assert summary["least_goodput_bps_before_kill"] == pytest.approx(full_bps)
    assert summary["least_goodput_bps_after_kill"] < 0.95 * full_bps < summary["most_goodput_bps_after_kill"]
    assert "killed" not in baseline
    width, height = np.frombuffer((tmp_path / "dets-fig5.png").read_bytes()[16:24], ">u4")
    assert height > width  # four rows instead of two


def test_goodput_counts_no_headers_of_small_frames() -> None:
    scenario = experiment_runner.joined_by_udp("x", "x", senders=2)
    run = made_up(RunSpec("x", "fp", 1, "model", scenario))
    acknowledgements = replace(run, received_packets=run.received_bits / 8 / 70)
    assert (rates_at(acknowledgements, (1, 3)).tcp_goodput_bps == 0).all()


def test_without_matplotlib_there_is_no_picture_and_the_table_says_why(tmp_path, ran, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    experiment_runner.run("dets-fig2", replace(OPTIONS, output=tmp_path))
    assert not list(tmp_path.glob("*.png"))
    assert "matplotlib is not installed" in capsys.readouterr().out


def test_a_manifest_without_programs_or_repository_says_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    made = manifest(ExperimentOptions())
    assert made["commit"] == {"id": None, "modified": None}
    assert set(made["programs"].values()) == {None}
