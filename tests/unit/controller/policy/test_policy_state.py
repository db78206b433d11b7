"""What policies remember follows its VNs, entries and links."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.columns import NEW_ROW
from controller.errors import InvalidValueError
from controller.policy.policy_state import PolicyState

LINKS = ("a", "b", "c")


def ints(*values):
    return np.array(values, dtype=np.int64)


def floats(*values):
    return np.array(values, dtype=np.float64)


def filled():
    memory = PolicyState(3).aligned(ints(1, 4), LINKS)
    uses = ints(0, 0, 2), ints(0, 2, 1), {"r": floats(10, 12, 21)}
    return memory.updated({"v": floats(0, 1, 2)}, {"e": floats(1, 4)}, {"l": floats(5, 6, 7)}, uses, derived="paths")


def test_what_was_never_written_is_not_known():
    memory = PolicyState(2).aligned(ints(0, 3, 5), LINKS)
    assert [len(memory.vn_column("x")), len(memory.pair_column("x")), len(memory.link_column("x"))] == [2, 3, 3]
    assert np.isnan(np.concatenate([memory.vn_column("x"), memory.pair_column("x"), memory.link_column("x")])).all()
    assert np.isnan(memory.vn_link_column("x", ints(0, 1), ints(2, 2))).all()


def test_kinds_that_are_not_given_stay():
    memory = filled().updated(by_vn={"w": floats(3, 3, 3)})
    assert (list(memory.by_vn), list(memory.by_entry), list(memory.by_use)) == (["w"], ["e"], ["r"])


@pytest.mark.parametrize(
    ("given_columns", "key"),
    [
        ({"by_vn": {"v": np.zeros(2)}}, "by_vn.v"),
        ({"by_entry": {"e": np.zeros(2, dtype=np.int64)}}, "by_entry.e"),
        ({"by_link": {"l": np.zeros((3, 1))}}, "by_link.l"),
        ({"uses": (np.array([0]), np.array([1]), {"r": np.zeros(2)})}, "by_use.r"),
    ],
)
def test_a_column_of_another_shape_is_refused(given_columns, key):
    with pytest.raises(InvalidValueError, match=key):
        filled().updated(**given_columns)


def test_entries_are_re_arranged():
    """Of entries 0 to 4 row 0 goes and one comes in front of the last: 1 becomes 0, 4 becomes 4."""
    memory = filled().reindexed(ints(1, 2, 3, NEW_ROW, 4))
    assert (memory.rows.tolist(), memory.derived) == ([0, 4], None)
    known = memory.aligned(ints(0, 3, 4), LINKS).pair_column("e")
    np.testing.assert_array_equal(known, floats(1, np.nan, 4))
    gone = filled().reindexed(ints(0, 4))
    np.testing.assert_array_equal(gone.pair_column("e"), floats(4))


def test_what_is_not_decided_on_is_forgotten():
    memory = filled().aligned(ints(4), LINKS).aligned(ints(1, 4), LINKS)
    np.testing.assert_array_equal(memory.pair_column("e"), floats(np.nan, 4))


def test_links_go_by_their_names():
    memory = filled().aligned(ints(1, 4), ("c", "d", "a"))
    np.testing.assert_array_equal(memory.link_column("l"), floats(7, np.nan, 5))
    assert (memory.use_vn.tolist(), memory.use_link.tolist()) == ([0, 0], [0, 2])  # that of b is gone
    np.testing.assert_array_equal(memory.vn_link_column("r", ints(0, 0, 2), ints(2, 0, 1)), floats(10, 12, np.nan))


def test_the_same_entries_and_links_leave_everything_alone():
    memory = filled()
    assert memory.aligned(ints(1, 4), LINKS) is memory
    assert memory.aligned(ints(1, 4), None) is memory


def test_vns_are_re_arranged_as_by_a_reload():
    memory = filled().reindexed_vns(ints(2, NEW_ROW, 0, NEW_ROW))
    np.testing.assert_array_equal(memory.vn_column("v"), floats(2, np.nan, 0, np.nan))
    np.testing.assert_array_equal(memory.vn_link_column("r", ints(0, 2, 2), ints(1, 0, 2)), floats(21, 10, 12))


def test_a_vn_that_left_is_forgotten():
    memory = filled().limited_to(ints(1, 2))
    np.testing.assert_array_equal(memory.vn_column("v"), floats(np.nan, 1, 2))
    assert memory.use_vn.tolist() == [2]


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.integers(0, 5), st.randoms(use_true_random=False))
def test_every_entry_that_stays_keeps_its_value(controlled, new, random):
    """Whatever comes, goes and changes places: the value of an entry is its old row."""
    rows = np.flatnonzero(controlled)
    memory = PolicyState(1).aligned(rows, None).updated(by_entry={"row": rows.astype(np.float64)})
    old_row = [*(row for row in range(len(controlled)) if random.random() < 0.7), *[NEW_ROW] * new]
    random.shuffle(old_row)
    moved = memory.reindexed(ints(*old_row)).aligned(np.arange(len(old_row)), None).pair_column("row")
    expected = [row if row != NEW_ROW and controlled[row] else np.nan for row in old_row]
    np.testing.assert_array_equal(moved, floats(*expected))
