"""RAA-FS: every active sender gets an equal share, whether it needs it or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from controller.allocation import native
from controller.allocation.interface import AllocationInput, FloatArray, State
from controller.allocation.segments import Segments, fill
from controller.policy.per_receiver import PerReceiverPolicy


@dataclass(frozen=True)
class FairShare(PerReceiverPolicy):
    """The fair share algorithm, RAA-FS (section III.A).

    1. Divide the receiving rate limit by the number of sending nodes that have traffic to send.
    2. Grant that fair share to each of them, but not more than its sending capacity.
    3. Distribute the rest fairly among the senders with sending capacity left.

    Measured rates are ignored. Weighted: a share is in proportion to the sender's weight.
    """

    name: ClassVar[str] = "fs"
    title: ClassVar[str] = "Fair Share (RAA-FS)"
    weighted: ClassVar[bool] = True

    def allocate(self, requests: AllocationInput, state: State) -> tuple[FloatArray, State]:
        """Return grants (pairs,) in bits per second and the next state."""
        compiled = native.fair_share(requests)
        if compiled is not None:
            return compiled, state
        groups = Segments(requests.offsets)
        room_bps = np.where(requests.active, requests.available_bps, 0.0)
        return fill(groups, requests.limit_bps, requests.weight, room_bps), state  # 1, 2, 3
