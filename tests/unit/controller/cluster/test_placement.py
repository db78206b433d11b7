"""Which switches a node takes: those without an owner, and those that are to have another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.placement import (
    FALLBACK_DELAY_S,
    JOIN_DELAY_S,
    MAX_MOVES,
    MOVE_NOTICE_S,
    MOVE_TIMEOUT_S,
    UNREACHABLE_GRACE_S,
    ClusterView,
    Placement,
    connected_candidates,
    move_target,
    rendezvous_order,
)

EARLY_S = 0.25
names = st.sets(st.sampled_from([f"n{number}" for number in range(6)]), min_size=1)
switches = st.sets(st.integers(1, 2**64 - 1), max_size=30)


def known(
    nodes: Collection[str],
    owners: Mapping[int, str] | None = None,
    reached: Mapping[str, Collection[int]] | None = None,
    drained: Collection[str] = (),
    requested_nodes: Mapping[int, str] | None = None,
) -> ClusterView:
    return ClusterView(nodes, reached or {}, drained, requested_nodes or {}, owners or {})


def settled(me: str, dpids: set[int], nodes: set[str], owned: set[int]) -> tuple[Placement, float]:
    """A node that has been there for long, and now."""
    placement = Placement(me, dpids)
    placement.unowned_due(0.0, known(nodes, dict.fromkeys(owned, "n0")), dpids)
    return placement, JOIN_DELAY_S + 1.0


@settings(max_examples=50)
@given(nodes=names, dead=names, drained=names, dpids=switches)
def test_each_switch_of_dead_nodes_is_taken_at_once_by_one_live_node(
    nodes: set[str], dead: set[str], drained: set[str], dpids: set[int]
) -> None:
    live = nodes - dead
    took: list[int] = []
    for node in live:
        placement, now_s = settled(node, dpids, nodes, owned=dpids)
        took += placement.unowned_due(now_s, known(live, drained=drained), dpids)
    assert sorted(took) == (sorted(dpids) if live - drained else [])


@settings(max_examples=50)
@given(nodes=names, dpids=switches)
def test_one_that_only_the_last_node_reaches_is_taken_by_it_in_the_end(nodes: set[str], dpids: set[int]) -> None:
    for dpid in dpids:
        last = rendezvous_order(dpid, nodes)[-1]
        placement, now_s = settled(last, {dpid}, nodes, owned=set())
        due_s = max(now_s - JOIN_DELAY_S - 1.0 + FALLBACK_DELAY_S * (len(nodes) - 1), now_s)
        assert placement.unowned_due(due_s, known(nodes), {dpid}) == [dpid]
        assert placement.unowned_due(due_s + EARLY_S, known(nodes), set()) == []  # nor by who does not reach it


def test_nodes_that_start_one_after_the_other_share_the_switches_out() -> None:
    dpids = set(range(1, 20))
    first, second, owned = Placement("n1", dpids), Placement("n2", dpids), dict[int, str]()
    for tenth in range(200):
        now_s = tenth / 10
        nodes = {"n1"} if now_s < 1.5 else {"n1", "n2"}
        for name, placement in (("n1", first), ("n2", second)):
            if name in nodes:
                owned |= dict.fromkeys(placement.unowned_due(now_s, known(nodes, owned), dpids), name)
    assert owned == {dpid: rendezvous_order(dpid, ["n1", "n2"])[0] for dpid in dpids}


def test_a_node_alone_takes_all_it_reaches_in_pieces() -> None:
    dpids = set(range(1, 2 * MAX_MOVES))
    placement, now_s = settled("n1", dpids, {"n1"}, owned=set())
    first = set(placement.unowned_due(now_s, known({"n1"}), dpids))
    assert len(first) == MAX_MOVES
    assert set(placement.unowned_due(now_s, known({"n1"}, dict.fromkeys(first, "n1")), dpids)) == dpids - first


def test_nobody_takes_an_orphan_that_has_an_owner_or_without_being_known() -> None:
    placement, now_s = settled("n1", {1}, {"n1"}, owned={1})
    assert placement.unowned_due(now_s, known({"n1"}, {1: "n1"}), {1}) == []
    assert placement.unowned_due(now_s, known({"n2"}), {1}) == []


NODES = ("n1", "n2", "n3")
ALL = {1, 2, 3, 4}
REACHED = dict.fromkeys(NODES, ALL)


@settings(max_examples=200)
@given(
    owner=st.sampled_from(NODES),
    reaching=st.sets(st.sampled_from(NODES)),
    drained=st.sets(st.sampled_from(NODES)),
    wanted=st.sampled_from([None, *NODES]),
)
def test_a_switch_goes_only_to_a_node_that_can_have_it_and_only_for_a_reason(
    owner: str, reaching: set[str], drained: set[str], wanted: str | None
) -> None:
    reached = {node: {1} if node in reaching else set[int]() for node in NODES}
    now = known(NODES, {1: owner}, reached, drained, {} if wanted is None else {1: wanted})
    to, can = move_target(1, now), reaching - drained
    must = owner not in can
    assert to != owner
    assert to is None or to in can
    if must and can:
        assert to == (wanted if wanted in can else rendezvous_order(1, can)[0])
    elif wanted in can and wanted != owner:
        assert to == wanted
    else:
        assert to is None
    assert to is None or connected_candidates(1, now)[0] == to
    assert move_target(1, now._replace(owners={1: to or owner})) is None  # it comes to rest


def test_a_drained_nodes_switches_go_one_at_a_time_each_when_the_one_before_is_under_control() -> None:
    owners, controlled, drained = dict.fromkeys(ALL, "n1"), set(ALL), ["n1"]
    placements = {node: Placement(node, ALL) for node in NODES}
    now_s = JOIN_DELAY_S + 1.0
    for placement in placements.values():
        placement.unowned_due(0.0, known(NODES, owners, REACHED), ALL)
        assert placement.move_due(now_s - MOVE_NOTICE_S, known(NODES, owners, REACHED), ALL) is None
        assert not placement.moving
        assert placement.move_due(now_s - MOVE_NOTICE_S, known(NODES, owners, REACHED, drained), ALL) is None
        assert placement.moving  # so that all ask often
    took: list[int] = []
    while set(owners.values()) & {"n1"}:
        for node, placement in placements.items():
            due = placement.move_due(now_s, known(NODES, owners, REACHED, drained), controlled)
            assert due is None or controlled == ALL
            if due is not None:
                owners[due], controlled = node, controlled - {due}
                took.append(due)
            assert placement.move_due(now_s, known(NODES, owners, REACHED, drained), controlled) is None or due is None
        controlled = set(ALL)
    assert sorted(took) == sorted(ALL)
    assert owners == {dpid: rendezvous_order(dpid, ["n2", "n3"])[0] for dpid in ALL}


def test_one_that_does_not_arrive_holds_the_others_up_for_a_while_only() -> None:
    placement, now_s = settled("n2", ALL, set(NODES), owned=ALL)
    now = known(NODES, dict.fromkeys(ALL, "n1"), REACHED, ["n1"], dict.fromkeys(ALL, "n2"))
    waits = [placement.move_due(now_s + at_s, now, ALL - {4}) for at_s in (0.0, MOVE_NOTICE_S, MOVE_TIMEOUT_S)]
    assert [due is None for due in waits] == [True, True, False]


@pytest.mark.parametrize("again", [False, True])
def test_a_switch_is_taken_from_an_owner_that_has_not_reached_it_for_a_while(again: bool) -> None:
    placement, now_s = settled("n2", {1}, {"n1", "n2"}, owned={1})
    cut = known({"n1", "n2"}, {1: "n1"}, {"n1": set(), "n2": {1}})
    back = cut._replace(reached={"n1": {1}, "n2": {1}})
    assert placement.move_due(now_s, cut, {1}) is None
    assert placement.move_due(now_s + 1.0, back if again else cut, {1}) is None
    assert placement.move_due(now_s + UNREACHABLE_GRACE_S, cut, {1}) == (None if again else 1)
    unheard = cut._replace(reached={"n2": {1}})  # the owner has not said what it reaches
    assert placement.move_due(now_s + 9.0, unheard, {1}) is None


def test_a_pinned_switch_goes_to_its_node_first_and_comes_back_to_it() -> None:
    first, second = rendezvous_order(1, ["n1", "n2"])
    pin = {1: second}
    placement, now_s = settled(second, {1}, {"n1", "n2"}, owned=set())
    assert placement.unowned_due(now_s, known({"n1", "n2"}, requested_nodes=pin), {1}) == [1]
    away = known({"n1", "n2"}, {1: first}, {key: {1} for key in ("n1", "n2")}, requested_nodes=pin)
    assert placement.move_due(now_s, away._replace(drained=[second]), {1}) is None
    assert not placement.moving
    assert placement.move_due(now_s, away, {1}) is None
    assert placement.move_due(now_s + MOVE_NOTICE_S, away, {1}) == 1
