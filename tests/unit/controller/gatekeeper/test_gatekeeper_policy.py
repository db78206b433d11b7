"""One interval after another of the whole policy: readings and memory in, grants, messages and words out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configs import star
from support.policy_views import PolicyWorld, policy_view

from controller.central.controller import CentralController
from controller.config.yaml_document import ConfigError
from controller.errors import InvalidValueError
from controller.fabric.link_table import LinkTable
from controller.fabric.vn_table import VnTable
from controller.gatekeeper.policy import BLIND_INTERVALS, FLOOR_BPS, Gatekeeper
from controller.metering.queue_readings import QueueReadings
from controller.policy.interface import NewPairs
from controller.policy.policy_groups import PolicyChoice, apply_choices
from controller.policy.registry import make_policy
from experiments.model.control.settings_operator import Operator

M = 1e6
C = 1000 * M
LITERAL = {"floor": 0, "served": 0, "targets": 0, "pair": 0}
VNS = apply_choices(
    VnTable.from_config(star(4, limits={10: "645M", 20: "215M"}, algorithm="gatekeeper")),
    {10: PolicyChoice("gatekeeper"), 20: PolicyChoice("gatekeeper")},
)
A = [VNS.row_of(10, 1, port) for port in range(1, 5)]  # VNs of VLAN 10 at ports 1 to 4
B = [VNS.row_of(20, 1, port) for port in range(1, 5)]


class World(PolicyWorld):
    """The policy with its memory: each call of ``after`` is an interval of 55 ms."""

    def __init__(self, pairs, vns=VNS, **parameters):
        super().__init__("gatekeeper", pairs, vns, np.inf, parameters)

    def view(self, sent_bps, queues, unread=0, others_bps=None):
        sent = np.array([sent_bps.get((s, r), 0.0) for s, r in zip(*self.ends, strict=True)])
        given = {"available_bps": np.full(len(sent), C), "unread_intervals": np.full(len(sent), unread)}
        given |= {"now_s": self.now_s, "parameters": self.parameters, "links": LinkTable.access_links(self.vns)}
        if others_bps is not None:
            given["cross_traffic_bps"] = others_bps
        passed = np.minimum(sent, self.limit_bps)
        return policy_view(self.entries, self.vns, sent, passed, self.limit_bps, queues=queues, **given)

    @property
    def ends(self):
        return self.entries.sender.tolist(), self.entries.receiver.tolist()

    def queues(self, dropped_bps, served_bps):
        """Readings of the queues of some VNs; NaN is a reading that did not come, 0 unless given."""
        vns, nothing = range(len(self.vns)), np.zeros(len(self.vns))
        dropped, served = (np.array([bps.get(vn, 0.0) for vn in vns]) for bps in (dropped_bps, served_bps))
        known = ~np.isnan(dropped)
        return QueueReadings(served, nothing, dropped, nothing, nothing + 0.055, known, ~known & False)

    def after(self, sent_bps, dropped_bps=None, served_bps=None, **more):
        self.now_s += 0.055
        self.decide(self.view(sent_bps, self.queues(dropped_bps or {}, served_bps or {}), **more))
        return self.decision

    def told(self):
        return self.decision.feedback.entry.tolist()

    def why(self, at=0):
        return self.policy.explain(self.decision, at, lambda vn: f"s1:{self.vns.port_no[vn]}")


def flood(**parameters):
    """VLAN 20 floods port 4 from port 1."""
    world = World([(B[0], B[3])], **parameters)
    world.after({(B[0], B[3]): C})
    return world


def drops_of_the_flood(world, dropped_bps=500 * M, served_bps=215 * M):
    return world.after({(B[0], B[3]): C}, {B[3]: dropped_bps}, {B[3]: served_bps})


def test_nobody_is_limited_without_drops():
    world = World([(A[0], A[3]), (B[0], B[3])])
    for _ in range(30):
        world.after({(A[0], A[3]): 600 * M, (B[0], B[3]): 290 * M})
    assert world.decision.grant_bps[0] >= 600 * M
    assert world.decision.grant_bps[1] >= 290 * M
    assert world.told() == []
    first = world.policy.first_bps(NewPairs(VNS, *(np.array([one]) for one in (A[0], A[3], 1, False))))
    assert first.tolist() == [C]


def test_drops_are_congestion_and_halve_and_the_rise_is_linear():
    """Whoever is halved forfeits what it saved, and whoever keeps its limit does not."""
    world = flood(served=0.0)
    assert not world.decision.congested.any()
    drops_of_the_flood(world)
    assert world.told() == [0]
    assert np.flatnonzero(world.decision.congested).tolist() == [B[3]]
    assert world.decision.feedback.columns[FLOOR_BPS].tolist() == [215 * M]
    assert (world.decision.grant_bps.tolist(), world.decision.forfeits.tolist()) == ([C / 2], [True])
    drops_of_the_flood(world, 0.0)
    assert world.told() == []  # the mean holds what was before the message
    assert world.decision.grant_bps == pytest.approx([C / 2 + 0.4 * C * 0.055])
    assert world.decision.forfeits.tolist() == [False]
    drops_of_the_flood(world)
    assert world.told() == [0]
    assert world.decision.grant_bps == pytest.approx([(C / 2 + 0.4 * C * 0.055) / 2])
    world = flood()
    drops_of_the_flood(world, 0.0, C)
    assert drops_of_the_flood(world, served_bps=C).forfeits.tolist() == [False]
    assert world.told() == [0]


def test_the_floor_is_the_guarantee_and_what_is_served():
    world = flood()
    for _ in range(20):
        drops_of_the_flood(world, served_bps=400 * M)
    assert world.decision.limit_bps[0] >= 400 * M
    world = flood(served=0.0)
    for _ in range(20):
        drops_of_the_flood(world)
    assert 215 * M <= world.decision.limit_bps[0] < 270 * M
    world = flood(**LITERAL)
    for _ in range(20):
        drops_of_the_flood(world)
    assert world.decision.limit_bps[0] < 150 * M


def test_what_a_starved_neighbour_needs_is_not_a_floods_floor():
    """The flood is served all of the port, since it starves the other VLAN's TCP on the way there."""
    sent = {(A[0], A[3]): 645 * M, (B[0], B[3]): C}
    world = World([(A[0], A[3]), (B[0], B[3])])
    world.after(sent)
    world.after(sent, {B[3]: 100 * M}, {B[3]: 900 * M})
    row = world.ends[0].index(B[0])
    floor_bps = world.decision.feedback.column_for(FLOOR_BPS, np.arange(2))[row]
    assert floor_bps == pytest.approx(C - 645 * M)


