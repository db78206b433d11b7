"""What ``dets bench loop`` plans and makes of its figures; the measuring itself is a matter of minutes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from controller.central.controller import CentralController
from controller.errors import InvalidValueError
from experiments.bench.loop import bench
from experiments.bench.loop.loop_fabric import MOST_SENDERS, LoopPlan, pairs_of


@pytest.mark.parametrize(("switches", "entries"), [(1, 16), (2, 100), (10, 100), (3, 1700)])
def test_a_plan_has_the_entries_it_says_and_each_pair_once(switches: int, entries: int) -> None:
    plan = LoopPlan(switches, entries, 55, 1.0, 6653, 8080)
    central = CentralController(plan.config())
    pairs = pairs_of(plan, central)
    assert len(set(pairs)) == len(pairs) == switches * entries
    senders = np.bincount([pair.receiver for pair in pairs])
    assert senders.max() <= MOST_SENDERS
    by_switch = np.unique(central.vns.dpid[[pair.sender for pair in pairs]], return_counts=True)[1]
    assert by_switch.tolist() == [entries] * switches
    assert all(central.vns.vlan_vid[pair.sender] == central.vns.vlan_vid[pair.receiver] for pair in pairs)


def row(who: str, entries: int, cost_us: float, round_ms: float = 40.0) -> dict[str, Any]:
    spread = {"p50": round_ms, "p99": round_ms, "max": round_ms}
    figures = dict.fromkeys(("round_every_ms", "entries_per_s", "set_share", "cpu_share"), 1.0)
    return {
        **figures,
        "who": who,
        "entries": entries,
        "switches": 10,
        "varied": 1.0,
        "cpu_us_per_entry": cost_us,
        "bytes_per_entry": None if who == "baseline" else 2000.0,
        "skipped_intervals": 0,
        "unanswered_polls": 0,
        **dict.fromkeys(("poll_ms", "step_ms", "push_ms", "total_ms"), spread),
    }


ROWS = [
    row("dets", 1_000, 2.0),
    row("baseline", 1_000, 30.0),
    row("dets", 100_000, 1.0),
    row("baseline", 100_000, 25.0),
]


def test_targets_are_judged_by_the_figures() -> None:
    found = {target["name"]: (target["value"], target["met"]) for target in bench.targets(ROWS, 55)}
    assert found == {
        "a round of 100,000 entries, median": (40.0, True),
        "CPU per entry against the baseline, 1,000 entries": (15.0, False),
        "CPU per entry against the baseline, 100,000 entries": (25.0, True),
        "CPU per entry, dearest size over cheapest": (2.0, False),
    }


def test_the_cost_of_one_more_entry_leaves_out_what_a_round_costs_anyway() -> None:
    """A round of 10 ms and 1 us an entry: far from flat by entry, flat by the entry more."""
    rows = [row("dets", size, 1.0 + 10_000 / size) for size in (1_000, 10_000, 100_000, 1_000_000)]
    found = {target["name"]: (target["value"], target["met"]) for target in bench.targets(rows, 55)}
    assert found["CPU per entry, dearest size over cheapest"] == (pytest.approx(11.0 / 1.01), False)
    assert found["CPU of one more entry, dearest size over cheapest"] == (pytest.approx(1.0), True)


def test_the_sweep_ends_with_a_million_entries() -> None:
    sizes = bench.sizes_of(10, None, 55)
    assert [size.switches * size.entries for size in sizes] == [1_000, 10_000, 100_000, 1_000_000]
    assert all(size.entries <= bench.MOST_PER_SWITCH for size in sizes)
    assert bench.sizes_of(3, 500, 100) == [bench.Size(3, 500, 100)]


def test_the_table_has_a_line_for_each_row() -> None:
    lines = bench.table(ROWS).splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert {line.count("|") for line in lines} == {16}
    assert lines[2].startswith("| 1,000 | 10 | dets | 100% | 1.0 | 40.0 / 40.0 / 40.0 |")


@pytest.mark.parametrize(
    ("name", "value"), [("switches", 0), ("entries", 70_000), ("interval_ms", 5), ("seconds", 0.1)]
)
def test_what_no_fabric_can_have_is_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidValueError) as refused:
        bench.run(**{name: value})  # type: ignore[arg-type]
    assert refused.value.key == name
