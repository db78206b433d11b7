"""The comparison of the two fabrics; the model's side is run, the other made up."""

from __future__ import annotations

import pytest

from experiments.bench.fidelity import bench
from experiments.bench.fidelity.bench import Metered, compare, measure_on_model


def test_rates_are_compared_in_parts_and_intervals_as_numbers():
    model = {
        "a, bit/s": 96e6,
        "b, bit/s": 90e6,
        "c, intervals": 1,
        "d, intervals": 5,
        "starved, bit/s": 1e6,
        "own": 1.0,
    }
    ovs = {"a, bit/s": 100e6, "b, bit/s": 100e6, "c, intervals": 0, "d, intervals": 2, "starved, bit/s": 3e6}
    rows = {one.name: (one.value, one.met) for one in compare(model, ovs)}
    assert rows == {
        "a, bit/s": (pytest.approx(0.04), True),
        "b, bit/s": (pytest.approx(0.10), False),
        "c, intervals": (1, True),
        "d, intervals": (3, False),
    }


def test_without_open_vswitch_the_model_stands_alone(monkeypatch):
    monkeypatch.setattr(bench, "why_not_ovs", lambda: "not root")
    monkeypatch.setattr(bench, "isolation_rows", lambda fabric: {f"x on {fabric}, bit/s": 1.0})
    monkeypatch.setattr(bench, "metered_rows", lambda measure: {"y, bit/s": 2.0})
    result = bench.run()
    assert result["targets"] == []
    assert result["settings"]["ovs"] == "not root"
    assert result["figures"]["x on model, bit/s"] == {"model": 1.0, "ovs": None}


def test_a_meter_modified_every_interval_gives_its_burst_away_each_time():
    got = measure_on_model(Metered(0.020, udp=True))
    assert got == pytest.approx(50e6 + 1e6 / 0.055, rel=0.02)


def test_every_burst_size_is_a_row():
    asked = []
    rows = bench.metered_rows(lambda case: asked.append(case) or 1.0)
    assert len(rows) == 6
    assert [case.burst_kbits for case in asked] == [1_000, 2_500, 5_000, 10_000, 20_000, 1_000]
    assert [case.udp for case in asked] == [False] * 5 + [True]
