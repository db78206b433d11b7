"""Scenarios on the model: the controls do what they are for, runs repeat, and the figures are made and resumed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.paths import ROOT

from experiments import scenarios as package
from experiments.evaluation import run_matrix as runs_module
from experiments.evaluation.measures import measures, phase_measures
from experiments.evaluation.oracle import oracle_of
from experiments.figures import figure_runner as figures
from experiments.figures.figure_runner import FigureOptions, make_figures, repeat_runs
from experiments.figures.provenance import stale_because
from experiments.machine.process_runner import wait_until
from experiments.runs.model_run import run_on_model
from experiments.scenarios.dets_fig5 import joined_by_udp
from experiments.scenarios.scenario import (
    CONDITIONS,
    AlgorithmChange,
    LimitChange,
    Limits,
    Scenario,
    Source,
    WebRequests,
)

M = 1_000_000
SCENARIO = Scenario(
    name="four",
    title="three to one",
    topology="dets-fig1",
    pns=4,
    limits={1: Limits(400 * M, 300 * M)},
    sources=(
        Source(1, 1, 4, "udp", 250 * M),
        Source(1, 2, 4, "tcp"),
        Source(1, 3, 4, "tcp", 20 * M, max_burst_s=1.0),
    ),
    duration_s=3.3,
    phases={"settled": (1.1, 3.3)},
    controls=("none", "static", "fs", "level"),
    seeds=2,
)


def run(scenario=SCENARIO, control="level", seed=1):
    return run_on_model(scenario, control, seed, lambda _passed_s: None)


def short(name, *sources, limits, **more):
    """A scenario of 3.3 s whose fabric is one switch with three PNs."""
    return Scenario(name, "", limits, sources, **{"duration_s": 3.3, "topology": "dets-fig1", "pns": 3, **more})


def test_controls_of_limits_let_no_more_through_and_fair_level_uses_what_fair_share_wastes():
    without = run(control="none")
    assert without.received_bits.sum() / 3.3 > 500 * M
    assert np.isnan(without.granted_bps).all()
    uses = {}
    for control in ("static", "fs", "fp", "max-min", "level"):
        found = run(control=control)
        assert found.received_bits.sum(axis=1).max() <= 1.02 * 300 * M * 0.055
        assert len(found.delivered_bits) == 60
        np.testing.assert_allclose(found.delivered_bits.sum(), found.received_bits.sum())
        uses[control] = measures(found)["use_of_oracle"]
    assert uses["static"] < uses["level"] - 0.15
    assert uses["fs"] < uses["level"] - 0.05
    assert uses["level"] > 0.95


@pytest.mark.parametrize("flows", [1, 4])
def test_the_flows_of_an_application_share_its_rate(flows):
    source = Source(1, 1, 2, "tcp", 20 * M, flows=flows)
    found = run(short("slow", source, limits={1: Limits(400 * M, 300 * M)}))
    assert found.delivered_bits.sum() / 3.3 == pytest.approx(20 * M, rel=0.02)


def test_events_change_limits_and_algorithms():
    scenario = short(
        "events",
        Source(1, 1, 3, "udp", 290 * M),
        Source(1, 2, 3, "udp", 290 * M),
        limits={1: Limits(400 * M, 300 * M)},
        events=(LimitChange(1.1, 1, 3, receive_bps=100 * M), AlgorithmChange(1.1, 1, "fs")),
        phases={"before": (0.55, 1.1), "after": (1.65, 3.3)},
    )
    phases = phase_measures(run(scenario))
    assert phases["before"]["received_bps"] == pytest.approx(300 * M, rel=0.02)
    assert phases["after"]["received_bps"] == pytest.approx(100 * M, rel=0.02)
    assert phases["after"]["use_of_oracle"] == pytest.approx(1.0, abs=0.02)


def test_a_transfer_is_timed():
    source = Source(1, 1, 2, "tcp", spans=((0.5, 3.3),), octets=10_000_000)
    found = run(short("file", source, limits={1: Limits(200 * M, 100 * M)}))
    figures_of_it = measures(found)
    assert figures_of_it["transfers_done"] == 1
    assert figures_of_it["completion_mean_s"] == pytest.approx(0.84, rel=0.05)  # 10 MB at 100 Mb/s of wire rate
    assert oracle_of(found).on[-1, 0] == False  # noqa: E712 - a numpy value


def test_a_source_of_many_flows_takes_its_part_of_a_plain_link():
    """Without control ten flows against one have most of the link; measured are two sources, not eleven."""
    sources = Source(1, 1, 3, "tcp"), Source(1, 2, 3, "tcp", flows=10)
    scenario = short("flows", *sources, limits={1: Limits(900 * M, 900 * M)}, duration_s=5.5)
    found = run(scenario, "none")
    one, ten = found.delivered_bits[40:].sum(axis=0)
    assert found.delivered_bits.shape == (100, 2)
    assert ten > 3 * one > 0
    reno = dataclasses.replace(scenario.sources[0], congestion_control="reno")
    other = run(dataclasses.replace(scenario, sources=(reno, scenario.sources[1])), "none")
    assert (other.delivered_bits != found.delivered_bits).any()


def web(flood_bps=0):
    flood = tuple(Source(2, pn, 3, "udp", flood_bps) for pn in (2, 4)) if flood_bps else ()
    requests = WebRequests(20.0, 5.0, ((5_000, 0.9), (500_000, 0.1)))
    return short(
        "web",
        Source(1, 1, 3, "tcp", requests=requests, flows=16),
        *flood,
        limits={1: Limits(400 * M, 400 * M), 2: Limits(500 * M, 500 * M)},
        pns=4,
        duration_s=5.5,
        phases={"first": (0.0, 2.2), "later": (2.2, 5.5)},
    )


def test_web_requests_are_answered_and_timed():
    quiet = run(web(), "none")
    found = measures(quiet)
    sessions = web().sessions(1)[0]
    asked = sum(len(answers) for _, answers in sessions)
    assert found["requests"] == pytest.approx(asked, abs=5)  # those of the end are under way
    assert found["requests_answered"] >= asked - 10
    assert found["answers_per_s"] == pytest.approx(found["requests_answered"] / 5.5)
    assert found["latency_p50_s"] == pytest.approx(0.002, abs=0.0011)  # 4 segments: one round trip of two slots
    assert 0.004 <= found["latency_p99_s"] <= 0.06  # 346 segments are 4 ms of the link, beside the other answers
    assert found["use_of_oracle"] == pytest.approx(1.0, abs=0.05)
    phases = phase_measures(quiet)
    assert sum(phase["requests"] for phase in phases.values()) == found["requests"]


def test_a_flood_without_control_starves_a_web_server_and_under_control_does_not():
    flooded, held, alone = (
        measures(run(*one)) for one in ((web(990 * M), "none"), (web(990 * M), "fp"), (web(), "fp"))
    )
    assert flooded["requests_answered"] < 0.5 * alone["requests_answered"]
    assert flooded["latency_p99_s"] is None  # the last of them never came
    assert held["answers_per_s"] == pytest.approx(alone["answers_per_s"], rel=0.05)


def test_ceilings_and_weights_reach_the_controller_and_change_as_the_product_changes_them():
    """Two senders under max-min: the first may send 100 Mb/s, then borrow up to 300, then is given another limit."""
    scenario = short(
        "borrowing",
        Source(1, 1, 3, "udp", 280 * M),
        limits={1: Limits(100 * M, 200 * M, 100 * M, 500 * M)},
        events=(LimitChange(1.1, 1, 1, send_ceiling_bps=250 * M), LimitChange(2.2, 1, 1, send_ceiling_bps=150 * M)),
        phases={"limit": (0.55, 1.1), "ceiling": (1.65, 2.2), "lower": (2.75, 3.3)},
        promise="ceilings",
    )
    phases = phase_measures(run(scenario, "max-min"))
    got = [phases[name]["received_bps"] / M for name in ("limit", "ceiling", "lower")]
    assert got == pytest.approx([100, 250, 150], rel=0.03)
    assert [phases[name]["part_of_oracle_by_sender"][0] for name in phases] == pytest.approx([1, 1, 1], abs=0.03)
    kept = phase_measures(run(scenario, "fp"))  # DETS does not borrow: the ceilings and their changes are left out
    assert [kept[name]["received_bps"] / M for name in kept] == pytest.approx([100, 100, 100], rel=0.03)


COMPARED = dataclasses.replace(SCENARIO, paper_controls=("fs", "level"))


def test_without_the_receivers_queue_more_than_the_limit_comes():
    most = {}
    for conditions in CONDITIONS:
        found = run(COMPARED.with_conditions(conditions))
        most[conditions] = found.received_bits.sum(axis=1).max() / (300 * M * 0.055)
    assert max(most["product"], most["late"]) <= 1.02
    assert min(most["unshaped"], most["paper"]) >= 1.05


def test_late_grants_settle_two_intervals_later():
    convergence = dataclasses.replace(package.scenarios()["dets-fe-convergence"], duration_s=12.0)
    settled = {}
    for conditions in ("product", "late"):
        phases = phase_measures(run(convergence.with_conditions(conditions), "fp"))
        settled[conditions] = phases["five send"]["settled_after"]
    assert settled["late"] == settled["product"] + 2


def test_each_condition_has_runs_of_its_own(only_four, tmp_path, monkeypatch):
    monkeypatch.setattr(runs_module, "scenarios", lambda: {"four": COMPARED})
    monkeypatch.setattr(figures, "scenarios", lambda: {"four": COMPARED})
    of_fluid = [name for name, conditions in CONDITIONS.items() if not conditions.packets]
    options = FigureOptions(conditions="paper", seeds=1, results=tmp_path, docs=tmp_path / "docs", quiet=True)
    assert {(spec.control, spec.conditions) for spec in options.chosen()} == {
        (control, conditions) for control in ("fs", "level") for conditions in of_fluid
    }
    both = dataclasses.replace(options, conditions="both").chosen()
    assert len({spec.folder for spec in both}) == len(both) == 4 + 6  # its controls, other conditions
    make_figures(options)
    assert not (tmp_path / "docs" / "results" / "dets-model.json").exists()
    digest = json.loads((tmp_path / "docs" / "results" / "dets-model-conditions.json").read_text())
    assert (digest["runs"], digest["conditions"]) == (8, of_fluid)
    assert len(digest["tables"]["four"]) == 1 + 8
    assert "## Under the paper's conditions: model, 1 Gb/s" in (tmp_path / "docs" / "results" / "dets.md").read_text()
    assert ["Fair Level (`level`)", "`unshaped`", "1"] in [row[:3] for row in digest["tables"]["four"]]


@pytest.fixture
def only_four(monkeypatch):
    """As if the folder of scenarios held one file, and figure 2 were short."""
    pytest.importorskip("matplotlib")
    starved = joined_by_udp(
        "dets-fig2", "starved", senders=3, udp_rate_bps=300 * M, warmup_s=1.0, blast_s=1.0, cooldown_s=1.0,
        controls=("none",),
    )  # fmt: skip
    found = {"four": SCENARIO, "dets-fig2": starved}
    monkeypatch.setattr(runs_module, "scenarios", lambda: found)
    monkeypatch.setattr(figures, "scenarios", lambda: found)
    monkeypatch.setattr(figures, "_run_side_by_side", _one_after_the_other)


def _one_after_the_other(todo, options, finished):
    for number, spec in enumerate(todo, start=1):
        error = figures._run_one(spec, options.runs_folder, lambda _passed_s: None)
        finished(number, spec, error, spec.expected_s)


def test_figures_are_made_written_down_and_resumed(only_four, tmp_path, monkeypatch):
    options = FigureOptions(seeds=1, results=tmp_path / "results", docs=tmp_path / "docs", quiet=True)
    made = make_figures(options)
    assert made["runs"] == 5
    assert made["claims"]["starving"]["result"].endswith("of what it had before")
    assert made["claims"]["trade-off"]["holds"] is None
    page = (tmp_path / "docs" / "results" / "dets.md").read_text()
    assert "| I, fig. 2 | Figure 2, without control: UDP of another VLAN leaves TCP less than 5 % of its rate |" in page
    drawn = {path.name for path in (tmp_path / "results" / "figures" / "model").glob("*.png")}
    assert drawn == {"four.png", "four-use-and-fairness.png", "dets-fig2.png"}

    (tmp_path / "results" / "figures" / "model" / "four" / "level" / "seed-1" / "summary.json").unlink()
    ran = []
    monkeypatch.setattr(figures, "execute_run", lambda spec, *_: ran.append(spec.control) or {})
    make_figures(options)
    assert ran == ["level"]


def test_a_fabric_keeps_its_results_when_another_is_run(only_four, tmp_path):
    folder = tmp_path / "docs" / "results"
    folder.mkdir(parents=True)
    kept = {"fabric": "ovs", "command": "make figures FABRIC=ovs", "runs": 3, "runs_with_warnings": 0, "trees": []}
    verdict = {"result": "seen on Open vSwitch", "holds": False, "best": "-"}
    (folder / "dets-ovs.json").write_text(
        json.dumps({**kept, "machine": {}, "claims": {"starving": verdict}, "tables": {}})
    )
    only = ("dets-fig2",)
    options = FigureOptions(experiments=only, seeds=1, results=tmp_path, docs=tmp_path / "docs", quiet=True)
    make_figures(options)
    page = (tmp_path / "docs" / "results" / "dets.md").read_text()
    (row,) = [
        line for line in page.splitlines() if line.startswith("| I, fig. 2 | Figure 2, without control: UDP of another")
    ]
    assert row.count("| undecided | **fails** ") == 2
    assert row.endswith("; Open vSwitch: seen on Open vSwitch |  |")

    # A later tree that gives the same is as good as this one; one that does not is told.
    path = folder / "dets-model.json"
    made = json.loads(path.read_text())
    made["trees"][0]["depends"]["controller/dets"] = "of an older tree"
    path.write_text(json.dumps(made))
    assert stale_because(made) == "changed since: controller/dets"
    assert repeat_runs(options) == []
    assert stale_because(json.loads(path.read_text())) == ""
    assert "1 runs, repeated by this version, gave the same" in (folder / "dets.md").read_text()
    made["outcomes"][0][-1] = "something else"
    path.write_text(json.dumps(made))
    assert repeat_runs(options) == ["dets-fig2 none seed 1"]
    assert "repeated" not in json.loads(path.read_text())


def test_a_failed_run_is_told_after_the_others(only_four, tmp_path, monkeypatch):
    real = figures.execute_run

    def some(spec, folder, progress):
        if spec.control == "fs":
            raise OSError("no room")
        return real(spec, folder, progress)

    monkeypatch.setattr(figures, "execute_run", some)
    options = FigureOptions(
        experiments=("four",), controls=("fs", "static"), seeds=1, results=tmp_path, docs=tmp_path / "docs", quiet=True
    )
    with pytest.raises(RuntimeError, match="1 of 2 runs failed, four fs seed 1: OSError: no room"):
        make_figures(options)
    assert (tmp_path / "figures" / "model" / "four" / "static" / "seed-1" / "summary.json").exists()


def test_figures_that_are_ended_end_their_workers(tmp_path):
    options = ["--paper", "dets", "--only", "dets-fig5", "--control", "fp", "--seeds", "2", "--conditions", "product"]
    folders = ["--output", str(tmp_path / "results"), "--docs", str(tmp_path / "docs")]
    command = [sys.executable, "-m", "apps.cli", "figures", *options, *folders]
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: any(tmp_path.glob("results/figures/model/dets-fig5/*/*")), "a run has begun", 60)
        process.terminate()
        assert process.wait(60) != 0
        wait_until(
            lambda: not any(is_running_in(process.pid, path) for path in Path("/proc").glob("[0-9]*/stat")), "end", 5
        )


def is_running_in(session, stat):
    try:
        state, _, _, its_session, *_ = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(its_session) == session and state != "Z"
