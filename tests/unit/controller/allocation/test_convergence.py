"""What the convergence tables say of the algorithms holds: who settles, how soon, and how well the limit is used."""

from __future__ import annotations

import pytest
from support.convergence import FP_WITH_HEADROOM, SCENARIOS, settle, swing

JOIN, STOP, LESS, MORE, SECTION_3 = SCENARIOS


@pytest.mark.parametrize(
    ("name", "scenario", "most_intervals"),
    [
        ("fs", JOIN, 1),
        ("fp", JOIN, 10),
        ("max-min", JOIN, 1),
        ("fs", STOP, 1),
        ("sp", STOP, 1),
        ("fp", STOP, 1),
        ("max-min", STOP, 1),
        ("sp", LESS, 5),
        ("max-min", LESS, 2),
        (FP_WITH_HEADROOM, LESS, 10),
        (FP_WITH_HEADROOM, JOIN, 10),
        (FP_WITH_HEADROOM, MORE, 5),
        ("fp", MORE, 3),
        ("max-min", MORE, 1),
        ("fp", SECTION_3, 2),
        ("max-min", SECTION_3, 1),
    ],
)
def test_intervals_until_settled(name, scenario, most_intervals):
    row = settle(name, scenario)
    assert row["intervals"] is not None
    assert row["intervals"] <= most_intervals
    if name in ("fp", "max-min", FP_WITH_HEADROOM):
        assert row["unfair"] < 0.02


def test_fast_probe_pays_for_its_fairness_with_use_of_the_limit():
    """As the paper says: SP uses more of the limit than FP when some want little, and FS the least."""
    used = {name: settle(name, LESS)["used"] for name in ("fs", "sp", "fp", "max-min")}
    assert used["fs"] < used["fp"] < used["sp"]
    assert used["max-min"] > 0.97


def test_slow_probe_does_not_become_fair():
    assert settle("sp", SECTION_3)["unfair"] > 0.5


@pytest.mark.parametrize(("delay", "bound"), [(0, 2.0), (1, 1.0), (2, 0.618)])
def test_forward_explicit_swings_above_its_bound_only(delay, bound):
    assert swing(0.95 * bound, delay) < 1e-4
    assert swing(1.05 * bound, delay) > 1e-2
