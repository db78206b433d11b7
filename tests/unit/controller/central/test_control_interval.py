"""What switches said of their meters goes to the rows of the pair table, compiled or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configs import star
from support.fabrics import ControlLoop, Fabric
from support.native_comparison import numpy_alone, same

from controller.loop.control_step import StepResult
from controller.metering import measurement_native
from controller.metering.counters import ListedReadings
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.meters import METER_STATS
from controller.switch.meter_index import MeterPositions, MeterStatsBatch
from controller.switch.switch_record import NO_ENTRY


@pytest.mark.skipif(measurement_native.library is None, reason="no C compiler was there when it was installed")
@given(seed=st.integers(0, 2**32 - 1), meters=st.integers(0, 30), limits=st.booleans())
def test_readings_are_alike(seed: int, meters: int, limits: bool) -> None:
    rng = np.random.default_rng(seed)
    stats, cut = np.zeros(meters, METER_STATS), int(rng.integers(0, meters + 1))
    for column in ("byte_in_count", "band_byte_count"):
        stats[column] = np.where(rng.random(meters) < 0.1, COUNTER_UNAVAILABLE, rng.integers(0, 10**9, meters))
    stats["duration_s"] = rng.random(meters)
    rows = np.where(rng.random(meters) < 0.8, rng.permutation(40)[:meters], NO_ENTRY).astype(np.int32)
    reports = MeterStatsBatch.from_stats({1: stats[:cut], 2: stats[:0], 3: stats[cut:]})
    modified_s = rng.choice([1.0, 2.0, 3.0], 40) if limits else None
    times_s = (np.array([4.0, 4.25, 4.5]), rng.choice([2.5, 3.5, np.nan], 3))
    places = MeterPositions.build(rows, reports.ends, 40)
    compiled = ListedReadings(*places, reports.whole, *times_s, modified_s).columns
    with numpy_alone():
        plain = ListedReadings(*places, reports.whole, *times_s, modified_s).columns
    same(compiled, plain)


def test_a_send_limit_counts_from_its_own_modify() -> None:
    """What its switch confirmed later, of the meters that an interval modified, says nothing of it."""
    net = Fabric(star(3, limits={10: "100M"}))
    net.start()
    loop, central = ControlLoop(net), net.central
    loop.add((1, 1), (1, 3), 10, 30e6)
    loop.run(10)
    decide, row = central.interval, central.vns.row_of(10, 1, 1)

    def interval(stats: dict[int, Any], received_s: dict[int, float], now_s: float) -> StepResult:
        return decide(stats, received_s, now_s, dict.fromkeys(stats, now_s - 0.02))

    central.interval = interval  # type: ignore[method-assign,assignment]
    net.now_s += 0.001
    net.operator.set_vn(row, net.now_s, send_limit_bps=90_000_000)
    net.push()
    loop.run(1)
    assert central.fabric.send_limits.offered_bps[row] == pytest.approx(30e6)


def test_frame_sizes_are_read_of_some_meters_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many meters each check reads a part of them, the next check the next part, and all in turn."""
    net = Fabric(star(3, limits={10: "100M"}))
    net.start()
    loop, central = ControlLoop(net), net.central
    loop.add((1, 1), (1, 3), 10, 30e6)
    loop.add((1, 2), (1, 3), 10, 30e6)
    loop.run(2)
    decide, checks = central.interval, list[list[float]]()

    def interval(stats: dict[int, Any], received_s: dict[int, float], now_s: float) -> StepResult:
        stats = {dpid: meters.copy() for dpid, meters in stats.items()}
        stats[1]["band_byte_count"], stats[1]["band_packet_count"] = 90_180, 10
        result = decide(stats, received_s, now_s)
        checks.append(central.fabric.frame_bytes.tolist())
        return result

    central.interval = interval  # type: ignore[method-assign,assignment]
    meters, senders = len(net.switches[1].meters), [central.vns.row_of(10, 1, port) for port in (1, 2)]
    monkeypatch.setattr("controller.central.control_interval.MAX_FRAME_METERS", 1)
    monkeypatch.setattr("controller.metering.flood_rates.READ_S", 0.0)
    loop.run(1)
    assert len(checks) == 1
    assert np.count_nonzero(checks[0]) <= 1  # one meter was read
    loop.run(meters - 1)
    assert [checks[-1][row] for row in senders] == [9_018, 9_018]
