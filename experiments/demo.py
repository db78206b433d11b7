"""The demonstration: figure 5 of the DETS paper on this machine's Open vSwitch, in about two minutes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from experiments import fig5
from experiments.options import ExperimentOptions


def run(quiet: bool = False) -> dict[str, Any]:
    """Run dets-fig5 with short phases; return its summary. Without root: PermissionError that says what to do."""
    if os.geteuid() != 0:
        raise PermissionError("the demo makes network namespaces and bridges: run it as root (sudo make demo)")
    # The paper's 400 and 500 Mb/s on 1 Gb/s links, a tenth of each: what userspace Open vSwitch carries on two cores.
    options = ExperimentOptions(
        parameters={"d": 2}, warmup_s=18, blast_s=18, cooldown_s=9, output=Path("results/demo"), quiet=quiet
    )
    return fig5.run(options)
