"""The table of control intervals: what it runs, what it refuses, what it tells."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from controller.errors import InvalidValueError
from experiments.bench.interval import bench
from experiments.runs import on_ovs
from experiments.scenarios import scenarios


@pytest.fixture
def one_short_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """One second of figure 6, five senders less."""
    figure_6 = scenarios()["dets-fig6"]
    short = dataclasses.replace(figure_6.scaled(0.05).lasting(1.1), sources=figure_6.scaled(0.05).sources[:5])
    monkeypatch.setattr(bench, "cases", lambda _fabric: {"short": bench.Case(short, bench._use)})
    monkeypatch.setattr(bench, "_blasts", lambda _intervals_ms, _fabrics: ())


@pytest.mark.usefixtures("one_short_case")
def test_every_interval_runs_with_the_controllers_set_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = bench.run_scenario

    def run_scenario(cell, folder, progress):
        ran = real(cell, folder, progress)
        asked.append(yaml.safe_load((folder / "controller.yaml").read_text())["control"]["interval_ms"])
        return ran

    monkeypatch.setattr(bench, "run_scenario", run_scenario)
    result = bench.run(intervals_ms=[10, 55], fabrics=["model"], seeds=2, output=tmp_path)
    assert asked == [10, 10, 55, 55]
    rows = result["figures"]["rows"]
    assert [(row["interval_ms"], row["seed"]) for row in rows] == [(10, 1), (10, 2), (55, 1), (55, 2)]
    mods = [row["figures"]["meters set a second"] for row in rows]
    assert min(mods[:2]) > max(mods[2:]) > 0  # five times as many rounds set more meters
    assert json.loads((tmp_path / "interval.json").read_text())["figures"]["rows"] == rows
    assert "| model | short | use of the limit |" in (tmp_path / "interval.md").read_text()
    assert (tmp_path / "interval.png").stat().st_size > 0
    assert len((tmp_path / "interval.csv").read_text().splitlines()) == 1 + 2 * 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"intervals_ms": [9]}, "interval_ms: 9 is outside 10 to 10000"),
        ({"fabrics": ["wire"]}, "fabric: 'wire' is not one of model, ovs"),
        ({"seeds": 0}, "seeds: 0 is outside 1 to 100"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(given, said, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "run_scenario", lambda *_: pytest.fail("something ran"))
    with pytest.raises(InvalidValueError) as refused:
        bench.run(**{"fabrics": ["model"], **given}, output=tmp_path / "out")
    assert str(refused.value) == said
    assert not (tmp_path / "out").exists()


def test_open_vswitch_needs_root(monkeypatch, tmp_path):
    monkeypatch.setattr(bench.os, "geteuid", lambda: 1000)
    with pytest.raises(InvalidValueError, match="needs root"):
        bench.run(fabrics=["ovs"], output=tmp_path)


def test_a_skipped_round_misses_the_target():
    rows = [
        {"interval_ms": ms, "fabric": "ovs", "case": case, "figures": {"rounds skipped": skipped}}
        for ms, case, skipped in ((10, "a", 0), (10, "b", 3), (55, "a", 0))
    ]
    rows.append({"interval_ms": 55, "fabric": "model", "case": "a", "figures": {}})
    assert [(row["name"], row["value"], row["met"]) for row in bench.targets(rows)] == [
        ("rounds skipped at 10 ms", 3, False),
        ("rounds skipped at 55 ms", 0, True),
    ]


def test_costs_are_of_the_time_between_two_readings():
    before = on_ovs._Costs(10.0, 1.0, 2.0, 100, 1)
    after = on_ovs._Costs(14.0, 1.2, 4.0, 300, 1)
    assert on_ovs._between(before, after) == {
        "controller_cpu_share": 0.05, "vswitchd_cpu_share": 0.5, "set_meters_per_s": 50.0, "skipped_intervals": 0,
    }  # fmt: skip
