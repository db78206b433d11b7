"""A run names digests of what it depends on: what computes something else has another digest, another comment not."""

from __future__ import annotations

import ast
import shutil
import sys
from dataclasses import dataclass, field, make_dataclass, replace
from importlib.metadata import packages_distributions

import pytest
from support.paths import ROOT

from controller.policy.registry import CLASSES
from experiments.evaluation.run_matrix import scenario_runs
from experiments.measure.manifest import PACKAGES
from experiments.measure.source_digests import (
    FABRIC_CODE,
    LAWS,
    PINS,
    code_of,
    depends_on,
    files_of,
    is_law,
    part_digest,
    scenario_digest,
)
from experiments.scenarios import scenarios

SOURCE = '''"""A law."""

GAIN = 0.5  # of the paper
NAME = "a # b"


def grown(rate_bps):
    """Return more."""
    return rate_bps * (1 + GAIN)
'''


def test_comments_docstrings_and_blank_lines_do_not_count():
    other = SOURCE.replace('"""A law."""', '"""A law,\n\nin words.\n"""').replace("  # of the paper", "\n\n# ours")
    assert code_of(other) == code_of(SOURCE)
    assert code_of(SOURCE.replace('    """Return more."""\n', "")) == code_of(SOURCE)


@pytest.mark.parametrize(("now", "then"), [("0.5", "0.6"), ("a # b", "a # c"), ("1 + GAIN", "1 - GAIN")])
def test_what_is_computed_counts(now, then):
    assert code_of(SOURCE.replace(now, then)) != code_of(SOURCE)


@pytest.fixture
def copy(tmp_path):
    for part in ("controller", "topologies", "experiments/model", "experiments/scenarios"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    return tmp_path


def test_a_change_changes_the_part_that_it_is_in_alone(copy):
    before = depends_on("model", "seawall", root=copy)
    for name, line in (("controller/seawall/laws.py", "GAIN = 2"), (PINS, "numpy==1")):
        (copy / name).write_text((copy / name).read_text() + f"\n{line}\n")
    (copy / "controller/dets/fair_share.py").write_text(
        (copy / "controller/dets/fair_share.py").read_text() + "\n# no more than this\n"
    )
    part_digest.cache_clear()
    after = depends_on("model", "seawall", root=copy)
    assert {part for part in before if before[part] != after[part]} == {"controller/seawall", PINS}


def test_the_pins_of_the_packages_that_runs_import_count(copy):
    before = part_digest(PINS, copy)
    text = (copy / PINS).read_text()
    (copy / PINS).write_text(text.replace("\nmkdocs==", "\nmkdocs==0."))
    part_digest.cache_clear()
    assert part_digest(PINS, copy) == before
    (copy / PINS).write_text(text.replace("\nnumpy==", "\nnumpy==0."))
    part_digest.cache_clear()
    assert part_digest(PINS, copy) != before


def test_the_packages_that_runs_import_are_those_that_count():
    parts = {part for fabric in FABRIC_CODE for law in CLASSES for part in depends_on(fabric, law, "agent")}
    files = {file for part in parts for file in files_of(part) if file.suffix == ".py"}
    imported = {name.partition(".")[0] for file in files for name in _imported(file)}
    own = {"controller", "apps", "experiments", "topologies", "mininet"}
    distributions = packages_distributions()
    others = imported - own - sys.stdlib_module_names
    assert {distributions[name][0].lower() for name in others} == set(PACKAGES)


def _imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


def test_a_run_depends_on_its_own_law_and_not_on_that_of_another_paper():
    parts = depends_on("model", "gatekeeper")
    assert {part for part in parts if is_law(part)} == {f"controller/{name}" for name in LAWS} - {
        "controller/hygenicc",
        "controller/seawall",
    }
    assert {"controller/loop", "topologies", "experiments/model", PINS} <= set(parts)
    assert not {"controller/cluster", "controller/agents", "experiments/ovs"} & set(parts)
    assert "controller/agents" in depends_on("model", "fp", "agent")
    on_switches = depends_on("ovs", "fp").keys()
    assert {"experiments/ovs", "apps/dets.py", "apps/southbound", "apps/runtime"} <= on_switches
    assert not {"apps", "apps/rest", "apps/ui", "apps/cli"} & on_switches


def test_a_run_on_the_model_depends_on_what_the_model_imports_of_other_fabrics():
    counted = {file for part in FABRIC_CODE["model"] for file in files_of(part)}
    own = [file for part in ("experiments/model", "experiments/switch") for file in files_of(part)]
    named = {ROOT / f"{name.replace('.', '/')}.py" for file in own for name in _imported(file)}
    folders = {ROOT / "experiments" / name for name in ("ovs", "switch", "wire")}
    of_fabrics = {file for file in named if file.parent in folders}
    assert ROOT / "experiments" / "switch" / "ports.py" in of_fabrics
    assert of_fabrics <= counted


def test_a_scenario_is_what_it_sets_whatever_its_fields_are_called():
    @dataclass(frozen=True)
    class Limits:
        send_bps: int
        receive_bps: int | None = None

    def named(first, second, **more):
        return make_dataclass("Scenario", [first, second, *((name, int, field(default=0)) for name in more)])

    one = named("limits", "burst_s")({1: Limits(5)}, 2.0)
    assert scenario_digest(one) == scenario_digest(named("limits", "longest_s", later=0)({1: Limits(5)}, 2.0))
    others = ({1: Limits(6)}, 2.0), ({1: Limits(5, 5)}, 2.0), ({1: Limits(5)}, 3.0), ({2: Limits(5)}, 2.0)
    assert len({scenario_digest(one), *(scenario_digest(named("limits", "burst_s")(*other)) for other in others)}) == 5


def test_a_run_names_the_digest_of_its_scenario_whatever_the_conditions():
    scenario = scenarios()["dets-fig5"]
    (first, *_), (late, *_) = (
        scenario_runs("dets-fig5", scenario.with_conditions(one), "model", 1, ["fp"]) for one in ("product", "late")
    )
    (other, *_) = scenario_runs("dets-fig5", scenario.lasting(50.0), "model", 1, ["fp"])
    assert first.depends == late.depends
    (more, *_) = scenario_runs("dets-fig5", replace(scenario, seeds=9), "model", 1, ["fp"])
    assert first.depends == more.depends
    assert {part for part in first.depends if first.depends[part] != other.depends[part]} == {"scenario dets-fig5"}
