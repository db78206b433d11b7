"""Agents and the real application: control frames by packet-in and packet-out, and what REST says of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.wire import LIMITS, WireRun

from controller.agents.control_frames import (
    CONTROLLER_MAC,
    LAYOUTS,
    ControlFrame,
    FrameAddress,
    Opcode,
    decode,
    encode,
    mac_octets,
    records,
)
from controller.forwarding.pipeline import Table
from controller.openflow.ethernet import is_control

MACS = {1: 0x02_0000_0001, 2: 0x02_0000_0002}
AGENT = 0x02_0000_00A1
LIMIT_BPS = 400e6  # of VLAN 10
VLANS = {vid: {"send_limit": limit, "receive_limit": limit, "algorithm": "fs"} for vid, limit in LIMITS.items()}


@pytest.fixture(params=["verify", "trust"])
def run(request, tmp_path: Path) -> Iterator[WireRun]:
    """A switch with an agent behind port 1 and none behind port 2."""
    ports = {1: {"capacity": "1G", "trunk": [10, 20], "agent": request.param}, 2: {"capacity": "1G", "trunk": [10, 20]}}
    switches = {"s1": {"dpid": 1, "ports": ports}}
    with WireRun(tmp_path, {1: (1, 2)}, switches=switches, vlans=VLANS, agents={"long_frames": True}) as started:
        started.wait(lambda: started.flows(1, Table.RATE_CONTROL), "entries")
        yield started


class HostAgent:
    """An agent behind port 1 that does as it is told, or not."""

    def __init__(self, run: WireRun) -> None:
        self.run, self.sequence, self.rates = run, 0, dict[bytes, int]()

    def say(self, opcode: Opcode, entries, vid: int = 10, port_no: int = 1) -> None:
        speaker = FrameAddress(CONTROLLER_MAC, AGENT, vid, 5)
        for frame in encode(speaker, opcode, entries, self.sequence + 1, int(time.monotonic() * 1000)):
            self.sequence += 1
            self.run.fabric.inject(1, port_no, frame)

    def hello(self) -> None:
        self.say(
            Opcode.HELLO,
            records(Opcode.HELLO, features=[7], interval_ms=[55], most_classes=[9], link_rate_kbps=[10**6]),
        )

    def heard(self) -> list[ControlFrame]:
        """Return what the controller has said, and remember its rates."""
        frames = [decode(frame) for frame in self.run.fabric.received(1, 1) if is_control(frame)]
        found = [frame for frame in frames if isinstance(frame, ControlFrame)]
        for frame in found:
            if frame.opcode is Opcode.SET_RATE:
                self.rates |= {one["receiver"].tobytes(): int(one["rate_kbps"]) for one in frame.entries}
        return found

    def report(self) -> None:
        entries = np.zeros(len(self.rates), dtype=LAYOUTS[Opcode.TRAFFIC_REPORT])
        entries["sender"] = mac_octets(np.array([MACS[1]]))
        for row, (receiver, rate_kbps) in enumerate(self.rates.items()):
            entries["receiver"][row] = np.frombuffer(receiver, dtype=np.uint8)
            entries["measured_kbps"][row], entries["limit_kbps"][row] = rate_kbps // 2, rate_kbps
            entries["flags"][row] = 3
        self.say(Opcode.TRAFFIC_REPORT, entries)

    def work(self) -> None:
        self.hello()
        self.heard()
        self.report()


def test_an_agent_is_told_rates_and_takes_its_entries_over(run: WireRun) -> None:
    agent, mode = HostAgent(run), run.config["switches"]["s1"]["ports"][1]["agent"]
    for port_no, mac in MACS.items():
        run.introduce(1, port_no, mac)
    run.offer((1, 1), MACS[1], MACS[2], 5e6)

    def entry() -> dict[str, object]:
        agent.work()
        entries = run.app.get("/v1/pairs")["pairs"]
        return entries[0] if entries else {"shaping": None}

    wanted = "both" if mode == "verify" else "agent"
    run.app.wait_for(lambda: entry()["shaping"] == wanted, f"shaped by {wanted}")
    assert (entry()["meter_id"] is None) == (mode == "trust")
    assert agent.rates[MACS[2].to_bytes(6)] == 400_000
    assert agent.rates[MACS[1].to_bytes(6)] == 400_000  # all that the VN sends
    port = run.app.get("/v1/ports/s1/1")["agent"]
    assert (port["mode"], port["state"]) == (mode, "trusted")
    assert port["features"] == ["shapes", "reports", "long-frames"]
    assert run.app.get("/v1/ports/s1/2")["agent"] is None
    run.app.wait_for(lambda: run.app.get("/v1/ports/s1/1")["agent"]["state"] == "absent", "missed")

    def held_by_meter() -> bool:
        found = run.app.get("/v1/pairs")["pairs"][0]
        return bool(found["shaping"] == "meter" and found["meter_id"] is not None)

    run.app.wait_for(held_by_meter, "held by its meter again")


def test_nothing_is_taken_from_ports_without_an_agent(run: WireRun) -> None:
    agent = HostAgent(run)
    hello = records(Opcode.HELLO, features=[7], interval_ms=[55], most_classes=[9], link_rate_kbps=[9])
    run.fabric.forget_received()
    agent.say(Opcode.HELLO, hello, port_no=2)
    agent.hello()
    run.app.wait_for(lambda: agent.heard(), "an answer at port 1")
    assert run.app.get("/v1/ports/s1/2")["agent"] is None
    assert not any(is_control(frame) for frame in run.fabric.received(1, 2))


@pytest.mark.parametrize("run", ["verify"], indirect=True)
def test_an_agent_that_reports_less_than_it_lets_through_is_distrusted(run: WireRun) -> None:
    """It says that it shapes, reports half of its rate, and sends twice of it: the meter behind it tells."""
    agent = HostAgent(run)
    for port_no, mac in MACS.items():
        run.introduce(1, port_no, mac)
    run.offer((1, 1), MACS[1], MACS[2], 2.0 * LIMIT_BPS)

    def distrusted() -> bool:
        agent.work()
        return bool(run.app.events("agent-distrusted"))

    run.app.wait_for(distrusted, "distrusted")
    assert "s1:1" in run.app.events("agent-distrusted")[0]["text"]
    agent.work()  # it goes on, and is not listened to
    assert run.app.get("/v1/ports/s1/1")["agent"]["state"] == "distrusted"

    def held() -> bool:
        (entry,) = run.app.get("/v1/pairs")["pairs"]
        return bool(entry["shaping"] == "meter" and entry["meter_rate_bps"] == LIMIT_BPS)

    run.app.wait_for(held, "held by its meter, without the backstop's margin")
