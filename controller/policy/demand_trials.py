"""The sending side: demand of a VN that other VNs' frames crowd out before the meters see it.

Deviation: the paper's scheduler runs on the host and sees the frames in its queues. A meter is behind the uplink and
sees only what came through: one TCP flow next to ten flows of another VN sends a tenth of its demand, and seems to need
no more. So a VN below its guarantee at a full sending port is allowed several times what it sends, for a while. A VN
that grows during a trial gets another one. A VN that does not is not tried again for a while, so that other VNs can use
the rate that it does not need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import FULL_USE
from controller.columns import FloatArray, IntArray
from controller.policy.policy_state import PolicyState

# Choice: a trial allows this many times the present rate. Twice is too slow for one flow next to ten: it got 351 of 645
# Mb/s.
TRIAL_FACTOR = 4.0
# Choice: TCP needs several round trips to use the rate: with 4 intervals one flow next to ten stayed at 69 %.
TRIAL_INTERVALS = 8
# Choice: after a trial without effect, the next one is this many intervals later.
REST_INTERVALS = 80
# Choice: a VN that sends this many times the lowest rate of the last trial demands more.
GROWTH = 1.1


@dataclass(frozen=True, slots=True)
class DemandTrials:
    """By VN, (vns,) each: intervals since the last trial began (infinite: none), and the lowest rate since then."""

    age: FloatArray
    least_bps: FloatArray

    @classmethod
    def from_state(cls, memory: PolicyState) -> DemandTrials:
        """Return the trials stored in a policy state."""
        age, least_bps = memory.vn_column("trial_age"), memory.vn_column("trial_least_bps")
        return cls(np.where(np.isnan(age), np.inf, age), np.where(np.isnan(least_bps), np.inf, least_bps))

    def columns(self) -> dict[str, FloatArray]:
        """Return the columns to store, by VN."""
        return {"trial_age": self.age, "trial_least_bps": self.least_bps}

    def updated(
        self,
        sent_bps: FloatArray,
        guarantee_bps: FloatArray,
        port: IntArray,
        cross_traffic_bps: FloatArray,
        capacity_bps: FloatArray,
    ) -> DemandTrials:
        """Return the trials after one more interval, in which VNs sent ``sent_bps`` (vns,) of their guarantees (vns,).

        ``port`` (vns,) is the row in the link table of the VN's access link, from its hosts. ``cross_traffic_bps`` and
        ``capacity_bps`` (links,) are the links' cross traffic and capacities.
        """
        used_bps = np.bincount(port, sent_bps, minlength=len(capacity_bps)) + cross_traffic_bps
        full = (used_bps >= FULL_USE * capacity_bps)[port]
        age, least_bps = self.age + 1.0, np.minimum(self.least_bps, sent_bps)
        # The last trial began long ago, or the VN has grown since.
        hungry = (age >= REST_INTERVALS) | (sent_bps > GROWTH * least_bps)
        begins = full & hungry & (sent_bps > 0.0) & (sent_bps < guarantee_bps)
        return DemandTrials(np.where(begins, 0.0, age), np.where(begins, sent_bps, least_bps))

    def factors(self, sent_bps: FloatArray, guarantee_bps: FloatArray) -> FloatArray:
        """Return the factor from each VN's rate ``sent_bps`` to its assumed demand, (vns,).

        During a trial the demand is the guarantee, but at most TRIAL_FACTOR times the rate. The factor is 1 without a
        trial, and for a VN that sends more than its guarantee.
        """
        part = guarantee_bps / np.maximum(sent_bps, 1.0)
        return np.where(self.age < TRIAL_INTERVALS, np.clip(part, 1.0, TRIAL_FACTOR), 1.0)
