"""The docs' algorithm, policy, topology, scenario and paper, pasted into a copy of the project and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from support.paths import ROOT

from controller import plugins
from controller.errors import InvalidValueError
from topologies import _mininet_import

pytestmark = pytest.mark.long

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
    add_line(builders, "OWN: dict[str, Callable[..., Fabric]] = {\n", "experiments.md", '"my-line": line,')
    function = example("experiments.md", "def line(")
    builders.write_text(builders.read_text().replace("OWN: dict", f"{function}\n\nOWN: dict"))
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


@pytest.mark.parametrize(
    ("algorithm", "parameter", "fabric", "least_use", "most_use"),
    [
        ("part", "part=0.25", "model", 0.245, 0.255),
        ("steps", "gentle=1", "model", 0.5, 1.0),
        ("steps", "gentle=1", "wire", 0.5, 1.0),
    ],
)
def test_the_scenario_is_listed_run_and_drawn(project, dets, algorithm, parameter, fabric, least_use, most_use) -> None:
    assert "my-burst " in dets("experiment")
    words = ("--fabric", fabric, "--algorithm", algorithm, "--parameter", parameter, "-q")
    dets("experiment", "my-burst", *words, "--output", f"burst-{algorithm}-{fabric}")
    folder = project / f"burst-{algorithm}-{fabric}"
    summary = json.loads((folder / "summary.json").read_text())
    use = {control: one["phases"]["after"]["use_of_oracle"] for control, one in summary.items()}
    assert list(use) == ["none", "static", f"{algorithm} {parameter}"]
    assert least_use < use[f"{algorithm} {parameter}"] < most_use
    assert use["static"] > 0.4
    assert (folder / "my-burst.png").read_bytes().startswith(b"\x89PNG")


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
    assert row.endswith("| - | undecided | model: 100.0 % |  |")  # by one seed
    found = json.loads((project / "pages" / "results" / "my-model.json").read_text())["claims"]["follows"]["result"]
    assert found.endswith(" %")
    papers = (project / "pages" / "results.md").read_text()
    assert "| [My paper](results/my.md) | 1 | 0 / 0 / 0 / 1 | 0 / 0 / 1 / 0 |" in papers
    (table,) = json.loads((project / "pages" / "results" / "my-model.json").read_text())["tables"].values()
    assert [row[:2] for row in table if "`part`" in row[0]] == [["Fixed part of the limit (`part`)", "1"]]
    assert (project / "results/figures/model/my-burst.png").read_bytes().startswith(b"\x89PNG")
    manifest = json.loads((project / "results/figures/model/my-burst/part/seed-1/summary.json").read_text())["manifest"]
    assert (manifest["experiment"], manifest["control"]) == ("my-burst", "part")
    assert {"controller/loop", "experiments/model", "scenario my-burst"} <= set(manifest["depends"])


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


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages' plugin, of the pages' examples."""
    folder = tmp_path_factory.mktemp("plugin") / "my-plugin"
    modules = folder / "my_plugin"
    modules.mkdir(parents=True)
    (found,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/plugins.md").read_text(encoding="utf-8"), re.DOTALL)
    (folder / "pyproject.toml").write_text(found)
    (modules / "__init__.py").touch()
    (modules / "fixed_part.py").write_text(example("allocation.md", "class FixedPart"))
    (modules / "steps.py").write_text(example("policies.md", "class Steps"))
    (modules / "line.py").write_text(example("experiments.md", "def line("))
    burst = example("experiments.md", 'name="my-burst"')
    (modules / "my_burst.py").write_text(burst.replace('"dets-fig1"', '"my-line"'))
    return folder


def plugged(python: Path, folder: Path, *words: str, status: int = 0, **variables: str) -> tuple[str, str]:
    """Run ``dets`` of an environment in a folder; return what it printed, on stdout and stderr."""
    command = [str(python), "-W", "ignore", "-m", "apps.cli", *words]
    environment = {**os.environ, **variables}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout, done.stderr


def check_burst(folder: Path, algorithm: str) -> None:
    summary = json.loads((folder / "burst" / "summary.json").read_text())
    assert list(summary) == ["none", "static", algorithm]
    assert {one["manifest"]["options"]["topology"] for one in summary.values()} == {"my-line"}
    assert summary[algorithm]["phases"]["after"]["use_of_oracle"] > 0.2


RUN_BURST = ("experiment", "my-burst", "--fabric", "model", "-q", "--output", "burst")


@pytest.mark.parametrize("algorithm", ["part", "steps"])
def test_a_plugin_is_used_from_its_folder(plugin: Path, tmp_path: Path, algorithm: str) -> None:
    plugged(Path(sys.executable), tmp_path, "--plugins", str(plugin), *RUN_BURST, "--algorithm", algorithm)
    check_burst(tmp_path, algorithm)


def test_a_plugin_is_installed_as_a_package(plugin: Path, tmp_path: Path) -> None:
    """Into an environment of its own, which has what this one has and nothing of the plugin."""
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    (packages,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (packages / "beside.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    assert "my-burst" not in plugged(python, tmp_path, "experiment")[0]
    source = shutil.copytree(plugin, tmp_path / "source")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", source]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (packages / "my_plugin" / "line.py").exists()
    shutil.rmtree(source)
    plugged(python, tmp_path, *RUN_BURST, "--algorithm", "part")
    check_burst(tmp_path, "part")
    # The folder says the same once more: that is one plugin, not two of one name.
    assert plugged(python, tmp_path, "experiment", DETS_PLUGINS=str(plugin))[1] == ""


def test_a_plugin_that_fails_is_named_and_the_rest_is_there(plugin: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(plugin, tmp_path / "broken")
    module = broken / "my_plugin" / "fixed_part.py"
    module.write_text(module.read_text().replace('name = "part"', 'name = "parts"'))
    (broken / "my_plugin" / "line.py").write_text("import nothing_of_this_name\n")
    here = Path(sys.executable), tmp_path, "--plugins", str(broken)
    said = plugged(*here, *RUN_BURST, status=2)[1].splitlines()
    topology, scenario = f"topology 'my-line' of {broken}", f"scenario 'my-burst' of {broken}"
    assert said[0].startswith(f"dets: NAME: 'my-burst' is not loaded: {scenario}: topology: 'my-line' is not one of ")
    assert f"dets: {topology} is not loaded: ModuleNotFoundError: No module named 'nothing_of_this_name'" in said
    listed, told = plugged(*here, "experiment")
    assert "dets-fig5 " in listed
    assert {line.partition(" of ")[0] for line in told.splitlines()} == {
        "dets: topology 'my-line'",
        "dets: scenario 'my-burst'",
        "dets: algorithm 'part'",
    }
    words = ("experiment", "dets-fig5", "--fabric", "model", "--algorithm", "part")
    refused = plugged(*here, *words, status=2)[1]
    reason = f"algorithm 'part' of {broken}: name: 'parts' must be 'part', as the entry point is called"
    assert f"dets: --algorithm: 'part' is not loaded: {reason}" in refused
    config = "vlans: {10: {algorithm: part, send_limit: 1M, receive_limit: 1M}}\nswitches: {s1: {dpid: 1, ports: {}}}\n"
    (tmp_path / "dets.yaml").write_text(config)
    assert f"'part' is not loaded: {reason}" in plugged(*here, "check", "dets.yaml", status=2)[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "has no pyproject.toml to read: No such file or directory"),
        ("[project", "pyproject.toml is not valid: "),
        ("[project]", "pyproject.toml declares none of dets.algorithms, "),
        ("[project.entry-points]\n'dets.policies' = 3", "pyproject.toml: dets.policies is not a table of NAME = TEXT"),
        ("project = 3", "pyproject.toml is not valid: "),
    ],
)
def test_a_folder_without_plugins_is_refused(tmp_path: Path, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InvalidValueError) as caught:
        plugins.use_folder(tmp_path)
    assert (caught.value.key, caught.value.value) == ("plugins", str(tmp_path))
    assert caught.value.reason.startswith(reason)
    assert plugins.VARIABLE not in os.environ
