"""Flow counters that stand in for meters that do not count."""

from __future__ import annotations

import numpy as np

from controller.capability.meter_monitor import NOT_KNOWN
from controller.forwarding import pipeline
from controller.openflow.flows import FlowStats, UnknownFlow
from controller.switch.flow_stats_meters import STALE_S, FlowStatsMeters


def stats(*rows):
    """Flow-stats of (meter id, bytes, age) or of a flow as it is."""
    flows = [
        pipeline.rate_control(1, 10, number, row[0], 300) if isinstance(row[0], int) else row[0]
        for number, row in enumerate(rows)
    ]
    octets = np.array([row[1] for row in rows], dtype=np.uint64)
    return FlowStats(flows, octets // 100, octets, np.array([float(row[2]) for row in rows]))


def counting_flows(rate_kbps=NOT_KNOWN, burst_kbits=NOT_KNOWN):
    """Return counting of meters that are all set to this, as ``set_to`` is later."""
    counting = FlowStatsMeters(
        lambda meter_id: tuple(np.full(len(meter_id), value, np.uint32) for value in counting.set_to)
    )
    counting.set_to = rate_kbps, burst_kbits
    return counting


def told(counting, rows, now_s):
    return {
        int(row["meter_id"]): (int(row["byte_in_count"]), float(row["duration_s"]))
        for row in counting.meter_stats(stats(*rows), now_s)
    }


def test_flows_of_one_meter_are_added_up_and_other_entries_do_not_count():
    others = [pipeline.limit_sender(1, 10, 5), pipeline.report(1, 10, 5), UnknownFlow(3, 1, 0, b"")]
    rows = [(5, 1000, 3), (5, 500, 7), (6, 10, 1), *[(flow, 9, 1) for flow in others]]
    assert told(counting_flows(), rows, 0.0) == {5: (1500, 7.0), 6: (10, 1.0)}


def dropped(counting, octets, now_s):
    return counting.meter_stats(stats((5, octets, now_s)), now_s)["band_byte_count"].tolist()


def test_nothing_is_known_to_be_dropped_by_a_meter_of_unknown_settings():
    counting = counting_flows()
    assert [dropped(counting, octets, now_s) for octets, now_s in ((1000, 3.0), (10**9, 3.5))] == [[0], [0]]


def test_what_a_meter_cannot_have_let_through_was_dropped():
    counting = counting_flows(8, 1)  # 1000 bytes a second, and a bucket of 125
    assert dropped(counting, 5000, 0.0) == [0]  # of before
    assert dropped(counting, 5500, 0.5) == [0]  # what the rate and some of the bucket let through
    assert dropped(counting, 6600, 1.0) == [475]  # 500 by its rate, 125 of the bucket
    assert dropped(counting, 7600, 1.5) == [975]
    assert dropped(counting, 7600, 9.0) == [975]
    assert dropped(counting, 8600, 9.5) == [1350]  # the bucket has filled up, and holds no more than it does
    counting.set_to = 16, 2
    counting.modified([5], 9.75)
    assert dropped(counting, 10000, 10.0) == [400]  # 250 and 500 by its rates, and a full bucket
    counting.modified([5], 10.0)
    assert dropped(counting, 10000, 10.5) == []
    assert dropped(counting, 30, 11.0) == [0]  # other flows


def test_what_was_dropped_of_flows_that_went_is_not_taken_off_others():
    counting = counting_flows(8, 1)
    assert dropped(counting, 5000, 0.0) == [0]
    assert dropped(counting, 9000, 1.0) == [2875]
    assert dropped(counting, 4000, 1.5) == [0]


def test_a_counter_that_stands_still_says_nothing_until_it_is_stale():
    counting = counting_flows()
    assert told(counting, [(5, 1000, 1.0)], 10.0) == {5: (1000, 1.0)}
    assert told(counting, [(5, 1000, 1.1)], 10.1) == {}
    assert told(counting, [(5, 1000, 1.5)], 10.0 + STALE_S - 0.01) == {}
    assert told(counting, [(5, 1000, 1.6)], 10.0 + STALE_S + 0.01) == {5: (1000, 1.6)}
    assert told(counting, [(5, 1000, 1.7)], 10.7) == {}
    assert told(counting, [(5, 1001, 1.8)], 10.8) == {5: (1001, 1.8)}


def test_a_meter_that_went_and_came_is_new():
    counting = counting_flows()
    told(counting, [(5, 1000, 1.0)], 10.0)
    assert told(counting, [], 10.1) == {}
    assert told(counting, [(5, 1000, 0.1)], 10.2) == {5: (1000, 0.1)}


def test_a_modified_meter_counts_from_zero_though_its_flows_do_not():
    counting = counting_flows()
    assert told(counting, [(5, 1000, 1.0), (6, 50, 1.0)], 10.0) == {5: (1000, 1.0), 6: (50, 1.0)}
    counting.modified([5, 7], 10.5)
    assert told(counting, [(5, 1400, 2.0), (6, 60, 2.0)], 11.0) == {5: (400, 2.0), 6: (60, 2.0)}
    assert told(counting, [(6, 70, 3.0)], 12.0) == {6: (70, 3.0)}
    assert told(counting, [(5, 30, 0.5)], 13.0) == {5: (30, 0.5)}  # it went, and came back with new flows
