"""Whose meters switches list is found again when they list others, and only then."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.configs import star
from support.native_comparison import numpy_alone

from controller.fabric.vn_table import VnTable
from controller.forwarding.pipeline import VnMeters
from controller.metering import measurement_native
from controller.openflow.meters import METER_STATS
from controller.switch.meter_index import NOT_LISTED, VN_METERS, MeterIndex, MeterPositions, MeterStatsBatch
from controller.switch.switch_record import NO_ENTRY, SwitchRecord


def meters(*meter_ids: int) -> np.ndarray:
    rows = np.zeros(len(meter_ids), METER_STATS)
    rows["meter_id"] = meter_ids
    return rows


def records(count: int) -> dict[int, SwitchRecord]:
    config = star(2, openflow={"first_meter_id": 10, "last_meter_id": 100})
    switch = next(iter(config.switches.values()))
    return {dpid: SwitchRecord.from_config(switch, VnTable.from_config(config), config) for dpid in range(1, count + 1)}


def test_reports_are_parts_of_one_array() -> None:
    reports = MeterStatsBatch.from_stats({3: meters(1, 2), 1: meters(), 2: meters(7)})
    assert (reports.dpids, reports.ends.tolist()) == ((3, 1, 2), [2, 2, 3])
    assert {dpid: some["meter_id"].tolist() for dpid, some in reports.items()} == {3: [1, 2], 1: [], 2: [7]}
    assert MeterStatsBatch.from_stats(reports) is reports
    assert reports.select_switches({1: 0, 2: 0, 3: 0}) is reports
    assert reports.select_switches({2: 0}).whole["meter_id"].tolist() == [7]
    assert 4 not in reports
    assert len(MeterStatsBatch.from_stats({}).whole) == 0


def test_rows_follow_the_maps_of_each_switch() -> None:
    switches, listing = records(2), MeterIndex()
    own = {dpid: one.vn_meter_columns()[1][0].tolist() for dpid, one in switches.items()}
    switches[1].map_meters(np.array([50, 52]), np.array([4, 5]))
    switches[2].map_meters(np.array([50]), np.array([6]))
    reports = MeterStatsBatch.from_stats({1: meters(own[1][1], 50, 51, 52), 2: meters(50, own[2][0])})
    found = listing.find(switches, reports)
    assert found.entry.tolist() == [NO_ENTRY, 4, NO_ENTRY, 5, 6, NO_ENTRY]
    rows = list(switches[1].vn_meters)
    assert found.vn.tolist() == [VN_METERS * rows[1], NO_ENTRY, NO_ENTRY, NO_ENTRY, NO_ENTRY, VN_METERS * rows[0]]
    assert listing.find(switches, MeterStatsBatch.from_stats(dict(reports))) is found
    # Another entry, one more meter, a switch that is late: found again.
    switches[2].map_meters(np.array([50]), np.array([7]))
    assert listing.find(switches, reports).entry.tolist() == [NO_ENTRY, 4, NO_ENTRY, 5, 7, NO_ENTRY]
    assert listing.find(switches, MeterStatsBatch.from_stats({1: meters(50), 2: meters(50)})).entry.tolist() == [4, 7]
    assert listing.find(switches, MeterStatsBatch.from_stats({2: meters(50, 50)})).entry.tolist() == [7, 7]
    assert len(listing.find(switches, MeterStatsBatch.from_stats({})).entry) == 0
    # Another meter of a VN.
    assert listing.find(switches, MeterStatsBatch.from_stats({1: meters(77)})).vn.tolist() == [NO_ENTRY]
    switches[1].set_vn_meters({rows[0]: VnMeters(send=own[1][0], discovery=77)})
    assert listing.find(switches, MeterStatsBatch.from_stats({1: meters(77)})).vn.tolist() == [VN_METERS * rows[0] + 2]
    # A switch without VNs.
    switches[1].vn_meters.clear()
    switches[1].set_vn_meters({})
    assert listing.find(switches, MeterStatsBatch.from_stats({1: meters(77)})).vn.tolist() == [NO_ENTRY]


def test_places_are_found_again_when_others_are_listed() -> None:
    switches, listing = records(2), MeterIndex()
    switches[1].map_meters(np.array([50, 52]), np.array([4, 0]))
    switches[2].map_meters(np.array([50]), np.array([2]))
    reports = MeterStatsBatch.from_stats({1: meters(50, 51, 52, 50), 2: meters(50)})
    listed = listing.find(switches, reports)
    places = listing.places_of_entries(listed, reports.ends, 5)
    assert places.meter.tolist() == [2, NOT_LISTED, 4, NOT_LISTED, 3]
    assert places.switch[[0, 2, 4]].tolist() == [0, 1, 0]
    assert listing.places_of_entries(listed, reports.ends, 5) is places
    assert len(listing.places_of_entries(listed, reports.ends, 6).meter) == 6
    reports = MeterStatsBatch.from_stats({2: meters(50)})
    places = listing.places_of_entries(listing.find(switches, reports), reports.ends, 5)
    assert places.meter.tolist() == [NOT_LISTED, NOT_LISTED, 0, NOT_LISTED, NOT_LISTED]


def test_what_most_switches_list_is_known_when_a_late_one_answers_again() -> None:
    switches, listing = records(3), MeterIndex()
    for dpid, switch in switches.items():
        switch.map_meters(np.array([50]), np.array([dpid]))
    every = MeterStatsBatch.from_stats(dict.fromkeys((1, 2, 3), meters(50)))
    listed = listing.find(switches, every)
    places = listing.places_of_entries(listed, every.ends, 4)
    for late in (1, 2, 3):
        rest = MeterStatsBatch.from_stats({dpid: meters(50) for dpid in switches if dpid != late})
        found = listing.find(switches, rest)
        assert listing.places_of_entries(found, rest.ends, 4).meter[late] == NOT_LISTED
        assert listing.find(switches, every) is listed
        assert listing.places_of_entries(listed, every.ends, 4) is places


@pytest.mark.skipif(measurement_native.library is None, reason="no C compiler was there when it was installed")
@given(seed=st.integers(0, 2**32 - 1), meters=st.integers(0, 40), switches=st.integers(1, 4))
def test_places_are_the_same_compiled(seed: int, meters: int, switches: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(NO_ENTRY, 20, meters).astype(np.int32)  # some are listed twice
    ends = np.append(np.sort(rng.integers(0, meters + 1, switches - 1)), meters)
    found = MeterPositions.build(row, ends, 20)
    with numpy_alone():
        plain = MeterPositions.build(row, ends, 20)
        with pytest.raises(IndexError):
            MeterPositions.build(np.array([20], np.int32), np.array([1]), 20)
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(IndexError):
        MeterPositions.build(np.array([20], np.int32), np.array([1]), 20)
