"""``dets bench agent``: how soon a sender is held, by meters and by agents."""

from __future__ import annotations

from experiments.bench.agent.reaction_time import END_S, FALL_S, reaction_ms


def test_an_agent_holds_its_senders_sooner_than_meters_do() -> None:
    meter, agent = reaction_ms("meter"), reaction_ms("agent")
    for event, times in (("traffic_begins", FALL_S), ("limit_falls", END_S - FALL_S)):
        assert 0 < agent[event] < meter[event] < times * 1e3
