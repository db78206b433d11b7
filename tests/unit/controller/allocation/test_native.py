"""The compiled form gives the bits of the numpy form, and neither grants more than a sender can send."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.algorithms import ALGORITHMS
from support.native_comparison import numpy_alone

from controller.allocation import AllocationInput, native
from controller.policy.registry import make_policy

CONTROLS = [
    *((name, {}) for name in ALGORITHMS),
    *((name, {"headroom": 0.1}) for name in ("sp", "fp")),
    *(("fp", {"d": d}) for d in (1.0000001, 10.0)),
]
SIZES = [n for n in range(36) for _ in range(5)]  # a batch of every size up to beyond the largest, and one more
THRESHOLDS = [1, 2, 7, 8, 9, 10, 24, 25, 26, 127, 128, 129, 130, 136, 137, 260, 1000, 3000]  # of blocks and buckets

needs_kernel = pytest.mark.skipif(native.library is None, reason="the compiled kernel was not built")


def table(seed, sizes, spread=1.0):
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.permutation(sizes))]).astype(np.int64)
    entries, receivers = int(offsets[-1]), len(sizes)
    granted_bps = np.round(rng.lognormal(16.0, spread, entries), -6 if seed % 2 else 0) + 1e3  # rounded: many are equal
    granted_bps[rng.random(entries) < 0.05] = np.inf
    measured_bps = np.where(np.isinf(granted_bps), 1e6, granted_bps) * rng.choice([1.0, 0.97, 0.5], entries)
    return AllocationInput(
        offsets=offsets,
        limit_bps=rng.lognormal(18.0, 1.0, receivers),
        received_bps=rng.lognormal(18.0, 1.0, receivers),
        measured_bps=measured_bps,
        granted_bps=granted_bps,
        available_bps=rng.lognormal(17.5, 1.5, entries),
        drops=rng.random(entries) < 0.3,
        weight=np.where(rng.random(entries) < 0.5, 1.0, rng.lognormal(0.0, 1.0, entries)),
        active=rng.random(entries) < np.repeat(rng.choice([0.0, 0.5, 0.9, 1.0], receivers), np.diff(offsets)),
    )


def intervals(control, requests, count):
    """Grants and the state of some intervals, each of whose grants is the limit in force in the next."""
    algorithm = make_policy(*control)
    state, found = algorithm.first_state(requests.receivers), []
    for _ in range(count):
        grants, state = algorithm.allocate(requests, state)
        assert (grants <= requests.available_bps).all()
        found += [grants, *state.values()]
        requests = replace(requests, granted_bps=grants, measured_bps=0.99 * grants, check=True)
    return found


def compare_forms(control, requests, count=4):
    compiled = intervals(control, requests, count)
    with numpy_alone(native):
        for mine, plain in zip(compiled, intervals(control, requests, count), strict=True):
            np.testing.assert_array_equal(mine, plain)


@pytest.mark.parametrize("control", CONTROLS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_receivers_of_all_sizes_have_the_bits_of_numpy_side_by_side_and_alone(control, seed):
    compare_forms(control, table(seed, SIZES))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_receivers_of_many_senders_have_the_bits_of_numpy(name, spread):
    """Sums by blocks, and sorting by buckets with and without crowded ones: sizes around every threshold."""
    compare_forms((name, {}), table(3, THRESHOLDS, spread), 1)


@needs_kernel
@pytest.mark.parametrize("seed", range(2))
def test_an_idle_sender_has_the_share_of_one_more_active_sender(seed):
    requests = table(seed, SIZES)
    receiver = np.repeat(np.arange(requests.receivers), np.diff(requests.offsets))
    share_bps = (requests.limit_bps / (np.bincount(receiver, requests.active, requests.receivers) + 1))[receiver]
    grants_bps = 0.5 * requests.available_bps
    expected_bps = np.where(requests.active, grants_bps, np.minimum(share_bps, requests.available_bps))
    np.testing.assert_array_equal(native.with_idle_share(requests, grants_bps), expected_bps)


@needs_kernel
@pytest.mark.parametrize("name", ALGORITHMS)
def test_columns_whose_rows_are_apart_are_read_as_they_are(name):
    requests = table(5, SIZES)
    apart = {
        field: np.column_stack([column, column])[:, 1]
        for field in ("limit_bps", "measured_bps", "available_bps", "weight", "active")
        if (column := getattr(requests, field)) is not None
    }
    whole, split = (intervals((name, {}), one, 1) for one in (requests, replace(requests, **apart, check=True)))
    for mine, plain in zip(split, whole, strict=True):
        np.testing.assert_array_equal(mine, plain)
