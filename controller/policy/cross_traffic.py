"""Cross traffic: the use of links by VLANs under other policies.

A policy that shares out links subtracts the cross traffic from their capacities first. So several policies can share a
port.
"""

from __future__ import annotations

import numpy as np

from controller.columns import BoolArray, FloatArray
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable

# Choice: VLANs under other policies get this margin above what they send, so that they can show a higher demand.
CROSS_TRAFFIC_MARGIN = 0.10


def cross_traffic_load(
    in_group: BoolArray,
    entries: PairTable,
    vns: VnTable,
    links: LinkTable,
    used_bps: FloatArray,
    limit_bps: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the cross traffic on each link, and its guaranteed part, (links,) each, in bits per second.

    Cross traffic is the traffic to VNs that are not ``in_group`` (vns,). ``used_bps`` and ``limit_bps`` (pairs,) are
    the rates through the meters and the effective limits. Each rate counts with CROSS_TRAFFIC_MARGIN, up to its limit.
    All rates to one VN together count up to the VN's receive limit, or its ceiling if it uses one: its queue passes no
    more. The guaranteed part counts them up to the receive limit only; the rest is borrowed.
    """
    rows = np.flatnonzero(~in_group[entries.receiver])
    receiver = entries.receiver[rows]
    demand_bps = np.minimum(used_bps[rows] * (1.0 + CROSS_TRAFFIC_MARGIN), limit_bps[rows])
    sums_bps = np.bincount(receiver, weights=demand_bps, minlength=len(vns))
    offsets, link = links.pair_links(entries, rows)

    # Return the load on each link, (links,), if the rates to a VN are reduced to a sum of at most ``most_bps`` (vns,).
    def up_to(most_bps: FloatArray) -> FloatArray:
        part = np.minimum(most_bps / np.maximum(sums_bps, 1.0), 1.0)
        uses_bps = np.repeat(demand_bps * part[receiver], np.diff(offsets))
        return np.bincount(link, weights=uses_bps, minlength=len(links.capacity_bps)).astype(np.float64)

    within_bps = up_to(vns.receive_limit_bps)
    # If no other VLAN uses ceilings, all of its traffic is guaranteed.
    return up_to(vns.receive_max_bps) if (vns.uses_ceiling & ~in_group).any() else within_bps, within_bps
