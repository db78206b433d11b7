"""Sizes of VNs' frames, from the drops of meters: a burst below one frame never passes it.

Large frames are jumbo frames, and the frames of hosts that leave segmentation to their network card (TSO, GSO: up to 64
kB), if the switch sees them before that, as Open vSwitch's kernel datapath does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.forwarding.pipeline import VnMeters
from controller.metering.enforcement import MIN_BURST_BITS
from controller.openflow.meters import PACKETS_UNAVAILABLE
from controller.switch.meter_index import VN_METERS, MeterOwners
from controller.switch.switch_record import NO_ENTRY
from controller.units import BITS_PER_BYTE

# Meters that one check reads: a million take 7 ms. Of a million, each meter is read in every fifth check.
MAX_FRAME_METERS = 200_000
FRAMES = 2  # the number of such frames in a minimum burst
MAX_FRAME_BYTES = 65_535 + 18.0  # of an IP packet with Ethernet header and tag
LARGE_FRAME_BYTES = MIN_BURST_BITS / BITS_PER_BYTE / FRAMES  # smaller ones pass any burst
_OF_VNS = tuple(map(VnMeters._fields.index, ("send", "report", "newcomer")))  # flood meters always pass 9 kB
_MIN_GROWTH = 1.05  # means vary slightly all the time
_COUNTABLE_BYTES = 14 << 32  # above that the low 32 bits of the packet count may have wrapped


def dropped_frame_bytes(stats: NDArray[np.void], owners: MeterOwners, sender: IntArray, vns: int) -> FloatArray:
    """Return the largest mean size of frames dropped by a meter of each VN, shape (vns,).

    ``stats`` are METER_STATS, ``owners`` the owners of the meters, ``sender`` (pairs,) the sending VNs. 0 where no
    large frame was dropped. A meter drops the frames that are too large for it, so that the mean is near the largest.
    """
    largest_bytes = np.zeros(vns)
    # Few meters drop large frames: of all meters only this comparison is made.
    meters = np.flatnonzero(stats["band_byte_count"] > LARGE_FRAME_BYTES * stats["band_packet_count"])
    octets, packets = stats["band_byte_count"][meters], stats["band_packet_count"][meters]
    countable = (packets > 0) & (packets != PACKETS_UNAVAILABLE) & (octets < _COUNTABLE_BYTES)
    if countable.any():
        meters = meters[countable]
        mean_bytes = np.minimum(octets[countable] / packets[countable], MAX_FRAME_BYTES)
        pair, vn_meter = owners.entry[meters], owners.vn[meters]
        is_pair, is_vn = pair != NO_ENTRY, (vn_meter != NO_ENTRY) & np.isin(vn_meter % VN_METERS, _OF_VNS)
        np.maximum.at(largest_bytes, sender[pair[is_pair]], mean_bytes[is_pair])
        np.maximum.at(largest_bytes, vn_meter[is_vn] // VN_METERS, mean_bytes[is_vn])
    return largest_bytes


def grown(known_bytes: FloatArray, seen_bytes: FloatArray) -> IntArray:
    """Return the rows of the VNs with larger frames, ``seen_bytes`` (vns,), than the known ones, ``known_bytes``."""
    return np.flatnonzero(seen_bytes > _MIN_GROWTH * known_bytes)


def min_bursts(frame_bytes: FloatArray) -> FloatArray:
    """Return the minimum bursts in bits that pass frames of these sizes; 0 where any burst does."""
    return np.where(frame_bytes > LARGE_FRAME_BYTES, FRAMES * BITS_PER_BYTE * frame_bytes, 0.0)
