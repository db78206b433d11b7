"""The largest frames that VNs send, from what their meters have dropped."""

from __future__ import annotations

import numpy as np
import pytest

from controller.metering.enforcement import MIN_BURST_BITS
from controller.openflow.meters import METER_STATS, PACKETS_UNAVAILABLE
from controller.switch.frame_sizes import MAX_FRAME_BYTES, dropped_frame_bytes, grown, min_bursts
from controller.switch.meter_index import VN_METERS, MeterOwners
from controller.switch.switch_record import NO_ENTRY

SENDER = np.array([2, 0])  # of two entries, among three VNs


def seen(band_bytes: int, packets: int, entry: int = NO_ENTRY, vn: int = NO_ENTRY) -> list[float]:
    stats = np.zeros(1, METER_STATS)
    stats["band_byte_count"], stats["band_packet_count"] = band_bytes, packets
    owners = MeterOwners(np.array([entry], np.int32), np.array([vn], np.int32))
    return dropped_frame_bytes(stats, owners, SENDER, 3).tolist()


@pytest.mark.parametrize(
    ("band_bytes", "packets", "bytes_seen"),
    [
        (0, 0, 0),
        (90_180, 10, 9_018),
        (10 * 1_522, 10, 0),  # which any burst passes
        (5_000, 0, 0),  # flow counters, which stand in, say no packets
        (90_180, PACKETS_UNAVAILABLE, 0),
        (10**12, 10, 0),  # so many bytes that the packets may have begun again at zero
        (10**9, 1, MAX_FRAME_BYTES),  # there is no such frame
    ],
)
def test_frames_are_as_large_as_the_mean_of_those_dropped(band_bytes: int, packets: int, bytes_seen: float) -> None:
    assert seen(band_bytes, packets, entry=0) == [0, 0, bytes_seen]


def test_frames_are_those_of_the_vn_that_sends() -> None:
    assert seen(90_180, 10, entry=1) == [9_018, 0, 0]
    assert seen(90_180, 10, vn=VN_METERS) == [0, 9_018, 0]  # the send limit's meter
    assert seen(90_180, 10, vn=VN_METERS + 1) == [0, 0, 0]  # that of floods
    assert seen(90_180, 10) == [0, 0, 0]


def test_the_largest_of_a_vns_meters_counts() -> None:
    stats = np.zeros(3, METER_STATS)
    stats["band_byte_count"], stats["band_packet_count"] = [9_018, 60_000, 30_000], 1
    owners = MeterOwners(np.array([0, 0, NO_ENTRY], np.int32), np.array([NO_ENTRY, NO_ENTRY, 2 * VN_METERS], np.int32))
    assert dropped_frame_bytes(stats, owners, SENDER, 3).tolist() == [0, 0, 60_000]


def test_what_differs_a_little_is_not_followed() -> None:
    """So a tenant can make its meters change a few times only: sizes grow, by a part each time."""
    sizes, changes = np.zeros(1), 0
    for size in np.arange(2_300.0, MAX_FRAME_BYTES):
        if len(grown(sizes, np.array([size]))):
            sizes, changes = np.array([size]), changes + 1
    assert changes < 70
    assert min_bursts(np.array([0.0, 9_018.0])).tolist() == [0, 2 * 8 * 9_018]
    assert (min_bursts(sizes) > MIN_BURST_BITS).all()
