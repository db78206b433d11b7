"""The compiled form of enforcement and accounts gives the same bits as the numpy form, and so the same meters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native_comparison import numpy_alone, same

from controller.columns import MAX_COUNTED
from controller.metering import measurement_native
from controller.metering.enforcement import (
    MAX_UNREAD_S,
    MIN_BURST_BITS,
    RATE_STEP_BPS,
    RESPONSIVE_DROP,
    UNRESPONSIVE_DROP,
    Enforcement,
    burst_for,
    enforce,
    passed_bits_by,
    to_kilo,
    whole_rates,
)
from controller.metering.measurement import Measurement
from controller.metering.receive_budgets import RemainingBudget

pytestmark = pytest.mark.skipif(
    measurement_native.library is None, reason="no C compiler was there when it was installed"
)


def rates(rng: np.random.Generator, entries: int) -> np.ndarray:
    """Rates from a kilobit to a gigabit, one in ten of them nothing."""
    return np.where(rng.random(entries) < 0.1, 0.0, 10.0 ** rng.uniform(3.0, 9.0, entries))


def enforcement(rng: np.random.Generator, entries: int, now_s: float) -> Enforcement:
    """Meters in any state: modified since they were read or not, full or empty, in credit or in debt.

    Some are just twice as deep as they are to be for senders that do not respond.
    """
    bits = [rates(rng, entries) * 0.3 for _ in range(3)]
    bits[2] *= rng.choice([-1.0, 1.0], entries)
    modified_s, updated_s = (now_s - rng.choice([0.0, 0.055, 0.11, MAX_UNREAD_S, 0.3], entries) for _ in range(2))
    granted_bps = (rates(rng, entries) + 1e3, rates(rng, entries))
    deepest_bits = 2.0 * burst_for(whole_rates(granted_bps[0]), np.ones(entries, dtype=np.bool_))
    burst_bits = np.where(rng.random(entries) < 0.1, deepest_bits, np.ceil(bits[0] / RATE_STEP_BPS) * RATE_STEP_BPS)
    settings = to_kilo(rates(rng, entries) + 1e3), to_kilo(burst_bits)
    evidence = rng.choice([*range(-25, 25), -MAX_COUNTED, MAX_COUNTED], entries).astype(np.int16)
    judged = (rng.random(entries) < 0.3, evidence)
    return Enforcement(*granted_bps, *settings, modified_s, *bits[1:], updated_s, *judged)


def measurement(rng: np.random.Generator, entries: int) -> Measurement:
    """Senders that send more or less than before, or nothing; of some, some, all or just a threshold is dropped."""
    offered_bps, smoothed_bps = rates(rng, entries), rates(rng, entries)
    dropped_bps = offered_bps * rng.choice([0.0, 0.05, RESPONSIVE_DROP, UNRESPONSIVE_DROP, 0.5, 1.0], entries)
    silent = rng.integers(0, 20, entries, dtype=np.int16)
    return Measurement(offered_bps, dropped_bps, offered_bps - dropped_bps, smoothed_bps, silent)


@given(
    seed=st.integers(0, 2**32 - 1),
    entries=st.integers(0, 200),
    receivers=st.integers(1, 20),
    bounded=st.booleans(),
    large=st.booleans(),
)
def test_meters_and_accounts_are_the_same(seed: int, entries: int, receivers: int, bounded: bool, large: bool) -> None:
    rng, now_s = np.random.default_rng(seed), 0.0  # so that what is so long ago is that to the bit
    before, measured = enforcement(rng, entries, now_s), measurement(rng, entries)
    limit_bps = np.where(rng.random(entries) < 0.3, before.limit_bps, rates(rng, entries))
    seen_s = np.where(rng.random(entries) < 0.2, np.nan, rng.choice([0.02, 0.055, 0.11], entries))
    too_soon = rng.random(entries) < 0.1 if bounded else None
    receiver = np.sort(rng.integers(0, receivers, entries))
    free_bits = rng.normal(0.0, 1e8, (3, receivers))
    saved_bits, lasting_bits = rng.normal(0.0, 1e7, (2, receivers))
    rooms = RemainingBudget(rates(rng, receivers), np.array([0.063, 0.5, 1.0]), free_bits, saved_bits, lasting_bits)
    min_burst_bits = np.maximum(MIN_BURST_BITS, 10.0 ** rng.uniform(4.0, 6.5, entries)) if large else None
    shared = (rooms, receiver) if bounded else (None, None)
    arguments = (before, limit_bps, measured, seen_s, now_s, too_soon, *shared, min_burst_bits)
    after, changes = enforce(*arguments)
    taken_bits = passed_bits_by(before, measured, seen_s, now_s, receiver, receivers)
    with numpy_alone():
        plain_after, plain_changes = enforce(*arguments)
        plain_bits = passed_bits_by(before, measured, seen_s, now_s, receiver, receivers)
    same(after, plain_after)
    same(changes, plain_changes)
    np.testing.assert_array_equal(taken_bits, plain_bits)
