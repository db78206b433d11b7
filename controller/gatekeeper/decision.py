"""Gatekeeper's decision in one interval, from which explanations are made."""

from __future__ import annotations

from dataclasses import dataclass

from controller.columns import FloatArray
from controller.policy.interface import Decision


@dataclass(frozen=True)
class GatekeeperDecision(Decision):
    """A decision and its inputs. Columns of pairs have shape (rows,), columns of receivers (vns,)."""

    limit_bps: FloatArray
    """the egress limit"""
    floor_bps: FloatArray
    """lower bound of the limit, whatever the messages"""
    scheduled_bps: FloatArray
    """what the sending port's scheduler allows"""
    rise_bps_per_s: FloatArray
    halvings: FloatArray
    """the number of halvings since the limit was last at its maximum"""
    first_notified_s: FloatArray
    """the time of the first of these messages"""
    last_notified_s: FloatArray
    """the time of the sender's last message"""
    notified_drops_bps: FloatArray
    """the drops of the receiver's queue at that time"""
    dropped_bps: FloatArray
    """mean drops over the window; NaN unknown"""
    threshold_bps: FloatArray
    sending_bps: FloatArray
    """what the schedulers allow VNs"""

    @property
    def egress_limit_bps(self) -> FloatArray:
        """The limits of pairs that received messages, (rows,)."""
        return self.limit_bps

    @property
    def notified_s(self) -> FloatArray:
        """The time of each sender's last message, (rows,)."""
        return self.last_notified_s
