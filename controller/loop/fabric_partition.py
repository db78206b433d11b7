"""The part of a fabric that a controller has. Here it is the whole; ``controller.partition`` has the sharded form."""

from __future__ import annotations

import numpy as np

from controller.columns import BoolArray, IntArray
from controller.fabric.link_table import LinkTable
from controller.fabric.vn_table import VnTable
from controller.loop import control_step
from controller.metering.counters import Readings
from controller.metering.fabric_readings import FabricReadings
from controller.policy.policy_groups import PolicyGroup


class FabricPartition:
    """All switches; there are no other nodes."""

    is_whole = True
    remote_switches: frozenset[int] = frozenset()
    """the dpids of the switches that other nodes own"""
    ownership_lag_s = 0.0
    """the time in which peers may not have learned the last switch's owner, so that their messages may be missing"""

    @property
    def receives(self) -> BoolArray | np.bool_:
        """Return the mask of the VNs whose senders are all known, (vns,) or one value for all."""
        return np.True_

    @property
    def remote_senders(self) -> IntArray | int:
        """Return how many senders of each VN are known behind other nodes' switches, (vns,) or one value for all."""
        return 0

    def step(
        self,
        state: control_step.ControlState,
        vns: VnTable,
        groups: tuple[PolicyGroup, ...],
        readings: Readings,
        now_s: float,
        links: LinkTable | None,
        observed: FabricReadings | None,
        shaped: BoolArray | None,
    ) -> tuple[control_step.ControlState, control_step.StepResult]:
        """Run one interval of this part, as ``control_step`` does for a whole fabric."""
        return control_step.control_step(state, vns, groups, readings, now_s, links, observed, shaped)

    def released(self) -> None:
        """Let grants rise again: nothing is frozen in a whole fabric."""


WHOLE_FABRIC = FabricPartition()
