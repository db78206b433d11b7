"""Limits on new pairs: what a VN may send to receivers without a queue before it has flow entries to them.

Until the controller has seen a pair's first frame, the pair has no meter: all VNs of a VLAN together could send the sum
of their send limits to one receiver. So all new pairs of a VN pass one meter. Its rate is the VN's part of the smallest
receive limit's reserve, as if all other VNs began at once (``first_meter_setting``).
"""

from __future__ import annotations

import numpy as np

from controller.columns import BoolArray, FloatArray
from controller.fabric.config_model import Config
from controller.fabric.vn_table import VnTable
from controller.metering.enforcement import burst_for, least_burst, whole_rates
from controller.metering.receive_budgets import UNSEEN_S, first_meter_setting


def limited_receivers(vns: VnTable, config: Config) -> BoolArray:
    """Return the mask of the VNs to which new pairs are limited, shape (vns,): those without a queue.

    With ``newcomers: limit`` there are none: the send limit alone bounds new pairs.
    """
    return ~vns.has_queue & (config.newcomers == "share")


def limited_senders(vns: VnTable, config: Config) -> BoolArray:
    """Return the mask of the VNs with a meter for new pairs, shape (vns,): those of VLANs with limited receivers."""
    some: BoolArray = np.bincount(vns.vlan, limited_receivers(vns, config)) > 0
    return some[vns.vlan] if len(vns) else some[:0]


def new_pair_limits(vns: VnTable) -> tuple[FloatArray, FloatArray]:
    """Return the rates (bit/s) and bursts (bits) of the meters for new pairs, whole kb/s and kb, shape (vns,) each.

    Half of the burst is left for the pair's own meter, which is added soon after (``pair_changes.first_settings``). In
    a VLAN of two VNs no other VN can begin: each has what the receiver's only sender may have, the limit and a bucket
    for TCP, less what the pair's own meter begins with.
    """
    counts = np.bincount(vns.vlan)
    smallest_bps = np.full(len(counts), np.inf)
    np.minimum.at(smallest_bps, vns.vlan, vns.receive_limit_bps)
    rate_bps, burst_bits = first_meter_setting(smallest_bps, np.maximum(counts - 1.0, 1.0), UNSEEN_S)
    rate_bps, burst_bits = rate_bps[vns.vlan], burst_bits[vns.vlan] / 2
    two = (counts == 2)[vns.vlan]
    if two.any():
        other_bps = np.bincount(vns.vlan, weights=vns.receive_limit_bps)[vns.vlan] - vns.receive_limit_bps
        only_bps = np.minimum(other_bps, vns.send_max_bps)
        own_bits = first_meter_setting(other_bps, np.ones(len(vns)), UNSEEN_S)[1]
        rate_bps = np.where(two, only_bps, rate_bps)
        burst_bits = np.where(two, burst_for(only_bps, np.zeros(len(vns), dtype=np.bool_)) - own_bits, burst_bits)
    return whole_rates(np.minimum(rate_bps, vns.send_max_bps)), least_burst(burst_bits)
