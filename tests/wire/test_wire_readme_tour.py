"""The README's quick tour, run line by line in a shell, each answer compared with the one that the README shows."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

from experiments.machine.controller_process import free_ports

pytestmark = pytest.mark.functions
TIMEOUT_S = 400
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HERE = re.compile(r"^[^\n]*<<'(\w+)'\n.*?^\1$", re.DOTALL | re.MULTILINE)
_OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# The tour's own shell has no job control: what it starts must not outlive it, however it ends.
_PROLOGUE = "set -u; make() { :; }; trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n"


def commands(script: str) -> list[str]:
    """Return the commands of a block: its lines, a here-document with the line that it belongs to."""
    found, rest = [], script
    while rest:
        here = _HERE.match(rest)
        command = here[0] if here else rest.partition("\n")[0]
        found.append(command)
        rest = rest[len(command) :].removeprefix("\n")
    return [command for command in found if command.strip()]


def tour() -> list[tuple[list[str], str]]:
    """Return the commands of each block of the tour, and what the README says that they print."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## Quick tour\n")[1].split("\n## ")[0]
    steps: list[tuple[list[str], str]] = []
    for kind, block in _BLOCK.findall(section):
        if kind == "sh":
            steps.append((commands(block), ""))
        else:
            assert steps[-1][1] == "", "two answers to one block"
            steps[-1] = (steps[-1][0], block)
    ends = re.findall(r"`(kill [^`]+)` stops all", section)
    return [*steps, ([*ends, "wait"], "")]


def played(steps: list[tuple[list[str], str]], folder: Path) -> list[str]:
    """Return what each block printed, run in one shell; AssertionError, with what was printed, when a line fails."""
    openflow_port, rest_port = free_ports(2)
    marker = "-- end of a block --"
    script = [_PROLOGUE]
    for lines, _ in steps:
        script += [f"{line}\n[ $? -eq 0 ] || exit 1\n" for line in lines]
        script.append(f"echo '{marker}'\n")
    ports = f"openflow: {{listen: 127.0.0.1:{openflow_port}}}\nrest: {{listen: 127.0.0.1:{rest_port}}}\n"
    text = "".join(script).replace("<<'END'\n", f"<<'END'\n{ports}").replace(":8080", f":{rest_port}")
    (folder / ".venv" / "bin").mkdir(parents=True)
    dets = folder / ".venv" / "bin" / "dets"
    dets.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m apps.cli "$@"\n')
    dets.chmod(0o755)
    (folder / ".venv" / "bin" / "activate").write_text(f'PATH="{dets.parent}:$PATH"\n')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DETS_")}
    environment |= {
        "DETS_URL": f"http://127.0.0.1:{rest_port}",
        "XDG_CONFIG_HOME": str(folder),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    logs = "".join(f"\n{path.name}:\n{path.read_text()[-2000:]}" for path in sorted(folder.rglob("*.log")))
    assert done.returncode == 0, done.stdout + logs
    return done.stdout.split(marker + "\n")[:-1]


def test_the_tour_does_what_the_readme_says(tmp_path: Path) -> None:
    steps = tour()
    said = played(steps, tmp_path)
    assert len(said) == len(steps)
    checker = doctest.OutputChecker()
    for (lines, expected), printed in zip(steps, said, strict=True):
        printed = "\n".join(line.rstrip() for line in printed.splitlines()) + ("\n" if printed else "")
        where = "\n".join(lines)
        assert checker.check_output(expected, printed, _OPTIONS), f"{where}\n\n{printed}\nand not\n\n{expected}"
    every = " ".join(line for lines, _ in steps for line in lines)
    for word in ("dets run", "curl", "dets limit set", "dets top", "dets explain", "kill"):
        assert word in every
    assert {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")} == {"results"}
    log = (tmp_path / "results" / "tour" / "dets.log").read_text()
    assert "stopped; on_stop: keep" in log
    assert "Traceback" not in log


def test_a_tour_that_is_not_true_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no such thing"):
        played([(["echo 'no such thing'; false"], ""), (["echo more"], "")], tmp_path)
