"""Token buckets of VNs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from controller.forwarding.token_buckets import TokenBuckets, packet_in_bursts


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 0.5)), max_size=200))
def test_no_row_takes_more_than_its_own(asking):
    buckets, now_s, taken = TokenBuckets(3, 10.0, 5.0), 100.0, [0, 0, 0]
    for row, pause_s in asking:
        now_s += pause_s
        taken[row] += buckets.consume(row, now_s)
    assert all(count <= 5 + 10 * (now_s - 100.0) + 1e-6 for count in taken)
    assert buckets.consume(0, now_s + 0.1 + 1e-6)


def test_time_that_falls_back_fills_nothing():
    buckets = TokenBuckets(1, 10.0, 1.0)
    assert buckets.consume(0, 100.0)
    assert not buckets.consume(0, 50.0)
    assert not buckets.consume(0, 50.05)


def test_a_report_meter_lets_a_burst_of_two_seconds_through():
    assert packet_in_bursts(np.array([128_000.0, 1_000.0])).tolist() == [256_000.0, 2_000.0]
