"""The product without any room and without compiled passes: limits hold and change, recordings are decided again.

And rooms without the others.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.missing_packages import KERNELS, VARIABLE
from support.paths import ROOT

from controller.rooms import ROOMS

CONTROL = "tests/wire/test_wire_application_control.py"
CHOSEN = "receivers_limit or changed or removes"
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
WITHOUT = "tests/support/missing_packages.py"


@pytest.mark.parametrize(
    ("room", "command"),
    [
        ("", (*PYTEST, CONTROL, "-k", CHOSEN)),
        *(("", (WITHOUT, "apps.cli", "replay", f"tests/model/data/{name}.dets")) for name in ("fp", "two-policies")),
        ("agents", (*PYTEST, "tests/wire/test_wire_agents.py", "-k", "takes_its_entries_over and trust")),
        ("cluster", (*PYTEST, "tests/wire/test_wire_cluster_shared.py", "-k", "senders_of_both_nodes")),
    ],
    ids=["control", "replay", "replay of two policies", "agents", "cluster"],
)
def test_what_is_left_works_without_rooms(room: str, command: tuple[str, ...]) -> None:
    environment = {**os.environ, VARIABLE: " ".join({*ROOMS, KERNELS} - {room})}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
