"""How much of what everybody gets a VN may send: broadcast, multicast, and frames to addresses that nobody has.

What one VN floods arrives at all others of its VLAN, so that a receiver gets what all of them flood. Each of the n VNs
of a VLAN may therefore flood as much as its ``flood_limit``, or, without one, FLOOD_SHARE of the smallest receive limit
of the VLAN divided by n - 1; and never more than that receive limit divided by n - 1. So floods alone never exceed
anybody's receive limit. What they take is taken off the receive limit before it is shared out among the other traffic,
and they pass the send limit first: with both, no port and no link gets more than the hose model allows, since a flood
crosses a link once, and only towards more VNs of its VLAN.

ARP and Neighbor Solicitations have a part of it to themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from controller.columns import FloatArray
from controller.fabric.vns import VnTable
from controller.metering.enforcement import whole_rates
from controller.units import MIN_RATE_BPS

FLOOD_SHARE = 0.1
DISCOVERY_SHARE = 0.5
MOST_DISCOVERY_BPS = 1e6  # some 2,000 ARP requests per second


def flood_limits(vns: VnTable, configured_bps: Mapping[int, int | None]) -> FloatArray:
    """Return what each VN may flood, ARP and Neighbor Solicitations included, shape (vns,), whole kb/s.

    ``configured_bps`` gives the ``flood_limit`` of each VLAN that has one. It is 2 kb/s at least: a meter for each of
    both parts.
    """
    vids, vlan, counts = np.unique(vns.vlan_vid, return_inverse=True, return_counts=True)
    smallest_bps = np.full(len(vids), np.inf)
    np.minimum.at(smallest_bps, vlan, vns.receive_limit_bps)
    most_bps = smallest_bps / np.maximum(counts - 1, 1)
    asked_bps = np.array([configured_bps.get(vid) or np.nan for vid in vids.tolist()], dtype=np.float64)
    each_bps = np.where(np.isnan(asked_bps), FLOOD_SHARE * most_bps, np.minimum(asked_bps, most_bps))
    return whole_rates(np.maximum(each_bps, 2 * MIN_RATE_BPS))[vlan]


def discovery_limits(flood_limit_bps: FloatArray) -> FloatArray:
    """Return the part of flood limits that ARP and Neighbor Solicitations have to themselves, whole kb/s."""
    return whole_rates(np.minimum(DISCOVERY_SHARE * flood_limit_bps, MOST_DISCOVERY_BPS))
