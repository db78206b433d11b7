"""Meters behind agents stand a little above what the host shapes, and are left alone while they are near it."""

from __future__ import annotations

import numpy as np
import pytest

from controller.metering.backstop import BACKSTOP, BACKSTOP_BURST_S, with_backstops
from controller.metering.enforcement import Enforcement, MeterChanges, burst_for, from_kilo, to_kilo

NOW_S = 10.0
LIMIT_BPS = np.array([1e6, 20e6, 40e6, 8e6])
ALL = np.ones(4, dtype=np.bool_)
NOBODY = np.zeros(4, dtype=np.bool_)


def meters(rate_bps: np.ndarray, now_s: float) -> Enforcement:
    """Meters that stand at these rates since ``now_s``, half empty, whose senders have saved nothing."""
    none, burst_bits = Enforcement.empty(), np.full(4, 90e3)
    state = none.reindexed(np.full(4, -1), rate_bps, burst_bits, now_s, full=False)
    state.level_bits[:] = burst_bits / 2
    return state


def changed(rows: list[int], state: Enforcement) -> MeterChanges:
    return MeterChanges(np.array(rows, dtype=np.int64), state.rate_kbps, state.burst_kbits)


def test_without_agents_nothing_is_changed() -> None:
    before, after = meters(LIMIT_BPS, 1.0), meters(2 * LIMIT_BPS, NOW_S)
    changes = changed([2, 0], after)
    for shaped in (None, NOBODY):
        enforcement, others, backstops = with_backstops(before, after, changes, shaped, ALL, LIMIT_BPS, NOW_S)
        assert enforcement is after
        assert others.rows.tolist() == [2, 0]
        assert backstops.rows.tolist() == []


def test_an_entry_without_a_meter_has_none_to_modify() -> None:
    before, after = meters(LIMIT_BPS, 1.0), meters(2 * LIMIT_BPS, NOW_S)
    metered = np.array([False, True, True, True])
    shaped = np.array([False, True, False, False])
    for agents, left in ((None, [2, 1]), (shaped, [2])):
        _enforcement, others, backstops = with_backstops(
            before, after, changed([2, 1, 0], after), agents, metered, LIMIT_BPS, NOW_S
        )
        assert others.rows.tolist() == left
        assert 0 not in backstops.rows
    _enforcement, _others, backstops = with_backstops(before, after, changed([], after), ALL, metered, LIMIT_BPS, NOW_S)
    assert 0 not in backstops.rows


def test_backstops_stand_above_the_limit_lowered_ones_first() -> None:
    before = meters(np.array([5e6, 10e6, 40e6, 8e6]), 1.0)
    after = meters(np.array([1.0, 2.0, 3.0, 4.0]) * 1e6, NOW_S)
    shaped = np.array([True, True, True, False])
    enforcement, others, backstops = with_backstops(
        before, after, changed([3, 1, 0], after), shaped, ALL, LIMIT_BPS, NOW_S
    )
    assert others.rows.tolist() == [3]
    assert backstops.rows.tolist() == [0, 1]
    assert backstops.rate_bps == pytest.approx(BACKSTOP * LIMIT_BPS[:2])
    assert backstops.burst_bits[1] == pytest.approx(BACKSTOP * LIMIT_BPS[1] * BACKSTOP_BURST_S)
    assert enforcement.rate_bps[2:].tolist() == [40e6, 4e6], "within a twentieth of 42 Mb/s, and the other's own"
    assert enforcement.burst_kbits[2] == before.burst_kbits[2]
    assert enforcement.modified_s.tolist() == [NOW_S, NOW_S, before.modified_s[2], after.modified_s[3]]


@pytest.mark.parametrize(("part", "left"), [(0.96, True), (1.04, True), (0.94, False), (1.06, False)])
def test_a_backstop_is_left_alone_while_it_is_near(part: float, left: bool) -> None:
    before = meters(part * BACKSTOP * LIMIT_BPS, 1.0)
    _enforcement, _others, backstops = with_backstops(before, before, changed([], before), ALL, ALL, LIMIT_BPS, NOW_S)
    assert backstops.rows.tolist() == ([] if left else [0, 1, 2, 3])


def test_who_is_shaped_owes_nothing_and_has_a_full_bucket() -> None:
    before, after = meters(BACKSTOP * LIMIT_BPS, 1.0), meters(LIMIT_BPS, 2.0)
    shaped = np.array([True, False, True, True])
    enforcement, _others, _backstops = with_backstops(before, after, changed([], after), shaped, ALL, LIMIT_BPS, NOW_S)
    full_bits, credit_bits = from_kilo(to_kilo(before.burst_bits)), burst_for(LIMIT_BPS, after.unresponsive)
    assert enforcement.level_bits.tolist() == np.where(shaped, full_bits, after.level_bits).tolist()
    assert enforcement.credit_bits.tolist() == np.where(shaped, credit_bits, after.credit_bits).tolist()
    assert enforcement.updated_s.tolist() == np.where(shaped, NOW_S, after.updated_s).tolist()
