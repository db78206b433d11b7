"""Tables of flow entries in columns are what dicts of entries are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.forwarding import flow_table, pipeline
from controller.forwarding.flow_table import (
    KEY,
    KEY_BYTES,
    FlowKey,
    FlowTable,
    effect_of,
    flow_key,
    pack_key,
    unpack_key,
)
from controller.openflow.actions import Output, SetQueue
from controller.openflow.flows import Flow, WriteMetadata
from controller.openflow.match import Match

GROUP = 1 << 40
LONG = [Match(port, 2, GROUP, GROUP, 0x800, GROUP, GROUP) for port in (1, 2)]  # their keys do not fit
MASKED = [Match(eth_dst=GROUP, eth_dst_mask=GROUP, metadata=number) for number in (0, 1)]
PLAIN = [
    Match(in_port, vlan_vid, eth_dst)
    for in_port in (None, 1, 256)
    for vlan_vid in (None, 0, 256)
    for eth_dst in (None, 0, 256)
]
matches = st.one_of(st.sampled_from(PLAIN), st.sampled_from(MASKED), st.sampled_from(LONG))
flows = st.builds(
    Flow,
    st.integers(0, 2),
    st.sampled_from([0, 1, 256]),
    matches,
    st.integers(7, 8),
    st.sampled_from([0, 60]),
    st.booleans(),
    st.sampled_from([None, 1, 2**31]),
    st.sampled_from([(), (Output(3),), (SetQueue(2), Output(3))]),
    st.sampled_from([None, 5]),
    st.sampled_from([None, WriteMetadata(1, 3)]),
)
lists = st.lists(flows, max_size=40)


def as_dict(some: list[Flow]) -> dict[FlowKey, Flow]:
    return {flow_key(flow): flow for flow in some}


def packed_keys(keys: set[FlowKey]) -> set[bytes]:
    return set(map(pack_key, keys))


@given(flows, flows)
def test_keys_are_packed_to_bytes_in_the_order_of_tables(one: Flow, other: Flow) -> None:
    assert unpack_key(pack_key(one)) == flow_key(one)
    assert pack_key(flow_key(one)) == pack_key(one)
    assert (pack_key(one) == pack_key(other)) == (flow_key(one) == flow_key(other))
    if one.table_id < other.table_id:
        assert pack_key(one) < pack_key(other)


@given(
    st.lists(st.tuples(flows, st.sampled_from(["put", "discard", "count", "copy"])), max_size=60),
    st.sampled_from([0, 2, 10_000]),
)
def test_a_table_is_what_a_dict_would_be(changes: list[tuple[Flow, str]], most_recent: int) -> None:
    table = FlowTable()
    expected: dict[FlowKey, Flow] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_table, "_MAX_RECENT", most_recent)
        patch.setattr(flow_table, "_MAX_UNUSED", 1)
        for flow, what in changes:
            if what == "put":
                assert table.put(flow) == pack_key(flow)
                expected[flow_key(flow)] = flow
            elif what == "discard":
                table.discard(pack_key(flow))
                expected.pop(flow_key(flow), None)
            elif what == "copy":
                before, table = table, table.copy()
                before.discard(pack_key(flow))
            else:
                assert len(table) == len(expected)
            assert table.flow(pack_key(flow)) == table.get(flow_key(flow)) == expected.get(flow_key(flow))
            assert table.has(pack_key(flow)) == (flow_key(flow) in table) == (flow_key(flow) in expected)
            assert table.holds(flow) == (expected.get(flow_key(flow)) == flow)
    assert table == expected
    assert sorted(table.packed()) == sorted(packed_keys(set(expected)))
    assert set(table.flows_in_tables({1, 2})) == {flow for flow in expected.values() if flow.table_id in {1, 2}}


@given(lists, lists, st.sets(st.integers(0, 79)), st.booleans())
def test_the_difference_is_that_of_sets(mine: list[Flow], theirs: list[Flow], chosen: set[int], few: bool) -> None:
    """Missing, unexpected and changed entries, of all or of some keys, and those that the other has no key of."""
    one, other = FlowTable(mine), FlowTable(theirs)
    left, right = as_dict(mine), as_dict(theirs)
    unlike = {key for key in left.keys() | right.keys() if left.get(key) != right.get(key)}
    keys = {flow_key(flow) for number, flow in enumerate(mine + theirs) if number in chosen} | {FlowKey(9, 9, Match())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_table, "_FEW", 100 if few else 0)
        assert one.differing(other) == other.differing(one) == packed_keys(unlike)
        assert one.differing(other, packed_keys(keys)) == packed_keys(unlike & keys)
        assert one.missing_from(other) == packed_keys(left.keys() - right.keys())
    fitting = np.array([packed for packed in packed_keys(keys) if len(packed) <= KEY_BYTES], KEY)
    assert one.contains(fitting).tolist() == [unpack_key(packed) in left for packed in fitting.tolist()]
    for packed in packed_keys(keys):
        one.put_from(other, packed)
    assert one == {key: flow for key, flow in left.items() if key not in keys} | {
        key: right[key] for key in keys & right.keys()
    }


@given(lists, lists, st.booleans())
def test_rows_are_put_as_entries_are(before: list[Flow], more: list[Flow], few: bool) -> None:
    more = [flow for flow in more if len(pack_key(flow)) <= KEY_BYTES]
    table, expected = FlowTable(before), as_dict(before) | as_dict(more)
    keys = np.array(list(map(pack_key, more)), KEY)
    meter_id = np.array([flow.meter_id or 0 for flow in more], np.uint32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_table, "_FEW", 100 if few else 0)
        table.put_rows(keys, meter_id, np.array([table.template_index(effect_of(flow)) for flow in more], np.uint32))
        assert table == expected
        for flow in more:
            rows = np.array([pack_key(flow)], KEY), np.array([flow.meter_id or 0], np.uint32)
            assert table.differing_rows(*rows, effect_of(flow)).tolist() == [not table.holds(flow)]
            table.put_rows(*rows, effect_of(flow))
            assert not table.differing_rows(*rows, effect_of(flow)).any()


def test_what_the_pipeline_makes_for_each_host_and_pair_fits() -> None:
    made = [
        pipeline.rate_control(1, 10, 2**48 - 1, 5, 300),
        pipeline.count_marks(2**31, 4094, 2**48 - 1, 5),
        *pipeline.clear_marks(2**31, 4094, 2**48 - 1, pipeline.HIDDEN_ECT_1),
        *pipeline.limit_floods(1, 10, pipeline.VnMeters()),
        pipeline.report_new_pair(10, 2**48 - 1),
        pipeline.known_source(1, 10, 2**48 - 1, 300),
        pipeline.forward_to_switch(1, 10, 2**48 - 1),
    ]
    assert [flow for flow in made if len(pack_key(flow)) > KEY_BYTES] == []


def test_effects_that_no_entry_has_any_more_are_forgotten() -> None:
    table = FlowTable()
    for number in range(10_000):
        table.put(Flow(0, 1, Match(in_port=1), 7, actions=(Output(1 + number),)))
    assert len(table) == 1
    assert len(table._effects) < 1_000


@pytest.mark.parametrize("rows", [flow_table._FEW, flow_table._FEW + 1])
@pytest.mark.parametrize("pending", range(flow_table._MAX_RECENT - 1, flow_table._MAX_RECENT + 2))
def test_an_effect_that_is_put_in_columns_is_kept_while_unused_ones_are_forgotten(rows: int, pending: int) -> None:
    """More effects than are kept unused; what was put one by one goes into the columns on the way."""
    table = FlowTable()
    for number in range(pending):
        table.put(pipeline.rate_control(1, 1, number, 5, 0)._replace(cookie=number))
        table.discard(pack_key(pipeline.rate_control(1, 1, number, 5, 0)))
    added = [pipeline.rate_control(2, 1, number, 6, 0) for number in range(rows)]
    table.put_rows(np.array([pack_key(flow) for flow in added], KEY), np.full(rows, 6, np.uint32), effect_of(added[0]))
    assert dict(table) == as_dict(added)


@given(lists, flows)
def test_tables_that_share_columns_change_on_their_own(some: list[Flow], another: Flow) -> None:
    first, second = FlowTable(some), FlowTable(as_dict(some).values())
    first.share(second)
    assert all(np.shares_memory(*both) or not len(both[0]) for both in zip(first.columns, second.columns, strict=True))
    first.put(another)
    first.share(second)
    assert second == as_dict(some)
    assert first == as_dict([*some, another])
