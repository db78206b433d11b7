"""What control costs in a run on Open vSwitch is read twice."""

from __future__ import annotations

from experiments.runs import ovs_run


def test_costs_are_of_the_time_between_two_readings() -> None:
    before = ovs_run._Costs(10.0, 1.0, 2.0, 100, 1)
    after = ovs_run._Costs(14.0, 1.2, 4.0, 300, 1)
    assert ovs_run._cost_rates(before, after) == {
        "controller_cpu_share": 0.05, "vswitchd_cpu_share": 0.5, "set_meters_per_s": 50.0, "skipped_rounds": 0,
    }  # fmt: skip
