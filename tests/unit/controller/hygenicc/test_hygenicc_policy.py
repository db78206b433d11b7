"""The whole policy, interval after interval: readings and memory in, grants and words out."""

import numpy as np
import pytest
from support.configs import fabric, star
from support.policy_views import PolicyWorld, policy_view

from controller.errors import InvalidValueError
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.topology import PortId, Topology
from controller.fabric.vn_table import VnTable
from controller.hygenicc.bottlenecks import find_bottlenecks
from controller.metering.mark_readings import MarkReadings
from controller.policy.interface import NewPairs

M = 1e6
C = 100 * M
CUT_2 = {"cut": 2, "slow": 0.02, "fast": 0.2}
STAR = VnTable.from_config(star(4, capacity="100M", limits={10: "100M"}, algorithm="hygenicc"))
A, B, D, E = range(4)  # the VNs at ports 1 to 4


class World(PolicyWorld):
    """The policy with its memory: each call of ``after`` is an interval of 55 ms."""

    def __init__(self, *pairs, vns=STAR, links=None, **parameters):
        super().__init__("hygenicc", pairs, vns, C, parameters)
        self.links = links or LinkTable.access_links(vns)
        self.saved_bps = {}  # what a bucket passes above its rate, in the next interval

    def add(self, pair):
        """Let one more pair talk: the last in the table."""
        ends = np.append(self.entries.sender, pair[0]), np.append(self.entries.receiver, pair[1])
        self.entries = PairTable(*ends, np.arange(1, len(ends[0]) + 1))
        self.row[pair] = len(ends[0]) - 1
        self.memory = self.memory.aligned(np.arange(len(ends[0])), None)
        self.limit_bps = np.append(self.limit_bps, C)

    def view(self, sent_bps, marked=None, arrived=None, beyond=None, waits=()):
        """``waits`` are pairs that send nothing, but did of late."""
        sent, saved, waiting = (np.zeros(len(self.entries)) for _ in range(3))
        for column, values in ((sent, sent_bps), (saved, self.saved_bps), (waiting, dict.fromkeys(waits, 1.0))):
            for pair, value in values.items():
                column[self.row[pair]] = value
        self.saved_bps = {}
        passed, vns = np.minimum(sent, self.limit_bps + saved), len(self.vns)
        arrived_bps = np.bincount(self.entries.receiver, passed, minlength=vns)
        marks = MarkReadings(np.full(len(sent), np.nan), arrived_bps, np.zeros(vns))
        for pair, share in (marked or {}).items():
            marks.marked_bps[self.row[pair]] = share * passed[self.row[pair]]
        for vn, share in (beyond or {}).items():
            marks.beyond_bps[vn] = share * arrived_bps[vn]
        if arrived is not None:
            marks.arrived_bps[:] = arrived
        given = {"now_s": self.now_s, "parameters": self.parameters, "links": self.links, "marks": marks}
        given |= {"received_bps": arrived_bps, "active": (sent > 0) | (waiting > 0)}
        given |= {"available_bps": np.full(len(sent), C)}
        return policy_view(self.entries, self.vns, sent, passed, self.limit_bps, **given)

    def after(self, sent_bps, **marks):
        """Return the grants, by pair, after an interval."""
        self.decide(self.view(sent_bps, **marks))
        return {pair: float(self.limit_bps[row]) for pair, row in self.row.items()}

    def bound(self, pair):
        return self.policy.explain(self.decision, self.row[pair], lambda vn: f"s1:{vn + 1}").constraint


def greedy(*pairs):
    return dict.fromkeys(pairs, C)


def test_newcomers_start_at_their_part_and_rise_while_nothing_is_marked():
    world = World((A, E), (B, E))
    first = world.after(greedy((A, E), (B, E)))
    assert first == {(A, E): C / 2 + 0.2 * C / 2, (B, E): C / 2 + 0.2 * C / 2}
    world = World((A, E), (B, E), start=0)
    assert world.after(greedy((A, E), (B, E)))[A, E] == C
    new = NewPairs(STAR, np.array([A]), np.array([E]), np.array([4]), np.array([False]))
    assert world.policy.first_bps(new).tolist() == [C / 4]


def test_who_sent_nothing_in_the_last_interval_is_no_sender_for_the_others():
    world = World((A, E), (B, E))
    both = greedy((A, E), (B, E))
    low = [world.after(both, beyond={E: 0.10}) for _ in range(8)][-1]
    alone = world.after({(A, E): C}, waits=[(B, E)])
    assert alone[A, E] == pytest.approx(low[A, E] + 0.12 * C)
    assert alone[B, E] == pytest.approx(low[B, E] + 0.12 * C / 2)


