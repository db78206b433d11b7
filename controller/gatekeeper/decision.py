"""What Gatekeeper decided in one interval: what its explanations are made of."""

from __future__ import annotations

from dataclasses import dataclass

from controller.columns import FloatArray
from controller.policy.interface import Decision


@dataclass(frozen=True)
class GatekeeperDecision(Decision):
    """What was decided, and on what. Columns of pairs have shape (rows,), those of receivers (vns,)."""

    limit_bps: FloatArray
    """the egress limit"""
    floor_bps: FloatArray
    """below which no message brings it"""
    scheduled_bps: FloatArray
    """what the sending port's scheduler leaves"""
    rise_bps_per_s: FloatArray
    halvings: FloatArray
    """how often the limit was halved since it was last at its most"""
    first_notified_s: FloatArray
    """when that began"""
    last_notified_s: FloatArray
    """when the sender got the last message"""
    notified_drops_bps: FloatArray
    """what the receiver's queue dropped then"""
    dropped_bps: FloatArray
    """mean drops over the window; NaN unknown"""
    threshold_bps: FloatArray
    sending_bps: FloatArray
    """what the schedulers let VNs send"""

    @property
    def egress_limit_bps(self) -> FloatArray:
        """The limits that messages have lowered, (rows,)."""
        return self.limit_bps

    @property
    def notified_s(self) -> FloatArray:
        """When senders got the last message, (rows,)."""
        return self.last_notified_s
