"""The docs' algorithm, policy, topology, scenario and paper, pasted into a copy of the project and run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import ROOT

from topologies import _mininet_import

Dets = Callable[..., str]


def example(page: str, words: str) -> str:
    """Return the example of a page that holds these words."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if words in block]
    return str(found)


def add_line(path: Path, after: str, page: str, line: str) -> None:
    """Put a line that a page shows into a table, after its first line."""
    assert f"\n    {line}\n" in (ROOT / "docs" / page).read_text(encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert text.count(after) == 1
    path.write_text(text.replace(after, f"{after}    {line}\n"), encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with all of them pasted."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("controller", "topologies", "experiments", "apps"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "controller/dets/fixed_part.py").write_text(example("allocation.md", "class FixedPart"))
    registry = folder / "controller/policy/registry.py"
    add_line(registry, "CLASSES = {\n", "allocation.md", '"part": "controller.dets.fixed_part:FixedPart",')
    (folder / "controller/policy/steps.py").write_text(example("policies.md", "class Steps"))
    add_line(registry, "CLASSES = {\n", "policies.md", '"steps": "controller.policy.steps:Steps",')
    builders = folder / "topologies/builders.py"
    add_line(builders, "fabrics: dict[str, Callable[..., Fabric]] = {\n", "experiments.md", '"my-line": line,')
    function = example("experiments.md", "def line(")
    builders.write_text(builders.read_text().replace("fabrics: dict", f"{function}\n\nfabrics: dict"))
    (folder / "experiments/scenarios/my_burst.py").write_text(example("experiments.md", 'name="my-burst"'))
    (folder / "experiments/papers/my.py").write_text(example("experiments.md", "paper = Paper("))
    return folder


@pytest.fixture(scope="module")
def dets(project: Path) -> Dets:
    """Run ``dets`` of the copy; return what it printed."""

    def run(*words: str) -> str:
        # -P would hide the copy: its packages come from the working directory, before those that are installed.
        command = [sys.executable, "-m", "apps.cli", *words]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_scenario_is_listed_and_run_under_the_algorithm(project: Path, dets: Dets) -> None:
    assert "my-burst " in dets("experiment")
    words = ("--fabric", "model", "--algorithm", "part", "--parameter", "part=0.25", "-q")
    dets("experiment", "my-burst", *words, "--output", "burst")
    summary = json.loads((project / "burst" / "summary.json").read_text())
    assert list(summary) == ["none", "static", "part part=0.25"]
    use = {control: one["phases"]["after"]["use_of_oracle"] for control, one in summary.items()}
    assert use["part part=0.25"] == pytest.approx(0.25, abs=0.005)
    assert use["static"] > 0.4
    assert (project / "burst" / "my-burst.png").read_bytes().startswith(b"\x89PNG")


def test_figure_5_runs_on_the_topology_under_the_algorithm(project: Path, dets: Dets) -> None:
    words = "--fabric model --topology my-line --senders 2 --algorithm part --parameter part=1 --udp-rate 30M"
    times = "--warmup 2 --duration 2 --cooldown 1"
    shown = dets("experiment", "dets-fig5", *words.split(), *times.split(), "--output", "line")
    assert "What the receiving node got" in shown
    summary = json.loads((project / "line" / "summary.json").read_text())
    assert {one["manifest"]["options"]["topology"] for one in summary.values()} == {"my-line"}
    baseline, kept = (summary[control]["figures"] for control in ("none", "part part=1"))
    assert kept["victim_goodput_bps_during"] > 0.9 * kept["victim_goodput_limit_bps"]
    assert 2 * baseline["victim_goodput_bps_during"] < kept["victim_goodput_bps_during"]


def test_figures_judge_the_paper_and_name_the_scenario_and_the_algorithm(project: Path, dets: Dets) -> None:
    controls = ("--control", "part", "--control", "static", "--control", "level")
    dets("figures", "--paper", "my", *controls, "--seeds", "1", "-q", "--output", "results", "--docs", "pages")
    page = (project / "pages" / "results" / "my.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| 2 | A halved limit is used as well |")]
    assert row.endswith("| - | holds |  |  |")
    found = json.loads((project / "pages" / "results" / "my-model.json").read_text())["claims"]["follows"]["result"]
    assert found.endswith(" %")
    papers = (project / "pages" / "results.md").read_text()
    assert "| [My paper](results/my.md) | 1 | 0 / 0 / 0 / 1 | 1 / 0 / 0 / 0 |" in papers
    (table,) = json.loads((project / "pages" / "results" / "my-model.json").read_text())["tables"].values()
    assert [row[:2] for row in table if "`part`" in row[0]] == [["Fixed part of the limit (`part`)", "1"]]
    assert (project / "results/figures/model/my-burst.png").read_bytes().startswith(b"\x89PNG")
    manifest = json.loads((project / "results/figures/model/my-burst/part/seed-1/summary.json").read_text())["manifest"]
    assert (manifest["experiment"], manifest["control"]) == ("my-burst", "part")


@pytest.mark.parametrize("fabric", ["model", "wire"])
def test_the_policy_is_run_drawn_and_judged(project: Path, dets: Dets, fabric: str) -> None:
    words = ("--fabric", fabric, "--algorithm", "steps", "--parameter", "gentle=1", "-q", "--output", f"steps-{fabric}")
    dets("experiment", "my-burst", *words)
    summary = json.loads((project / f"steps-{fabric}" / "summary.json").read_text())
    assert list(summary) == ["none", "static", "steps gentle=1"]
    assert summary["steps gentle=1"]["phases"]["after"]["use_of_oracle"] > 0.5
    assert (project / f"steps-{fabric}" / "my-burst.png").read_bytes().startswith(b"\x89PNG")


def test_mininet_is_given_the_topology(project: Path) -> None:
    """As ``mn --custom`` does: the file is executed without a name, and a topology is made by its name."""
    code = """
import sys
names = {}
path = "topologies/dets.py"
exec(compile(open(path).read(), path, "exec"), names, names)
assert "my-line" in names["topos"], list(names["topos"])
try:
    topology = names["topos"]["my-line"](pns=3)
except ImportError:
    sys.exit()
print(sorted(topology.switches()))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    try:
        _mininet_import.ensure_mininet()
    except ImportError:
        return
    assert "'s1', 's2', 's3'" in done.stdout
