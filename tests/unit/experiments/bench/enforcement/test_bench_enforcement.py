"""The enforcement bench's parts that need no switch: schedules, cases, batches, figures, targets, table."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config.loader import parse_config
from controller.errors import InvalidValueError
from experiments.bench.enforcement import bench
from experiments.bench.enforcement.cases import (
    ENFORCEMENT_MODES,
    TRAFFIC,
    Case,
    chosen_cases,
    default_cases,
    full_cases,
    packed,
)
from experiments.bench.enforcement.grant_injection import COLUMNS, GrantPlan, Slot, naive_enforcement
from experiments.bench.enforcement.grant_schedules import PATTERNS, WALK_FLOOR, grants_bps
from experiments.bench.enforcement.result_figures import (
    GrantLog,
    case_figures,
    read_grants,
    targets,
    wire_bits,
)
from experiments.bench.harness import markdown
from experiments.measure.rate_series import MeasurementError, Samples, Window


@given(st.sampled_from(list(PATTERNS)), st.integers(100_000, 10**9), st.integers(2, 400), st.integers(0, 2**32 - 1))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_schedules_stay_between_their_bounds(pattern, nominal_bps, intervals, seed):
    grants = grants_bps(pattern, nominal_bps, intervals, seed)
    assert grants.shape == (intervals,)
    assert (grants % 1000 == 0).all()
    assert grants.max() <= nominal_bps
    assert grants.min() >= nominal_bps / (10 if pattern == "step" else WALK_FLOOR) - 1000
    assert grants.tolist() == grants_bps(pattern, nominal_bps, intervals, seed).tolist()


@pytest.mark.parametrize(("pattern", "factor"), [("walk-1", 1.01), ("walk-30", 1.3)])
def test_a_walk_changes_by_its_step_in_every_interval(pattern, factor):
    grants = grants_bps(pattern, 50_000_000, 300, 3).astype(float)
    steps = np.maximum(grants[1:] / grants[:-1], grants[:-1] / grants[1:])
    assert steps == pytest.approx(np.full(299, factor), rel=1e-3)


def test_unknown_names_are_refused_and_the_kernel_datapath_where_there_is_none(monkeypatch):
    with pytest.raises(InvalidValueError, match="pattern: 'zigzag' is not one of constant"):
        grants_bps("zigzag", 1_000_000, 5, 1)
    with pytest.raises(InvalidValueError, match="traffic: 'sctp'"):
        chosen_cases((1_000_000,), ("sctp",), ("step",))
    for options, key in (
        ({"datapath": "netdev"}, "datapath"),
        ({"pattern": ["none"]}, "pattern"),
    ):
        with pytest.raises(InvalidValueError) as refused:
            bench.run(**options)
        assert refused.value.key == key
    monkeypatch.setattr(bench, "is_native", lambda: False)
    with pytest.raises(InvalidValueError, match="needs the module openvswitch"):
        bench.run(datapath="kernel")


def test_cases_are_those_of_the_promise():
    assert len(full_cases()) == len({case.name for case in full_cases()}) == 4 * 8 * 4
    assert set(default_cases()) <= set(full_cases())
    assert set(TRAFFIC) == {"udp-2x", "udp-10x"} | {f"tcp-{n}-{c}" for n in (1, 10) for c in ("cubic", "reno", "bbr")}


@pytest.mark.parametrize("cases", [default_cases(), full_cases()])
def test_batches_have_every_case_once_and_no_more_than_the_machine_carries(cases):
    batches = packed(cases, 40_000)
    assert sorted(case.name for batch in batches for case in batch) == sorted(case.name for case in cases)
    for batch in batches:
        assert len({case.grant_bps for case in batch}) == 1
        assert len(batch) == 1 or sum(case.most_pps for case in batch) <= 40_000


def test_the_default_run_is_under_five_minutes():
    batches = packed(default_cases(), bench.MAX_PPS["user"])
    batch_s = bench.WARM_UP_S + bench.MEASURE_S + bench.SETUP_S
    assert len(batches) * len(ENFORCEMENT_MODES) * batch_s < 300


@pytest.mark.parametrize("grant_bps", [1_000_000, 50_000_000])
def test_the_controller_can_have_the_fabric_that_is_described(grant_bps, tmp_path):
    fabric = bench.describe_fabric(grant_bps, 3)
    fabric.check_emulable()
    config = bench.describe_control(fabric, grant_bps, 1, 2)
    parsed = parse_config(json.dumps(config), "bench")
    assert len(list(parsed.vns())) == 6


def samples_of(rate_bps, end_s=20.0):
    time_s = np.arange(0.0, end_s, 0.011)
    frames = np.floor(np.cumsum(np.full(len(time_s), 0.011 * rate_bps / (8 * 1518))))
    return Samples(time_s, frames * 1514, frames)


def log_of(grants, modifies=None):
    time_s = np.arange(len(grants)) * 0.055
    grants = np.array(grants, dtype=float)
    counts = np.zeros(len(grants)) if modifies is None else np.array(modifies, dtype=float)
    return GrantLog(time_s, grants, counts)


def test_a_ratio_is_of_wire_rates_over_the_whole_window():
    samples = samples_of(6e6)
    assert wire_bits(samples, 2.0, 10.0) == pytest.approx(48e6, rel=0.005)
    log = log_of([4e6, 8e6] * 150, np.arange(300) / 2)
    figures = case_figures(Case(8_000_000, "walk-30", TRAFFIC["udp-2x"]), log, samples, Window(2.0, 10.0))
    assert figures["ratio"] == pytest.approx(1.0, rel=0.01)
    assert figures["granted_bps"] == pytest.approx(6e6, rel=0.01)
    assert figures["meter_mods_per_s"] == pytest.approx(0.5 / 0.055, rel=0.02)
    with pytest.raises(MeasurementError):
        case_figures(Case(8_000_000, "walk-30", TRAFFIC["udp-2x"]), log, samples, Window(16.6, 18.0))


def test_a_step_down_is_judged_from_one_interval_after_it():
    grants = np.where(np.arange(300) // 40 % 2 == 0, 10e6, 1e6)
    kept = np.interp(np.arange(0, 20, 0.011), np.arange(300) * 0.055, np.cumsum(grants) * 0.055)
    frames = kept / (8 * 1518)
    samples = Samples(np.arange(0, 20, 0.011), frames * 1514, frames)
    case = Case(10_000_000, "step", TRAFFIC["udp-2x"])
    figures = case_figures(case, log_of(grants), samples, Window(1.0, 15.0))
    assert figures["step_ratio"] == pytest.approx(1.0, rel=0.1)
    late = case_figures(case, log_of(np.roll(grants, -20)), samples, Window(1.0, 15.0))
    assert late["step_ratio"] > 5


def row(way, ratio, pattern="constant", udp=True, mods=0.0, **more):
    name = f"5M {'udp-2x' if udp else 'tcp-1-cubic'} {pattern}"
    figures = {"granted_bps": 5e6, "delivered_bps": 5e6 * ratio, "ratio": ratio, "meter_mods_per_s": mods, **more}
    told = {"grant_bps": 5_000_000, "traffic": name.split()[1], "udp": udp, "pattern": pattern}
    return {"case": name, "way": way, "within": 0.02 if udp else 0.05, **told, **figures}


def test_targets_are_missed_when_they_are():
    rows = [row("dets", 0.99), row("naive-200ms", 2.0, mods=18.2), row("dets", 0.96, udp=False)]
    assert all(one.met for one in targets(rows))
    missed = targets([*rows, row("dets", 1.06, "walk-30", udp=False), row("dets", 1.0, "step", step_ratio=1.2)])
    assert [one.met for one in missed] == [True, False, False, True]
    # Less than was granted after a step down is the sender's own recovery.
    assert all(one.met for one in targets([*rows, row("dets", 1.0, "step", step_ratio=0.7)]))
    chatty = targets([row("dets", 1.0, mods=3.0), row("naive-200ms", 2.0, mods=18.2)])
    assert [one.met for one in chatty] == [True, False]


def test_the_table_has_ratios_and_those_of_steps():
    rows = [row(way, 1.0) for way in ENFORCEMENT_MODES] + [row("dets", 1.0, "step", step_ratio=1.01)]
    lines = markdown(rows, bench.COLUMNS).splitlines()
    assert lines[2] == "| 5M udp-2x constant | dets | 5,000,000 | 1.000 |  | 0.0 |"
    assert lines[-1] == "| 5M udp-2x step | dets | 5,000,000 | 1.000 | 1.010 | 0.0 |"
    assert len(lines) == 2 + len(rows)


def test_a_plan_comes_back_as_it_was_written(tmp_path):
    plan = GrantPlan((Slot(1, 1, 1, 2, 5_000_000, "step"),), 0.2, 7, 100, "grants.csv")
    plan.write(tmp_path / "plan.json")
    assert GrantPlan.read(str(tmp_path / "plan.json")) == plan


def test_a_log_comes_back_by_slot(tmp_path):
    lines = [",".join(COLUMNS)] + [f"{t},{slot},{1000 * (slot + 1)},{t}" for t in (1, 2) for slot in (0, 1)]
    (tmp_path / "grants.csv").write_text("\n".join(lines) + "\n")
    first, second = read_grants(tmp_path / "grants.csv", 2)
    assert first.grant_bps.tolist() == [1000, 1000]
    assert second.granted_bits(1.5, 2.5) == 2000
    with pytest.raises(MeasurementError):
        read_grants(tmp_path / "grants.csv", 3)


def test_the_naive_way_modifies_every_meter_in_every_interval():
    from controller.metering.enforcement import Enforcement, burst_for

    rates = np.array([5e6, 1e6])
    state = Enforcement.empty().reindexed(np.array([-1, -1]), rates, burst_for(rates, np.zeros(2, dtype=bool)), 0.0)
    for number in (1, 2):
        known = np.array([True, True])
        state, changes = naive_enforcement(0.2)(state, rates, None, known, number * 0.055)
        assert changes.rows.tolist() == [0, 1]
        assert changes.burst_bits.tolist() == [1e6, 2e5]
        assert state.modified_s.tolist() == [number * 0.055] * 2
