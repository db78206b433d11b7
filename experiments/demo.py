"""The demonstration: figure 5 of the DETS paper, on Open vSwitch where that can be, else on the model."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

from experiments import single
from experiments.options import ExperimentOptions

OUTPUT = Path("results/demo")
# The paper's 400 and 500 Mb/s on 1 Gb/s links, a twentieth of each: what userspace Open vSwitch carries on two cores
# with room to spare, so that the figures are of the control and not of the machine.
ON_OVS = ExperimentOptions(parameters={"d": 2}, warmup_s=18, blast_s=18, cooldown_s=9, output=OUTPUT)
# The model has the paper's own rates.
ON_MODEL = ExperimentOptions(
    parameters={"d": 2},
    fabric="model",
    link_rate_bps=1_000_000_000,
    victim_limit_bps=400_000_000,
    aggressor_limit_bps=500_000_000,
    udp_rate_bps=150_000_000,
    warmup_s=18,
    blast_s=18,
    cooldown_s=9,
    output=OUTPUT,
)


def choose_fabric() -> tuple[ExperimentOptions, str]:
    """Return what to run, and one line that says where and why."""
    if os.geteuid() != 0:
        why = "not root, which network namespaces and bridges need; on Open vSwitch: sudo make demo"
    elif shutil.which("ovs-vsctl") is None:
        why = "Open vSwitch is not installed"
    else:
        return ON_OVS, "On Open vSwitch, in real time: root, and Open vSwitch is here."
    return ON_MODEL, f"On the model fabric, in virtual time: {why}."


def run(quiet: bool = False) -> dict[str, Any]:
    """Run dets-fig5 with short phases; return its summary."""
    options, why = choose_fabric()
    if not quiet:
        print(why, flush=True)
    return single.run("dets-fig5", dataclasses.replace(options, quiet=quiet))
