"""The table of many runs of figure 5."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from controller.errors import InvalidValueError
from experiments.commands import app
from experiments.measure.series import MeasurementError
from experiments.victims import victim_rows


def run_in(folder, algorithm, seed, below, longest, kept=1.0, **more):
    folder.mkdir()
    summary = {
        "control": "dets", "fabric": "ovs", "algorithm": algorithm, "parameters": {}, "seed": seed,
        "victim_goodput_limit_bps": 20e6, "victim_goodput_bps_during": kept * 20e6,
        "victim_intervals_below_95_percent": longest, "victim_intervals_below_95_percent_total": below,
        "intervals_during_blast": 100, **more,
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.fixture
def folders(tmp_path):
    alone = {"victim_intervals_below_95_percent_before_total": 1, "intervals_before_blast": 40}
    cpu = {"cpu_idle_share_during": 0.4, "cpu_stolen_share_during": 0.02, **alone}
    busy = {"cpu_idle_share_during": 0.1, "cpu_stolen_share_during": 0.0}
    return [
        run_in(tmp_path / "fp-1", "fp", 1, 3, 2, 0.9, **cpu),
        run_in(tmp_path / "fp-2", "fp", 2, 1, 1, 1.0, **busy),
        run_in(tmp_path / "fp-d", "fp", 1, 0, 0, parameters={"d": 4}),
    ]


def test_seeds_of_one_algorithm_with_the_same_parameters_are_one_row(folders):
    plain, steep = victim_rows(folders)
    assert plain == {
        "control": "fp", "fabric": "ovs", "seeds": 2, "intervals_below": 4, "most_in_one_seed": 3, "longest_stretch": 2,
        "seeds_above_one": 1, "below_share": 0.02, "below_share_alone": 0.025,
        "goodput_share": pytest.approx(0.95), "least_goodput_share": 0.9, "cpu_idle_share": 0.1,
        "cpu_stolen_share": 0.02,
    }  # fmt: skip
    assert (steep["control"], steep["seeds"], steep["cpu_idle_share"]) == ("fp d=4", 1, None)


def test_a_folder_without_such_a_run_is_refused(folders, tmp_path):
    with pytest.raises(MeasurementError, match="is not there: the run is not done"):
        victim_rows([tmp_path])
    (tmp_path / "summary.json").write_text('{"fp": {}}')
    with pytest.raises(MeasurementError, match="is not of a run of dets-fig2 or dets-fig5"):
        victim_rows([tmp_path])
    with pytest.raises(InvalidValueError, match="is the seed of two runs of fp"):
        victim_rows([folders[0], folders[0]])


def test_the_command_shows_a_line_for_each_algorithm(folders):
    done = CliRunner().invoke(app, ["victims", *map(str, folders)])
    assert done.exit_code == 0, done.output
    heading, plain, steep = done.output.splitlines()
    assert heading.split()[:3] == ["control", "fabric", "seeds"]
    assert plain.split() == ["fp", "ovs", "2", "4", "3", "2", "1", "2.0%", "2.5%", "95.0%", "90.0%", "10.0%", "2.0%"]
    assert steep.split()[-2:] == ["-", "-"]
