"""RAA-SP: grants in proportion to requests; a sender that fully uses its rate requests a little more."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from controller.allocation import native
from controller.allocation.interface import AllocationInput, BoolArray, FloatArray, State, fully_used_mask
from controller.allocation.parameters import parameter
from controller.allocation.segments import Segments, fill_level, safe_divide
from controller.policy.per_receiver import PerReceiverPolicy

# Differences from the effective limits below this are rounding, not a decision. A meter is set in steps of 1 kb/s, at
# most 2^-32 of its largest rate.
SETTLED = 1e-9


@dataclass(frozen=True)
class SlowProbe(PerReceiverPolicy):
    """The slow probe algorithm, RAA-SP (section III.A, Algorithm 1).

    1. Inflate the requested rate of the nodes that fully use their allocated rate by 10 %.
    2. Calculate the total requested rate.
    3. Calculate the ratio of increase or decrease of the requested rates.
    4. While there is unallocated rate and a node with sending capacity: grant each node its requested rate times the
       ratio, but not more than its sending capacity, and distribute the extra rate fairly among the other nodes.

    Deviation: step 3 reads ``ratio <- totalReqRate / totalAvailableRate`` and step 4 multiplies by it, which grants
    more when more is requested. The text ("allocates a portion of the available bandwidth to each node") needs the
    inverse. Choice: a node requests its measured rate; a node that fully uses its rate requests its effective limit
    instead, which its measured rate only copies with noise. So noise does not reach the grants of backlogged senders.
    Choice: "fairly" in step 4 means by weight, as in RAA-FS, on top of what step 4 granted already. Choice: an active
    node requests at least ``floor`` of its fair share. A grant of zero is fully used, and inflating zero gives zero. If
    no node sends yet, this makes the shares equal. Deviation, with ``headroom`` above 0 only: the ratio also lowers the
    rates of nodes that need no more than they send; they then fully use their rate, are raised, do not use it, and so
    on, and every change modifies every meter. With headroom h, a node that does not fully use its rate keeps its limit
    while it sends between 1 / (1 + 2 h) and 95 % of it; otherwise it gets (1 + h) times what it sends, if that is
    within its fair share. The other nodes share the rest by the ratio. Choice: results that differ from the effective
    limits by rounding only are replaced by these limits, because each new limit costs a meter-mod, which refills the
    meter's bucket.
    """

    inflation: float = parameter(
        0.10, "part by which a sender that fully uses its rate requests more than this rate", minimum=0.0, maximum=10.0
    )
    floor: float = parameter(
        0.01,
        "least request of an active sender, as a part of its fair share, so that probing can start from it",
        minimum=1e-6,
        maximum=1.0,
    )
    headroom: float = parameter(
        0.0,
        "a sender with a demand below its fair share is granted this part more than its rate; 0 is the "
        "paper; above 0.053 its grant is not cut and probed in turns",
        minimum=0.0,
        maximum=10.0,
    )

    name: ClassVar[str] = "sp"
    title: ClassVar[str] = "Slow Probe (RAA-SP)"
    weighted: ClassVar[bool] = True

    @cached_property
    def _compiled(self) -> FloatArray:
        return native.column(self.inflation, self.floor, self.headroom, 0.0)

    def allocate(self, requests: AllocationInput, state: State) -> tuple[FloatArray, State]:
        """Return grants (pairs,) in bits per second and the next state."""
        compiled = native.probe(requests, self._compiled)
        if compiled is not None:
            return compiled, state
        groups = Segments(requests.offsets)
        grants_bps = slow_probe(requests, groups, fully_used_mask(requests), self.inflation, self.floor, self.headroom)
        return keep_settled(requests, groups, grants_bps), state


def slow_probe(
    requests: AllocationInput, groups: Segments, full: BoolArray, inflation: float, floor: float, headroom: float
) -> FloatArray:
    """Return the grants of Algorithm 1 in bit/s, (pairs,); ``full`` (pairs,) is the mask of fully used rates."""
    active, granted_bps = requests.active, requests.granted_bps
    room_bps = np.where(active, requests.available_bps, 0.0)
    effective_bps = np.where(np.isinf(granted_bps), requests.measured_bps, granted_bps)
    requested_bps = np.where(full, effective_bps * (1.0 + inflation), requests.measured_bps)  # 1
    active_weight = groups.sum(np.where(active, requests.weight, 0.0))
    share_bps = groups.broadcast(safe_divide(requests.limit_bps, active_weight, 0.0))  # per unit of weight
    requested_bps = np.where(active, np.maximum(requested_bps, floor * share_bps * requests.weight), 0.0)
    total_bps = groups.sum(requested_bps)  # 2
    ratio = safe_divide(requests.limit_bps, total_bps, 0.0)  # 3
    if headroom <= 0:
        grants_bps = np.minimum(requested_bps * groups.broadcast(ratio), room_bps)  # 4
    else:
        kept_bps = _with_headroom(requests, requested_bps, headroom)
        others_need_more = groups.broadcast(groups.sum(full)) > 0
        kept = active & ~full & (kept_bps <= share_bps * requests.weight) & others_need_more
        shared_bps = requests.limit_bps - groups.sum(np.where(kept, np.minimum(kept_bps, room_bps), 0.0))
        ratio = safe_divide(shared_bps, groups.sum(np.where(kept, 0.0, requested_bps)), 0.0)
        grants_bps = np.minimum(np.where(kept, kept_bps, requested_bps * groups.broadcast(ratio)), room_bps)
    extra_bps = np.maximum(requests.limit_bps - groups.sum(grants_bps), 0.0)
    unused_room_bps = room_bps - grants_bps
    more_bps = groups.broadcast(fill_level(groups, extra_bps, requests.weight, unused_room_bps)) * requests.weight
    # A pair without unused room gets its exact capacity: RAA-FP would raise a grant just below the capacity.
    return np.where(more_bps >= unused_room_bps, room_bps, np.minimum(grants_bps + more_bps, room_bps))


def _with_headroom(requests: AllocationInput, requested_bps: FloatArray, headroom: float) -> FloatArray:
    """Return each pair's grant by the headroom rule, as if the pair did not fully use its rate, (pairs,)."""
    keeps_limit = requests.measured_bps * (1.0 + 2.0 * headroom) >= requests.granted_bps
    grant_bps = np.where(keeps_limit, requests.granted_bps, requests.measured_bps * (1.0 + headroom))
    return np.maximum(grant_bps, requested_bps)


def keep_settled(requests: AllocationInput, groups: Segments, grants_bps: FloatArray) -> FloatArray:
    """Return the grants, replaced by the effective limits at receivers where the two differ by rounding only."""
    effective_bps = np.where(requests.active, requests.granted_bps, 0.0)
    differs = np.abs(grants_bps - effective_bps) > SETTLED * grants_bps
    differs |= effective_bps > requests.available_bps
    must_change = (groups.sum(differs) > 0) | (groups.sum(effective_bps) > requests.limit_bps)
    if must_change.all():
        return grants_bps
    return np.where(groups.broadcast(must_change), grants_bps, effective_bps)