def test_marks_lower_rates():
    world = World((A, E), (B, E))
    both = greedy((A, E), (B, E))
    before = world.after(both)
    cut = world.after(both, beyond={E: 0.10})
    assert cut[A, E] == pytest.approx(0.75 * before[A, E])
    assert world.bound((A, E)).startswith("marks: 100% of its packets in the last interval (the limit of s1:4), decr")
    assert world.after(both, beyond={E: 0.10})[A, E] == pytest.approx(0.75 * cut[A, E])


@pytest.mark.parametrize("scope", [0, 1])
def test_marks_lower_rates_no_further_while_a_bucket_passes_what_it_saved(scope):
    """A sends more than its rate, as meters' buckets let it; B does not, and is not cut for it either."""
    world = World((A, E), (B, E), scope=scope)
    both = greedy((A, E), (B, E))
    world.after(both)
    cut = world.after(both, beyond={E: 0.10})
    for _ in range(6):  # they began within 300 ms
        world.saved_bps[A, E] = 0.3 * C
        assert world.after(both, beyond={E: 0.10}) == pytest.approx(cut)
        assert world.bound((A, E)) == "marks: 100% of its packets in the last interval (the limit of s1:4)"
    world.saved_bps[A, E] = 0.3 * C
    assert world.after(both, beyond={E: 0.10})[B, E] == pytest.approx(0.75 * cut[B, E])


def test_a_rate_rises_while_its_sender_waits_for_a_time_out_but_not_above_its_part():
    world = World((A, E), (B, E))
    both = greedy((A, E), (B, E))
    for _ in range(8):
        low = world.after(both, beyond={E: 0.10})
    assert low[A, E] < C / 4
    for _ in range(4):
        waiting = world.after({(B, E): 1 * M}, waits=[(A, E)])
    assert waiting[A, E] == pytest.approx(low[A, E] + (3 * 0.12 + 0.2) * C / 2)
    for _ in range(4):
        waiting = world.after({(B, E): 1 * M}, waits=[(A, E)])
    assert waiting[A, E] == pytest.approx(C / 2)


def test_the_level_is_that_of_all_who_send():
    world = World((A, E), (B, E), (D, E), **CUT_2)
    world.after({(A, E): C, (B, E): C, (D, E): 8 * M})
    after = world.after({(A, E): C, (B, E): C, (D, E): 8 * M}, beyond={E: 0.2})
    assert after[A, E] == after[B, E] < 0.98 * C / 2
    assert after[D, E] >= 10 * M


def test_what_one_pair_leaves_of_its_vns_share_the_other_has():
    world = World((A, D), (A, E))
    for _ in range(30):
        grants = world.after({(A, D): 5 * M, (A, E): C})
    assert grants[A, E] >= 0.9 * C
    assert world.bound((A, E)).startswith(("the other traffic of s1:1", "its share of port s1:1", "the limits"))
    grants = world.after({(A, D): 0.95 * grants[A, D], (A, E): C})  # TCP at its limit: nothing is dropped
    assert grants[A, D] == pytest.approx(C / 2)
    for _ in range(3):
        grants = world.after(greedy((A, D), (A, E)))
    assert grants[A, D] + grants[A, E] == pytest.approx(C)


def test_with_a_rate_for_each_pair_a_congested_destination_leaves_the_other_alone():
    """And with one for each VN it does not: the paper's flaw."""
    grants = {}
    for scope in (0, 1):
        world = World((A, D), (A, E), (B, E), scope=scope)
        sends = greedy((A, D), (A, E), (B, E))
        for number in range(12):
            grants[scope] = world.after(sends, beyond={E: 0.2 if number > 4 else 0.0})
    assert grants[1][A, D] > 0.6 * C
    assert grants[0][A, D] + grants[0][A, E] < 0.6 * C
    assert grants[1][A, E] < 0.3 * C


def test_unknown_marks_move_nothing():
    world = World((A, E), (B, E))
    both = greedy((A, E), (B, E))
    before = world.after(both)
    assert world.after(both, arrived=np.nan) == pytest.approx(before)
    assert world.bound((A, E)) == "its last rate: its marks are unknown"


def test_the_floor_lets_a_mark_come_back():
    world = World((A, E), (B, E), beta=1.0)
    both = greedy((A, E), (B, E))
    for _ in range(4):
        grants = world.after(both, beyond={E: 0.5})
    assert grants == {(A, E): 0.01 * C, (B, E): 0.01 * C}
    world.after(both)
    assert world.bound((A, E)).startswith("recovering: no mark for 1 intervals, + ")


