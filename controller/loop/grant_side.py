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
    """The new effective limits ``limit_bps`` (pairs,), and the meters to modify so that the limits hold.

    ``changes`` are the meters of pairs that no agent shapes, ``backstops`` the meters of pairs that an agent shapes, to
    ``agent_bps`` (pairs,).
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
    """Apply the receivers' answers ``set_rate`` and ``keep_alive``: return the new limits, and the meters to modify.

    ``before`` are the meters' present settings, ``ceiling_bps`` (pairs,) what pairs may carry at most. ``shaped``
    (pairs,) is the mask of pairs that an agent shapes; None: none. ``remaining`` are the receive budgets; None: queues
    hold all receivers. ``bounds`` are the bounds of the VNs' switches, (vns,); None: no switch has any.
    """
    entries, seen = senders.entries, senders.seen
    machines, limit_bps = senders.machines.after_messages(set_rate, keep_alive, ceiling_bps)
    pair_bounds = None if bounds is None else bounds.select(entries.sender)
    min_burst_bits = None if pair_bounds is None else pair_bounds.min_burst_bits(MIN_BURST_BITS)
    enforcement, changes = enforce(
        before, limit_bps, seen.measured, seen.seen_s, now_s, seen.too_soon, remaining, entries.receiver, min_burst_bits
    )
    backstops, agent_bps = NO_CHANGES, limit_bps
    if shaped is not None or not entries.all_metered:
        enforcement, changes, backstops = with_backstops(
            before, enforcement, changes, shaped, entries.metered, limit_bps, now_s
        )
    if shaped is not None and remaining is not None:  # agents queue in their hosts, so they need no credit
        agent_bps, _ = remaining.share(entries.receiver, limit_bps, np.zeros(len(entries)), seen.measured)
    if pair_bounds is not None:
        enforcement, changes = within_bounds(before, enforcement, changes, seen.measured, pair_bounds, now_s)
        enforcement, backstops = within_bounds(before, enforcement, backstops, seen.measured, pair_bounds, now_s)
    # The rates of pairs with backstops come from agents, whose counts no modify restarts.
    counters = seen.counters.modified(changes.rows, now_s, in_place=True)
    return GrantSide(machines, counters, enforcement, limit_bps, changes, backstops, agent_bps)
