"""Agents on Open vSwitch when the controller is killed, and when a host forges control frames."""

from __future__ import annotations

import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.application import Application
from support.ovs import wait_until
from support.skipped_rounds import few_skipped
from support.udp_blast import udp_blast

from apps.agent.root_qdisc import DIRECT_PRIORITY
from controller.agents.control_frames import CONTROLLER_MAC, FrameAddress, Opcode, encode, records
from controller.openflow.ethernet import is_control
from experiments.machine.controller_process import configuration, free_ports
from experiments.ovs.agents import fabric_agents
from experiments.ovs.fabric import OvsFabric, OvsOptions
from topologies.builders import fig1

VLAN = 1
LIMIT_BPS, BLAST_BPS = 20_000_000, 40_000_000
FORGED_S = 3.0  # longer than the forty intervals for which an agent obeys a controller that it does not hear
FORGED_EPOCH = 0xBADBADBA
ETH_P_ALL = 3
POLL_S = 0.1  # an API that is asked without a pause refuses
FORGE = """
import os, socket, sys, time
per_s, seconds, frame, priority = float(sys.argv[2]), float(sys.argv[3]), *map(bytes.fromhex, sys.argv[4:6])
os.nice(10)
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind((sys.argv[1], 0))
sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
begin, sent, lost = time.monotonic(), 0, 0
while (passed := time.monotonic() - begin) < seconds:
    for _ in range(int(passed * per_s) - sent - lost):
        try:
            sock.send(frame)
            sent += 1
        except OSError:
            lost += 1
    time.sleep(0.001)
print(sent)
"""
UNITS = {"": 1, "K": 1_000, "M": 1_000_000}


@contextmanager
def with_agents(folder: Path, mode: str = "trust") -> Iterator[tuple[OvsFabric, Application]]:
    """Three PNs, each with an agent that the controller has heard of; with ``trust`` the switch has no meters."""
    fabric = fig1(pns=3)
    config = configuration(fabric, dict.fromkeys(fabric.vlans, LIMIT_BPS), "fp", {}, *free_ports(2))
    config["agents"] = {"long_frames": True}
    for switch in config["switches"].values():
        switch["profile"] = "no-meters" if mode == "trust" else "full"
        for port in switch["ports"].values():
            port["agent"] = mode
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


def blast_of(ovs: OvsFabric, number: int = 1) -> AbstractContextManager[None]:
    """Let the VN of VLAN 1 at a PN send twice its limit to the one at PN 3."""
    return udp_blast(ovs, ovs.fabric.vn(VLAN, number).name, ovs.fabric.vn(VLAN, 3).ip, BLAST_BPS)


def is_held(ovs: OvsFabric, number: int) -> bool:
    """Whether a class of the PN's uplink is held to the limit, within a hundredth."""
    return any(0.99 * LIMIT_BPS <= ceiling_bps <= LIMIT_BPS for ceiling_bps in ceilings_bps(ovs, number))


def ceilings_bps(ovs: OvsFabric, number: int) -> list[int]:
    """Return the ceilings of all classes of the PN's uplink."""
    command = ["tc", "class", "show", "dev", trunk(ovs, number)]
    classes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(value) * UNITS[unit] for value, unit in re.findall(r"ceil (\d+)([KM]?)bit", classes)]


def trunk(ovs: OvsFabric, number: int) -> str:
    """Return the PN's way out."""
    return next(pn.trunk_interface for pn in ovs.fabric.pns if pn.number == number)


def test_rates_stand_when_the_controller_is_killed_and_not_for_ever(tmp_path: Path) -> None:
    """And the next one is obeyed: it has another epoch."""
    with with_agents(tmp_path) as (ovs, app), blast_of(ovs):
        wait_until(lambda: is_held(ovs, 1), "held", 30)
        app.send_signal(signal.SIGKILL)
        app.wait_ended()
        assert is_held(ovs, 1)
        wait_until(lambda: not is_held(ovs, 1), "free again", 30)
        app.start()
        app.wait_ready()
        wait_until(lambda: is_held(ovs, 1), "held again", 30)
        wait_until(lambda: agent(app, 1)["state"] == "trusted", "trusted", 30)


