"""Fair Level: every sender may send up to a common level, at which the demands of all senders fill the limit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from controller.allocation import native
from controller.allocation.interface import AllocationInput, FloatArray, State, fully_used_mask, remembered
from controller.allocation.parameters import parameter
from controller.allocation.segments import Segments, fill_level, safe_divide
from controller.policy.per_receiver import PerReceiverPolicy

BOOKED = "booked"
# How fast the factor follows the received rate: the gain k of RAA-FE's control function.
GAIN = 0.5


@dataclass(frozen=True)
class FairLevel(PerReceiverPolicy):
    """Fair Level, which is not one of the paper's.

    1. A sender that fully uses its rate demands its sending capacity; any other sender demands what it sends.
    2. The shared amount is the receive limit times a factor from 1 to ``booking``, controlled as RAA-FE controls its
       rate: it rises while less than the limit is received, and falls while more is.
    3. The level is the max-min fair rate, by weight, at which the demands fill that amount.
    4. Every active sender is granted the level, or its sending capacity if that is less, whatever it demands.
    5. If all demands fit, the level is the highest demand plus a fair part of the rest.

    With step 4 no sender needs to be probed: a sender that needs more has it in the same interval, up to its fair
    share. Idle rate goes to the other senders with the next measurement; RAA-FS never does that, RAA-SP and FP take
    several intervals. The grants of a receiver sum to more than its limit while some senders do not use theirs, as
    RAA-FE's do. If these begin to send at once, more than the limit arrives for an interval; where queues hold receive
    limits, other VLANs are not affected.
    """

    booking: float = parameter(
        0.05,
        "part by which the sum of grants may exceed the limit while less than the limit is received",
        minimum=0.0,
        maximum=1.0,
    )

    name: ClassVar[str] = "level"
    title: ClassVar[str] = "Fair Level"
    sums_within_limit: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    remembers: ClassVar[tuple[str, ...]] = (BOOKED,)

    @cached_property
    def _compiled(self) -> FloatArray:
        return native.column(self.booking)

    def allocate(self, requests: AllocationInput, state: State) -> tuple[FloatArray, State]:
        """Return grants (pairs,) in bits per second and the next state."""
        before = remembered(requests, state, BOOKED)
        compiled = native.fair_level(requests, before, self._compiled)
        if compiled is not None:
            return compiled[0], {BOOKED: compiled[1]}
        booked = _booked(requests, before, self.booking)
        shared_bps = requests.limit_bps * booked  # 2
        groups = Segments(requests.offsets)
        room_bps = np.where(requests.active, requests.available_bps, 0.0)
        requested_bps = np.where(fully_used_mask(requests), room_bps, np.minimum(requests.measured_bps, room_bps))  # 1
        level_bps = fill_level(groups, shared_bps, requests.weight, requested_bps)  # 3
        # 5: levels are rates per unit of weight
        active_weight = groups.sum(np.where(requests.active, requests.weight, 0.0))
        rest_bps = np.maximum(shared_bps - groups.sum(requested_bps), 0.0)
        highest_bps = np.zeros(len(groups))
        np.maximum.at(highest_bps, groups.index(), requested_bps / requests.weight)
        all_fit_bps = highest_bps + safe_divide(rest_bps, active_weight, 0.0)
        level_bps = np.where(np.isinf(level_bps), all_fit_bps, level_bps)
        grants_bps: FloatArray = np.minimum(groups.broadcast(level_bps) * requests.weight, room_bps)  # 4
        return grants_bps, {BOOKED: booked}


def _booked(requests: AllocationInput, before: FloatArray, maximum: float) -> FloatArray:
    """Return the factor of step 2, (receivers,), from 1 to 1 + ``maximum``; 1 where the last one is NaN."""
    excess_bps = requests.received_bps - requests.limit_bps
    change = np.maximum(1.0 - GAIN * excess_bps / requests.limit_bps, 0.5)
    stepped = np.clip(before * change, 1.0, 1.0 + maximum)
    return np.where(np.isnan(before), 1.0, stepped)
