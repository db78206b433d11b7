"""What a soak measures, as the verdict and the report take it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from experiments.measure.series import Rates
from experiments.soak.churn import Diary
from experiments.soak.resources import ProcessUse, ResourceHoldings
from topologies.fabric import Fabric, VirtualNode


@dataclass
class Look:
    """What was looked at once a second; what is asked for less often is None in between."""

    at_s: float
    idle_share: float
    controller: ProcessUse | None = None
    vswitchd: ProcessUse | None = None
    held: ResourceHoldings | None = None


@dataclass
class Record:
    """All that a run has measured, for the verdict and the report."""

    fabric: Fabric
    judged: VirtualNode
    begin_s: float = 0.0
    end_s: float = 0.0
    looks: list[Look] = field(default_factory=list)
    ailments: list[tuple[float, str]] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    troubles: list[tuple[float, str]] = field(default_factory=list)
    broken_flows: int = 0
    quiet: tuple[Look | None, Look | None] = (None, None)
    rows_before: dict[str, int] = field(default_factory=dict)
    rows_after: dict[str, int] = field(default_factory=dict)
    rates: dict[str, Rates] = field(default_factory=dict)
    log_lines: list[str] = field(default_factory=list)
    diary: Diary = field(default_factory=Diary)
