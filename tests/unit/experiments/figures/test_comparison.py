"""The comparison: its scenarios, verdicts on figures made by hand, its page and picture."""

from __future__ import annotations

import pickle
import xml.etree.ElementTree as ElementTree

import pytest
from support import constructed_runs
from support.paths import ROOT

from experiments.evaluation.claims import Measured
from experiments.evaluation.run_matrix import SCALE, scenario_runs
from experiments.figures import comparison, markdown_pages
from experiments.figures.comparison import COLOURS, picture
from experiments.figures.figure_runner import execute_apart
from experiments.papers.comparison import CPU, LONGEST, MET, MODS, SCENARIOS, TABLES, USE
from experiments.scenarios import scenarios
from experiments.scenarios.comparison import BORROWERS, EMULATED, SYSTEMS, control_of


def summary(name, control, phases):
    notes = {} if control == "none" else {"meter_mods": 160, "meters": 14, "controller_cpu_s": 0.016}
    made = constructed_runs.summary(name, control, phases=phases, missed_longest=3)
    return {**made, "notes": notes}


def rows(figure, *summaries, block="No borrowing"):
    """The rows of a table for runs that give the same with three seeds."""
    (table,) = [one for one in TABLES if one.title.startswith(f"{block}: {figure}: ")]
    heads, *found = table.rows(Measured([{**one, "seed": seed} for one in summaries for seed in (1, 2, 3)]))
    return [dict(zip(heads, row, strict=True)) for row in found]


def test_where_nobody_may_borrow_ceilings_are_limits_and_where_everybody_may_the_links():
    known = scenarios()
    for name in SCENARIOS:
        for limits in known[name].limits.values():
            ceilings = limits.send_ceiling_bps, limits.receive_ceiling_bps
            own = limits.send_bps, limits.receive_bps
            assert (ceilings == own) == name.endswith("-alone")
            assert min(ceilings) >= max(own) or name.endswith("-alone")
    names = [name for name in SCENARIOS if name.endswith("-lending")]
    controls = {control_of(system, known[name]) for name in names for system in BORROWERS}
    assert all(set(known[name].controls) == controls for name in names)


def test_the_published_form_of_hygenicc_depends_on_how_many_send():
    known = scenarios()
    eight = control_of("HyGenICC, as published", known["comparison-hygenicc-fig3-alone"])
    assert eight == "hygenicc slow=0.88 fast=1 scope=0 start=0"
    assert len(known["comparison-hygenicc-fig3-alone"].controls) == len(SYSTEMS)


@pytest.mark.parametrize(("first", "said"), [(0.46, "yes"), (0.44, "**no**")])
def test_half_of_the_link_is_kept_within_a_tenth(first, said):
    name = "comparison-seawall-fig9-alone"
    rates = {"settled": {"delivered_bps_by_sender": [first * 1e9, (1 - first) * 1e9]}}
    (row,) = rows("Seawall, figure 9", summary(name, "fs", rates))
    assert (row["system"], row["TCP rate / half"], row["criterion met"]) == (
        "DETS, RAA-FS",
        f"{200 * first:.1f} +- 0.0 %",
        said,
    )
    assert row["controller CPU, ms per s"] == "2.0 +- 0.0"
    assert row["meter-mods per interval"] == "1.1 +- 0.0"


def test_a_tenant_has_the_worst_of_its_cells_and_all_of_the_link_where_it_is_alone():
    both = {"received_bps_by_receiver": [640e6, 215e6]}
    phases = {"A 1 TCP, B UDP": both, "A 1 TCP, B 10 TCP": both, "A UDP, B UDP": both}
    (row,) = rows("Gatekeeper, figure 5", summary("comparison-gatekeeper-fig5-alone", "max-min", phases))
    assert (row["lowest rate / guarantee"], row["criterion met"]) == ("99.2 +- 0.0 %", "yes")
    alone = {"A 1 TCP, B none": {"received_bps_by_receiver": [700e6, 0.0]}}
    name = "comparison-gatekeeper-fig5-lending"
    (row,) = rows("Gatekeeper, figure 5", summary(name, "max-min", phases | alone), block="Borrowing")
    assert (row["lowest rate / guarantee"], row["criterion met"]) == ("81.4 +- 0.0 %", "**no**")


@pytest.mark.parametrize(
    ("fabric", "part", "p99_s", "said"),
    [
        ("model", 0.97, 0.040, "yes"),
        ("model", 0.97, 0.060, "**no**"),
        ("model", 0.9, 0.04, "**no**"),
        ("ovs", 0.97, 0.9, "yes"),
        ("ovs", 0.97, 1.1, "**no**"),
    ],
)
def test_web_answers_have_to_come_and_in_time(fabric, part, p99_s, said):
    name = "comparison-seawall-fig11-alone"
    scenario, runs = SCENARIOS[name].scaled(SCALE[fabric]), []
    for seed in (1, 2, 3):
        asked = sum(len(answers) for at_s, answers in scenario.sessions(seed)[0] if 3 <= at_s < 10) / 7
        settled = {"answers_per_s": part * asked, "latency_mean_s": 0.003, "latency_p99_s": p99_s}
        runs.append({**summary(name, "fp", {"settled": settled}), "seed": seed, "fabric": fabric})
    (table,) = [one for one in TABLES if one.title.startswith("No borrowing: Seawall, figure 11: ")]
    heads, found = table.rows(Measured(runs))
    row = dict(zip(heads, found, strict=True))
    assert row["criterion met"] == said
    assert row["web answers / requests"] == f"{100 * part:.1f} +- 0.0 %"
    assert row["latency, mean and 99th percentile, ms"] == f"3.0 +- 0.0, {1e3 * p99_s:.1f} +- 0.0"


