"""Desired against installed flow entries."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.forwarding import pipeline
from controller.forwarding.desired_flows import DesiredFlows, plan_flows
from controller.forwarding.flow_table import FlowTable, effect_of, flow_key, pack_key
from controller.forwarding.host_flow_columns import PAIR, build_keys
from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow
from controller.openflow.match import Match


def flow(table=0, priority=1, port=None, goto=None, cookie=7):
    return Flow(table, priority, Match(in_port=port), cookie, goto_table=goto)


flows = st.builds(
    flow,
    table=st.integers(0, 3),
    priority=st.integers(0, 2),
    port=st.one_of(st.none(), st.integers(1, 2)),
    goto=st.sampled_from([None, 5, 6]),
    cookie=st.integers(7, 8),
)
tables = st.lists(flows, max_size=12).map(FlowTable)


def copies(desired):
    """Return what is wanted of each switch as it is now: what would be installed if all had followed."""
    return {dpid: desired.flows_at(dpid).copy() for dpid in (1, 2, 3)}


def executed(installed, mods):
    after = dict(installed)
    for command, one in mods:
        if command == FlowModCommand.ADD:
            after[flow_key(one)] = one
        else:
            # DELETE_STRICT names the cookie that is installed.
            assert after[flow_key(one)].cookie == one.cookie
            del after[flow_key(one)]
    return after


@given(tables, tables, st.sets(st.integers(0, 11)))
def test_a_plan_brings_installed_to_desired_for_all_keys_or_for_some(desired, installed, chosen):
    mods = plan_flows(desired, installed)
    assert executed(installed, mods) == desired
    assert plan_flows(desired, desired) == []
    commands = [command for command, _ in mods]
    assert commands == sorted(commands, key=lambda command: command == FlowModCommand.ADD)
    order = [one.table_id for command, one in mods if command == FlowModCommand.ADD]
    assert order == sorted(order, reverse=True)
    every_key = desired.keys() | installed.keys()
    assert len(mods) <= len(every_key)
    keys = {key for number, key in enumerate(sorted(every_key, key=str)) if number in chosen}
    after = executed(installed, plan_flows(desired, installed, set(map(pack_key, keys))))
    for key in every_key:
        assert after.get(key) == (desired if key in keys else installed).get(key)


def test_some_changes_are_taken_in_the_order_of_a_plan_and_the_others_wait():
    desired = DesiredFlows()
    desired.put("a", {1: [flow(table) for table in range(6)], 2: [flow(0)], 3: [flow(0)]})
    installed = {1: FlowTable([flow(0), flow(1), flow(5)]), 2: FlowTable([flow(0)])}
    desired.drop("a")
    desired.put("b", {1: [flow(table) for table in range(2, 6)], 2: [flow(1)]})
    assert desired.pending == {1, 2, 3}
    keys = [pack_key(flow(table)) for table in range(6)]  # of which the last is there already
    assert desired.pop_changed(2, installed) == {2: {keys[0], keys[1]}}  # few do not wait for many
    assert desired.pending == {1}  # what is at the third is nobody's business any more
    assert desired.pop_changed(2, installed) == {1: {keys[0], keys[1]}}  # what goes
    desired.put("c", {2: [flow(2)]})
    assert desired.pop_changed(2, installed) == {2: {keys[2]}, 1: {keys[4]}}  # nor many for few
    assert desired.pop_changed(2, installed) == {1: {keys[3], keys[2]}}
    assert desired.pending == set()
    assert desired.pop_changed(2, installed) == {}


def test_what_waits_is_forgotten_with_its_switch():
    desired, installed = DesiredFlows(), {1: FlowTable()}
    desired.only = {1}
    desired.put("a", {1: [flow(table) for table in range(4)]})
    desired.pop_changed(1, installed)
    assert desired.pending == {1}
    desired.forget(1)
    assert desired.pending == set()


def test_changes_that_are_installed_already_do_not_count():
    desired, many = DesiredFlows(), [flow(table) for table in range(6)]
    desired.put("a", {1: many, 2: [flow(1)]})
    assert desired.pop_changed(1, {1: FlowTable(many), 2: FlowTable()}) == {2: {pack_key(flow(1))}}
    assert desired.pending == set()


parts = st.lists(
    st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([5, 6])), max_size=3, unique_by=lambda x: x[0]
)
puts = st.tuples(st.integers(0, 2), st.dictionaries(st.integers(1, 3), parts, max_size=3))
puts_at = st.tuples(st.integers(0, 2), st.integers(1, 3), parts)


@given(st.lists(st.one_of(puts, puts_at, st.tuples(st.integers(0, 2))), max_size=12))
@settings(max_examples=80)
def test_desired_is_what_the_groups_ask_for_and_touched_what_differs(changes):
    """Each group has a table of its own; one is put as a whole, put at one switch, or dropped."""
    desired, wanted = DesiredFlows(), {}
    for group, *what in changes:
        before = copies(desired)
        if not what:
            desired.drop(group)
            wanted.pop(group, None)
        elif len(what) == 1:
            flows_of = {
                dpid: [flow(group, port=port, goto=goto) for port, goto in some] for dpid, some in what[0].items()
            }
            desired.put(group, flows_of)
            wanted[group] = flows_of
        else:
            dpid, some = what
            part = [flow(group, port=port, goto=goto) for port, goto in some]
            desired.put_at(group, dpid, iter(part))
            wanted[group] = wanted.get(group, {}) | {dpid: part}
        touched = desired.pending
        taken = desired.pop_changed(100, before)
        for dpid in (1, 2, 3):
            assert set(desired.flows_at(dpid).values()) == {
                one for flows_of in wanted.values() for one in flows_of.get(dpid, ())
            }
            after = desired.flows_at(dpid)
            keys = before[dpid].keys() | after.keys()
            differing = {pack_key(key) for key in keys if before[dpid].get(key) != after.get(key)}
            assert taken.get(dpid, set()) == differing
            assert (dpid in touched) == bool(differing)


def test_a_group_that_lost_its_entry_to_another_does_not_drop_it():
    """Two groups with one key: the later one's entry stands, and stays when the earlier group goes."""
    desired = DesiredFlows()
    desired.put("a", {1: [flow(0, goto=5)]})
    desired.put("b", {1: [flow(0, goto=6)]})
    desired.drop("a")
    assert list(desired.flows_at(1).values()) == [flow(0, goto=6)]


def test_entries_that_no_group_has_are_named_by_their_keys():
    desired = DesiredFlows()
    pairs = [pipeline.rate_control(1, 10, mac, mac + 1, 300) for mac in range(40)]
    macs = np.arange(40)
    keys, effect = build_keys(PAIR, np.full(40, 1), np.full(40, 10), macs), effect_of(pairs[0])
    before = copies(desired)
    desired.put_entries(1, keys, macs + 1, effect)
    assert desired.flows_at(1) == {flow_key(one): one for one in pairs}
    assert desired.pop_changed(99, before) == {1: set(map(pack_key, pairs))}
    before = copies(desired)
    desired.put_entries(1, keys, np.where(macs == 7, 99, macs + 1), effect)
    desired.put_entry(1, pairs[3])
    assert desired.pop_changed(99, before) == {1: {pack_key(pairs[7])}}
    assert desired.flows_at(1)[flow_key(pairs[7])].meter_id == 99
    before = copies(desired)
    desired.drop_entry(1, pack_key(pairs[7]))
    desired.drop_entry(1, pack_key(pairs[7]))
    assert desired.pop_changed(99, before) == {1: {pack_key(pairs[7])}}
    assert len(desired.flows_at(1)) == 39
