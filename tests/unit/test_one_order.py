"""The steps of an interval have one order, that of ``controller.loop``: nobody else calls them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEPS = {
    "controller.loop.sender_side": {"read_meters"},
    "controller.loop.receiver_side": {"watch_receivers"},
    "controller.loop.grant_side": {"apply_grants"},
    "controller.dets.rate_allocator": {"watch_congestion", "initialize", "answer_reports"},
}
BESIDE = {("controller/whatif/shadow.py", "answer_reports")}  # a shadow's decisions are applied nowhere


def steps_of(source: str) -> Iterator[str]:
    """Yield the steps that a module imports, or takes of a module that it imports."""
    modules = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in STEPS:
            yield from STEPS[node.module] & {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            modules |= {one.asname or one.name: one.name for one in node.names}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in STEPS.get(modules.get(ast.unparse(node.value), ""), ()):
            yield node.attr


def test_the_steps_of_an_interval_are_called_in_the_loop_alone():
    found = set()
    for folder in ("controller", "apps", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            found |= {(name, step) for step in steps_of(path.read_text())}
    assert {one for one in found if not one[0].startswith("controller/loop/")} == BESIDE
    assert {step for _, step in found} == {step for steps in STEPS.values() for step in steps}


@pytest.mark.parametrize(
    "source",
    [
        "from controller.loop.grant_side import apply_grants",
        "def f():\n    from controller.loop.grant_side import GrantSide, apply_grants as now",
        "from controller.loop import grant_side as grants\ngrants.apply_grants()",
        "import controller.loop.grant_side\ncontroller.loop.grant_side.apply_grants()",
    ],
)
def test_a_step_is_found_however_it_is_imported(source):
    assert list(steps_of(source)) == ["apply_grants"]


def test_other_things_of_that_name_are_none():
    assert not list(steps_of("from controller.central.settings_update import apply_settings\nself.apply_settings()"))
