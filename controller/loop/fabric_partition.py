"""What is this controller's of a fabric: all of it, here. ``controller.partition`` says what, where nodes share one."""

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
    """All switches; there is nobody else."""

    is_whole = True
    elsewhere: frozenset[int] = frozenset()
    """the switches (dpid) that other nodes have under control"""
    ownership_lag_s = 0.0
    """for how long others may not have heard who has the last switch that came, nor have been heard"""

    @property
    def receives(self) -> BoolArray | np.bool_:
        """For which VNs all that is sent there is known, (vns,) or one for all."""
        return np.True_

    @property
    def remote_senders(self) -> IntArray | int:
        """How many senders each VN has behind other nodes' switches, as far as is known, (vns,) or one for all."""
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
        """Run one interval of this share, as ``control_step`` does of the whole."""
        return control_step.control_step(state, vns, groups, readings, now_s, links, observed, shaped)

    def released(self) -> None:
        """Grants may rise again."""


WHOLE_FABRIC = FabricPartition()
