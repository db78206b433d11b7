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


def test_reservations_over_and_over_leave_nothing_behind():
    """A switch that connects again and again with meters that are nobody's."""
    ids = MeterIdPool(1, 1000)
    for _ in range(50):
        ids.reserve(range(1, 101))
    assert len(ids._free) <= 100
    ids.reserve([])
    assert [ids.allocate() for _ in range(101)] == list(range(1, 102))


STEPS = ["take", "claim", "claim all", "release", "reserve", "limit"]


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), max_size=40))
@settings(max_examples=200)
def test_ids_are_used_reserved_or_free_as_in_sets(happenings):
    """A meter that an earlier run left may yet be a pair's: until then its id is reserved, and not given out."""
    ids, used, reserved, most = MeterIdPool(2, 7), set(), set(), 7

    def may_be_claimed(meter_id):
        return 2 <= meter_id <= 7 and meter_id not in used

    for what, meter_id, other in happenings:
        free = set(range(2, most + 1)) - used - reserved
        assert (ids.used, ids.left) == (len(used), len(free))
        assert [ids.owns(one) for one in (1, 2, 7, 8)] == [False, True, True, False]
        if what == "take":
            taken = ids.allocate()
            assert taken in (free or {None})
            used |= {taken} - {None}
        elif what == "claim":
            assert ids.claim(meter_id) == may_be_claimed(meter_id)
            used |= {meter_id} & set(range(2, 8))
        elif what == "claim all":
            wanted = [meter_id, 99, meter_id, other]
            claimed = ids.claim_all(np.array(wanted)).tolist()
            assert claimed == [may_be_claimed(one) and one not in wanted[:at] for at, one in enumerate(wanted)]
            used |= set(wanted) & set(range(2, 8))
        elif what == "release":
            ids.release(meter_id)
            used.discard(meter_id)
            reserved.discard(meter_id)
        elif what == "reserve":
            ids.reserve([meter_id, other, 77])
            reserved = {meter_id, other} & set(range(2, 8))
        else:
            most = min(meter_id, 7)
            ids.limit_to(meter_id)
        reserved -= used
