"""From counters to rates and figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.measure.rate_series import (
    MeasurementError,
    Rates,
    Samples,
    Window,
    first_above,
    goodput_limit_bps,
    isolation_figures,
    longest_run,
    mean_over,
    rates_of,
    read_samples,
    recovery_intervals,
)


def full_segments(time_s: list[float], packets: list[float]) -> Samples:
    count = np.array(packets, dtype=np.float64)
    return Samples(np.array(time_s), count * 1514, count)


def test_a_full_tcp_segment_counts_1518_bytes_on_the_wire_and_1448_for_its_user() -> None:
    rates = rates_of(full_segments([0.0, 1.0, 1.5], [0, 1000, 2000]))
    assert rates.wire_bps.tolist() == [1518 * 8000, 2 * 1518 * 8000]
    assert rates.tcp_goodput_bps.tolist() == [1448 * 8000, 2 * 1448 * 8000]
    assert goodput_limit_bps(rates.wire_bps[0]) == pytest.approx(rates.tcp_goodput_bps[0])
    arp = Samples(np.array([0.0, 1.0]), np.array([0.0, 42.0]), np.array([0.0, 1.0]))
    assert rates_of(arp).tcp_goodput_bps == [0.0]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.booleans(), max_size=40))
def test_longest_run_is_the_longest_word_of_ones(flags: list[bool]) -> None:
    words = "".join("1" if flag else "0" for flag in flags).split("0")
    assert longest_run(flags) == max(map(len, words))


@pytest.mark.parametrize(
    ("below", "intervals"),
    [("0000", 0), ("1100", 2), ("101100", 4), ("1010", None), ("00111", 0), ("1", None), ("", None)],
)
def test_recovery_takes_until_two_good_intervals_in_a_row(below: str, intervals: int | None) -> None:
    assert recovery_intervals(np.array([digit == "1" for digit in below], dtype=np.bool_)) == intervals


def steps(*levels_bps: float) -> Rates:
    """One-second intervals at these rates, on the wire and as goodput alike."""
    start_s = np.arange(len(levels_bps), dtype=np.float64)
    values = np.array(levels_bps, dtype=np.float64)
    return Rates(start_s, start_s + 1, values, values)


def test_a_mean_weighs_by_time_and_takes_whole_intervals_only() -> None:
    rates = Rates(np.array([0.0, 1.0, 4.0]), np.array([1.0, 4.0, 5.0]), np.array([10.0, 20.0, 99.0]), np.zeros(3))
    assert mean_over(rates, rates.wire_bps, Window(0, 4.5)) == pytest.approx((10 + 3 * 20) / 4)
    with pytest.raises(MeasurementError, match="no samples"):
        mean_over(rates, rates.wire_bps, Window(1.5, 3.5))


def test_first_above_looks_in_the_window_only() -> None:
    rates = steps(9, 0, 0, 9)
    assert first_above(rates, rates.wire_bps, 5, Window(1, 4)) == 3.0
    with pytest.raises(MeasurementError, match="nothing above"):
        first_above(rates, rates.wire_bps, 5, Window(1, 3))


def test_figures_of_a_victim_that_loses_two_intervals() -> None:
    allowed = goodput_limit_bps(40e6)
    victim = steps(allowed, allowed, 0.94 * allowed, 0.5 * allowed, allowed, 0.9 * allowed, allowed)
    aggressor = steps(0, 0, 0, 70e6, 50e6, 50e6, 50e6)
    figures = isolation_figures(victim, aggressor, Window(0, 2), Window(2, 6), 40_000_000, 50_000_000)
    assert figures["victim_goodput_limit_bps"] == pytest.approx(40e6 * 1448 / 1518)
    assert figures["victim_goodput_bps_before"] == pytest.approx(allowed)
    assert figures["victim_goodput_bps_during"] == pytest.approx(0.8 * allowed)
    assert figures["victim_intervals_below_95_percent"] == 2
    assert figures["victim_intervals_below_95_percent_total"] == 3
    assert figures["victim_intervals_below_95_percent_before"] == 0
    assert figures["victim_recovery_intervals"] is None  # bad, good and bad again
    assert figures["aggressor_received_bps_during"] == pytest.approx(170e6 / 3)


def test_samples_are_read_by_interface(tmp_path) -> None:
    path = tmp_path / "samples.csv"
    path.write_text("time_ns,a_bytes,a_packets,b_bytes,b_packets\n1000000000,1,2,3,4\n1055000000,5,6,7,8\n")
    samples = read_samples(path, "b")
    assert samples.time_s.tolist() == [1.0, 1.055]
    assert (samples.sent_bytes.tolist(), samples.packets.tolist()) == ([3.0, 7.0], [4.0, 8.0])
    with pytest.raises(MeasurementError, match="samples of c"):
        read_samples(path, "c")