def test_without_feedback_nothing_is_limited():
    world = flood(feedback=0.0)
    for _ in range(10):
        drops_of_the_flood(world)
    assert world.told() == []
    assert world.decision.grant_bps.tolist() == [C]
    assert world.decision.congested[B[3]]


def test_a_flood_of_strangers_is_nobodys_fault():
    """Most of what the queue serves passed no meter: frames of unknown pairs."""
    world = flood()
    world.after({(B[0], B[3]): 50 * M}, {B[3]: 500 * M}, {B[3]: 900 * M})
    assert world.told() == []


def test_a_queue_that_is_not_read_sends_no_message_and_lets_nobody_rise_for_a_while():
    world = flood()
    drops_of_the_flood(world)
    drops_of_the_flood(world, 0.0)
    before_bps = world.decision.limit_bps[0]
    for _ in range(BLIND_INTERVALS):
        drops_of_the_flood(world, np.nan, np.nan)
        assert world.told() == []
        assert world.decision.limit_bps[0] == before_bps
    drops_of_the_flood(world, np.nan, np.nan)
    assert world.decision.limit_bps[0] > before_bps


@pytest.mark.parametrize("unread", ["meter", "queue"])
def test_a_limit_rises_when_it_is_read_for_all_the_time_since_it_last_rose(unread):
    """With intervals of 10 ms every second reading is too soon after the one before."""
    world = flood()
    drops_of_the_flood(world)
    before_bps = world.decision.limit_bps[0]
    for _ in range(3):
        if unread == "meter":
            world.after({(B[0], B[3]): C}, unread=1)
        else:
            drops_of_the_flood(world, np.nan, np.nan)
        assert world.decision.limit_bps[0] == before_bps
    for intervals in (4, 5):
        drops_of_the_flood(world, 0.0)
        assert world.decision.limit_bps[0] == pytest.approx(before_bps + intervals * 0.055 * 0.4 * C)


