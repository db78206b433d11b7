"""What ``dets bench loop`` plans and makes of its figures; the measuring itself is a matter of minutes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from controller.central.controller import CentralController
from experiments.bench.harness import markdown
from experiments.bench.loop import bench, report
from experiments.bench.loop.cost_fit import fit
from experiments.bench.loop.switch_process import MAX_SENDERS, LoopPlan, pairs_of


@pytest.mark.parametrize(("switches", "pairs_per_switch"), [(1, 16), (2, 100), (10, 100), (3, 1700), (23, 200)])
def test_a_plan_has_each_of_its_pairs_once(switches: int, pairs_per_switch: int) -> None:
    plan = LoopPlan(switches, pairs_per_switch, 55, 1.0, 6653, 8080)
    central = CentralController(plan.config())
    pairs = pairs_of(plan, central)
    assert len(set(pairs)) == len(pairs) == switches * pairs_per_switch
    senders = np.bincount([pair.receiver for pair in pairs])
    assert senders.max() <= MAX_SENDERS
    by_switch = np.unique(central.vns.dpid[[pair.sender for pair in pairs]], return_counts=True)[1]
    assert by_switch.tolist() == [pairs_per_switch] * switches
    assert all(central.vns.vlan_vid[pair.sender] == central.vns.vlan_vid[pair.receiver] for pair in pairs)


@pytest.mark.parametrize(("share", "met"), [(0.019, True), (0.021, False)])
def test_what_an_idle_controller_takes_is_judged_and_is_no_part_of_the_fit(share: float, met: bool) -> None:
    rows = [row("dets", 1_000, 2.0), {**row("idle", 1_000, 1.0), "cpu_share": share}]
    assert {one.name: (one.value, one.met) for one in report.targets(rows)} == {"idle, 10 switches: CPU": (share, met)}
    lines = markdown(rows, report.COLUMNS).splitlines()
    assert lines[2].startswith("| 1,000 | 10 | dets | 100% | 1.0 | 40.0 / 40.0 / 40.0 |")
    assert "| idle |" in lines[3]


def row(who: str, pairs: int, cost_us: float, round_ms: float = 40.0) -> dict[str, Any]:
    spread = {"p50": round_ms, "p99": round_ms, "max": round_ms}
    figures = dict.fromkeys(("round_every_ms", "pairs_per_s", "set_share", "cpu_share"), 1.0)
    return {
        **figures,
        "who": who,
        "pairs": pairs,
        "switches": 10,
        "varied": 1.0,
        "cpu_us_per_pair": cost_us,
        "bytes_per_pair": None if who == "baseline" else 2000.0,
        "skipped_rounds": 0,
        "poll_timeouts": 0,
        **dict.fromkeys(("poll_ms", "step_ms", "push_ms", "total_ms"), spread),
    }


ROWS = [
    row("dets", 1_000, 2.0),
    row("baseline", 1_000, 30.0),
    row("dets", 100_000, 1.0),
    row("baseline", 100_000, 25.0),
]


@pytest.mark.parametrize("same", [True, False])
def test_a_replay_that_decides_otherwise_misses_its_target(same: bool) -> None:
    replayed = {**row("dets", 2_000, 1.0), "replay": {"intervals": 36, "same": same}}
    name = "2,000 pairs on 10 switches, 36 intervals replayed: different from the recording"
    assert [target.met for target in report.targets([replayed]) if target.name == name] == [same]


def test_targets_are_judged_by_the_figures() -> None:
    found = {target.name: (target.value, target.met) for target in report.targets(ROWS)}
    assert found == {
        "CPU against the baseline, 1,000 pairs": (15.0, True),
        "CPU against the baseline, 100,000 pairs": (25.0, False),
    }


def test_the_fit_finds_what_switches_pairs_and_rounds_cost() -> None:
    """A round of 100 us x switches + 200 ns x pairs + 2 ms."""
    sizes = [(switches, switches * each) for switches, each in bench.GRID]
    cost_us = [100.0 * switches + 0.2 * pairs + 2_000.0 for switches, pairs in sizes]
    rows = [
        {**row("dets", pairs, us / pairs), "switches": switches}
        for (switches, pairs), us in zip(sizes, cost_us, strict=True)
    ]
    cost = fit(rows)
    assert cost is not None
    assert (cost.switch_us, cost.pair_ns, cost.fixed_ms) == pytest.approx((100.0, 200.0, 2.0))
    assert cost.worst < 1e-9
    found = {target.name: (target.value, target.met) for target in report.targets(rows)}
    assert found["CPU of a round per switch"] == (pytest.approx(100.0), False)
    assert found["largest relative error of the fit"][1]
    assert found["CPU of a round, 100,000 pairs on 200 switches"] == (pytest.approx(42.0), False)


def test_sizes_of_as_many_switches_do_not_tell_what_a_switch_costs() -> None:
    assert fit([row("dets", 1_000, 2.0), row("dets", 10_000, 1.0), row("dets", 100_000, 1.0)]) is None
    assert fit([]) is None


def test_the_grid_is_followed_by_a_million_pairs() -> None:
    sizes = bench.sizes_of(10, None, 55)
    assert [size.switches * size.pairs_per_switch for size in sizes][-2:] == [100_000, 1_000_000]
    assert [size.switches * size.pairs_per_switch for size in sizes if size.baseline] == [1_000, 10_000, 100_000]
    assert all(size.pairs_per_switch <= bench.MAX_PER_SWITCH for size in sizes)
    assert bench.sizes_of(3, 500, 100) == [bench.Size(3, 500, 100)]


@pytest.mark.parametrize("script", ["import sys; sys.exit(3)", "import sys; sys.stdin.readline(); sys.exit(3)"])
def test_switches_that_have_ended_are_named_with_their_status(script: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        orders = bench.SwitchProcessControl(process)
        if "readline" not in script:
            process.wait()
        with pytest.raises(RuntimeError, match="ended with status 3: cannot send 'report'"):
            orders.ask("report")
        with suppress(BrokenPipeError):
            orders._stdin.close()
