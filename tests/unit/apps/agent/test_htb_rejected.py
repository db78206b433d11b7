"""Rates that the kernel rejects: they are applied once it accepts them."""

from __future__ import annotations

import numpy as np
import pytest

from apps.agent import htb
from apps.agent.agent import Agent, AgentOptions
from apps.agent.classifier import key_of
from apps.agent.netlink import RTM_NEWTCLASS
from apps.agent.shaper import PairCounters, ShapedPair
from controller.agents.control_frames import CONTROLLER_MAC, ControlFrame, FrameAddress, Opcode, ReportFlag, records

SENDER, RECEIVER = 0x02_0000_0001, 0x02_0000_0002
PAIR = ShapedPair(10, RECEIVER.to_bytes(6))


class FakeNetlink:
    """Rejects all changes while ``rejects``; ``accepted`` are the kinds of the others."""

    def __init__(self) -> None:
        self.rejects, self.accepted = False, list[int]()

    def change(self, requests) -> None:
        if self.rejects and requests:
            raise OSError(12, "rtnetlink: Cannot allocate memory")
        self.accepted += [request.kind for request in requests]


class FakeMap(dict):
    """The classifier's map, without the kernel's."""

    descriptor = 0

    def __init__(self, *_sizes: int) -> None:
        super().__init__()

    put = dict.__setitem__

    def delete(self, key: bytes) -> None:
        self.pop(key, None)


class FakePort:
    """A port on which nothing comes."""

    address = SENDER

    def fileno(self) -> int:
        return -1

    def send(self, frames) -> None:
        pass

    def receive(self, _max_frames):
        return []


def said(opcode: Opcode, **columns) -> ControlFrame:
    entries = records(opcode, sender=[SENDER], receiver=[RECEIVER], **columns)
    return ControlFrame(FrameAddress(SENDER, CONTROLLER_MAC, 10, 1), opcode, 1, 0, entries)


def is_shaped(agent: Agent) -> bool:
    """Return whether the agent reports that it shapes the pair."""
    (report,) = agent.pairs.interval(PairCounters(*np.zeros((3, 1), dtype=np.int64)), 0.055)[10]
    return bool(report["flags"] & ReportFlag.SHAPED_HERE)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent, without a kernel, that was sent a rate for a pair."""
    monkeypatch.setattr(htb, "Netlink", FakeNetlink)
    monkeypatch.setattr(htb, "HashMap", FakeMap)
    monkeypatch.setattr(htb, "claim_root", lambda *_, **__: 1)
    monkeypatch.setattr(htb.HtbShaper, "_build", lambda *_: None)
    agent = Agent(AgentOptions((10,), 10**9), htb.HtbShaper("eth0", [10], 10**9), FakePort(), lambda: 0.0)
    agent.pairs.on_frame(said(Opcode.INITIALIZE))
    agent.pairs.on_frame(said(Opcode.SET_RATE, rate_kbps=[5000]))
    return agent


def test_a_rejected_rate_is_applied_later_and_its_class_is_used(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    shaper = agent._shaper
    shaper._netlink.rejects = True
    for _ in range(3):
        agent.receive_frames()
    assert len(caplog.records) == 1
    assert not is_shaped(agent)
    shaper._netlink.rejects = False
    agent.receive_frames()
    assert is_shaped(agent)
    assert RTM_NEWTCLASS in shaper._netlink.accepted
    assert list(shaper._map) == [key_of(*PAIR)]
    shaper._netlink.accepted.clear()
    agent.receive_frames()
    assert shaper._netlink.accepted == []


def test_a_pair_whose_rate_was_rejected_can_go(agent: Agent) -> None:
    shaper = agent._shaper
    shaper._netlink.rejects = True
    agent.receive_frames()
    agent.pairs.on_frame(said(Opcode.DEACTIVATE))
    agent.receive_frames()
    shaper._netlink.rejects = False
    agent.receive_frames()
    assert (agent.pairs.pairs, dict(shaper._map), shaper._free) == ([], {}, [])
