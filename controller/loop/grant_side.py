"""The grants' side of an interval: the senders' meters enforce what receivers have granted.

It runs with the senders' side: it has the same pairs, and their meters' settings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, FloatArray
from controller.dets.messages import KeepAlive, SetRate
from controller.dets.send_rate_controller import SendRateControllers
from controller.fabric.meter_bounds import MeterBounds
from controller.loop.bounded_meters import within_bounds
from controller.loop.sender_side import SenderSide
from controller.metering.backstop import NO_CHANGES, with_backstops
from controller.metering.counters import MeterCounters
from controller.metering.enforcement import MIN_BURST_BITS, Enforcement, MeterChanges, enforce
from controller.metering.receive_budgets import RemainingBudget


class GrantSide(NamedTuple):
    """The new effective limits, and the meters to modify for them: ``backstops`` are meters of agents' pairs.

    ``agent_bps`` (pairs,) are the rates at which agents shape.
    """

    machines: SendRateControllers
    counters: MeterCounters
    enforcement: Enforcement
    limit_bps: FloatArray
    changes: MeterChanges
    backstops: MeterChanges
    agent_bps: FloatArray


def apply_grants(
    senders: SenderSide,
    before: Enforcement,
    set_rate: SetRate,
    keep_alive: KeepAlive,
    ceiling_bps: FloatArray,
    shaped: BoolArray | None,
    remaining: RemainingBudget | None,
    now_s: float,
    bounds: MeterBounds | None = None,
) -> GrantSide:
    """Apply the receivers' answers. ``bounds`` are the bounds of the VNs' switches, (vns,); None: there are none."""
    entries, seen = senders.entries, senders.seen
    machines, limit_bps = senders.machines.after_messages(set_rate, keep_alive, ceiling_bps)
    of_entries = None if bounds is None else bounds.select(entries.sender)
    min_burst_bits = None if of_entries is None else of_entries.min_burst_bits(MIN_BURST_BITS)
    enforcement, changes = enforce(
        before, limit_bps, seen.measured, seen.seen_s, now_s, seen.too_soon, remaining, entries.receiver, min_burst_bits
    )
    backstops, agent_bps = NO_CHANGES, limit_bps
    if shaped is not None or not entries.all_metered:
        enforcement, changes, backstops = with_backstops(
            before, enforcement, changes, shaped, entries.metered, limit_bps, now_s
        )
    if shaped is not None and remaining is not None:  # what agents save is in their hosts, not in a bucket
        agent_bps, _ = remaining.share(entries.receiver, limit_bps, np.zeros(len(entries)), seen.measured)
    if of_entries is not None:
        enforcement, changes = within_bounds(before, enforcement, changes, seen.measured, of_entries, now_s)
        enforcement, backstops = within_bounds(before, enforcement, backstops, seen.measured, of_entries, now_s)
    counters = seen.counters.modified(changes.rows, now_s, in_place=True)
    return GrantSide(machines, counters, enforcement, limit_bps, changes, backstops, agent_bps)
