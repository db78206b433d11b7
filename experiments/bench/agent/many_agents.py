"""A thousand agents with twenty pairs each, and what they cost the controller in an interval; no switch takes part."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import yaml

from controller.agents.control_frames import (
    CONTROLLER_MAC,
    LAYOUTS,
    LONG_PARAMETER_BYTES,
    ControlFrame,
    Feature,
    FrameAddress,
    Opcode,
    decode,
    encode,
    mac_octets,
    records,
)
from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.fabric.agent_ports import Shaping
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host, Pair
from controller.openflow.meters import METER_CONFIG

AGENTS, PAIRS_OF_AGENT, PORTS = 1000, 20, 50
VLAN, INTERVAL_S, INTERVALS = 10, 0.055, 12
FIRST_MAC = 0x02_00_00_10_00_00


def run_many_agents(agents: int = AGENTS, pairs: int = PAIRS_OF_AGENT) -> dict[str, float]:
    """Return milliseconds of the controller in an interval, by what it does, and frames in a second each way.

    ``hear_ms`` is for the frames as they come, ``interval_ms`` for the control interval with what agents are told.
    """
    central = _central(agents)
    now_s = 1000.0
    for dpid in list(central.switches):
        central.switch_connected(dpid, (), np.empty(0, METER_CONFIG), now_s)
    ports = [PortId(switch.dpid, port.port_no) for switch, port in central.config.ports()]
    macs = FIRST_MAC + np.arange(len(ports))
    for port, mac in zip(ports, macs.tolist(), strict=True):
        central.fabric.learn(Host(VLAN, mac), port, now_s)
    said = {port: _FakeAgent(int(macs[number])) for number, port in enumerate(ports)}
    for port, voice in said.items():
        central.on_control_frame(*port, voice.hello(), now_s)
    rows = [row for port in ports if (row := central.vns.row_of(VLAN, *port)) is not None]
    for number, sender in enumerate(rows):
        for step in range(1, pairs + 1):
            receiver = rows[(number + step) % len(rows)]
            central.pairs.on_pair_seen(Pair(sender, receiver), now_s)
    hear_s, interval_s, frames_in, frames_out = 0.0, 0.0, 0, 0
    for number in range(INTERVALS):
        now_s += INTERVAL_S
        coming = [(port, frame) for port, voice in said.items() for frame in voice.reports(int(now_s * 1000))]
        begun_s = time.process_time()
        for port, frame in coming:
            central.on_control_frame(*port, frame, now_s)
        heard_s = time.process_time()
        central.interval({}, {}, now_s)
        going = central.take_agent_frames()
        done_s = time.process_time()
        central.take_updates()
        for port, frame in going:
            said[port].hear(frame)
        if number >= INTERVALS // 2:  # all are initialized, and report the rates that they were told
            hear_s, interval_s = hear_s + heard_s - begun_s, interval_s + done_s - heard_s
            frames_in, frames_out = frames_in + len(coming), frames_out + len(going)
    assert set(central.agents.shaping()) == {Shaping.AGENT}
    counted = INTERVALS - INTERVALS // 2
    return {
        "hear_ms": round(hear_s / counted * 1e3, 2),
        "interval_ms": round(interval_s / counted * 1e3, 2),
        "frames_in_per_s": round(frames_in / counted / INTERVAL_S),
        "frames_out_per_s": round(frames_out / counted / INTERVAL_S),
    }


def _central(agents: int) -> CentralController:
    switches: dict[str, Any] = {}
    for first in range(0, agents, PORTS):
        dpid = first // PORTS + 1
        switches[f"s{dpid}"] = {
            "dpid": dpid,
            "profile": "no-meters",
            "ports": {
                number + 1: {"capacity": "10G", "trunk": [VLAN], "agent": "trust"}
                for number in range(min(PORTS, agents - first))
            },
        }
    vlans = {VLAN: {"send_limit": "1G", "receive_limit": "1G"}}
    document = {"vlans": vlans, "switches": switches, "agents": {"long_frames": True}}
    return CentralController(parse_config(yaml.safe_dump(document), "bench"), epoch=1)


class _FakeAgent:
    """An agent that has in force what it was told, and reports it."""

    def __init__(self, mac: int) -> None:
        self._speaker = FrameAddress(CONTROLLER_MAC, mac, VLAN, 7)
        self._mac, self._sequence = mac, 0
        self._rates: dict[bytes, int] = {}

    def hello(self) -> bytes:
        """Return its Hello."""
        features = Feature.SHAPES | Feature.REPORTS | Feature.LONG_FRAMES
        said = records(
            Opcode.HELLO, features=[int(features)], interval_ms=[55], most_classes=[1000], link_rate_kbps=[10**7]
        )
        return self._say(Opcode.HELLO, said, 0)[0]

    def reports(self, clock_ms: int) -> list[bytes]:
        """Return its Traffic Reports of an interval."""
        entries = np.zeros(len(self._rates), dtype=LAYOUTS[Opcode.TRAFFIC_REPORT])
        if not len(entries):
            return []
        entries["sender"] = mac_octets(np.array([self._mac]))
        entries["receiver"] = np.frombuffer(b"".join(self._rates), dtype=np.uint8).reshape(-1, 6)
        entries["limit_kbps"] = list(self._rates.values())
        entries["measured_kbps"] = 1000
        entries["flags"] = 3
        return self._say(Opcode.TRAFFIC_REPORT, entries, clock_ms)

    def hear(self, octets: bytes) -> None:
        """Take what the controller says."""
        frame = decode(octets)
        assert isinstance(frame, ControlFrame)
        if frame.opcode is Opcode.SET_RATE:
            self._rates |= {one["receiver"].tobytes(): int(one["rate_kbps"]) for one in frame.entries}

    def _say(self, opcode: Opcode, entries: Any, clock_ms: int) -> list[bytes]:
        frames = encode(self._speaker, opcode, entries, self._sequence + 1, clock_ms, LONG_PARAMETER_BYTES)
        self._sequence += len(frames)
        return frames
