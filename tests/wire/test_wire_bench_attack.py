"""``dets bench attack`` with a few of its attacks: it sees them, and what they do not do."""

from __future__ import annotations

import pytest
from support.skipped_rounds import FEW_INTERVALS

from controller.errors import InvalidValueError
from experiments.bench.attack.attacks import ATTACKS
from experiments.bench.attack.bench import MAX_GROWTH_MB, run

SECONDS = 2.0


def test_the_switches_next_to_an_attack_are_unharmed() -> None:
    name = "claims a dpid, stays"
    result = run(SECONDS, [name])
    figures = result["figures"][name]
    assert figures["about"] == ATTACKS[name].about
    assert figures["switches_lost"] == 0
    assert figures["missed_intervals"] <= FEW_INTERVALS + figures["withheld_intervals"]
    assert figures["growth_mb"] < MAX_GROWTH_MB
    assert len(result["targets"]) == 4


def test_an_attack_that_there_is_not_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="is not one of 'none', 'stops reading'"):
        run(SECONDS, ["ask nicely"])
