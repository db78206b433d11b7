"""The sending side: what a VN may want that others' frames crowd out before the meters see it.

Deviation: the paper's scheduler is on the host and sees what waits in its queues. A meter stands behind the uplink and
sees what came through. One TCP flow next to ten of another VN sends a tenth of what it would, and by that wants no
more. So a VN below its guarantee, at a sending port that is full, is given room for several times what it sends, for a
while. Who grows in that time is given the same again; who does not is left in peace for a while, or others would never
have what it does not need.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.allocation.interface import FULL_USE
from controller.columns import FloatArray, IntArray
from controller.policy.policy_state import PolicyState

# Choice: room for so many times what is sent. Twice is too slow for one flow next to ten: it got 351 of 645 Mb/s.
TRIAL_FACTOR = 4.0
# Choice: TCP needs several round trips to find the room: with 4 intervals one flow next to ten stayed at 69 %.
TRIAL_INTERVALS = 8
# Choice: who found no use for it is tried again after so many intervals.
REST_INTERVALS = 80
# Choice: who sends so many times the least of the last trial wants more.
GROWTH = 1.1


@dataclass(frozen=True, slots=True)
class DemandTrials:
    """By VN, (vns,) each: intervals since the last trial began (infinite: never), and the least that was sent since."""

    age: FloatArray
    least_bps: FloatArray

    @classmethod
    def from_state(cls, memory: PolicyState) -> DemandTrials:
        """Return the trials that were kept."""
        age, least_bps = memory.vn_column("trial_age"), memory.vn_column("trial_least_bps")
        return cls(np.where(np.isnan(age), np.inf, age), np.where(np.isnan(least_bps), np.inf, least_bps))

    def columns(self) -> dict[str, FloatArray]:
        """Return what to remember, by VN."""
        return {"trial_age": self.age, "trial_least_bps": self.least_bps}

    def updated(
        self,
        sent_bps: FloatArray,
        guarantee_bps: FloatArray,
        port: IntArray,
        others_bps: FloatArray,
        capacity_bps: FloatArray,
    ) -> DemandTrials:
        """Return the trials after one more interval, in which VNs sent ``sent_bps`` (vns,) of their guarantees (vns,).

        ``port`` (vns,) is the row of the VN's sending port; ``others_bps`` (ports,) is what VLANs under other policies
        use of it, and ``capacity_bps`` (ports,) what it carries.
        """
        used_bps = np.bincount(port, sent_bps, minlength=len(capacity_bps)) + others_bps
        full = (used_bps >= FULL_USE * capacity_bps)[port]
        age, least_bps = self.age + 1.0, np.minimum(self.least_bps, sent_bps)
        hungry = (age >= REST_INTERVALS) | (sent_bps > GROWTH * least_bps)
        begins = full & hungry & (sent_bps > 0.0) & (sent_bps < guarantee_bps)
        return DemandTrials(np.where(begins, 0.0, age), np.where(begins, sent_bps, least_bps))

    def factors(self, sent_bps: FloatArray, guarantee_bps: FloatArray) -> FloatArray:
        """Return (vns,) how many times what it sends each VN is taken to want: up to its guarantee, and 1 at least."""
        part = guarantee_bps / np.maximum(sent_bps, 1.0)
        return np.where(self.age < TRIAL_INTERVALS, np.clip(part, 1.0, TRIAL_FACTOR), 1.0)
