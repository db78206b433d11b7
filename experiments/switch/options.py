"""Sizes and behaviour of a software switch."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.switch.meter_table import NO_LIMITS, MeterLimits


@dataclass(frozen=True, slots=True)
class DatapathOptions:
    """Sizes and behaviour of a software switch. ``ignores_set_queue``: all frames go to the default queue.

    ``part_bytes`` is the greatest length of a part of a multipart reply. Flow-stats report the counters of a copy that
    is made every ``flow_stats_staleness_s``; 0: the present counters.
    """

    tables: int = 64
    entries_per_table: int = 1_000_000
    part_bytes: int = 0xFFFF
    flow_stats_staleness_s: float = 0.0
    max_meters: int = 65_535
    ignores_set_queue: bool = False
    meter_limits: MeterLimits = NO_LIMITS
