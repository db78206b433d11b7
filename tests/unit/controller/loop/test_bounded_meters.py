"""Settings brought within what switches take, and changes that would change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from controller.fabric.meter_bounds import MAX_KILO, UNBOUNDED, MeterBounds, columns_of
from controller.loop.bounded_meters import within_bounds
from controller.metering.enforcement import Enforcement, MeterChanges, from_kilo
from controller.metering.measurement import Measurement

KBPS, BURST = 10_000, 3_000


def enforcement(rate_kbps: int, burst_kbits: int, level_bits: float | None = None) -> Enforcement:
    floats = [np.full(1, float(rate_kbps) * 1e3)] * 2
    kilos = np.full(1, rate_kbps, np.uint32), np.full(1, burst_kbits, np.uint32)
    level = np.full(1, burst_kbits * 1e3 if level_bits is None else level_bits)
    return Enforcement(
        *floats, *kilos, np.zeros(1), level, level, np.zeros(1), np.zeros(1, bool), np.zeros(1, np.int16)
    )


def bounded(before: Enforcement, after: Enforcement, bounds: MeterBounds) -> tuple[Enforcement, MeterChanges]:
    changes = MeterChanges(np.array([0]), after.rate_kbps, after.burst_kbits)
    columns = columns_of([bounds], np.zeros(1, np.int64))
    assert columns is not None
    silent = Measurement.initial(1)
    after = after._replace(modified_s=np.full(1, 0.055))
    return within_bounds(before, after, changes, silent, columns, 0.055)


def test_a_setting_is_brought_within_the_bounds_and_sent() -> None:
    after, changes = bounded(
        enforcement(KBPS, BURST), enforcement(9_999, 50_000), MeterBounds(rate_step_kbps=65, max_burst_kbits=32_000)
    )
    assert (after.rate_kbps[0], after.burst_kbits[0]) == (9_945, 32_000)
    assert after.level_bits[0] == 32e6
    assert changes.rows.tolist() == [0]
    assert changes.rate_bps[0] == 9_945_000


def test_what_changes_nothing_is_not_sent_and_not_noted() -> None:
    """A full bucket as deep as there can be, though the account allows more."""
    before = enforcement(KBPS, 2_000)
    after, changes = bounded(before, enforcement(KBPS, BURST), MeterBounds(max_burst_kbits=2_000))
    assert len(changes.rows) == 0
    assert after.modified_s[0] == before.modified_s[0] == 0.0
    assert after.level_bits[0] == from_kilo(before.burst_kbits)[0]


def test_a_bucket_that_the_account_fills_is_filled() -> None:
    before = enforcement(KBPS, 2_000, level_bits=0.0)
    after, changes = bounded(before, enforcement(KBPS, BURST), MeterBounds(max_burst_kbits=2_000))
    assert changes.rows.tolist() == [0]
    assert (after.modified_s[0], after.level_bits[0]) == (0.055, 2e6)


@pytest.mark.parametrize(
    ("bounds", "asked", "given"),
    [
        (UNBOUNDED, (5, 7), (5, 7)),
        (MeterBounds(min_rate_kbps=64), (5, 7), (64, 7)),
        (MeterBounds(min_rate_kbps=64, rate_step_kbps=65), (5, 7), (65, 7)),
        (MeterBounds(max_rate_kbps=1_000, rate_step_kbps=300), (5_000, 7), (900, 7)),
        (MeterBounds(min_burst_kbits=16), (5, 7), (5, 16)),
        (UNBOUNDED, (MAX_KILO, MAX_KILO), (MAX_KILO, MAX_KILO)),
    ],
)
def test_settings_are_fitted(bounds: MeterBounds, asked: tuple[int, int], given: tuple[int, int]) -> None:
    assert tuple(map(int, bounds.fitted(*asked))) == given


def test_no_bounds_are_no_columns() -> None:
    assert columns_of([UNBOUNDED, UNBOUNDED], np.array([0, 1])) is None
