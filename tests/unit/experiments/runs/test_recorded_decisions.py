"""What nodes that share switches are asked during a run, and what is noted when one of them is killed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments.machine.process_runner import ControllerError
from experiments.runs import recorded_decisions as module
from experiments.runs.recorded_decisions import FAST_POLL_S, POLL_INTERVAL_S, NodesDecisions
from experiments.scenarios.scenario import Limits, Scenario, Source

SCENARIO = Scenario(
    "two",
    "two senders",
    topology="dets-fig7",
    pns=3,
    link_rate_bps=100_000_000,
    limits={1: Limits(20_000_000, 20_000_000)},
    sources=(Source(1, 1, 3, "udp", 1_000_000), Source(1, 2, 3, "udp", 1_000_000)),
    duration_s=2.0,
)
FABRIC = SCENARIO.fabric()


class Nodes:
    """Nodes of which each answer is made up."""

    def __init__(self) -> None:
        self.whole, self.partial, self.limit_bps, self.asked = True, False, 7_000_000, 0

    def owners(self):
        return {"s4": "n2"} if self.whole and not self.asked else {"s4": "n1"}

    def check_recovered(self):
        return self.whole

    def kill_owner(self, switch):
        self.asked += 1
        self.whole = False
        return {"s4": "n2"}[switch]

    def get(self, path):
        if path != "/v1/pairs":
            return {}
        sender, receiver = FABRIC.pn(1), FABRIC.pn(3)
        ends = {
            name: {"dpid": f"{FABRIC.switch(pn.switch).dpid:016x}", "port_no": pn.port_no}
            for name, pn in (("sender", sender), ("receiver", receiver))
        }
        answer = {"pairs": [{"vlan_vid": 1, **ends, "limit_bps": self.limit_bps}]}
        return {**answer, "unreachable_nodes": ["n3"]} if self.partial else answer


@pytest.fixture
def clock(monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    return now_s


def test_limits_are_those_that_were_asked_for_last_and_partial_answers_do_not_count(clock, tmp_path):
    nodes = Nodes()
    decisions = NodesDecisions(nodes, "s4")
    nodes.limit_bps = 5_000_000
    for at_s, partial in ((100.6, False), (101.2, True)):
        clock[0], nodes.partial = at_s, partial
        nodes.limit_bps -= 1_000_000
        decisions.poll()
    rows = decisions.granted_bps(SCENARIO, FABRIC, 100.0, np.array([-0.5, -0.1, 0.5, 1.0, 2.0]))
    np.testing.assert_array_equal(rows[:, 0], [np.inf, 7e6, 4e6, 4e6])
    assert np.isinf(rows[:, 1]).all()
    assert decisions.notes(100.0) == {}
    decisions.save(tmp_path / "recording")
    assert [at_s for at_s, _ in json.loads((tmp_path / "recording").read_text())] == [100.0, 100.6]


def test_a_kill_is_noted_with_owners_before_and_after_and_how_long_it_took(clock):
    nodes = Nodes()
    decisions = NodesDecisions(nodes, "s4")
    clock[0] = 105.0
    decisions.kill()
    assert decisions.poll_interval_s == FAST_POLL_S
    clock[0] = 105.5
    decisions.poll()
    with pytest.raises(ControllerError, match="n2 was killed"):
        decisions.get("/v1/vns")
    assert decisions.notes(100.0)["out_of_control_s"] is None
    with pytest.raises(ControllerError, match="not every switch is under control again"):
        decisions.stop()
    clock[0], nodes.whole = 106.0, True
    decisions.stop()
    assert decisions.poll_interval_s == POLL_INTERVAL_S
    assert decisions.notes(100.0) == {
        "killed_at_s": 5.0,
        "killed": "n2",
        "out_of_control_s": 1.0,
        "owners": {"s4": "n2"},
        "owners_after": {"s4": "n1"},
    }
