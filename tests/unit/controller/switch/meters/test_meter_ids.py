"""Meter ids: the lowest free one, never one in use, never one outside of the range."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.switch.meters.id_pool import MeterIdPool


def test_lowest_free_id_and_exhaustion():
    ids = MeterIdPool(5, 7)
    assert [ids.allocate() for _ in range(4)] == [5, 6, 7, None]
    ids.release(6)
    ids.release(5)
    assert [ids.allocate() for _ in range(3)] == [5, 6, None]


def test_ids_outside_the_range_are_not_owned():
    ids = MeterIdPool(5, 7)
    assert not ids.claim(4)
    assert not ids.claim(8)
    assert ids.claim(6)
    assert not ids.claim(6)
    assert [ids.allocate() for _ in range(3)] == [5, 7, None]


def test_releasing_what_is_not_in_use_does_not_give_it_out_twice():
    ids = MeterIdPool(1, 3)
    ids.allocate()
    ids.release(1)
    ids.release(1)
    ids.release(99)
    assert [ids.allocate() for _ in range(4)] == [1, 2, 3, None]


def test_reserved_ids_can_be_claimed_and_not_taken():
    """A meter that an earlier run left may yet turn out to be a pair's: until then, nobody else gets its id."""
    ids = MeterIdPool(1, 4)
    ids.reserve([1, 3, 77])
    assert [ids.allocate() for _ in range(3)] == [2, 4, None]
    assert ids.claim(3)
    assert not ids.claim(3)
    ids.release(1)
    assert [ids.allocate(), ids.allocate()] == [1, None]


def test_a_new_reservation_replaces_the_old_one():
    ids = MeterIdPool(1, 2)
    ids.reserve([1, 2])
    ids.reserve([2])
    assert [ids.allocate(), ids.allocate()] == [1, None]


def test_reservations_over_and_over_leave_nothing_behind():
    """A switch that connects again and again with meters that are nobody's."""
    ids = MeterIdPool(1, 1000)
    for _ in range(50):
        ids.reserve(range(1, 101))
    assert len(ids._free) <= 100
    ids.reserve([])
    assert [ids.allocate() for _ in range(101)] == list(range(1, 102))


def test_no_id_above_what_the_switch_can_have_is_given_out():
    ids = MeterIdPool(3, 9)
    ids.limit_to(5)
    assert [ids.allocate() for _ in range(4)] == [3, 4, 5, None]
    assert ids.owns(9)  # the range is the controller's all the same
    ids.release(5)
    ids.limit_to(4)
    assert ids.allocate() is None
    ids.limit_to(100)
    assert [ids.allocate() for _ in range(6)] == [5, 6, 7, 8, 9, None]


@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "claim", "claim all", "release", "reserve"]), st.integers(0, 9)), max_size=40
    )
)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_no_id_has_two_users(happenings):
    ids, used = MeterIdPool(2, 7), set()
    for what, meter_id in happenings:
        if what == "take":
            taken = ids.allocate()
            assert taken not in used
            if taken is not None:
                assert 2 <= taken <= 7
                used.add(taken)
        elif what == "claim" and ids.claim(meter_id):
            assert meter_id not in used
            used.add(meter_id)
        elif what == "release":
            ids.release(meter_id)
            used.discard(meter_id)
        elif what == "claim all":
            wanted = [meter_id, 99, meter_id, 3]
            claimed = ids.claim_all(np.array(wanted)).tolist()
            assert claimed == [2 <= one <= 7 and one not in {*used, *wanted[:at]} for at, one in enumerate(wanted)]
            used.update(one for one, mine in zip(wanted, claimed, strict=True) if mine)
        elif what == "reserve":
            ids.reserve([meter_id])