def test_without_a_queue_of_its_own_drops_are_estimated():
    bare = VNS.with_columns(has_queue=np.zeros(len(VNS), dtype=bool))
    world = World([(A[0], A[3]), (B[0], B[3])], vns=bare)
    sent = {(A[0], A[3]): 645 * M, (B[0], B[3]): C}
    world.after(sent)
    assert world.decision.dropped_bps[B[3]] == pytest.approx(645 * M)
    assert world.ends[0].index(B[0]) in world.told()
    row = world.ends[0].index(B[0])
    assert world.why(row).constraint.endswith(" (drops estimated: no queue counters)")


def test_a_limit_that_stands_on_a_switch_is_where_it_goes_on():
    world = World([(B[0], B[3])])
    world.limit_bps = np.array([50 * M])
    world.after({(B[0], B[3]): C}, {B[3]: np.nan}, {B[3]: np.nan})
    assert world.decision.limit_bps.tolist() == [50 * M]
    assert "its egress limit, which it began with" in world.why().constraint


def test_when_the_controller_stops_nobody_stays_below_its_guarantee():
    world = flood(**LITERAL)
    for _ in range(20):
        drops_of_the_flood(world)
    assert world.decision.grant_bps[0] < 215 * M
    assert world.decision.final_bps.tolist() == [215 * M]


def test_one_limit_for_all_a_vn_sends():
    """The paper's scope: a message from one receiver limits what is sent to another."""
    pairs = [(B[0], B[3]), (B[0], B[2])]
    each, both = World(pairs, **LITERAL | {"pair": 1}), World(pairs, **LITERAL)
    for world in (each, both):
        for drops in (0.0, 500 * M):
            world.after(dict.fromkeys(pairs, 900 * M), {B[3]: drops}, {B[3]: 400 * M})
    other = each.ends[1].index(B[2])
    assert each.decision.limit_bps[other] == C
    assert both.decision.limit_bps.sum() <= C / 2 * (1 + 1e-9)
    assert "last notified by s1:4" in both.why(other).constraint


def test_the_sending_port_serves_guarantees_first():
    pairs = [(A[0], A[3]), (B[0], B[2])]
    world = World(pairs)
    for _ in range(5):
        world.after({pairs[0]: 600 * M, pairs[1]: 600 * M})
    row = world.ends[0].index(B[0])
    got = dict(zip(world.ends[0], world.decision.grant_bps.tolist(), strict=True))
    assert got[B[0]] == pytest.approx(C - got[A[0]], rel=0.01)
    assert world.why(row).constraint.startswith("its share of s1:1's sending port (guarantee 215.0 Mb/s, borrowed 1")


def test_who_is_crowded_out_of_a_full_port_has_room_to_show_what_it_wants():
    """Ten TCP flows of VLAN 20 fill the port: what VLAN 10 sends is no more than they leave it."""
    world = World([(A[0], A[1]), (B[0], B[2])])
    pairs = ((A[0], A[1]), (B[0], B[2]))
    for _ in range(2):  # in the first nobody has a limit yet
        world.after(dict(zip(pairs, (80 * M, 920 * M), strict=True)))
    assert world.decision.grant_bps[1] == pytest.approx(C - 4 * 80 * M)
    world.after(dict(zip(pairs, (300 * M, 680 * M), strict=True)))
    assert world.decision.grant_bps[1] == pytest.approx(C - 645 * M)


def test_it_is_explained():
    world = flood()
    assert world.why().constraint == "the lower of both ceilings"
    drops_of_the_flood(world)
    drops_of_the_flood(world, 0.0)
    found = world.why()
    assert found.constraint == (
        "its egress limit, halved 1 times in the last 0.1 s, rising 400.0 Mb/s per s, 522.0 Mb/s of 1.0 Gb/s; "
        "last notified by s1:4 (dropped 250.0 Mb/s of 1.0 Gb/s, threshold 20.0 Mb/s)"
    )
    assert found.next_constraint == "the lower of both ceilings"
    assert found.lifted_bps == C
    for _ in range(30):
        drops_of_the_flood(world)
    while not world.told():
        drops_of_the_flood(world)
    assert world.why().constraint == "its floor: its part of s1:4's receive guarantee"