@pytest.mark.parametrize(
    ("mode", "forged_per_s"),
    [
        # To make so many frames and to drop them keeps a processor busy.
        pytest.param("trust", 100_000, marks=pytest.mark.alone),
        pytest.param("verify", 20_000, marks=pytest.mark.rates),
    ],
)
def test_forged_control_frames_change_nothing_for_others(tmp_path: Path, mode: str, forged_per_s: int) -> None:
    """PN 1 forges reports in the name of PN 2's VN; PN 2 is held to its limit by its own agent.

    Its agent's own classifier drops what VNs forge: whoever forges here is root, and goes around it. With ``trust`` no
    meter holds back what it forges.
    """
    with with_agents(tmp_path, mode) as (ovs, app), blast_of(ovs, 2):
        wait_until(lambda: is_held(ovs, 2) and agent(app, 2)["state"] == "trusted", "held", 30)
        sender, receiver = (int(ovs.fabric.vn(VLAN, number).mac.replace(":", ""), 16) for number in (2, 3))
        entry = records(
            Opcode.TRAFFIC_REPORT,
            sender=[sender],
            receiver=[receiver],
            measured_kbps=[1],
            dropped_kbps=[0],
            limit_kbps=[1],
            available_kbps=[1],
            flags=[3],
        )
        (report,) = encode(FrameAddress(CONTROLLER_MAC, sender, VLAN, FORGED_EPOCH), Opcode.TRAFFIC_REPORT, entry, 1, 0)
        rate = records(Opcode.SET_RATE, sender=[sender], receiver=[receiver], rate_kbps=[1])
        (set_rate,) = encode(FrameAddress(sender, CONTROLLER_MAC, VLAN, FORGED_EPOCH), Opcode.SET_RATE, rate, 1, 0)
        with few_skipped(app):
            forging = subprocess.Popen(forge(ovs, report, forged_per_s, FORGED_S), stdout=subprocess.PIPE, text=True)
            states = set()
            while forging.poll() is None:
                states.add(agent(app, 2)["state"])
                assert is_held(ovs, 2), ceilings_bps(ovs, 2)
                time.sleep(POLL_S)
        forged = int(forging.communicate()[0])
        refused = agent(app, 1)["rejected_frames"]
        print(f"forged {forged} frames, refused {refused}")
        assert states == {"trusted"}
        assert forged > forged_per_s * FORGED_S / 2  # the machine is not so slow that little was tried
        assert refused.get("budget", 0) > 0
        assert agent(app, 1)["state"] == "distrusted"
        assert agent(app, 2)["rejected_frames"] == {}
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as listening:
            listening.bind((trunk(ovs, 2), 0))
            subprocess.run(forge(ovs, set_rate, 1000, 0.1), check=True, capture_output=True)
            came = list(frames_of(listening, 1.0))
        assert any(is_control(frame) for frame in came)  # what the controller tells PN 2's agent
        assert not any(FORGED_EPOCH.to_bytes(4) in frame for frame in came)


def forge(ovs: OvsFabric, frame: bytes, per_s: float, seconds: float) -> list[str]:
    """Return the command that sends a frame again and again out of PN 1; it prints how many its link took."""
    priority = struct.pack("=I", DIRECT_PRIORITY)  # above what Python takes for an int
    return [sys.executable, "-c", FORGE, trunk(ovs, 1), str(per_s), str(seconds), frame.hex(), priority.hex()]


def frames_of(listening: socket.socket, seconds: float) -> Iterator[bytes]:
    """Yield the frames that go through an interface for so long, either way."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if select.select([listening], [], [], left_s)[0]:
            yield listening.recv(2048)
