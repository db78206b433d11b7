"""Switches shared out over nodes: who takes which, and who may change one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.leadership import Answer, Leadership
from controller.cluster.ownership import MOST_AT_ONCE, START_S, TURN_S, Orphans, Owner, Ownership, order
from controller.openflow.constants import ControllerRole

SOON_S = 0.25
names = st.sets(st.sampled_from([f"n{number}" for number in range(6)]), min_size=1)


def settled(me: str, dpids: set[int], nodes: set[str], owned: set[int]) -> tuple[Orphans, float]:
    """A node that has been there for long, and now."""
    orphans = Orphans(me, dpids)
    orphans.due(0.0, nodes, owned, dpids)
    return orphans, START_S + 1.0


@settings(derandomize=True, max_examples=50, deadline=None)
@given(nodes=names, dead=names, dpids=st.sets(st.integers(1, 2**64 - 1), max_size=30))
def test_each_switch_of_dead_nodes_is_taken_at_once_by_one_live_node(
    nodes: set[str], dead: set[str], dpids: set[int]
) -> None:
    live = nodes - dead
    took: list[int] = []
    for node in live:
        orphans, now_s = settled(node, dpids, nodes, owned=dpids)
        took += orphans.due(now_s, live, set(), dpids)
    assert sorted(took) == (sorted(dpids) if live else [])


@settings(derandomize=True, max_examples=50, deadline=None)
@given(nodes=names, dpids=st.sets(st.integers(1, 2**64 - 1), max_size=30))
def test_one_that_only_the_last_node_reaches_is_taken_by_it_in_the_end(nodes: set[str], dpids: set[int]) -> None:
    for dpid in dpids:
        last = order(dpid, nodes)[-1]
        orphans, now_s = settled(last, {dpid}, nodes, owned=set())
        due_s = now_s - START_S - 1.0 + TURN_S * (len(nodes) - 1)
        assert orphans.due(max(due_s, now_s), nodes, set(), {dpid}) == [dpid]
        assert orphans.due(max(due_s, now_s) + SOON_S, nodes, set(), set()) == []  # nor by who does not reach it


def test_nodes_that_start_one_after_the_other_share_the_switches_out() -> None:
    dpids = set(range(1, 20))
    first, second, owned = Orphans("n1", dpids), Orphans("n2", dpids), dict[int, str]()
    for tenth in range(200):
        now_s = tenth / 10
        nodes = {"n1"} if now_s < 1.5 else {"n1", "n2"}
        for name, orphans in (("n1", first), ("n2", second)):
            if name in nodes:
                owned |= dict.fromkeys(orphans.due(now_s, nodes, owned, dpids), name)
    assert owned == {dpid: order(dpid, ["n1", "n2"])[0] for dpid in dpids}


def test_a_node_alone_takes_all_it_reaches_in_pieces() -> None:
    dpids = set(range(1, 2 * MOST_AT_ONCE))
    orphans, now_s = settled("n1", dpids, {"n1"}, owned=set())
    first = set(orphans.due(now_s, {"n1"}, set(), dpids))
    assert len(first) == MOST_AT_ONCE
    assert set(orphans.due(now_s, {"n1"}, first, dpids)) == dpids - first


def test_nobody_takes_a_switch_that_has_an_owner_or_without_being_known() -> None:
    orphans, now_s = settled("n1", {1}, {"n1"}, owned={1})
    assert orphans.due(now_s, {"n1"}, {1}, {1}) == []
    assert orphans.due(now_s, {"n2"}, set(), {1}) == []


def test_a_node_may_change_its_own_switches_while_it_may_rely_on_its_lease() -> None:
    leadership = Leadership(3.0)
    ownership = Ownership(leadership)
    leadership.hear(Answer(10.0, 7, "n2", 8, 5))
    ownership.hear({1: Owner("n1", 7, 20), 2: Owner("n2", 8, 21)})
    assert [ownership.held(dpid, 12.4) for dpid in (1, 2, 3)] == [20, None, None]
    assert ownership.wanted_role(1, 12.4) == (ControllerRole.MASTER, 20)
    assert ownership.wanted_role(2, 12.4) == (ControllerRole.SLAVE, 21)
    assert ownership.wanted_role(3, 12.4) is None
    assert (ownership.held(1, 12.5), ownership.wanted_role(1, 12.5)) == (None, None)
    leadership.lose()
    assert ownership.held(1, 11.0) is None
