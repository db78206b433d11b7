"""The pair table, and state that follows its entries through every re-arrangement."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star
from support.native_comparison import names

from controller.columns import MAX_COUNTED, NEW_ROW, incremented, reindex
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.loop import control_step, pair_changes
from controller.policy.policy_groups import choices_of, groups_of


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_counts_of_intervals_stop_at_the_most_that_fits():
    counts = np.array([0, 20, MAX_COUNTED - 1, MAX_COUNTED], np.int16)
    assert (incremented(counts).dtype, incremented(counts).tolist()) == (np.int16, [1, 21, MAX_COUNTED, MAX_COUNTED])


def test_the_lower_of_both_ends_follows_other_columns():
    table, _ = PairTable.empty().add(ints(0, 1), ints(1, 0), ints(1, 2))
    sends, receives = np.array([5.0, 9.0]), np.array([7.0, 6.0])
    assert table.min_of_ends(sends, receives).tolist() == [7.0, 5.0]
    assert table.min_of_ends(sends, receives) is table.min_of_ends(sends, receives)
    assert table.min_of_ends(np.array([1.0, 9.0]), receives).tolist() == [7.0, 1.0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), unique=True, max_size=30), st.integers(0, 30))
def test_what_is_added_stands_where_sorting_all_would_put_it(pairs, before):
    sender, receiver = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    meter_id = np.arange(1, len(pairs) + 1)
    table, _ = PairTable.empty().add(sender[:before], receiver[:before], meter_id[:before])
    grown, old_row = table.add(sender[before:], receiver[before:], meter_id[before:])
    order = np.lexsort((sender, receiver))
    columns = (grown.sender, grown.receiver, grown.meter_id)
    for column, expected in zip(columns, (sender[order], receiver[order], meter_id[order]), strict=True):
        assert column.tolist() == expected.tolist()
    kept = old_row != NEW_ROW
    assert table.meter_id[old_row[kept]].tolist() == grown.meter_id[kept].tolist()
    assert sorted(grown.meter_id[~kept].tolist()) == meter_id[before:].tolist()


def test_carried_columns_keep_their_type_and_take_initial_values():
    column = ints(7, 8, 9)
    moved = reindex(column, ints(2, NEW_ROW, 0), 5)
    assert (moved.tolist(), moved.dtype) == ([9, 5, 7], np.int64)
    moved = reindex(column, ints(NEW_ROW, 1), np.array([1.0, 2.0]))
    assert moved.tolist() == [1, 8]


VNS = VnTable.from_config(star(6, limits={10: "100M"}))
GROUPS = groups_of(VNS, choices_of(star(6, limits={10: "100M"})))


def labelled(state, oracle):
    """Write each entry's label into every column of the state, so that it can be seen to follow."""
    labels = np.array([oracle[pair] for pair in pairs_of(state)], dtype=np.int64)

    def stamp(part):
        kinds = {name: getattr(part, name).dtype for name in names(part)}
        return type(part)(**{n: (labels % 2 if kind == np.bool_ else labels).astype(kind) for n, kind in kinds.items()})

    return state._replace(
        counters=stamp(state.counters),
        measured=stamp(state.measured),
        machines=stamp(state.machines),
        enforcement=stamp(state.enforcement),
        unread_intervals=labels,
    )


def pairs_of(state):
    return list(zip(state.entries.sender.tolist(), state.entries.receiver.tolist(), strict=True))


def columns(state):
    for part in (state.counters, state.measured, state.machines, state.enforcement):
        for name in names(part):
            yield name, getattr(part, name)


changes = st.lists(
    st.tuples(st.booleans(), st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)


@given(changes)
@settings(max_examples=50)
def test_state_follows_its_entry(happenings):
    """Against a dictionary with one label per entry."""
    state, oracle, meters, number = control_step.ControlState.start(VNS, GROUPS), {}, {}, 100
    for adding, pairs in happenings:
        if adding:
            new = [pair for pair in sorted(pairs, key=hash) if pair not in oracle and pair[0] != pair[1]]
            if not new:
                continue
            sender, receiver = (ints(*column) for column in zip(*new, strict=True))
            ids = ints(*range(number, number + len(new)))
            rates, bursts = ids * 1e3, ids * 1e4
            state = pair_changes.add_entries(
                state, VNS, sender, receiver, ids, rates, bursts, float(number), added_now=True
            )
            for pair, meter_id in zip(new, ids.tolist(), strict=True):
                row = pairs_of(state).index(pair)
                assert state.enforcement.rate_bps[row] == meter_id * 1e3
                assert state.enforcement.burst_bits[row] == meter_id * 1e4
                assert state.counters.received_s[row] == number
                oracle[pair], meters[pair] = meter_id, meter_id
            number += len(new)
            state = labelled(state, oracle)
        else:
            rows = [row for row, pair in enumerate(pairs_of(state)) if pair in pairs]
            for pair in pairs:
                oracle.pop(pair, None)
            state = pair_changes.remove_entries(state, ints(*rows))
        table = state.entries
        assert pairs_of(state) == sorted(oracle, key=lambda pair: (pair[1], pair[0]))
        assert table.meter_id.tolist() == [meters[pair] for pair in pairs_of(state)]
        for name, column in columns(state):
            labels = np.array([oracle[pair] for pair in pairs_of(state)])
            expected = labels % 2 == 1 if column.dtype == bool else labels
            assert column.tolist() == expected.tolist(), name
