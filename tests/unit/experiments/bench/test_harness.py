"""What all benchmarks share: targets, bounds, what is left behind, and waiting."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from controller.errors import InvalidValueError
from experiments.bench import harness
from experiments.bench.agent import bench as agent_bench
from experiments.bench.harness import Target


@pytest.mark.parametrize(("value", "at_most", "at_least"), [(1.0, True, False), (2.0, True, True), (3.0, False, True)])
def test_a_target_is_most_or_least(value: float, at_most: bool, at_least: bool) -> None:
    assert Target("a", value, "s", 2.0).met is at_most
    assert Target("a", value, "s", 2.0, least=True).met is at_least
    assert Target("a", value, "s", 2.0).row() == {
        "name": "a", "value": value, "unit": "s", "target": 2.0, "met": at_most,
    }  # fmt: skip


def test_bounds_are_of_those_that_are_given() -> None:
    harness.check_bounds(switches=(1, 1, 200), pairs=(None, 16, 60_000), seconds=(600, 1, 600))
    for value in (0, 201):
        with pytest.raises(InvalidValueError, match=f"^switches: {value} is outside 1 to 200$"):
            harness.check_bounds(pairs=(16, 16, 60_000), switches=(value, 1, 200))
    harness.check_known("attack", ["a", "b"], ["a", "b"])
    with pytest.raises(InvalidValueError, match="attack: 'c' is not one of 'a', 'b'"):
        harness.check_known("attack", ["a", "c"], ["a", "b"])


@pytest.mark.parametrize(
    ("bench", "options"),
    [
        ("agent", {"pairs": 0}),
        ("agent", {"seconds": 0.1}),
        ("cluster", {"switches": 0}),
        ("cluster", {"pairs": 99}),
        ("cluster", {"repeats": -1}),
        ("cluster", {"seconds": 0.5}),
        ("cluster", {"kills": -1}),
        ("cluster", {"node_failures": 1}),
        ("cluster", {"node_failures": -1, "sharded": True}),
        ("cluster", {"cross_shard_pairs": 999}),
        ("enforcement", {"seconds": 0.5}),
        ("enforcement", {"seed": -1}),
        ("loop", {"switches": 0}),
        ("loop", {"pairs": 70_000}),
        ("loop", {"interval_ms": 5}),
        ("loop", {"seconds": 0.1}),
    ],
)
def test_what_no_bench_can_do_is_refused_by_name(bench: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="outside") as refused:
        importlib.import_module(f"experiments.bench.{bench}.bench").run(**options)
    assert refused.value.key == next(iter(options))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may make namespaces")
def test_the_bench_of_agents_needs_root() -> None:
    with pytest.raises(PermissionError, match="root"):
        agent_bench.run()


def test_an_option_that_means_nothing_is_to_be_left_out() -> None:
    def run(seconds: float = 2.0, name: str | None = None) -> None:
        """Do nothing."""

    harness.check_left_out(run, {"seconds": 2.0, "name": None}, "means nothing")
    with pytest.raises(InvalidValueError, match="name: 'a' means nothing"):
        harness.check_left_out(run, {"seconds": 2.0, "name": "a"}, "means nothing")


def test_what_a_run_leaves(tmp_path: Path) -> None:
    rows = [{"case": "a", "value": 1}, {"case": "b", "value": 2, "more": 3}]
    columns = {"case": "{case}", "value": "{value:.1f}", "more": "{more}"}
    table = harness.markdown([*rows, {"case": "c", "value": None}], columns)
    assert table == "| case | value | more |\n|---|---|---|\n| a | 1.0 |  |\n| b | 2.0 | 3 |\n| c |  |  |\n"
    targets = [Target("value", 2.0, "", 1.0)]
    result = harness.finished("x", {"rows": rows}, targets, {"seconds": 1}, tmp_path / "new", columns)
    assert [row["met"] for row in result["targets"]] == [False]
    assert result["settings"]["seconds"] == 1
    assert result["settings"]["cores"] == os.cpu_count()
    assert json.loads((tmp_path / "new" / "x.json").read_text()) == result
    assert (tmp_path / "new" / "x.md").read_text() == harness.markdown(rows, columns)
    assert harness.finished("y", {}, [], {})["targets"] == []


def test_an_interval_without_a_beginning_of_a_round_is_missed() -> None:
    def loop(started_s: float, rounds: int) -> dict[str, object]:
        return {"last": {"started_s": started_s}, "rounds": rounds, "interval_ms": 50}

    assert harness.missed_intervals(loop(1.0, 10), loop(2.02, 30)) == 0
    assert harness.missed_intervals(loop(1.0, 10), loop(2.0, 27)) == 3
    assert harness.missed_intervals(loop(1.0, 10), loop(1.0, 10)) == 0


def test_a_spread_is_median_99th_percentile_and_most() -> None:
    assert harness.spread(range(101)) == {"p50": 50.0, "p99": 99.0, "max": 100.0}
