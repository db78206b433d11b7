"""Kinds of real switches: a description of each, and how a software switch becomes one.

``docs/switches.md`` has the same table with the controller's behaviour with each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from experiments.switch.datapath import Datapath
from experiments.switch.meter_table import MeterLimits


@dataclass(frozen=True, slots=True)
class EmulatedSwitch:
    """A kind of switch. ``expected_fault`` is a part of the reported fault; "": its meters enforce the limits.

    ``later`` changes it while traffic flows.
    """

    name: str
    make: Callable[[Datapath], None] = lambda _datapath: None
    expected_fault: str = ""
    later: Callable[[Datapath], None] = lambda _datapath: None


def _with_limits(**limits: object) -> Callable[[Datapath], None]:
    """Return a change that gives a switch these limits of meters."""

    def make(datapath: Datapath) -> None:
        datapath.abilities.limits = MeterLimits(**limits)  # type: ignore[arg-type]

    return make


def _few_meters(datapath: Datapath) -> None:
    """Limit the meters: enough for VNs, too few for all pairs."""
    datapath.abilities.limits = MeterLimits(count=2 * 2 * len(datapath.ports) + 2)


def _stale_counters(datapath: Datapath) -> None:
    datapath.abilities.count = False
    datapath.options = replace(datapath.options, flow_stats_staleness_s=0.5)
    datapath.clear_tables()


def _slow_answers(datapath: Datapath) -> None:
    datapath.faults.lag_s = 0.03


def _late_barriers(datapath: Datapath) -> None:
    datapath.faults.barrier_delay_s = 0.5


def _silent_errors(datapath: Datapath) -> None:
    datapath.abilities.limits = MeterLimits(max_burst_kbits=1_000, min_rate_kbps=64)
    datapath.faults.blank_errors = True


def _no_meters(datapath: Datapath) -> None:
    datapath.abilities.max_meters = 0


def _give_number_away(datapath: Datapath) -> None:
    datapath.faults.rename_ports |= {1: "other"}


EMULATED = (
    EmulatedSwitch("bounds nothing"),
    EmulatedSwitch("accepts bursts up to 1,000 kb", _with_limits(max_burst_kbits=1_000)),
    EmulatedSwitch("accepts rates from 64 kb/s", _with_limits(min_rate_kbps=64)),
    EmulatedSwitch(
        "rejects rates that are not multiples of 64 kb/s", _with_limits(rate_step_kbps=64, min_rate_kbps=64)
    ),
    EmulatedSwitch("rounds rates up to multiples of 65 kb/s", _with_limits(rate_step_kbps=65, rounds="up")),
    EmulatedSwitch("rounds rates down to multiples of 100 kb/s", _with_limits(rate_step_kbps=100, rounds="down")),
    EmulatedSwitch("has few meters", _few_meters, "without a meter"),
    EmulatedSwitch("has no meters", _no_meters, "has no meters that drop"),
    EmulatedSwitch("has meters that do not count, and flow counters 500 ms old", _stale_counters, "500 ms stale"),
    EmulatedSwitch("does everything 30 ms late", _slow_answers),
    EmulatedSwitch("confirms 500 ms late", _late_barriers),
    EmulatedSwitch("bounds bursts and rates, and its errors do not name the message", _silent_errors),
    EmulatedSwitch("gives a port's number to another interface", expected_fault="is fenced", later=_give_number_away),
)
