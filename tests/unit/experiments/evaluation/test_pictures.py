"""Controls have titles for people, whatever algorithm they name."""

from __future__ import annotations

import pytest

from controller.policy.registry import policies
from experiments.evaluation.pictures import title_of


def test_a_title_is_the_algorithms_own() -> None:
    assert {name: title_of(name) for name in policies} == {name: one.title for name, one in policies.items()}
    assert title_of("max-min probe=3") == f"{policies['max-min'].title}, probe=3"


@pytest.mark.parametrize(("control", "title"), [("none", "no control"), ("gone d=2", "gone, d=2")])
def test_baselines_and_algorithms_that_were_removed_have_one_too(control: str, title: str) -> None:
    assert title_of(control) == title
