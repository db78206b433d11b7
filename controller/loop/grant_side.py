"""The grants' side of an interval: what receivers have granted is put in force, at the meters of the senders.

It is where the senders' side is: it knows the same entries, and how their meters stand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray, FloatArray
from controller.dets.messages import KeepAlive, SetRate
from controller.dets.send_rate_controller import SendRateControllers
from controller.loop.sender_side import SenderSide
from controller.metering.backstop import with_backstops
from controller.metering.counters import MeterCounters
from controller.metering.enforcement import Enforcement, MeterChanges, enforce
from controller.metering.receiver_accounts import Rooms


@dataclass(frozen=True)
class GrantSide:
    """What is in force from now on, and the meters to modify for that: ``backstops`` are those of agents' entries."""

    machines: SendRateControllers
    counters: MeterCounters
    enforcement: Enforcement
    limit_bps: FloatArray
    changes: MeterChanges
    backstops: MeterChanges


def put_in_force(
    senders: SenderSide,
    before: Enforcement,
    set_rate: SetRate,
    keep_alive: KeepAlive,
    ceiling_bps: FloatArray,
    present: BoolArray,
    shaped: BoolArray | None,
    rooms: Rooms | None,
    now_s: float,
) -> GrantSide:
    """Obey the receivers' answers. ``present`` (entries,) says of which meters there was a reading."""
    entries, rates = senders.entries, senders.rates
    machines = senders.machines.on_set_rate(set_rate).on_keep_alive(keep_alive)
    limit_bps = np.minimum(machines.limit_bps, ceiling_bps)
    too_soon = present & np.isnan(rates.seen_s) & ~rates.implausible
    enforcement, changes = enforce(
        before, limit_bps, senders.measured, rates.seen_s, now_s, too_soon, rooms, entries.receiver
    )
    enforcement, changes, backstops = with_backstops(
        before, enforcement, changes, shaped, entries.meter_id > 0, limit_bps, now_s
    )
    counters = senders.counters.modified(changes.rows, now_s)
    return GrantSide(machines, counters, enforcement, limit_bps, changes, backstops)
