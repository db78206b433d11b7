"""A table whose entries are all listed again: what it becomes, and what has changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.forwarding.flow_table import KEY, FlowTable, effect_of, pack_key
from controller.openflow.actions import Output
from controller.openflow.flows import Flow
from controller.openflow.match import Match
from controller.switch import flow_table_refresh
from controller.switch.flow_table_refresh import FlowColumns, FlowTableRefresh

LONG = Match(1, 2, 1 << 40, 1 << 40, 0x800, 1 << 40, 1 << 40, 1, 1, 1)


def flow(port: int, out: int = 1, meter_id: int | None = None) -> Flow:
    return Flow(0, 5, Match(in_port=port) if port else LONG, 0, meter_id=meter_id, actions=(Output(out),))


def updated(before: FlowTable, listed: list[list[Flow]], least_batches: int = 0) -> FlowTableRefresh:
    """Return an update that has taken what is listed, piece by piece, and was put together in so many batches."""
    update = FlowTableRefresh(before)
    for piece in listed:
        rows = [
            (pack_key(one), one.meter_id or 0, update.template_index(effect_of(one)))
            for one in piece
            if one.match != LONG
        ]
        for one in piece:
            if one.match == LONG:
                update.add_long(pack_key(one), one.meter_id or 0, effect_of(one))
        keys, meter_ids, places = zip(*rows, strict=True) if rows else ((), (), ())
        update.add(FlowColumns(np.array(keys, KEY), np.array(meter_ids, np.uint32), np.array(places, np.uint32)))
    assert len(list(update.batches())) >= least_batches
    return update


ANY = st.builds(flow, st.integers(0, 30), st.integers(1, 3), st.sampled_from([None, 1, 2]))


@given(st.lists(ANY, max_size=40), st.lists(st.lists(ANY, max_size=12), max_size=6))
def test_the_table_is_what_was_listed_and_changed_is_the_difference(
    before: list[Flow], listed: list[list[Flow]]
) -> None:
    table = FlowTable(before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_table_refresh, "_MERGE_BATCH", 4)
        patch.setattr(flow_table_refresh, "_SAMPLED", 2)
        update = updated(table, listed)
    expected = FlowTable(one for piece in listed for one in piece)
    assert update.changed == table.differing(expected)
    assert update.table == expected
    assert update.table.differing(expected) == set()
    assert table == FlowTable(before)


def test_the_same_again_is_the_same_table() -> None:
    table = FlowTable(map(flow, range(9)))
    assert updated(table, [[flow(port)] for port in range(8, -1, -1)]).table is table


def test_effects_that_nobody_has_any_more_are_forgotten() -> None:
    table = FlowTable([flow(1)])
    for number in range(40):
        table = updated(table, [[flow(port, out=100 * number + port) for port in range(1, 31)]]).table
    assert len(table.copy()._effects) <= 200


def test_many_are_put_together_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_table_refresh, "_MERGE_BATCH", 200)
    many = [flow(port) for port in range(1, 601)]
    assert updated(FlowTable(), [many[start::3] for start in range(3)], least_batches=4).table == FlowTable(many)
