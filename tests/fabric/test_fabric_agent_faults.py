"""Agents on Open vSwitch when the controller is killed."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.application import Application
from support.ovs import wait_until
from support.udp_blast import udp_blast

from experiments.machine.controller_process import configuration, free_ports
from experiments.ovs.agents import fabric_agents
from experiments.ovs.fabric import OvsFabric, OvsOptions
from topologies.builders import fig1

pytestmark = pytest.mark.alone

VLAN = 1
LIMIT_BPS, BLAST_BPS = 20_000_000, 40_000_000
UNITS = {"": 1, "K": 1_000, "M": 1_000_000}


@contextmanager
def with_agents(folder: Path) -> Iterator[tuple[OvsFabric, Application]]:
    """Three PNs, each with an agent that the controller has heard of and trusts; the switch has no meters."""
    fabric = fig1(pns=3)
    config = configuration(fabric, dict.fromkeys(fabric.vlans, LIMIT_BPS), "fp", {}, *free_ports(2))
    config["agents"] = {"long_frames": True}
    for switch in config["switches"].values():
        switch["profile"] = "no-meters"
        for port in switch["ports"].values():
            port["agent"] = "trust"
    options = OvsOptions(controller=f"tcp:{config['openflow']['listen']}", static_arp=True)
    with ExitStack() as stack:
        app = stack.enter_context(Application(config, folder))
        ovs = stack.enter_context(OvsFabric(fabric, options))
        app.wait_ready()
        stack.enter_context(fabric_agents(fabric.pns, folder))
        wait_until(lambda: {agent(app, number)["state"] for number in (1, 2, 3)} <= {"hello", "trusted"}, "heard", 30)
        yield ovs, app


def agent(app: Application, port_no: int) -> dict[str, Any]:
    return dict(app.get(f"/v1/ports/s1/{port_no}")["agent"])


def blast_of(ovs: OvsFabric) -> AbstractContextManager[None]:
    """Let the VN of VLAN 1 at PN 1 send twice its limit to the one at PN 3."""
    return udp_blast(ovs, ovs.fabric.vn(VLAN, 1).name, ovs.fabric.vn(VLAN, 3).ip, BLAST_BPS)


def is_held(ovs: OvsFabric, number: int) -> bool:
    """Whether a class of the PN's uplink is held to the limit, within a hundredth."""
    command = ["tc", "class", "show", "dev", trunk(ovs, number)]
    classes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    ceilings_bps = [int(value) * UNITS[unit] for value, unit in re.findall(r"ceil (\d+)([KM]?)bit", classes)]
    return any(0.99 * LIMIT_BPS <= ceiling_bps <= LIMIT_BPS for ceiling_bps in ceilings_bps)


def trunk(ovs: OvsFabric, number: int) -> str:
    """Return the PN's way out."""
    return next(pn.trunk_interface for pn in ovs.fabric.pns if pn.number == number)


def test_rates_stand_when_the_controller_is_killed_and_not_for_ever(tmp_path: Path) -> None:
    """And the next one is obeyed: it has another epoch."""
    with with_agents(tmp_path) as (ovs, app), blast_of(ovs):
        wait_until(lambda: is_held(ovs, 1), "held", 30)
        app.signal(signal.SIGKILL)
        app.wait_ended()
        assert is_held(ovs, 1)
        wait_until(lambda: not is_held(ovs, 1), "free again", 30)
        app.start()
        app.wait_ready()
        wait_until(lambda: is_held(ovs, 1), "held again", 30)
        wait_until(lambda: agent(app, 1)["state"] == "trusted", "trusted", 30)
