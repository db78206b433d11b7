"""The receivers' side of an interval: congestion, receive budgets and grants (DETS, sections II and III).

This side has receiving VNs and their senders, but no meters. It receives ``ReceiverLoads`` and ``TrafficReport``, and
sends the other four messages. Where no queue holds a receiver, it also sends what the senders' meters may pass
(``remaining``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray
from controller.dets.messages import (
    DeactivateTrafficControl,
    InitializeTrafficControl,
    KeepAlive,
    ReceiverLoads,
    SetRate,
    TrafficReport,
)
from controller.dets.rate_allocator import IntervalContext, RateAllocators, answer_reports, initialize, watch_congestion
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.receive_budgets import ReceiveBudgets, RemainingBudget
from controller.policy.policy_groups import PolicyGroup

NO_LIMIT_BPS = 1e15  # the budget's limit of a VN that a queue holds


class ReceiverSide(NamedTuple):
    """The state of receiving VNs in one interval. ``remaining`` is None where queues hold all of them."""

    allocators: RateAllocators
    accounts: ReceiveBudgets
    remaining: RemainingBudget | None

    def first_messages(
        self, entries: PairTable, controlled: BoolArray, vns: VnTable
    ) -> tuple[InitializeTrafficControl, DeactivateTrafficControl]:
        """Return Initialize and Deactivate messages; ``controlled`` (pairs,) is the mask of pairs under control."""
        return initialize(self.allocators, entries, controlled, vns.always_controlled)

    def answer(
        self,
        groups: tuple[PolicyGroup, ...],
        entries: PairTable,
        vns: VnTable,
        reports: TrafficReport,
        seen: IntervalContext,
    ) -> tuple[ReceiverSide, SetRate, KeepAlive]:
        """Let the policies decide: return the receivers' side after it, and the answers to the reports."""
        allocators, set_rate, keep_alive = answer_reports(self.allocators, groups, entries, vns, reports, seen)
        return ReceiverSide(allocators, self.accounts, self.remaining), set_rate, keep_alive


def watch_receivers(
    allocators: RateAllocators, accounts: ReceiveBudgets, loads: ReceiverLoads, vns: VnTable, now_s: float
) -> ReceiverSide:
    """Return the receivers' side with new congestion and receive budgets, from the loads on VNs and their limits."""
    allocators = watch_congestion(allocators, loads, vns)
    if vns.all_shaped:
        return ReceiverSide(allocators, accounts, None)
    received_bits = loads.taken_bits
    counted_bps = limit_bps = vns.receive_max_bps
    if vns.some_shaped:  # a VN with a queue counts nothing, and has no limit
        received_bits = np.where(vns.has_queue, 0.0, received_bits)
        counted_bps = np.where(vns.has_queue, 0.0, counted_bps)
        limit_bps = np.where(vns.has_queue, NO_LIMIT_BPS, limit_bps)
    accounts, remaining = accounts.received(received_bits, loads.dropped_bps, counted_bps, limit_bps, now_s)
    return ReceiverSide(allocators, accounts, remaining)
