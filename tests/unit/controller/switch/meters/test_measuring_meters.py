"""Counting meters: rates of marks by pair, each on its meter's own clock; what is not known is said to be unknown."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configs import fabric

from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.counters import ListedReadings
from controller.openflow.meters import METER_STATS
from controller.switch.meter_index import MeterIndex, MeterStatsBatch
from controller.switch.meters.counting import UNLIMITED, CountingMeters

VNS = VnTable.from_config(fabric({1: {1: [10], 2: [10]}, 2: {1: [10], 2: [10]}}))
HERE, THERE = VNS.row_of(10, 1, 1), VNS.row_of(10, 2, 1)
PAIRS = ((HERE, THERE), (THERE, HERE), (HERE, VNS.row_of(10, 1, 2)))
RATE_BPS = 8e6


def column(*values):
    return np.array(values, dtype=np.int64)


def entries(*pairs):
    ordered = sorted(pairs, key=lambda pair: (pair[1], pair[0]))
    senders, receivers = zip(*ordered, strict=True)
    return PairTable(column(*senders), column(*receivers), np.arange(1, len(ordered) + 1))


def stats(meter_id, octets, duration_s):
    return np.array([(meter_id, 0, int(octets), duration_s, 0)], dtype=METER_STATS)


def read(meters, table, duration_s, octets, dpid=2, meter_id=7):
    return meters.read(VNS, table, readings(meters, {dpid: stats(meter_id, octets, duration_s)}, duration_s))


def readings(meters, replies, came_s=0.0):
    reports = MeterStatsBatch.from_stats(replies)
    places = MeterIndex().places_of_meters(meters.dpid(VNS), meters.meter_id, reports)
    times_s = np.full(len(replies), came_s), np.full(len(replies), np.nan)
    return ListedReadings(*places, reports.whole, *times_s, None).columns


@given(st.lists(st.floats(min_value=0.056, max_value=0.115), min_size=3, max_size=12))
def test_replies_that_are_late_by_up_to_an_interval_change_no_rate(gaps_s):
    """1 to 60 ms of skew: a count is divided by the time that its own meter says has passed."""
    meters, table = CountingMeters.empty().added(column(HERE), column(THERE), column(7)), entries(*PAIRS)
    row = table.receiver.tolist().index(THERE)
    found = []
    for duration_s in np.cumsum(gaps_s):
        meters, marked_bps = read(meters, table, duration_s, RATE_BPS * duration_s / 8)
        found.append(marked_bps[row])
        assert np.isnan(np.delete(marked_bps, row)).all()
    assert np.isnan(found[0])
    assert found[1:] == pytest.approx([RATE_BPS] * (len(gaps_s) - 1), rel=1e-4)


def test_a_switch_that_says_nothing_or_counts_backwards_is_unknown():
    meters, table = CountingMeters.empty().added(column(HERE), column(THERE), column(7)), entries(PAIRS[0])
    meters, _ = read(meters, table, 1.0, 1e6)
    assert np.isnan(meters.read(VNS, table, readings(meters, {}))[1]).all()
    assert np.isnan(read(meters, table, 2.0, 1e5)[1]).all()
    assert np.isnan(read(meters, table, 2.0, 2e6, meter_id=8)[1]).all()
    assert np.isnan(read(meters, table, 2.0, 2e6, dpid=1)[1]).all()
    assert read(meters, table, 2.0, 2e6)[1].tolist() == [8e6]


def test_meters_keep_their_counters_while_others_come_and_go():
    meters, table = CountingMeters.empty().added(column(HERE), column(THERE), column(7)), entries(*PAIRS)
    meters, _ = read(meters, table, 1.0, 0)
    more = meters.added(column(THERE), column(HERE), column(9))
    at, there = more.rows_in(table)
    assert there.all()
    assert [(int(table.sender[row]), int(table.receiver[row])) for row in at] == [PAIRS[1], PAIRS[0]]
    assert more.ids_of(2, VNS) == [7]
    assert more.ids_of(1, VNS) == [9]
    assert dict(more.settings(2, VNS)) == {7: UNLIMITED}
    assert np.nanmax(read(more.subset(np.array([False, True])), table, 2.0, 1e6)[1]) == RATE_BPS
    assert np.isnan(read(more.invalidated(2, VNS, column(7)), table, 2.0, 1e6)[1]).all()
    assert np.nanmax(read(more.invalidated(2, VNS, column(8)), table, 2.0, 1e6)[1]) == RATE_BPS
    assert np.isnan(read(more, entries(PAIRS[2]), 2.0, 1e6)[1]).all()  # the pair is gone, its meter not yet


def test_a_meter_is_found_again_where_a_switch_lists_others_or_other_switches_answer():
    listing, dpid, meter_id = MeterIndex(), np.array([2, 1, 2], np.uint64), np.array([7, 7, 9])

    def places(**listed):
        reports = MeterStatsBatch.from_stats(
            {int(name[1:]): np.concatenate([stats(one, 0, 1.0) for one in ids]) for name, ids in listed.items()}
        )
        found = listing.places_of_meters(dpid, meter_id, reports)
        return [
            (int(reports.meter_id[at]), reports.dpids[of]) if at >= 0 else None for at, of in zip(*found, strict=True)
        ]

    for _ in range(2):
        assert places(s1=[7, 8], s2=[7, 9]) == [(7, 2), (7, 1), (9, 2)]
    assert places(s1=[8, 7], s2=[9, 7]) == [(7, 2), (7, 1), (9, 2)]
    assert places(s2=[9, 5], s1=[7]) == [None, (7, 1), (9, 2)]
    assert places(s2=[7]) == [(7, 2), None, None]
    assert places(s1=[7]) == [None, (7, 1), None]
    meter_id = np.array([7, 7, 8])
    assert places(s1=[7]) == [None, (7, 1), None]
    assert places(s2=[7, 8]) == [(7, 2), None, (8, 2)]
    meter_id = np.array([8, 7, 7])
    assert places(s2=[7, 8]) == [(8, 2), None, (7, 2)]
