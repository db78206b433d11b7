"""When an agent reports: once in an interval, also after its host was stopped."""

from __future__ import annotations

import numpy as np
import pytest

from apps.agent import agent as agent_module
from apps.agent.agent import Agent, AgentOptions
from apps.agent.shaper import PairCounters

INTERVAL_S = 0.055


class FakeShaper:
    """Shapes nothing."""

    most_pairs = 10

    def counters(self, pairs) -> PairCounters:
        return PairCounters(*np.zeros((3, len(pairs)), dtype=np.int64))


class FakePort:
    """A port on which nothing comes."""

    address = 0x02_0000_0001

    def send(self, frames) -> None:
        pass


class DelayedAgent(Agent):
    """An agent in virtual time, whose interval ``number`` of ``delays_s`` is so late; ``ran_s`` are their times."""

    def __init__(self, delays_s: dict[int, float]) -> None:
        self.now_s, self.ran_s, self.delays_s = 0.0, list[float](), delays_s
        super().__init__(AgentOptions((10,), 10**9), FakeShaper(), FakePort(), lambda: self.now_s)

    def wait(self, _read, _write, _errors, seconds: float) -> tuple[list[object], ...]:
        self.now_s += seconds
        return [], [], []

    def run_interval(self) -> None:
        self.now_s += self.delays_s.get(len(self.ran_s), 0.0)
        self.ran_s.append(self.now_s)
        super().run_interval()
        self.now_s += 0.0005
        if len(self.ran_s) == 20:
            self.stop()


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.109, 0.2, 5.0])
def test_no_report_is_of_a_moment(monkeypatch: pytest.MonkeyPatch, delay_s: float) -> None:
    agent = DelayedAgent({3: delay_s, 9: delay_s})
    monkeypatch.setattr(agent_module.select, "select", agent.wait)
    agent.run()
    assert np.diff(agent.ran_s).min() >= 0.5 * INTERVAL_S
