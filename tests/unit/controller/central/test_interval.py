"""What switches said of their meters goes to the rows of the entry table, compiled or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels import numpy_alone, same

from controller.metering import measure_kernel
from controller.metering.counters import ListedReadings
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.meters import METER_STATS
from controller.switch.listed_meters import MeterReports, Places
from controller.switch.record import NO_ENTRY


@pytest.mark.skipif(measure_kernel.library is None, reason="no C compiler was there when it was installed")
@given(seed=st.integers(0, 2**32 - 1), meters=st.integers(0, 30), limits=st.booleans())
def test_readings_are_alike(seed: int, meters: int, limits: bool) -> None:
    rng = np.random.default_rng(seed)
    stats, cut = np.zeros(meters, METER_STATS), int(rng.integers(0, meters + 1))
    for column in ("byte_in_count", "band_byte_count"):
        stats[column] = np.where(rng.random(meters) < 0.1, COUNTER_UNAVAILABLE, rng.integers(0, 10**9, meters))
    stats["duration_s"] = rng.random(meters)
    rows = np.where(rng.random(meters) < 0.8, rng.permutation(40)[:meters], NO_ENTRY).astype(np.int32)
    reports = MeterReports.of({1: stats[:cut], 2: stats[:0], 3: stats[cut:]})
    modified_s = rng.choice([1.0, 2.0, 3.0], 40) if limits else None
    times_s = (np.array([4.0, 4.25, 4.5]), rng.choice([2.5, 3.5, np.nan], 3))
    places = Places.of(rows, reports.ends, 40)
    compiled = ListedReadings(*places, reports.whole, *times_s, modified_s).columns
    with numpy_alone():
        plain = ListedReadings(*places, reports.whole, *times_s, modified_s).columns
    same(compiled, plain)
