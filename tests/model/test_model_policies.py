"""The policy of docs/policies.md in the running controller, in virtual time; and several policies at once."""

from __future__ import annotations

import re

import pytest
from support.configs import star
from support.fabrics import started_loop
from support.paths import ROOT

from controller.dets.send_rate_controller import KEEP_ALIVE_INTERVALS
from controller.loop import control_step
from controller.monitoring.pair_explanation import explain_pair
from controller.policy import registry
from controller.policy.interface import StaleMode

M = 1e6
HUB = (1, 9)


@pytest.fixture(autouse=True)
def steps(monkeypatch):
    """The example, registered."""
    text = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {"__name__": "steps"}
    exec(compile(example, "docs/policies.md", "exec", dont_inherit=True), names)
    policy = names["Steps"]
    monkeypatch.setitem(registry.policies, policy.name, policy)
    return policy


def loop_of(vlans, limits=None):
    limits = limits or dict.fromkeys(vlans, "40M")
    return started_loop(star(9, capacity="100M", limits=limits, vlans=vlans))


def test_it_runs_and_is_explained():
    loop = loop_of({10: {"algorithm": "steps", "parameters": {"rise": 0.01, "gentle": 1}}})
    for port in (1, 2, 3):
        loop.add((1, port), HUB, 10, 30 * M)
    loop.run(100)
    assert loop.rate(HUB, 10, -40) == pytest.approx(40 * M, rel=0.1)
    fabric = loop.fabric.central.fabric
    why = explain_pair(fabric, 0)
    assert why.constraint == "its steps towards s1:9"
    assert why.limit_bps == fabric.state.allocators.decisions[0].grant_bps[0]


def test_its_memory_goes_on_when_pairs_come_and_go():
    loop = loop_of({10: {"algorithm": "steps"}, 20: {"algorithm": "fp"}})
    loop.add((1, 2), HUB, 10, 5 * M)
    loop.run(10)

    def known():
        steps = next(g for g in range(2) if loop.fabric.central.fabric.control.groups[g].policy.name == "steps")
        return loop.fabric.central.state.allocators.memories[steps].pair_column("rate_bps").tolist()

    (before_bps,) = known()
    loop.add((1, 1), HUB, 10, 5 * M)  # stands before the other in the table
    loop.fabric.operator.set_vlan(20, loop.fabric.now_s, algorithm="fs")
    loop.run(2)
    first_bps, then_bps = known()
    assert then_bps == min(before_bps + 2 * 0.02 * 40 * M, 40 * M)
    assert first_bps < then_bps


@pytest.mark.parametrize("silence", ["LAST_KNOWN", "FREE", "HOLD"])
def test_while_no_meter_is_read_its_class_says_what_holds(steps, monkeypatch, silence):
    """A switch that answers no more: the last known rates count, or the ceiling, or what stands."""
    monkeypatch.setattr(steps, "silence", StaleMode[silence])
    loop = loop_of({10: {"algorithm": "steps"}})
    loop.add((1, 1), HUB, 10, 5 * M)
    loop.add((1, 2), HUB, 10, 5 * M)
    loop.run(3)
    central = loop.fabric.central
    loop.fabric.up.clear()  # no statistics any more
    before_bps = control_step.effective_limits_bps(central.state, central.vns)
    loop.run(KEEP_ALIVE_INTERVALS - 1)
    then_bps = control_step.effective_limits_bps(central.state, central.vns)
    loop.run(1)
    at_last_bps = control_step.effective_limits_bps(central.state, central.vns)
    assert (before_bps < 40 * M).all()
    if silence == "HOLD":
        assert (at_last_bps == before_bps).all()
    else:
        assert (then_bps > before_bps).all()
        assert ((at_last_bps == 40 * M) == (silence == "FREE")).all()


def test_three_policies_share_a_port():
    """fs keeps to its limit, and what it and steps use is not lent: max-min borrows what is left, and no more."""
    lends = {"algorithm": "max-min", "send_ceiling": "100M", "receive_ceiling": "100M"}
    loop = loop_of({10: {"algorithm": "fs"}, 20: lends, 30: {"algorithm": "steps"}}, {10: "20M", 20: "30M", 30: "20M"})
    for vid in (10, 20, 30):
        for port in (1, 2):
            loop.add((1, port + 2 * (vid // 10 - 1)), HUB, vid, 90 * M)
    loop.run(120)
    rates_bps = {vid: loop.rate(HUB, vid, -40) for vid in (10, 20, 30)}
    assert rates_bps[10] == pytest.approx(20 * M, rel=0.03)
    assert 13 * M < rates_bps[30] < 21 * M
    assert 55 * M < rates_bps[20] < 100 * M - rates_bps[10] - 0.95 * rates_bps[30] + 3 * M
    view = loop.fabric.central.state.allocators.decisions[1].view
    down = view.links.down[loop.fabric.central.vns.row_of(20, *HUB)]
    assert 25 * M < view.cross_traffic_bps[down] <= 40 * M
    assert view.cross_guaranteed_bps[down] == view.cross_traffic_bps[down]
    for row in range(6):
        assert explain_pair(loop.fabric.central.fabric, row).constraint