def test_nothing_is_promised_by_gatekeeper_to_the_senders_of_one_tenant():
    name = "comparison-hygenicc-fig3-alone"
    phases = {"both": {"delivered_bps_by_sender": [9e8 / 7] * 7 + [1e8]}}
    of = [summary(name, control, phases) for control in ("gatekeeper", "fp")]
    fp, gatekeeper = rows("HyGenICC, figure 3", *of)
    assert (fp["criterion met"], gatekeeper["criterion met"]) == ("**no**", "-")
    assert fp["TCP rate / eighth"] == gatekeeper["TCP rate / eighth"] == "80.0 +- 0.0 %"


def test_the_page_has_the_picture_then_each_criterion_then_a_row_for_each_system_of_a_fabric():
    (one,) = [one for one in markdown_pages.read_results(ROOT / "docs" / "results") if one.paper.name == "comparison"]
    text = markdown_pages.paper_page(one)
    assert text.index("](comparison-model.svg)") < text.index("| figure | criterion |") < text.index("| system |")
    for fabric, digest in one.digests.items():
        shown = digest["paper_tables"]
        assert set(shown) <= {table.title for table in TABLES}
        for title, (heads, *found) in shown.items():
            assert f"| {title.split(': ', 2)[2]} | {heads[1]} |" in text
            assert {len(row) for row in found} == {len(heads)}
        of_fabric = text.split(f"](comparison-{fabric}.svg)")[1].split("![")[0]
        systems = {row[0] for _, *found in shown.values() for row in found}
        assert systems == set(SYSTEMS if fabric == "model" else EMULATED)
        assert all(of_fabric.count(f"\n| {system} | ") == 1 for system in systems)
    assert len(text.split()) < 1200


TWO = {
    "No borrowing: A, figure 1: fair": [
        ["system", "rate", MET, LONGEST, USE, MODS, "meters", CPU],
        ["x & y", "99.0 +- 1.0 %", "yes", "3.0 +- 0.1", "9.5 +- 0.0 %", "1.0 +- 0.1", "4 +- 0", "2.0 +- 0.0"],
        ["z", "98.0 +- 1.0 %", "-", "3.0 +- 0.1", "99.0 +- 0.0 %", "-", "-", "-"],
    ],
    "Borrowing: B, figure 2: fast": [
        ["system", "delay", MET, "latency, ms", USE, MODS, "meters", CPU],
        ["x & y", "1.0 +- 0.0 %", "**no**", "never", "100.0 +- 0.0 %", "10.0 +- 0.1", "4 +- 0", "2.0 +- 0.0"],
    ],
}


def test_the_summary_counts_criteria_by_block_and_gives_the_range_of_means():
    heads, *found = comparison.summary(TWO)
    assert heads == ["system", "criteria met, no borrowing", "criteria met, borrowing", USE, LONGEST, MODS, CPU]
    assert found == [
        ["x & y", "1 of 1", "0 of 1", "9.5 to 100.0 %", "3.0", "1.0 to 10.0", "2.0"],
        ["z", "-", "-", "99.0 %", "3.0", "-", "-"],
    ]
    assert comparison.criteria(TWO)[1:] == [["A, figure 1", "fair", "rate"], ["B, figure 2", "fast", "delay"]]


def test_the_picture_has_a_cell_for_each_system_and_criterion():
    root = ElementTree.fromstring(picture(TWO))
    fills = [one.get("fill") for one in root.iter() if one.tag.endswith("rect")]
    assert fills == ["white", COLOURS["yes"], COLOURS["-"], COLOURS["**no**"]]
    shown = {one.text for one in root.iter() if one.text}
    assert {"x & y", "z", "99.0 +- 1.0 %", "1.0 +- 0.0 %", "No borrowing", "Borrowing", "A", "figure 1"} <= shown


def test_what_a_run_raises_comes_back_from_its_process_as_text(tmp_path):
    name = "comparison-gatekeeper-fig5-alone"
    assert control_of("DETS, RAA-FE", scenarios()[name]) not in scenarios()[name].controls  # it refuses weights
    (spec, *_) = scenario_runs(name, scenarios()[name], "model", 1, ["fe"])
    with pytest.raises(RuntimeError, match=r"ConfigError: .*weight: 3 has no effect") as caught:
        execute_apart(spec, tmp_path)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
