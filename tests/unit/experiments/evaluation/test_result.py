"""A scenario in, a result out: names of columns, tables, kept files, refused arguments; the runs are made up."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.constructed_runs import scenario_run
from support.paths import ROOT

from controller.errors import InvalidValueError
from experiments import run
from experiments.evaluation import run_matrix
from experiments.runs.scenario_run import RunSettings, ScenarioRun
from experiments.scenarios.scenario import Limits, Scenario, Source

M = 1_000_000
INTERVALS = 40
SCENARIO = Scenario(
    "two",
    "two senders of one receiver, one of them twice",
    limits={1: Limits(40 * M, 40 * M)},
    sources=(Source(1, 2, 3, "tcp"), Source(1, 1, 3, "udp", 30 * M), Source(1, 2, 3, "tcp")),
    duration_s=INTERVALS * 0.055,
    topology="dets-fig1",
    pns=3,
    phases={"first": (0.0, 1.1), "second": (1.1, 2.2)},
    controls=("none", "fp"),
)
NAMES = [
    "time_s",
    "duration_s",
    "received_bps:v1_3",
    "received_packets:v1_3",
    "delivered_bps:v1_2:v1_3",
    "delivered_bps:v1_1:v1_3",
    "granted_bps:v1_2:v1_3",
    "granted_bps:v1_1:v1_3",
]


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The controls and seeds that were run: sources deliver 5, 20 and 10 Mb/s, and ten times the seed is granted."""
    found: list[tuple[str, int]] = []

    def made_up(spec: run_matrix.RunSpec, _folder: Path, progress: run_matrix.Progress) -> ScenarioRun:
        found.append((spec.control, spec.seed))
        progress(1.5)
        granted_bps = 10.0 * M * spec.seed if spec.control == "fp" else np.nan
        names = {"control": spec.control, "fabric": spec.fabric, "seed": spec.seed}
        return scenario_run(spec.scenario, np.array([5, 20, 10]) * M, granted_bps, **names)

    monkeypatch.setattr(run_matrix, "run_scenario", made_up)
    return found


def test_each_control_runs_with_each_seed_once(asked: list[tuple[str, int]]) -> None:
    progress: list[tuple[int, float]] = []
    result = run(SCENARIO, seeds=(2, 1, 2), progress=lambda number, passed_s: progress.append((number, passed_s)))
    assert asked == [("none", 2), ("none", 1), ("fp", 2), ("fp", 1)]
    assert progress == [(number, 1.5) for number in range(4)]
    assert [(one.control, one.seed) for one in result.runs] == asked
    assert result.select("fp", 1).granted_bps[0, 0] == 10 * M
    assert result.select(seed=1).control == "none"
    with pytest.raises(InvalidValueError, match=r"control: 'fp seed 3' was not run: choose from none seed 2, "):
        result.select("fp", 3)


def test_columns_are_named_by_unit_vn_and_pair() -> None:
    found = run(SCENARIO, "fp").arrays()
    assert list(found) == NAMES
    assert {values.shape for values in found.values()} == {(INTERVALS,)}
    means = {name: round(values.mean() / M, 3) for name, values in found.items() if "_bps" in name}
    assert [*means.values()] == [35.0, 15.0, 20.0, 10.0, 10.0]


def test_tables_have_a_row_for_each_interval_run_and_phase() -> None:
    result = run(SCENARIO, seeds=[1, 2])
    series = result.series("fp", 2)
    assert (series.index.name, [series.index.name, *series.columns]) == ("time_s", NAMES)
    assert series["granted_bps:v1_1:v1_3"].unique().tolist() == [20.0 * M]
    measures = result.measures()
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert [name for name in measures.columns if f"`{name}`" not in page] == []
    assert measures.index.tolist() == [("none", 1), ("none", 2), ("fp", 1), ("fp", 2)]
    assert measures.loc[("fp", 1), "received_bps"] == pytest.approx(35 * M, rel=1e-3)
    phases = result.phases()
    assert phases.index.names == ["control", "seed", "phase"]
    assert phases.index.tolist()[:2] == [("none", 1, "first"), ("none", 1, "second")]


def test_the_kept_files_name_their_columns(tmp_path: Path) -> None:
    result = run(SCENARIO, "fp", folder=tmp_path)
    folder = tmp_path / "two" / "fp" / "seed-1"
    table = pd.read_csv(folder / "series.csv")
    assert list(table.columns) == NAMES
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert all(re.search(rf"series\.csv.*`{name.partition(':')[0]}\b", page) for name in NAMES)
    expected = pd.DataFrame(result.arrays())
    assert np.allclose(table, expected, rtol=0.0, atol=0.51)
    with np.load(folder / "run.npz") as arrays:
        assert arrays["receivers"].tolist() == ["v1_3"]
        assert arrays["pairs"].tolist() == ["v1_2:v1_3", "v1_1:v1_3"]
        assert arrays["sources"].tolist() == ["v1_2:v1_3", "v1_1:v1_3", "v1_2:v1_3"]
        assert arrays["delivered_bits"].shape == (INTERVALS, 3)


def test_a_scenario_is_scaled_to_the_fabric_unless_it_is_placed() -> None:
    assert run(SCENARIO, "fp", fabric="wire").scenario.limits[1].receive_bps == 2 * M
    assert run(SCENARIO, "fp", fabric="wire", placed=True).scenario.limits[1].receive_bps == 40 * M


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"scenario": "two"}, "scenario"),
        ({"controls": "fq"}, "control"),
        ({"controls": "fp z=3"}, "control.z"),
        ({"controls": ()}, "controls"),
        ({"seeds": ()}, "seeds"),
        ({"seeds": -1}, "seeds"),
        ({"fabric": "paper"}, "fabric"),
        ({"fabric": "paper", "placed": True}, "fabric"),
        ({"settings": RunSettings(shaping="host")}, "shaping"),
        ({"fabric": "wire", "scenario": replace(SCENARIO, shaping="agent")}, "fabric"),
    ],
)
def test_a_bad_argument_is_named_before_anything_runs(arguments: dict, key: str, asked: list, tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError) as caught:
        run(**{"scenario": SCENARIO, "folder": tmp_path / "kept", **arguments})
    assert caught.value.key == key
    assert asked == []
    assert not (tmp_path / "kept").exists()
