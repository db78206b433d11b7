"""When a lease may be taken to have run out, against one that is refreshed at any time."""

from __future__ import annotations

from math import floor

from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.lease_expiry import LeaseExpiry

TTL_S = 2
GAPS_S = st.lists(st.floats(0.0, 1.5), min_size=1, max_size=40)


def test_a_lease_has_run_out_a_second_after_less_than_a_second_was_left() -> None:
    expiry = LeaseExpiry()
    assert not expiry.observe(1, 10.0, 10.01)
    assert expiry.remaining_s == 1
    assert not expiry.observe(0, 10.25, 10.26)
    assert not any(expiry.observe(0, at_s, at_s + 0.01) for at_s in (10.5, 10.75, 11.0, 11.25))
    assert expiry.observe(0, 11.27, 11.28)


def test_a_refresh_and_a_look_away_begin_again() -> None:
    for left_s, at_s in ((1, 10.5), (0, 11.0)):
        expiry = LeaseExpiry()
        assert not expiry.observe(0, 10.0, 10.0)
        assert not expiry.observe(left_s, at_s, at_s)
        assert not expiry.observe(0, at_s + 0.25, at_s + 0.25)
        assert not expiry.observe(0, at_s + 0.99, at_s + 0.99)


@given(st.lists(st.floats(0.0, 60.0), max_size=20), GAPS_S, st.lists(st.floats(0.0, 0.6), min_size=80, max_size=80))
def test_no_lease_that_lives_is_taken_to_have_run_out(
    refreshed_s: list[float], gaps_s: list[float], delays_s: list[float]
) -> None:
    """Questions and answers take any time; etcd looks at its clock somewhere between."""
    expiry, now_s, delays = LeaseExpiry(), 0.0, iter(delays_s)
    refreshes = sorted({0.0, *refreshed_s})
    for gap_s in gaps_s:
        asked_s = now_s + gap_s
        looked_s = asked_s + next(delays)
        now_s = looked_s + next(delays)
        until_s = max(at_s for at_s in refreshes if at_s <= looked_s) + TTL_S
        left_s = until_s - looked_s
        if expiry.observe(max(floor(left_s), 0), asked_s, now_s):
            assert left_s <= 0
            return