def test_links_are_needed():
    world = World([(A[0], A[3])])
    view = world.view({}, None)._replace(links=None)
    with pytest.raises(InvalidValueError, match="schedules sending ports"):
        world.policy.decide(view, world.memory)


def test_it_needs_no_readings_of_queues():
    """A recording without readings can be decided again."""
    world = World([(A[0], A[3])])
    decision = world.policy.decide(world.view({(A[0], A[3]): C}, None), world.memory)
    assert decision.grant_bps.tolist() == [C]


rate = st.floats(0.0, C)
interval = st.tuples(rate, rate, rate, st.one_of(st.just(np.nan), rate), rate)


@given(st.lists(interval, min_size=1, max_size=25), st.integers(1, 5), st.sampled_from([{}, LITERAL, {"pair": 0}]))
def test_limits_messages_and_halvings_keep_their_bounds(intervals, hold, parameters):
    """Limits from floor to ceiling; a message only with drops above the threshold; one round in ``hold`` intervals."""
    pairs = [(A[0], A[3]), (B[0], B[3]), (B[1], B[3])]
    world = World(pairs, hold=float(hold), **parameters)
    rounds, before = [], np.full(3, C)
    for number, (*sent, dropped, served) in enumerate(intervals):
        decision = world.after(dict(zip(pairs, sent, strict=True)), {B[3]: dropped}, {B[3]: served})
        told = np.isin(np.arange(3), world.told())
        assert (decision.grant_bps <= decision.view.ceiling_bps).all()
        assert (decision.grant_bps >= 1e3).all()
        if parameters.get("pair", 1) != 0:
            assert (decision.limit_bps >= np.minimum(decision.floor_bps, before) * (1 - 1e-9))[told].all()
            assert not ((decision.limit_bps < before * (1 - 1e-9)) & ~told).any()
            before = decision.limit_bps
        if told.any():
            assert decision.dropped_bps[B[3]] > decision.threshold_bps[B[3]] >= 20 * M
            assert not told[world.ends[0].index(A[0])]
            rounds.append(number)
    assert all(later - earlier >= hold for earlier, later in pairwise(rounds))


def test_what_it_remembers_does_not_grow():
    world = flood()
    for _ in range(50):
        drops_of_the_flood(world)
    assert 8 * len(world.memory.by_entry) <= 64  # bytes
    assert 8 * len(world.memory.by_vn) <= 8 * (2 * Gatekeeper().window + 7)
    assert not world.memory.by_link
    assert not world.memory.by_use


def test_messages_are_not_more_than_half_a_second_apart():
    make_policy("gatekeeper", {"hold": 9}, interval_ms=55)
    with pytest.raises(InvalidValueError, match=r"parameters.hold: 10.*500 ms between two messages: at most 9 fit"):
        make_policy("gatekeeper", {"hold": 10}, interval_ms=55)
    with pytest.raises(InvalidValueError, match="none fits"):
        make_policy("gatekeeper", {"hold": 1}, interval_ms=501)
    central = CentralController(star(4, algorithm="gatekeeper"))
    operator = Operator(central)
    with pytest.raises(InvalidValueError, match="at most 9 fit"):
        operator.set_vlan(10, 0.0, parameters={"hold": 10})
    with pytest.raises(InvalidValueError, match=r"shadow_parameters\.hold"):
        operator.set_vlan(10, 0.0, shadow="gatekeeper", shadow_parameters={"hold": 10})
    assert central.config.vlans[10].parameters == {}
    with pytest.raises(ConfigError, match=r"vlans\.10.*at most 1 fit"):
        star(4, algorithm="gatekeeper", control={"interval_ms": 300})


def test_parameters_have_bounds():
    for name, value in (("window", 2.5), ("window", 21), ("hold", 0), ("threshold", 0), ("decrease", 1), ("pair", 2)):
        with pytest.raises(InvalidValueError, match=f"parameters.{name}"):
            make_policy("gatekeeper", {name: value})
    assert isinstance(make_policy("gatekeeper", {"slope": 10}), Gatekeeper)
