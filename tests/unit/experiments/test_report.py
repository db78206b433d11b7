"""What an experiment leaves behind: summary, series, picture, manifest."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from experiments import runner
from experiments.isolation import IsolationRun
from experiments.measure.manifest import manifest
from experiments.measure.series import Rates, Window, isolation_figures
from experiments.options import ExperimentOptions
from experiments.report import write_results

LIMITS = (40_000_000, 50_000_000)
REQUIRED = {
    "victim_limit_bps",
    "victim_goodput_limit_bps",
    "victim_goodput_bps_before",
    "victim_goodput_bps_during",
    "victim_intervals_below_95_percent",
    "aggressor_received_bps_during",
    "aggressor_limit_bps",
}


def made_up(control: str, during_bps: float) -> IsolationRun:
    start_s = np.arange(100.0, 104.0, 0.055)
    is_blast = start_s >= 102
    goodput = np.where(is_blast, during_bps, 38e6)
    victim = Rates(start_s, start_s + 0.055, goodput * 1.05, goodput)
    aggressor = Rates(start_s, start_s + 0.055, np.where(is_blast, 50e6, 0.0), np.zeros_like(start_s))
    before, blast = Window(100, 102), Window(102, 104)
    figures = isolation_figures(victim, aggressor, before, blast, *LIMITS)
    return IsolationRun(control, victim, aggressor, before, blast, figures, {"s1": {"dump-meters": "none"}}, [])


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs are made up; returns the controls that were asked for."""
    asked: list[str] = []

    def run(_options: ExperimentOptions, control: str, _folder: object, tell) -> IsolationRun:
        asked.append(control)
        tell("UDP blast", 1.0)
        return made_up(control, 1e6 if control == "none" else 38e6)

    monkeypatch.setattr(runner, "run_isolation", run)
    return asked


@pytest.mark.parametrize("quiet", [True, False])
def test_summary_has_the_figures_and_those_of_the_baseline(tmp_path, ran, quiet: bool, capsys) -> None:
    options = replace(ExperimentOptions(), output=tmp_path / "out", quiet=quiet)
    summary = runner.run_and_report("dets-fig5", options, ("none", "dets"))
    assert ran == ["none", "dets"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert set(summary) >= REQUIRED
    assert set(summary["baseline"]) >= REQUIRED
    assert summary["victim_goodput_bps_during"] == pytest.approx(38e6)
    assert summary["baseline"]["victim_goodput_bps_during"] == pytest.approx(1e6)
    shown = capsys.readouterr()
    assert ("Picture" in shown.out) is not quiet
    assert (shown.out + shown.err == "") is quiet


def test_manifest_holds_settings_versions_and_what_the_switch_said(tmp_path, ran) -> None:
    options = replace(ExperimentOptions(), output=tmp_path, quiet=True, seed=77)
    runner.run_and_report("dets-fig2", options, ("none",))
    made = json.loads((tmp_path / "manifest.json").read_text())
    assert made["options"]["seed"] == 77
    assert made["runs"]["none"]["switches"] == {"s1": {"dump-meters": "none"}}
    assert made["packages"]["numpy"] == np.__version__
    assert made["machine"]["cpus"] >= 1


def test_series_has_a_row_per_run_and_interval(tmp_path) -> None:
    runs = [made_up("none", 1e6), made_up("dets", 38e6)]
    picture = write_results(tmp_path, {"experiment": "x"}, {}, runs)
    with (tmp_path / "series.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(run.victim.start_s) for run in runs)
    assert {row["control"] for row in rows} == {"none", "dets"}
    first = rows[0]
    assert (float(first["time_s"]), float(first["duration_s"])) == pytest.approx((-2.0, 0.055), abs=1e-6)
    assert float(first["victim_goodput_bps"]) == 38e6
    if picture is not None:
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_picture_and_the_table_says_why(tmp_path, ran, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    runner.run_and_report("dets-fig2", replace(ExperimentOptions(), output=tmp_path), ("none",))
    assert not list(tmp_path.glob("*.png"))
    assert "matplotlib is not installed" in capsys.readouterr().out


def test_a_manifest_without_programs_or_repository_says_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    made = manifest(ExperimentOptions())
    assert made["commit"] == {"id": None, "modified": None}
    assert set(made["programs"].values()) == {None}
