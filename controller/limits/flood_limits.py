"""Flood limits: how much broadcast, multicast and unknown unicast a VN may send.

A flood arrives at all other VNs of its VLAN, so that each receiver gets the floods of all. Each of the n VNs of a VLAN
may therefore flood as much as its ``flood_limit``, or, without one, FLOOD_SHARE of the smallest receive limit of the
VLAN divided by n - 1. A ``flood_limit`` above that receive limit divided by n - 1 is rejected, and so is a receive
limit that is too low for it. A VN may have its own ``flood_limit`` instead of its VLAN's; then each receive limit must
fit the sum of the others' flood limits. So floods alone never exceed a receive limit. Received floods are subtracted
from the receive limit before the other traffic shares it, and floods pass the send limit first. Together this keeps all
ports and links within the hose model, since a flood crosses a link once, and only towards more VNs of its VLAN.

A part of the flood limit is reserved for ARP and Neighbor Solicitations.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from controller.columns import FloatArray, IntArray
from controller.fabric.config_model import Vlan
from controller.fabric.vn_table import VnTable
from controller.limits.hose_model import STEP_BPS
from controller.metering.enforcement import whole_rates
from controller.units import MIN_RATE_BPS

FLOOD_SHARE = 0.1
DISCOVERY_SHARE = 0.5
MAX_DISCOVERY_BPS = 1e6  # some 2,000 ARP requests per second
MIN_FLOOD_BPS = 2 * MIN_RATE_BPS  # a meter for each of the two parts


def flood_limits(vns: VnTable, vlans: Mapping[int, Vlan]) -> FloatArray:
    """Return the flood limit of each VN, ARP and Neighbor Solicitations included, shape (vns,), whole kb/s.

    The ``flood_limit_bps`` of ``vlans`` must fit. A default limit is at least MIN_FLOOD_BPS.
    """
    vids, vlan, counts = np.unique(vns.vlan_vid, return_inverse=True, return_counts=True)
    smallest_bps = np.full(len(vids), np.inf)
    np.minimum.at(smallest_bps, vlan, vns.receive_limit_bps)
    default_bps = np.maximum(FLOOD_SHARE * smallest_bps / np.maximum(counts - 1, 1), MIN_FLOOD_BPS)
    configured_bps = _configured_limits(vns, vlans, vids, vlan)
    return whole_rates(np.where(np.isnan(configured_bps), default_bps[vlan], configured_bps))


def _configured_limits(vns: VnTable, vlans: Mapping[int, Vlan], vids: IntArray, vlan: IntArray) -> FloatArray:
    """Return the configured flood limit of each VN, its own or its VLAN's, shape (vns,); NaN without one."""
    of_vlan_bps = np.array([vlans[vid].flood_limit_bps or np.nan for vid in vids.tolist()], dtype=np.float64)[vlan]
    vn_bps = vns.own_flood_limit_bps
    return of_vlan_bps if vn_bps is None else np.where(np.isnan(vn_bps), of_vlan_bps, vn_bps)


def largest_flood_limit(smallest_receive_bps: float, vns: int) -> int:
    """Return the largest flood limit, whole kb/s, that fits a VLAN with ``vns`` VNs; 0 if none does."""
    largest_bps = int(smallest_receive_bps) // max(vns - 1, 1) // STEP_BPS * STEP_BPS
    return largest_bps if largest_bps >= MIN_FLOOD_BPS else 0


def min_receive_limits(vns: VnTable, vlans: Mapping[int, Vlan]) -> FloatArray:
    """Return the receive limit that each VN needs for the flood limits of the others, shape (vns,); 0 without any.

    The VNs without a configured flood limit may together flood FLOOD_SHARE of a receive limit, so that the configured
    flood limits must fit the rest of it. The only VN of a VLAN needs a receive limit as high as its own flood limit.
    """
    vids, vlan = np.unique(vns.vlan_vid, return_inverse=True)
    configured_bps = _configured_limits(vns, vlans, vids, vlan)
    without = np.isnan(configured_bps)
    given_bps = np.where(without, 0.0, configured_bps)
    alone = np.bincount(vlan)[vlan] == 1
    other_vns_bps = np.bincount(vlan, given_bps)[vlan] - np.where(alone, 0.0, given_bps)
    some_without = np.bincount(vlan, without)[vlan] - without > 0
    needed_bps: FloatArray = np.where(some_without, np.ceil(other_vns_bps / (1.0 - FLOOD_SHARE)), other_vns_bps)
    return needed_bps


def discovery_limits(flood_limit_bps: FloatArray) -> FloatArray:
    """Return the part of flood limits that is reserved for ARP and Neighbor Solicitations, whole kb/s."""
    return whole_rates(np.minimum(DISCOVERY_SHARE * flood_limit_bps, MAX_DISCOVERY_BPS))
