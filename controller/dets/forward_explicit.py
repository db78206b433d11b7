"""RAA-FE: one rate for all senders, controlled by the receiving rate alone, after FERA."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from controller.allocation import native
from controller.allocation.interface import AllocationInput, FloatArray, State, remembered
from controller.allocation.parameters import parameter
from controller.allocation.segments import Segments, safe_divide
from controller.policy.per_receiver import PerReceiverPolicy

RATE = "rate_bps"

# Choice: one interval cannot cut the rate by more than half, as f would at a receiving rate far above the target (below
# zero at three times the target, for k = 0.5). That happens before the first grants take effect, and takes seconds to
# recover.
MIN_FACTOR = 0.5


@dataclass(frozen=True)
class ForwardExplicit(PerReceiverPolicy):
    """The forward explicit algorithm, RAA-FE (section III.A).

    1. The fair rate of interval i + 1 is r[i + 1] = r[i] * f(r), with f(r) = 1 - k (r - Rt) / Rt, where r is the
       measured receiving rate and Rt the target rate.
    2. Every active sender is granted the fair rate.

    The paper gives no weighted form, and no use of the senders' rates. So a receiver's grants may sum to more than its
    limit while some senders do not use their grants; the algorithm relies on this.

    Choice: the target is the receive limit, and the first r is RAA-FS's: the limit over the number of active senders.
    Choice: the receiving rate is the sum of the Traffic Reports of the receiver's senders. Choice: r stays between
    ``floor`` of that fair share and the limit, and does not fall by more than half in one interval; it keeps its value
    while no sender is active. No sender is granted more than its sending capacity. Choice: k is 0.5; the paper gives no
    value.
    """

    k: float = parameter(
        0.5,
        "gain of the control function; stable below 2, 1 and 0.618 if grants take effect after 0, 1 and "
        "2 further intervals",
        above=0.0,
        maximum=2.0,
    )
    floor: float = parameter(
        0.01, "least rate of an active sender, as a part of its fair share", minimum=1e-6, maximum=1.0
    )

    name: ClassVar[str] = "fe"
    title: ClassVar[str] = "Forward Explicit (RAA-FE)"
    sums_within_limit: ClassVar[bool] = False
    remembers: ClassVar[tuple[str, ...]] = (RATE,)

    @cached_property
    def _compiled(self) -> FloatArray:
        return native.column(self.k, self.floor)

    def allocate(self, requests: AllocationInput, state: State) -> tuple[FloatArray, State]:
        """Return grants (pairs,) in bits per second and the next state."""
        limit_bps, rate_bps = requests.limit_bps, remembered(requests, state, RATE)
        compiled = native.forward_explicit(requests, rate_bps, self._compiled)
        if compiled is not None:
            return compiled[0], {RATE: compiled[1]}
        groups = Segments(requests.offsets)
        fair_bps = safe_divide(limit_bps, groups.sum(requests.active), np.nan)  # NaN: no sender is active
        factor = np.maximum(1.0 - self.k * (requests.received_bps - limit_bps) / limit_bps, MIN_FACTOR)
        stepped_bps = np.clip(rate_bps * factor, self.floor * fair_bps, limit_bps)  # 1
        next_bps = np.where(np.isnan(rate_bps), fair_bps, stepped_bps)  # NaN: the receiver is new
        next_bps = np.where(np.isnan(fair_bps), rate_bps, next_bps)
        room_bps = np.where(requests.active, requests.available_bps, 0.0)
        grants_bps = np.where(requests.active, np.minimum(groups.broadcast(next_bps), room_bps), 0.0)  # 2
        return grants_bps, {RATE: next_bps}
