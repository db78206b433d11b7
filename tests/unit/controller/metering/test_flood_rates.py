"""What VNs flood, from the counters of their meters."""

from __future__ import annotations

import numpy as np
import pytest

from controller.metering.flood_rates import FORGET_S, READ_S, STEP, FloodRates
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.meters import METER_STATS

IDS = np.array([[11, 0, 12], [21, 0, 22], [31, 0, 0]])  # floods, discovery, reports of VNs 0 and 2
ANSWERED = np.array([True, False, True])
VLANS = np.array([10, 10, 10])
ZEROS = dict.fromkeys(("m11", "m21", "m31", "m12", "m22"), (0, 0, 0))
LIMITS = np.full(3, 50e6)
CAPACITIES = np.full(3, 100e6)


def stats(duration_s, **meters):
    """METER_STATS of meters m11, m12 ...: bytes in, and bytes and packets dropped."""
    rows = [
        (int(name[1:]), packets, entered, duration_s, dropped) for name, (entered, dropped, packets) in meters.items()
    ]
    return np.array(rows, dtype=METER_STATS)


def read(floods, counters, now_s, answered=ANSWERED):
    at = {meter_id: place for place, meter_id in enumerate(counters["meter_id"].tolist())}
    place = [[at.get(meter_id, -1) for meter_id in kind] for kind in IDS.tolist()]
    floods.read(counters, np.array(place, dtype=np.int32), answered, CAPACITIES, now_s)


def read_twice(second, first=None):
    floods = FloodRates.initial(3)
    read(floods, stats(1.0, **(first or ZEROS)), 10.0)
    read(floods, second, 11.0)
    return floods


def test_rates_are_told_by_the_switchs_own_clock():
    floods = read_twice(
        stats(3.0, m21=(1000, 0, 0), m11=(500_000, 250_000, 200), m31=(0, 0, 9), m12=(0, 0, 0), m22=(0, 0, 0))
    )
    assert floods.passed_bps.tolist() == pytest.approx([(250_000 + 1000) * 8 / 2.0, np.nan, 0.0], nan_ok=True)
    assert floods.dropped_bps.tolist() == pytest.approx([1e6, np.nan, 0.0], nan_ok=True)
    assert floods.reports_dropped.tolist() == [9.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "second",
    [
        stats(3.0, m11=(10, 0, 0), m21=(5, 0, 0)),  # counted from zero again
        stats(3.0, m12=(1000, 0, 0)),  # not listed
        stats(3.0, m11=(COUNTER_UNAVAILABLE, 0, 0), m21=(2000, 0, 0)),
        stats(1.0, m11=(2000, 0, 0), m21=(2000, 0, 0)),  # no time has passed
        np.empty(0, dtype=METER_STATS),
    ],
)
def test_what_is_not_known_is_not_taken_for_nothing(second):
    floods = read_twice(second, first=dict.fromkeys(("m11", "m21", "m31", "m12", "m22"), (1000, 0, 0)))
    assert np.isnan(floods.passed_bps).all()


@pytest.mark.parametrize("jumped", [(2**50, 0, 0), (2**50, 2**50 - 500_000, 0)])
def test_a_counter_that_jumps_takes_nothing_from_the_other_receivers(jumped):
    floods = read_twice(stats(3.0, m11=(250_000, 0, 0), m21=(0, 0, 0)))
    read(floods, stats(5.0, m11=jumped, m21=(0, 0, 0)), 13.0)
    floods.update(VLANS, LIMITS, 13.0)
    assert floods.passed_bps[0] == 1e6
    assert floods.received_bps.tolist() == [0.0, 1e6, 1e6]
    assert not floods.dropping.any()
    read(floods, stats(7.0, m11=(jumped[0] + 500_000, jumped[1], 0), m21=(0, 0, 0)), 15.0)
    assert floods.passed_bps[0] == 2e6


def test_the_counters_of_a_late_switch_are_told_from_when_it_answered_last():
    floods, zeros = FloodRates.initial(3), {"m12": (0, 0, 0), "m22": (0, 0, 0)}
    nobody = np.zeros(3, dtype=np.bool_)
    read(floods, stats(1.0, **zeros), 10.0)
    read(floods, stats(2.0), 11.0, nobody)
    read(floods, stats(5.0, **zeros | {"m12": (2000, 0, 0)}), 14.0, nobody)  # not its answer
    assert np.isnan(floods.passed_bps).all()
    read(floods, stats(5.0, **zeros | {"m12": (1000, 0, 0)}), 14.0)
    assert floods.passed_bps[2] == 1000 * 8 / 4.0


