"""The product without any room and without compiled passes: limits hold and change, recordings are decided again."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.paths import ROOT
from support.without import KERNELS, VARIABLE

from controller.rooms import ROOMS

CONTROL = "tests/wire/test_wire_application_control.py"
CHOSEN = "receivers_limit or changed or bad_requests or removes"
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
WITHOUT = "tests/support/without.py"


@pytest.mark.parametrize(
    "command",
    [
        (*PYTEST, CONTROL, "-k", CHOSEN),
        *((WITHOUT, "apps.cli", "replay", f"tests/model/data/{name}.dets") for name in ("fp", "two-policies")),
    ],
    ids=["control", "replay", "replay of two policies"],
)
def test_the_rest_works_without_rooms(command: tuple[str, ...]) -> None:
    environment = {**os.environ, VARIABLE: " ".join([*ROOMS, KERNELS])}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
