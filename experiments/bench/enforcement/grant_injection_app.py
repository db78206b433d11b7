"""The DETS application whose grants follow the schedule that the environment variable DETS_GRANTS names (a Ryu app)."""

from __future__ import annotations

import os
from typing import Any

from apps.dets import Dets
from controller.loop import grant_side
from experiments.bench.enforcement.grant_injection import ENVIRONMENT, GrantInjector, GrantPlan, naive_enforcement


class GrantInjectionDets(Dets):
    """DETS, with limits that follow a schedule."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        plan = GrantPlan.read(os.environ[ENVIRONMENT])
        if plan.naive_burst_s is not None:
            vars(grant_side)["enforce"] = naive_enforcement(plan.naive_burst_s)
        vars(self.shell)["run_interval"] = GrantInjector(plan, self.shell).run_interval
