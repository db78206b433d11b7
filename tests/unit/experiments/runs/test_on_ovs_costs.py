"""What control costs in a run on Open vSwitch is read twice."""

from __future__ import annotations

from experiments.runs import on_ovs


def test_costs_are_of_the_time_between_two_readings() -> None:
    before = on_ovs._Costs(10.0, 1.0, 2.0, 100, 1)
    after = on_ovs._Costs(14.0, 1.2, 4.0, 300, 1)
    assert on_ovs._between(before, after) == {
        "controller_cpu_share": 0.05, "vswitchd_cpu_share": 0.5, "set_meters_per_s": 50.0, "skipped_intervals": 0,
    }  # fmt: skip