def test_meters_that_were_modified_count_from_then():
    floods = FloodRates.initial(3)
    read(floods, stats(1.0, **ZEROS | {"m11": (20_000, 0, 0), "m12": (20_000, 0, 0)}), 10.0)
    floods.modified(np.array([0]), 10.5)
    floods.modified(np.array([0]), 10.8)
    read(floods, stats(2.0, **ZEROS | {"m11": (25_000, 0, 0), "m12": (25_000, 0, 0)}), 11.0)
    assert floods.passed_bps.tolist() == pytest.approx([1e6, np.nan, 40_000.0], nan_ok=True)
    read(floods, stats(3.0, **ZEROS | {"m11": (150_000, 0, 0), "m12": (150_000, 0, 0)}), 12.0)
    assert floods.passed_bps[[0, 2]].tolist() == [1e6, 1e6]
    floods.modified(np.array([0]), 12.999)
    read(floods, stats(4.0, **ZEROS | {"m11": (1500, 0, 0), "m12": (150_000, 0, 0)}), 13.0)
    assert floods.passed_bps[[0, 2]].tolist() == [1e6, 0.0], "one frame in a millisecond is no rate"


def test_counters_that_were_set_by_others_are_read_twice_again():
    floods = FloodRates.initial(3)
    read(floods, stats(1.0, **ZEROS), 10.0)
    floods.invalidated(np.array([0]))
    read(floods, stats(2.0, **ZEROS | {"m11": (125_000, 0, 0), "m12": (125_000, 0, 0)}), 11.0)
    assert floods.passed_bps.tolist() == pytest.approx([np.nan, np.nan, 1e6], nan_ok=True)
    read(floods, stats(3.0, **ZEROS | {"m11": (250_000, 0, 0), "m12": (250_000, 0, 0)}), 12.0)
    assert floods.passed_bps[[0, 2]].tolist() == [1e6, 1e6]


def test_a_receiver_gets_what_all_others_of_its_vlan_flood():
    floods = FloodRates.initial(3)
    floods.passed_bps = np.array([2e6, 3e6, np.nan])
    floods.update(VLANS, LIMITS, 0.0)
    assert floods.received_bps.tolist() == [3e6, 2e6, 5e6]
    floods.update(np.array([10, 10, 20]), LIMITS, 0.0)
    assert floods.received_bps.tolist() == [3e6, 2e6, 0.0]


def test_an_account_stands_still_while_floods_change_little():
    floods = FloodRates.initial(3)
    floods.passed_bps = np.array([2e6, 0.0, 0.0])
    floods.update(VLANS, LIMITS, 0.0)
    before = floods.received_bps
    floods.passed_bps = np.array([2e6 + 0.9 * STEP * LIMITS[0], 0.0, 0.0])
    floods.update(VLANS, LIMITS, 1.0)
    assert floods.received_bps is before
    floods.passed_bps = np.array([0.5 * STEP * LIMITS[0], 0.0, 0.0])  # what hosts say now and then
    floods.update(VLANS, LIMITS, 2.0)
    assert floods.received_bps.tolist() == [0.0, 0.0, 0.0]


def test_dropping_begins_at_once_and_ends_after_a_while():
    floods = read_twice(stats(3.0, m11=(500_000, 250_000, 200), m21=(0, 0, 0), m12=(5, 0, 0), m22=(5, 0, 0)))
    began, ended = floods.update(VLANS, LIMITS, 11.0)
    assert (began.tolist(), ended.tolist()) == ([0], [])
    assert floods.update(VLANS, LIMITS, 11.0 + FORGET_S - 0.1)[1].tolist() == []
    assert floods.update(VLANS, LIMITS, 11.0 + FORGET_S)[1].tolist() == [0]


def test_counters_are_read_now_and_then():
    floods = FloodRates.initial(3)
    assert floods.due(11.0)
    assert not floods.due(11.0 + READ_S / 2)
    assert floods.due(11.0 + READ_S)


def test_of_dropped_packets_only_the_low_bits_are_told():
    first = {"m31": (0, 100, 2**32 - 6), "m32": (0, 100, 50)}
    floods = read_twice(stats(3.0, m31=(0, 900, 4)), first)
    assert floods.reports_dropped.tolist() == [10.0, 0.0, 0.0]
    begun_again = read_twice(stats(3.0, m31=(0, 50, 4)), first)
    assert begun_again.reports_dropped.tolist() == [0.0, 0.0, 0.0]


def test_a_modified_meter_that_drops_larger_frames_than_before_has_not_wrapped_around():
    """1,000 frames of 64 bytes, and after the modify 900 of 1,500: more bytes and fewer frames."""
    floods = read_twice(stats(3.0, m31=(0, 64_000, 1000)), first={"m31": (0, 0, 0)})
    read(floods, stats(4.0, m31=(0, 1_350_000, 900)), 12.0)
    read(floods, stats(5.0, m31=(0, 1_500_000, 1000)), 13.0)
    assert floods.reports_dropped[0] == 1000 + 100
