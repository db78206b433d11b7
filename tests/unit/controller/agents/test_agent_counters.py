"""What agents report in one interval, as it is compared with meters: all of it, as readings have it."""

from __future__ import annotations

import numpy as np
import pytest

from controller.agents.agent_counters import AgentCounters
from controller.agents.control_frames import LAYOUTS, Opcode, ReportFlag
from controller.metering.counters import MeterReadings

INTERVAL_S, RATE_KBPS = 0.055, 20_000
ROW = np.zeros(1, dtype=np.int64)


@pytest.fixture
def counters() -> AgentCounters:
    """The reports of one pair, after its first one, at 0 s."""
    made = AgentCounters.initial(1)
    report(made, 0.0, 0, ReportFlag.RATE_UNKNOWN)
    return made


def report(counters: AgentCounters, clock_s: float, rate_kbps: int, flags: int = 0) -> None:
    entries = np.zeros(1, dtype=LAYOUTS[Opcode.TRAFFIC_REPORT])
    entries["measured_kbps"], entries["flags"] = rate_kbps, flags
    counters.update(ROW, entries, np.array([clock_s]), clock_s)


def told_kbps(counters: AgentCounters) -> float:
    """End an interval; return the rate that is compared with the meter's."""
    told = float(counters.mean_octets_per_s[0]) / 125
    counters.override_readings(MeterReadings.initial(1), np.ones(1, dtype=np.bool_))
    return told


def test_an_agent_that_hides_its_traffic_from_readings_hides_it_from_the_comparison_too(counters) -> None:
    report(counters, INTERVAL_S - 0.001, 0)
    report(counters, INTERVAL_S, RATE_KBPS)
    assert told_kbps(counters) == pytest.approx(RATE_KBPS * 0.001 / INTERVAL_S)


@pytest.mark.parametrize("flags", [0, ReportFlag.RATE_UNKNOWN])
def test_a_report_that_does_not_count_is_not_compared(counters, flags) -> None:
    report(counters, INTERVAL_S, 0)
    assert told_kbps(counters) == 0.0
    report(counters, 2 * INTERVAL_S if flags else INTERVAL_S, 2 * RATE_KBPS, flags)
    assert told_kbps(counters) == 0.0


def test_a_second_report_right_after_a_late_one_hides_nothing(counters) -> None:
    report(counters, 5 * INTERVAL_S, RATE_KBPS)
    report(counters, 5 * INTERVAL_S + 0.001, 0)
    assert told_kbps(counters) == pytest.approx(RATE_KBPS, rel=0.01)


def test_without_a_report_the_last_rate_is_compared(counters) -> None:
    report(counters, INTERVAL_S, RATE_KBPS)
    assert told_kbps(counters) == told_kbps(counters) == RATE_KBPS
