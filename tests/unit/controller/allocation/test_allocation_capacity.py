"""No grant is above what its sender can send, to the last bit, with capacities that are no round numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.algorithms import ALGORITHMS
from support.allocation_requests import one_receiver
from support.native_comparison import numpy_alone

from controller.allocation import AllocationInput, native
from controller.policy.registry import make_policy

OFTEN = settings(max_examples=150)
INTERVALS = 60
CONTROLS = [
    *((name, {}) for name in ALGORITHMS),
    ("sp", {"headroom": 0.1}),
    ("fp", {"headroom": 0.1}),
    ("fp", {"d": 1.0000001}),
    ("fp", {"d": 10.0}),
]
seeds = st.integers(0, 2**32 - 1)


def both_forms(algorithm, requests, state):
    """The grants and the next state; numpy and the compiled kernel give the same bits."""
    with numpy_alone(native):
        plain, after = algorithm.allocate(requests, state)
    grants, _ = algorithm.allocate(requests, state)
    np.testing.assert_array_equal(grants, plain)
    return grants, after


def table(rng, receivers=20, most=14):
    """Receivers with capacities, rates and limits over some orders of magnitude, none of them round."""
    sizes = rng.integers(0, most, receivers)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    entries = int(offsets[-1])
    granted_bps = rng.lognormal(16.0, 2.0, entries) * (rng.random(entries) < 0.97)
    return AllocationInput(
        offsets=offsets,
        limit_bps=rng.lognormal(19.0, 1.0, receivers),
        received_bps=rng.lognormal(19.0, 1.0, receivers),
        measured_bps=granted_bps * rng.choice([1.0, 0.97, 0.5], entries),
        granted_bps=granted_bps,
        available_bps=rng.lognormal(17.5, 2.0, entries),
        drops=np.zeros(entries, dtype=np.bool_),
        weight=np.where(rng.random(entries) < 0.5, 1.0, rng.lognormal(0.0, 1.5, entries)),
        active=rng.random(entries) < 0.9,
    )


@pytest.mark.parametrize(("name", "parameters"), CONTROLS)
@OFTEN
@given(seeds)
def test_no_grant_is_above_what_a_sender_can_send(name, parameters, seed):
    requests, algorithm = table(np.random.default_rng(seed)), make_policy(name, parameters)
    state = algorithm.first_state(requests.receivers)
    for _ in range(2):  # RAA-FE and Fair Level have a state of their own from the first interval on
        grants, state = both_forms(algorithm, requests, state)
        assert (grants <= requests.available_bps).all()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_sender_at_its_capacity_does_not_count_as_one_above_the_mean(compiled, monkeypatch):
    """The second sender is granted all its capacity by step 1, one ulp more in a sum of two parts; step 3 leaves it."""
    if compiled and native.library is None:
        pytest.skip("the compiled kernel was not built")
    if not compiled:
        monkeypatch.setattr(native, "library", None)
    granted = (
        "0x1.a11e8510f842bp+23",
        "0x1.9a2f2639aff1fp+19",
        "0x1.660ea1c3eafc3p+21",
        "0x1.b2f75f48fb8f2p+22",
        "0x1.7f1d85b177809p+21",
    )
    available = (
        "0x1.99c13de102729p+25",
        "0x1.d1774244d188fp+24",
        "0x1.192efd59fe970p+28",
        "0x1.fa0f7c261b6c9p+27",
        "0x1.770d8255c9a5bp+27",
    )
    granted_bps, available_bps = (np.array([float.fromhex(text) for text in column]) for column in (granted, available))
    requests = one_receiver(400e6, granted_bps, available_bps=available_bps, received_bps=granted_bps.sum())
    algorithm = make_policy("fp")
    grants, _ = algorithm.allocate(requests, algorithm.first_state(1))
    assert grants[1] == available_bps[1]
    assert grants[0] == available_bps[0]
    assert grants.sum() == pytest.approx(400e6, rel=1e-12)
