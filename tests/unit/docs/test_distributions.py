"""The two distributions: the controller is whole without experiments, and what it is tried with is of its version."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.paths import ROOT

from experiments.machine.controller_process import configuration, free_ports
from topologies.builders import fig1

START_S = 60.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """An environment that has what a wheel of dets-controller holds and what it needs, and nothing else of ours.

    Importing from a path, Python does not follow the .pth files there, which would lead to the repository.
    """
    installed = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(installed)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    assert {path.name for path in installed.iterdir()} == {"controller", "apps"}
    needed = Path(np.__file__).parents[1]
    # Debian's Python has packages of its own, older than ours; those that eventlet finds there do not fit.
    start = tmp_path_factory.mktemp("start")
    (start / "sitecustomize.py").write_text(
        "import sys\nsys.path[:] = [folder for folder in sys.path if not folder.endswith('/dist-packages')]\n"
    )
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(map(str, (installed, needed, start)))}


def python(environment, folder, *words):
    """Run the interpreter under the virtual environment, which knows nothing of it."""
    command = [sys._base_executable, "-W", "ignore", *map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_controller_has_all_of_its_modules_and_none_of_the_lab(environment, tmp_path):
    code = (
        "from apps.runtime import launcher\n"
        "launcher._prepare()\n"
        "import importlib, pkgutil, controller, apps\n"
        "for top in (controller, apps):\n"
        "    for one in pkgutil.walk_packages(top.__path__, f'{top.__name__}.'):\n"
        "        if not one.name.endswith('__main__'):\n"
        "            importlib.import_module(one.name)\n"
        "from importlib.util import find_spec\n"
        "print(controller.__file__, find_spec('experiments'), find_spec('topologies'))\n"
    )
    status, said = python(environment, tmp_path, "-c", code)
    assert status == 0, said
    installed = environment["PYTHONPATH"].split(os.pathsep)[0]
    assert said.split() == [f"{installed}/controller/__init__.py", "None", "None"]


def test_it_has_the_commands_of_a_controller(environment, tmp_path):
    status, said = python(environment, tmp_path, "-m", "apps.cli", "--help")
    assert status == 0, said
    commands = re.findall(r"^  (\w+) ", said, re.MULTILINE)
    assert {"run", "check", "status", "agent", "cluster"} <= set(commands)
    assert {"experiment", "figures", "bench", "lab", "demo"} & set(commands) == set()


def test_it_checks_a_configuration_and_controls(environment, tmp_path):
    fabric = fig1(pns=2)
    config = configuration(fabric, dict.fromkeys(fabric.vlans, 10_000_000), "fp", {"d": 2}, *free_ports(2))
    (tmp_path / "dets.yaml").write_text(yaml.safe_dump(config))
    status, said = python(environment, tmp_path, "-m", "apps.cli", "check", "dets.yaml")
    assert status == 0, said
    command = [sys._base_executable, "-W", "ignore", "-m", "apps.cli", "run", "--config", "dets.yaml"]
    url = f"http://{config['rest']['listen']}"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        health = answer(f"{url}/v1/health", tmp_path / "log")
        assert set(health["switches"]) == {switch.name for switch in fabric.switches}
        with urllib.request.urlopen(f"{url}/ui", timeout=10) as page:
            assert b"<html" in page.read()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    assert process.returncode == 0, (tmp_path / "log").read_text()


def answer(url, log):
    """What REST answers once it does."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:  # not ready: no switch has come
            return json.load(error)
        except OSError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


def test_the_lab_has_its_files_that_are_no_modules(tmp_path):
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT / "experiments", check=True, capture_output=True, timeout=120)
    assert {path.name for path in tmp_path.iterdir()} == {"experiments", "topologies"}
    wanted = others(ROOT / "experiments") - {Path("pyproject.toml")}
    assert others(tmp_path / "experiments") == wanted


def others(folder):
    """The files that are no modules."""
    found = (path for path in folder.rglob("*") if path.suffix not in {".py", ".pyc"} and path.is_file())
    return {path.relative_to(folder) for path in found}
