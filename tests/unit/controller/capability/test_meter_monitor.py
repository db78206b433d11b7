"""Meters that count nothing while ports receive, or count and limit nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.native_comparison import numpy_alone

from controller.capability.capabilities import Ability, ProbeResult
from controller.capability.meter_monitor import (
    IDLE,
    MIN_EVIDENCE_BYTES,
    NOT_KNOWN,
    NOT_LIMITING,
    WINDOW_S,
    MeterMonitor,
    update_monitors,
)
from controller.metering import measurement_native
from controller.metering.enforcement import to_kilo
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.meters import METER_STATS
from controller.openflow.multipart import PORT_STATS

RATE_BPS = 1e6
BURST_BITS = 2e5
PERMITTED_BYTES = int((RATE_BPS * WINDOW_S + BURST_BITS) / 8)


def watch_of(*edge_ports: int, rate_bps: float = RATE_BPS) -> MeterMonitor:
    def settings(meter_id: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return to_kilo(np.full(len(meter_id), rate_bps)), to_kilo(np.full(len(meter_id), BURST_BITS))

    return MeterMonitor(np.array(edge_ports), settings)


def read(
    watch: MeterMonitor, now_s: float, counted: int, received: int, elsewhere: int = 0, dropped: int = 0, more: int = 0
) -> Ability:
    meters, ports = np.zeros(2 + more, METER_STATS), np.zeros(2, PORT_STATS)
    meters["meter_id"] = np.arange(1, len(meters) + 1)
    meters["byte_in_count"][1], meters["band_byte_count"][1] = counted, dropped
    ports["port_no"], ports["rx_bytes"] = (1, 9), (received, elsewhere)
    watch.read(meters)
    watch.update(ports, now_s)
    return watch.ability


def is_idle(*arguments: object, **named: object) -> bool:
    return read(*arguments, **named) == IDLE  # type: ignore[arg-type]


def test_only_a_window_with_traffic_and_no_count_tells() -> None:
    watch = watch_of(1)
    assert not is_idle(watch, 0.0, 0, 0)
    assert not is_idle(watch, WINDOW_S / 2, 0, MIN_EVIDENCE_BYTES)
    assert is_idle(watch, WINDOW_S, 0, MIN_EVIDENCE_BYTES)
    assert is_idle(watch, 2 * WINDOW_S, 7, MIN_EVIDENCE_BYTES)  # no traffic to speak of: still what it was
    assert is_idle(watch, 2.5 * WINDOW_S, 7, 2 * MIN_EVIDENCE_BYTES)
    assert not is_idle(watch, 3 * WINDOW_S, 0, 2 * MIN_EVIDENCE_BYTES)


def test_ports_to_other_switches_do_not_matter() -> None:
    watch = watch_of(1)
    read(watch, 0.0, 0, 0)
    assert not is_idle(watch, WINDOW_S, 0, MIN_EVIDENCE_BYTES - 1, elsewhere=10 * MIN_EVIDENCE_BYTES)


def test_ports_that_count_anew_begin_a_new_window() -> None:
    watch = watch_of(1)
    read(watch, 0.0, 0, 5 * MIN_EVIDENCE_BYTES)
    assert not is_idle(watch, WINDOW_S, 0, 0)
    assert not is_idle(watch, 1.5 * WINDOW_S, 0, 3 * MIN_EVIDENCE_BYTES)


@pytest.mark.parametrize("gap", [{}, {2: COUNTER_UNAVAILABLE}])
def test_what_a_port_received_before_a_gap_in_its_counts_is_no_traffic_of_the_window(gap: dict[int, int]) -> None:
    watch, plenty = watch_of(1, 2), 9 * MIN_EVIDENCE_BYTES
    for window, counts in enumerate(({2: plenty}, gap, {2: plenty})):
        meters, ports = np.zeros(1, METER_STATS), np.zeros(1 + len(counts), PORT_STATS)
        ports["port_no"], ports["rx_bytes"] = [1, *counts], [0, *counts.values()]
        watch.read(meters)
        watch.update(ports, window * WINDOW_S)
    assert watch.ability != IDLE


def test_a_meter_that_lets_twice_its_rate_through_in_two_windows_does_not_limit() -> None:
    watch, excess = watch_of(1), max(2 * PERMITTED_BYTES, MIN_EVIDENCE_BYTES) + 1
    read(watch, 0.0, 0, 0)
    assert read(watch, WINDOW_S, excess, excess).finding is ProbeResult.UNKNOWN
    assert read(watch, 2 * WINDOW_S, 2 * excess, 2 * excess) == NOT_LIMITING
    # A drop says that it limits after all.
    assert read(watch, 3 * WINDOW_S, 3 * excess, 3 * excess, dropped=1).works


@pytest.mark.parametrize(("between", "found"), [(MIN_EVIDENCE_BYTES, ProbeResult.UNKNOWN), (0, ProbeResult.FAILS)])
def test_windows_with_too_much_that_others_part_are_chance(between: int, found: ProbeResult) -> None:
    """Between them the meter lets through what it may, or has no traffic that shows anything."""
    watch, counted = watch_of(1, rate_bps=4e6), 0
    for window, new in enumerate((0, 5 * MIN_EVIDENCE_BYTES, between, 5 * MIN_EVIDENCE_BYTES)):
        counted += new
        read(watch, window * WINDOW_S, counted, counted)
    assert watch.ability.finding is found


def test_what_a_meter_may_let_through_is_no_reason_to_doubt_it() -> None:
    watch, allowed = watch_of(1, rate_bps=8e6), int(2 * (8e6 * WINDOW_S + BURST_BITS) / 8)
    for window in range(4):
        ability = read(watch, window * WINDOW_S, window * allowed, window * allowed)
        assert ability.finding is ProbeResult.UNKNOWN


def test_windows_in_which_meters_came_or_were_modified_say_nothing() -> None:
    watch, plenty = watch_of(1), 50 * MIN_EVIDENCE_BYTES
    counts = [0, plenty, 5, plenty, 5]  # a modify sets the counter back
    for window, counted in enumerate(counts):
        read(watch, window * WINDOW_S, counted, window * plenty, more=window % 2)
    assert watch.ability.finding is ProbeResult.UNKNOWN


def test_a_meter_that_is_modified_all_the_time_is_found_out_too() -> None:
    watch, excess = watch_of(1), max(4 * PERMITTED_BYTES, MIN_EVIDENCE_BYTES)
    read(watch, 0.0, 0, 0)
    for window in range(1, 3):  # four modifies in each: a bucket more every time
        for quarter in range(1, 5):
            assert not watch.ability.works
            read(watch, (window - 1 + quarter / 4) * WINDOW_S, excess + quarter % 2, excess)
    assert watch.ability == NOT_LIMITING


def test_a_meter_is_held_against_the_highest_rate_that_it_had() -> None:
    rates_bps = iter([RATE_BPS, 100 * RATE_BPS] * 20)
    watch = MeterMonitor(
        np.array([1]), lambda ids: tuple(to_kilo(np.full((2, len(ids)), [[next(rates_bps)], [BURST_BITS]])))
    )
    most = int(2 * 100 * RATE_BPS * WINDOW_S / 8)
    for window in range(6):
        assert read(watch, window * WINDOW_S, window * most, window * most).finding is ProbeResult.UNKNOWN


RATES_KBPS, BURSTS_KBITS = (np.linspace(*ends, 20).astype(np.uint32) for ends in ((100, 4000), (10, 2**31)))


def watch_of_entries() -> MeterMonitor:
    """A watch over meters of which those with an id up to 20 are the entry's of the row below it."""

    def settings(meter_id: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known, rows = meter_id <= len(RATES_KBPS), np.minimum(meter_id, len(RATES_KBPS)) - 1
        unknown = np.uint32(NOT_KNOWN)
        return np.where(known, RATES_KBPS[rows], unknown), np.where(known, BURSTS_KBITS[rows], unknown)

    return MeterMonitor(np.array([1]), settings)


def other_meters(rng: np.random.Generator, most: int) -> np.ndarray:
    meters = np.zeros(rng.integers(0, most), METER_STATS)
    meters["meter_id"] = np.sort(rng.choice(30, len(meters), replace=False)) + 1
    return meters


@pytest.mark.skipif(measurement_native.library is None, reason="no C compiler was there when it was installed")
@given(seed=st.integers(0, 2**32 - 1), rounds=st.integers(1, 12))
def test_compiled_or_not_watches_see_the_same(seed: int, rounds: int) -> None:
    """Meters of three switches count on, begin again, have no count for a while, or are others, maybe as many."""
    rng = np.random.default_rng(seed)
    compiled, plain = ([watch_of_entries() for _ in range(3)] for _ in range(2))
    switches = [other_meters(rng, 20) for _ in range(3)]
    for number in range(rounds):
        for place, meters in enumerate(switches):
            if rng.random() < 0.2:
                switches[place] = meters = other_meters(rng, 5 if rng.random() < 0.5 else 20)
            for column in ("byte_in_count", "band_byte_count"):
                again = rng.random(len(meters)) < 0.2
                meters[column] = np.where(again, 0, meters[column]) + rng.integers(0, 10**6, len(meters), np.uint64)
        told = np.concatenate(switches)
        told["byte_in_count"][rng.random(len(told)) < 0.1] = COUNTER_UNAVAILABLE
        ends = np.cumsum([len(meters) for meters in switches])
        rows = np.where(told["meter_id"] <= len(RATES_KBPS), told["meter_id"].astype(np.int64) - 1, -1).astype(np.int32)
        arguments = (told, ends, rows, (RATES_KBPS, BURSTS_KBITS))
        update_monitors(compiled, *arguments)
        with numpy_alone():
            update_monitors(plain, *arguments)
        ports = np.zeros(1, PORT_STATS)
        ports["port_no"], ports["rx_bytes"] = 1, number * MIN_EVIDENCE_BYTES
        for one, other in zip(compiled, plain, strict=True):
            if rng.random() < 0.7:
                one.update(ports, number * 0.4)
                other.update(ports, number * 0.4)
            assert (one.ability, one._counted, one._began) == (other.ability, other._counted, other._began)
            np.testing.assert_array_equal(one._meter_id, other._meter_id)
            np.testing.assert_array_equal(one._counts, other._counts)
            np.testing.assert_array_equal(one._most, other._most)
