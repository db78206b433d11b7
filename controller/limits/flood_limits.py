"""How much of what everybody gets a VN may send: broadcast, multicast, and frames to addresses that nobody has.

What one VN floods arrives at all others of its VLAN, so that a receiver gets what all of them flood. Each of the n VNs
of a VLAN may therefore flood as much as its ``flood_limit``, or, without one, FLOOD_SHARE of the smallest receive limit
of the VLAN divided by n - 1. A ``flood_limit`` above that receive limit divided by n - 1 does not fit, and neither does
a receive limit under which it would not: both are refused. So floods alone never exceed anybody's receive limit. What
they take is taken off the receive limit before it is shared out among the other traffic, and they pass the send limit
first: with both, no port and no link gets more than the hose model allows, since a flood crosses a link once, and only
towards more VNs of its VLAN.

ARP and Neighbor Solicitations have a part of it to themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from controller.columns import FloatArray
from controller.fabric.config_model import Vlan
from controller.fabric.vn_table import VnTable
from controller.limits.hose_model import STEP_BPS
from controller.metering.enforcement import whole_rates
from controller.units import MIN_RATE_BPS

FLOOD_SHARE = 0.1
DISCOVERY_SHARE = 0.5
MAX_DISCOVERY_BPS = 1e6  # some 2,000 ARP requests per second
LEAST_FLOOD_BPS = 2 * MIN_RATE_BPS  # a meter for each of both parts


def flood_limits(vns: VnTable, vlans: Mapping[int, Vlan]) -> FloatArray:
    """Return what each VN may flood, ARP and Neighbor Solicitations included, shape (vns,), whole kb/s.

    The ``flood_limit_bps`` of ``vlans`` must fit. Without one it is LEAST_FLOOD_BPS at least.
    """
    vids, vlan, counts = np.unique(vns.vlan_vid, return_inverse=True, return_counts=True)
    smallest_bps = np.full(len(vids), np.inf)
    np.minimum.at(smallest_bps, vlan, vns.receive_limit_bps)
    default_bps = np.maximum(FLOOD_SHARE * smallest_bps / np.maximum(counts - 1, 1), LEAST_FLOOD_BPS)
    configured_bps = np.array([vlans[vid].flood_limit_bps or np.nan for vid in vids.tolist()], dtype=np.float64)
    return whole_rates(np.where(np.isnan(configured_bps), default_bps, configured_bps))[vlan]


def largest_flood_limit(smallest_receive_bps: float, vns: int) -> int:
    """Return the largest flood limit, whole kb/s, that fits a VLAN of so many VNs; 0 if none does."""
    largest_bps = int(smallest_receive_bps) // max(vns - 1, 1) // STEP_BPS * STEP_BPS
    return largest_bps if largest_bps >= LEAST_FLOOD_BPS else 0


def min_receive_limits(vns: VnTable, vlans: Mapping[int, Vlan]) -> FloatArray:
    """Return the receive limit that each VN's VLAN needs for its ``flood_limit``, shape (vns,); 0 without one."""
    vids, vlan, counts = np.unique(vns.vlan_vid, return_inverse=True, return_counts=True)
    configured_bps = np.array([vlans[vid].flood_limit_bps or 0 for vid in vids.tolist()], dtype=np.float64)
    needed_bps: FloatArray = (configured_bps * np.maximum(counts - 1, 1))[vlan]
    return needed_bps


def discovery_limits(flood_limit_bps: FloatArray) -> FloatArray:
    """Return the part of flood limits that ARP and Neighbor Solicitations have to themselves, whole kb/s."""
    return whole_rates(np.minimum(DISCOVERY_SHARE * flood_limit_bps, MAX_DISCOVERY_BPS))
