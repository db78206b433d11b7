"""Agents and the real application: control frames by packet-in and packet-out, and what REST says of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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

PORTS = {"verify": 1, "trust": 3}  # those with an agent, by mode; 2 has none
RECEIVER = 2
MACS = {port_no: 0x02_0000_0000 | port_no for port_no in (1, 2, 3)}
AGENT = 0x02_0000_00A0  # and its port
LIMIT_BPS = 400e6  # of VLAN 10
VLANS = {vid: {"send_limit": limit, "receive_limit": limit, "algorithm": "fs"} for vid, limit in LIMITS.items()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    """A switch with agents of both modes, each of which has its port for itself."""
    ports = {port_no: {"capacity": "1G", "trunk": [10, 20]} for port_no in MACS}
    for mode, port_no in PORTS.items():
        ports[port_no]["agent"] = mode
    switches = {"s1": {"dpid": 1, "ports": ports}}
    folder = tmp_path_factory.mktemp("agents")
    with WireRun(folder, {1: [*MACS]}, switches=switches, vlans=VLANS, agents={"long_frames": True}) as started:
        started.wait(lambda: started.flows(1, Table.RATE_CONTROL), "entries")
        for port_no, mac in MACS.items():
            started.introduce(1, port_no, mac)
        yield started


class HostAgent:
    """An agent behind a port that does as it is told, or not."""

    def __init__(self, run: WireRun, mode: str) -> None:
        self.run, self.port_no, self.sequence, self.rates = run, PORTS[mode], 0, dict[bytes, int]()

    def say(self, opcode: Opcode, entries, port_no: int | None = None) -> None:
        speaker = FrameAddress(CONTROLLER_MAC, AGENT | self.port_no, 10, 5)
        for frame in encode(speaker, opcode, entries, self.sequence + 1, int(time.monotonic() * 1000)):
            self.sequence += 1
            self.run.fabric.inject(1, port_no or self.port_no, frame)

    def hello(self, port_no: int | None = None) -> None:
        columns = {"features": [7], "interval_ms": [55], "most_classes": [9], "link_rate_kbps": [10**6]}
        self.say(Opcode.HELLO, records(Opcode.HELLO, **columns), port_no)

    def heard(self) -> list[ControlFrame]:
        """Return what the controller has said, and remember its rates."""
        frames = [decode(frame) for frame in self.run.fabric.received(1, self.port_no) if is_control(frame)]
        found = [frame for frame in frames if isinstance(frame, ControlFrame)]
        for frame in found:
            if frame.opcode is Opcode.SET_RATE:
                self.rates |= {one["receiver"].tobytes(): int(one["rate_kbps"]) for one in frame.entries}
        return found

    def report(self) -> None:
        entries = np.zeros(len(self.rates), dtype=LAYOUTS[Opcode.TRAFFIC_REPORT])
        entries["sender"] = mac_octets(np.array([MACS[self.port_no]]))
        for row, (receiver, rate_kbps) in enumerate(self.rates.items()):
            entries["receiver"][row] = np.frombuffer(receiver, dtype=np.uint8)
            entries["measured_kbps"][row], entries["limit_kbps"][row] = rate_kbps // 2, rate_kbps
            entries["flags"][row] = 3
        self.say(Opcode.TRAFFIC_REPORT, entries)

    def work(self) -> None:
        self.hello()
        self.heard()
        self.report()

    @contextmanager
    def sending(self, rate_bps: float) -> Iterator[None]:
        """What happens inside happens while the agent's host sends at a rate to the one without an agent."""
        flow = self.run.offer((1, self.port_no), MACS[self.port_no], MACS[RECEIVER], rate_bps)
        try:
            yield
        finally:
            with self.run.fabric.locked():
                self.run.fabric.rates.set_rates([flow], 0.0)

    def pair(self) -> dict[str, Any]:
        """Return the pair that its host sends in."""
        return self.run.app.entry(self.port_no, RECEIVER, 10) or {"shaping": None}

    def shown(self) -> dict[str, Any]:
        return dict(self.run.app.get(f"/v1/ports/s1/{self.port_no}")["agent"])


@pytest.mark.parametrize("mode", PORTS)
def test_an_agent_is_told_rates_and_takes_its_entries_over(run: WireRun, mode: str) -> None:
    """From a port without an agent nothing is taken, and nothing is said there."""
    agent = HostAgent(run, mode)
    run.fabric.forget_received()
    agent.hello(RECEIVER)

    def shaping() -> str:
        agent.work()
        return str(agent.pair()["shaping"])

    with agent.sending(5e6):
        wanted = "both" if mode == "verify" else "agent"
        run.app.wait_for(lambda: shaping() == wanted, f"shaped by {wanted}")
        assert (agent.pair()["meter_id"] is None) == (mode == "trust")
        receiver, sender = (MACS[port_no].to_bytes(6) for port_no in (RECEIVER, agent.port_no))

        def told() -> bool:
            agent.work()
            return agent.rates[receiver] == agent.rates[sender] == 400_000  # all that the receiver and the sender may

        # A receiver without a queue has a budget, of which senders that paused just now keep a share.
        run.app.wait_for(told, "told the limit")
        port = agent.shown()
        assert (port["mode"], port["state"]) == (mode, "trusted")
        assert port["features"] == ["shapes", "reports", "long-frames"]
        run.app.wait_for(lambda: agent.shown()["state"] == "absent", "missed")
        run.app.wait_for(
            lambda: agent.pair()["shaping"] == "meter" and agent.pair()["meter_id"] is not None,
            "held by its meter again",
        )
    assert run.app.get(f"/v1/ports/s1/{RECEIVER}")["agent"] is None
    assert not any(is_control(frame) for frame in run.fabric.received(1, RECEIVER))


def test_an_agent_that_reports_less_than_it_lets_through_is_distrusted(run: WireRun) -> None:
    """It says that it shapes, reports half of its rate, and sends twice of it: the meter behind it tells."""
    agent = HostAgent(run, "verify")

    def distrusted() -> bool:
        agent.work()
        return bool(run.app.events("agent-distrusted"))

    with agent.sending(2.0 * LIMIT_BPS):
        run.app.wait_for(distrusted, "distrusted")
        assert "s1:1" in run.app.events("agent-distrusted")[0]["text"]
        agent.work()  # it goes on, and is not listened to
        assert agent.shown()["state"] == "distrusted"
        run.app.wait_for(
            lambda: agent.pair()["shaping"] == "meter" and agent.pair()["meter_rate_bps"] == LIMIT_BPS,
            "held by its meter, without the backstop's margin",
        )