@pytest.mark.parametrize("admit", [0, 1])
def test_who_comes_while_its_receiver_is_congested_waits_where_that_is_wanted(admit):
    world = World((A, E), (B, E), admit=admit, cut=0)
    for _ in range(4):
        world.after(greedy((A, E), (B, E)), beyond={E: 0.5})
    world.add((D, E))
    first_bps = world.after(greedy(*world.row), beyond={E: 0.5})[D, E]
    if not admit:
        assert first_bps > 0.1 * C
        return
    assert first_bps == 0.01 * C
    assert world.bound((D, E)) == "admission: it came while s1:4 was congested"
    for _ in range(4):
        grants = world.after(greedy(*world.row))
    assert grants[D, E] > 0.01 * C


def test_congestion_is_said_after_three_intervals_of_marks():
    world = World((A, E), (B, E))
    said = []
    for _ in range(4):
        world.after(greedy((A, E), (B, E)), beyond={E: 0.2})
        said.append(bool(world.decision.congested[E]))
    assert said == [False, False, True, True]


TWO = fabric({1: {1: [10], 2: [10]}, 2: {1: [10], 2: [10]}}, capacity="100M", limits={10: "100M"})


def across(core_bps):
    """Two switches with a link of known capacity between them, or of unknown."""
    vns = VnTable.from_config(TWO)
    ends = PortId(1, 9), PortId(2, 9)
    topology = Topology()
    for dpid in (1, 2):
        topology.add_switch(dpid)
    topology.record_probe(*ends, 0.0)
    topology.record_probe(ends[1], ends[0], 0.0)
    known = dict.fromkeys(ends, core_bps) if core_bps else {}
    names = {1: "s1", 2: "s2"}
    return vns, LinkTable.build(vns, names, known, topology.paths(), topology.links())


@pytest.mark.parametrize(
    ("core_bps", "where"), [(60_000_000, "link out of s1:9"), (None, "a link of unknown capacity")]
)
def test_frames_marked_on_the_way_name_the_link(core_bps, where):
    """VNs 0 and 1 of s1 send to VNs 2 and 3 of s2: neither receiver is full, the link is."""
    vns, links = across(core_bps)
    world = World((0, 2), (1, 3), vns=vns, links=links, **CUT_2)
    sends = {(0, 2): 50 * M, (1, 3): 50 * M}
    world.after(sends)
    grants = world.after(sends, marked={(0, 2): 0.9, (1, 3): 0.9})
    assert f"({where})" in world.bound((0, 2))
    carried_bps = 60 * M if core_bps else 100 * M
    assert sum(grants.values()) == pytest.approx(0.98 * carried_bps, rel=0.01)


def test_a_receiver_that_is_beyond_is_the_place_whatever_the_links_carry():
    vns, links = across(60_000_000)
    world = World((0, 2), (1, 2), vns=vns, links=links)
    view = world.view({(0, 2): 40 * M, (1, 2): 40 * M})
    yes, no, never = np.ones(2, dtype=bool), np.zeros(2, dtype=bool), np.full(2, np.nan)
    assert find_bottlenecks(view, links, links.capacity_bps, no, yes, never).bottleneck.tolist() == [2, 2]
    by_load = find_bottlenecks(view, links, links.capacity_bps, no, no, never).bottleneck - len(vns)
    assert {links.names[number] for number in by_load.tolist()} == {"out of s1:9"}


@pytest.mark.parametrize(("marked", "carries_bps"), [(0.2, 90 * M), (0.6, 80 * M)])
def test_an_unknown_link_carries_what_it_did_unless_it_marks_most_frames(marked, carries_bps):
    """It was full for a moment, then; one that marks most of what it carries is full now."""
    vns, links = across(None)
    world = World((0, 2), (1, 3), vns=vns, links=links)
    pairs = (0, 2), (1, 3)
    view = world.view(dict.fromkeys(pairs, 40 * M), marked=dict.fromkeys(pairs, marked))
    yes, no, before_bps = np.ones(2, dtype=bool), np.zeros(2, dtype=bool), np.full(2, 90.0 * M)
    places = find_bottlenecks(view, links, links.capacity_bps, yes, no, before_bps)
    assert places.unknown_link_capacity_bps.tolist() == [carries_bps, carries_bps]


def test_nobody_at_all_is_decided_on():
    world = World()
    assert world.after({}) == {}


def test_without_links_there_is_nothing_to_share():
    world = World((A, E))
    view = world.view({(A, E): C})._replace(links=None)
    with pytest.raises(InvalidValueError, match="hygenicc shares out ports"):
        world.policy.decide(view, world.memory)
