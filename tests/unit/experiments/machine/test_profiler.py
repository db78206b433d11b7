"""The sampling profiler of the benches, on a module that burns processor time in one function."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from experiments.machine.controller_process import ROOT

BUSY = """
import sys, time

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))

def outer():
    burn(float(sys.argv[1]))

if __name__ == "__main__":
    outer()
    raise SystemExit(3)
"""


def test_the_profile_names_where_the_time_went(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    profile = tmp_path / "profile.txt"
    command = [sys.executable, "-m", "experiments.machine.profiler", str(profile), "busy", "0.5"]
    search = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = subprocess.run(command, env=search, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 3, "the module's own status"
    lines = profile.read_text().splitlines()
    assert "samples" in lines[0]
    shares = {line.split()[2]: [float(word.rstrip("%")) for word in line.split()[:2]] for line in lines[2:]}
    assert shares["burn"][0] > 50
    assert shares["outer"][0] < 20
    assert shares["outer"][1] >= shares["burn"][1]
