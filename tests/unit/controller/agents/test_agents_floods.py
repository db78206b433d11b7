"""Which ports flood control frames: those that say far more than they may, however late that is found."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from controller.agents.agent_manager import FRAMES_FACTOR
from controller.agents.agent_port import FLOOD_FRAMES, AgentPort
from controller.fabric.config_model import EdgePort

ROUNDS = st.lists(st.integers(1, 200), min_size=1, max_size=60)


def agent_of(pairs: int) -> AgentPort:
    agent = AgentPort(EdgePort(1, "", 10**9, None, (10,), "trust"))
    agent.most_frames = FRAMES_FACTOR * (pairs + 2)
    return agent


@dataclass
class Rounds:
    """An agent whose frames are looked at now and then."""

    agent: AgentPort
    flooded: bool = False

    def after(self, frames: int, intervals: int) -> None:
        self.agent.allowance = self.agent.most_frames - frames
        self.flooded |= self.agent.exceeds_allowance(intervals)


@given(st.integers(0, 500), ROUNDS)
def test_an_honest_agent_floods_never_however_long_the_controller_stands_still(pairs, rounds) -> None:
    one = Rounds(agent_of(pairs))
    for intervals in rounds:
        one.after((pairs + 2) * intervals, intervals)
    assert not one.flooded


@given(st.integers(0, 100), ROUNDS)
def test_an_agent_that_loses_all_its_pairs_at_once_may_finish_its_say(pairs, rounds) -> None:
    one = Rounds(agent_of(0))
    one.after(FRAMES_FACTOR * pairs, 1)
    for intervals in rounds:
        one.after(2 * intervals, intervals)
    assert not one.flooded


@given(st.integers(0, 100), st.integers(1, 20))
def test_who_says_three_times_as_much_as_it_may_is_found(pairs, intervals) -> None:
    one = Rounds(agent_of(pairs))
    most = one.agent.most_frames
    enough = FLOOD_FRAMES // (most * (intervals - 1) + most) + 1
    for _ in range(2 * enough):
        one.after(3 * most * intervals, intervals)
    assert one.flooded
