"""The demonstration: figure 5 of the DETS paper, on Open vSwitch if possible, or else on the model.

With a cluster there are three controllers in sharded mode, and the owner of the receiver's switch is killed in the
middle of the blast; this does not run on the model. Figure 5 has one switch; here its senders are behind three, its
receiver behind a fourth, and a fifth joins them (figure 7's fabric).
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

from experiments import experiment_runner
from experiments.evaluation.measures import AROUND_INTERVALS
from experiments.experiment_options import ExperimentOptions
from experiments.machine.cluster_process import ETCD_MEMBERS

OUTPUT = Path("results/demo")
# A twentieth of the paper's 400 and 500 Mb/s on 1 Gb/s links: userspace Open vSwitch on two cores carries it easily, so
# that the figures show the control and not the machine.
ON_OVS = ExperimentOptions(parameters={"d": 2}, warmup_s=18, blast_s=18, cooldown_s=9, output=OUTPUT)
# The model has the paper's own rates.
ON_MODEL = dataclasses.replace(
    ON_OVS,
    fabric="model",
    link_rate_bps=1_000_000_000,
    victim_limit_bps=400_000_000,
    aggressor_limit_bps=500_000_000,
    udp_rate_bps=150_000_000,
)


# Software switches in real time have the rates of Open vSwitch; they need no root.
ON_WIRE = dataclasses.replace(ON_OVS, fabric="wire", baseline=False)
CLUSTER_OUTPUT, CLUSTER_TOPOLOGY = Path("results/demo-cluster"), "dets-fig7"
# At these rates a TCP sender has 2 Mb/s, and only a few packets in flight. Under "fp" a retransmission time-out of one
# sender sometimes leads to time-outs of all others, also without a kill.
CLUSTER_ALGORITHM = "level"


def choose_fabric(cluster: bool = False) -> tuple[ExperimentOptions, str]:
    """Return the options, and a line that names the fabric with the reason."""
    if os.geteuid() != 0:
        why = "not root, which network namespaces and bridges need; on Open vSwitch: sudo make demo"
    elif shutil.which("ovs-vsctl") is None:
        why = "Open vSwitch is not installed"
    else:
        return ON_OVS, "On Open vSwitch, in real time: root, and Open vSwitch is installed."
    if cluster:
        return ON_WIRE, f"On software switches, in real time: {why}."
    return ON_MODEL, f"On the model fabric, in virtual time: {why}."


def run() -> dict[str, Any]:
    """Run dets-fig5 with short phases; return its summaries."""
    options, why = choose_fabric()
    print(why, flush=True)
    return experiment_runner.run("dets-fig5", options)


def run_cluster() -> dict[str, Any]:
    """Run dets-fig5 with three controllers in sharded mode, and kill one of them; return its summaries.

    Raises EtcdProcessError if etcd is not installed.
    """
    options, why = choose_fabric(cluster=True)
    options = dataclasses.replace(
        options,
        topology=CLUSTER_TOPOLOGY,
        algorithm=CLUSTER_ALGORITHM,
        parameters={},
        output=CLUSTER_OUTPUT,
    )
    print(why, flush=True)
    print(
        f"Three controllers share five switches, and an etcd of {ETCD_MEMBERS} members, all on this\n"
        "machine. The owner of the receiver's switch is killed in the middle of the blast. Its grants\n"
        "stay until another controller takes over.",
        flush=True,
    )
    done = experiment_runner.run("dets-fig5", options, kill_at_s=options.warmup_s + options.blast_s / 2)
    print(_around_the_kill(done[CLUSTER_ALGORITHM]["figures"]), flush=True)
    return done


def _around_the_kill(figures: dict[str, Any]) -> str:
    """Return the lines about the kill."""
    lines = [
        f"{figures['killed']} was killed. Its switches were under control again after"
        f" {figures['out_of_control_s']:.2f} s: {', '.join(figures['new_owners'])}.",
        f"TCP's goodput in the {AROUND_INTERVALS} intervals of 55 ms before and after the kill, and in how many it was"
        " below 95 % of what its limit allows:",
    ]
    for when in ("before", "after"):
        least, most = (figures[f"{name}_goodput_bps_{when}_kill"] / 1e6 for name in ("least", "most"))
        below = figures[f"intervals_below_{when}_kill"]
        lines.append(f"  {when}: {least:.1f} to {most:.1f} Mb/s, below in {below}")
    return "\n".join(lines)
