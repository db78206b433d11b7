"""Papers are found by themselves, and the pages of results are made from what their runs left."""

from __future__ import annotations

import dataclasses
import json
from math import inf, isfinite

import pytest
from support.constructed_runs import summary
from support.paths import ROOT
from typer.testing import CliRunner

from apps.cli import app
from controller.errors import InvalidValueError
from experiments import papers as package
from experiments.evaluation.claims import (
    UNDECIDED,
    Claim,
    ClaimVerdict,
    Measured,
    NotRun,
    Paper,
    Published,
    all_of,
    show,
    within,
)
from experiments.evaluation.run_matrix import RunSpec
from experiments.figures import figure_runner, markdown_pages
from experiments.figures.figure_runner import FigureOptions
from experiments.figures.result_digests import table_of
from experiments.papers import experiments_of, paper_named, papers

NEW = """
from experiments.evaluation.claims import Claim, ClaimVerdict, Paper

def _quiet(measured):
    rates = list(measured.values("whisper-fig1", "max-min", "received_bps").values())
    return ClaimVerdict(f"{len(rates)} runs", bool(rates) and max(rates) < 1e6)

paper = Paper("{name}", "Whisper", (Claim("quiet", "2", "hardly anything is sent", _quiet),))
"""


@pytest.fixture
def whisper(tmp_path, monkeypatch):
    (tmp_path / "whisper.py").write_text(NEW.replace("{name}", "whisper"))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])


def test_a_paper_in_a_new_file_is_found_by_itself_with_its_experiments(whisper):
    assert {"dets", "whisper"} <= set(papers())
    names = ["dets-fig1", "whisper-fig1", "my-burst", "whisperer"]
    assert experiments_of("whisper", names) == ["whisper-fig1"]
    assert experiments_of("dets", names) == ["dets-fig1", "my-burst", "whisperer"]
    assert FigureOptions(paper="whisper").chosen() == []  # no such scenario is there
    assert FigureOptions(paper="whisper", fabric="ovs").command == "make figures PAPER=whisper FABRIC=ovs"


@pytest.mark.parametrize(
    ("option", "value", "key"),
    [
        ("paper", "whisper", "paper"),
        ("fabric", "air", "fabric"),
        ("experiments", ("x",), "only"),
        ("seeds", 0, "seeds"),
        ("conditions", "x", "conditions"),
    ],
)
def test_what_is_not_there_is_refused_by_name(option, value, key):
    with pytest.raises(InvalidValueError) as caught:
        FigureOptions(**{option: value}).chosen()
    assert caught.value.key == key
    assert option != "paper" or "dets" in caught.value.reason


def test_a_paper_named_otherwise_than_its_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "mumble.py").write_text(NEW.replace("{name}", "whisper"))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    with pytest.raises(InvalidValueError, match="must be mumble"):
        papers()


def digest(**claims):
    made = {"command": "make figures", "runs": 3, "runs_with_warnings": 0, "trees": [{"depends": {}}], "machine": {}}
    return {
        **made,
        "fabric": "model",
        "programs": {},
        "claims": claims,
        "tables": {"whisper-fig1": [["control", "seeds"], ["x", "1"]]},
    }


def test_every_paper_has_a_page_that_shows_what_does_not_hold(whisper, tmp_path):
    folder = tmp_path / "docs" / "results"
    folder.mkdir(parents=True)
    held = dataclasses.asdict(ClaimVerdict("3 runs", True))
    failed = dataclasses.asdict(ClaimVerdict("loud", False))
    (folder / "whisper-model.json").write_text(json.dumps(digest(quiet=held)))
    warned = {**digest(quiet=failed), "runs_with_warnings": 2, "warnings": {"idle for only N %": 2}}
    (folder / "whisper-ovs.json").write_text(json.dumps(warned))
    assert [path.name for path in markdown_pages.write_docs(tmp_path / "docs")] == ["results.md", "whisper.md"]
    page = (folder / "whisper.md").read_text()
    heads = "published, model | published, Open vSwitch | ours, model | ours, Open vSwitch"
    assert f"| section | claim | key | {heads} | found where it does not hold | what decides |" in page
    assert (
        "| 2 | hardly anything is sent | `quiet` | holds | **fails** | holds | **fails** | Open vSwitch: loud |  |"
        in page
    )
    assert "`docs/results/whisper-model.json`, `docs/results/whisper-ovs.json`" in page
    assert "3 runs, 2 with warnings" in page
    assert "\n  - in 2 of the runs: idle for only N %\n" in page
    assert "whisper-fig1" not in page  # tables of measures are in the JSON
    overview = (tmp_path / "docs" / "results.md").read_text()
    counts = 2 * "| 1 / 0 / 0 / 0 | 0 / 1 / 0 / 0 "
    assert f"| [Whisper](results/whisper.md) | 1 {counts}|" in overview


def test_conditions_are_shown_where_they_decide(whisper, tmp_path):
    rows = [
        {"section": "2", "says": "quiet", "verdicts": ["holds: 1", "fails: 2"], "decides": "the queue"},
        {
            "section": "3",
            "says": "calm",
            "verdicts": ["holds: 1", "holds: 2"],
            "decides": "nothing: it holds under all",
        },
    ]
    (tmp_path / "whisper-ovs-conditions.json").write_text(
        json.dumps({**digest(), "conditions": ["product", "unshaped"], "claims": rows})
    )
    (one,) = markdown_pages.read_results(tmp_path)
    page = markdown_pages.paper_page(one)
    assert "| 2 | quiet | holds | **fails** | the queue |" in page
    assert "calm" not in page
    assert "The verdicts on 1 other claims are the same under all conditions." in page


def test_the_command_writes_the_pages_without_a_run(tmp_path):
    docs = tmp_path / "docs" / "results"
    docs.mkdir(parents=True)
    (docs / "dets-model.json").write_text((ROOT / "docs" / "results" / "dets-model.json").read_text())
    arguments = ["figures", "--pages-only", "--docs", str(tmp_path / "docs"), "--output", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "**fails**" in (docs / "dets.md").read_text()
    assert (docs / "dets-model.json").read_text() == (ROOT / "docs" / "results" / "dets-model.json").read_text()


def test_claims_are_judged_by_what_was_measured():
    def least(measured):
        return ClaimVerdict(measured.shown("x-a", "fp", "use"), measured.more("x-a", "fp", "fs", "use"))

    runs = [
        summary("x-a", control, seed=seed, use=use + seed / 100)
        for control, use in (("fp", 0.8), ("fs", 0.7))
        for seed in (1, 2, 3)
    ]
    paper = Paper(
        "x", "X", (Claim("least", "1", "more", least), Claim("none", "1", "?", lambda _: ClaimVerdict("-", None)))
    )
    found = paper.judge(runs)
    assert (found["least"].holds, found["none"].holds) == (True, None)
    assert Measured(runs).mean("x-a", "fp", "use") == pytest.approx(0.82)
    assert paper_named("dets").best == "level"


def test_the_table_of_figure_5_has_what_tcp_loses_to_udp_and_by_itself():
    def run(seed, below, before):
        figures = {
            "victim_goodput_bps_during": 9e6, "victim_goodput_limit_bps": 10e6, "aggressor_received_bps_during": 4e6,
            "aggressor_limit_bps": 5e6, "victim_recovery_intervals": 1, "victim_intervals_below_95_percent": 2,
            "victim_intervals_below_95_percent_total": below, "intervals_during_blast": 100,
            "victim_intervals_below_95_percent_before_total": before, "intervals_before_blast": 40,
        }  # fmt: skip
        return summary("fig5", "fp", seed=seed, **figures)

    heads, row = table_of(Measured([run(1, 3, 1), run(2, 3, 1)]), "fig5", ["fp"])
    found = dict(zip(heads, row, strict=True))
    assert found["TCP during UDP, of its limit"].startswith("90.0")
    assert found["UDP, of its limit"].startswith("80.0")
    assert found["below 95 % during UDP, of its intervals"].startswith("3.0")
    assert found["and of those before it"].startswith("2.5")


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([], None),
        ([0.90, 0.92, 0.91], True),
        ([0.70, 0.72, 0.71], False),
        ([0.70, 0.95, 0.90], "undecided"),  # the interval crosses the threshold
        ([0.81], "undecided"),  # one or two seeds have no interval
        ([0.81, 0.82], "undecided"),
        ([0.79, 0.78], "undecided"),
        ([0.9, inf, inf], True),  # it never happens
        ([-inf] * 3, False),
        ([0.7, 0.7, inf], "undecided"),
    ],
)
def test_a_verdict_is_undecided_where_the_interval_of_the_seeds_crosses_the_threshold(values, outcome):
    assert within(values, 0.8) == outcome
    assert within([-one for one in values], high=-0.8) == outcome
    assert ("+-" in show(values)) is (len(values) >= 3 and all(map(isfinite, values)))


def test_one_failure_decides_over_the_unknown():
    assert all_of(True, None, False) is False
    assert all_of(True, UNDECIDED, None) is None
    assert all_of(True, UNDECIDED) == UNDECIDED
    assert all_of(True, True) is True
    assert show([1.0, 1.0, inf]) == "never (1 of 3 seeds)"


@pytest.mark.parametrize("holds", [True, False])
def test_one_seed_decides_nothing_however_it_is_judged(holds):
    def runs(control, seeds):
        return [summary("x-a", control, seed=seed) for seed in range(1, seeds + 1)]

    def judge(measured):
        seen = measured.runs("x-a", "fp"), measured.runs("x-a", "none"), measured.runs("x-a", "level")
        return ClaimVerdict("seen", holds if all(seen) else None)

    paper = Paper("x", "X", (), best="level")
    enough = [*runs("fp", 3), *runs("none", 3), *runs("level", 1)]
    assert paper.verdict(judge, enough).holds is holds  # the one that stands beside it does not count
    assert paper.verdict(judge, [*runs("fp", 3), *runs("none", 2), *runs("level", 1)]).holds == UNDECIDED
    assert paper.verdict(judge, runs("fp", 3)).holds is None


def test_without_runs_nothing_is_known_and_every_claim_and_aim_asks_for_runs_by_their_seeds():

    class OneSeed(Measured):
        def _runs_of(self, experiment, control):
            self.fewest_seeds = 1
            return super()._runs_of(experiment, control)

    for one in papers().values():
        for each in (*one.claims, *one.aims):
            measured = OneSeed([])
            assert each.judge(measured).holds is None, f"{one.name} {each.key} is judged without runs"
            assert measured.fewest_seeds == 1, f"{one.name} {each.key} asks for no run by its seeds"
        assert [table.rows(OneSeed([])) for table in one.tables] == [[]] * len(one.tables)


def test_a_claim_is_judged_as_published_under_the_conditions_that_it_names():
    def use(measured):
        values = list(measured.values("x-a", "fp", "use").values())
        return ClaimVerdict(measured.shown("x-a", "fp", "use"), within(values, 0.8))

    runs = [
        {**summary("x-a", "fp", seed=seed, use=value), "conditions": conditions}
        for conditions, value in (("product", 0.9), ("paper", 0.7))
        for seed in (1, 2, 3)
    ]
    claim = Claim("use", "1", "used", use, Published("late grants", use, "paper"))
    absent = Claim("absent", "1", "?", use, NotRun("a queue of hosts"))
    one = Paper("x", "X", (claim, absent))
    product = [run for run in runs if run["conditions"] == "product"]
    assert one.judge(product)["use"].holds is True
    assert {key: verdict.holds for key, verdict in one.judge_published(runs).items()} == {"use": False}


def test_no_aim_is_counted_among_the_claims_and_every_claim_has_its_place_in_a_paper():
    for one in papers().values():
        keys = [each.key for each in (*one.claims, *one.aims)]
        assert len(keys) == len(set(keys))
        assert all(claim.section not in ("", "-") for claim in one.claims)
        assert not any(claim.title.lower().startswith(("aim", "target")) for claim in one.claims)


def test_no_digest_that_is_kept_has_an_interval_of_fewer_than_three_seeds():
    """Nor over anything but seeds: where no control has three of them, "+-" is nowhere."""
    for path in (ROOT / "docs" / "results").glob("*.json"):
        kept = json.loads(path.read_text())
        seeds = [(row[1], row) for _, *rows in kept["tables"].values() for row in rows if row[1].isdecimal()]
        assert not [row for count, row in seeds if int(count) < 3 and any("+-" in cell for cell in row)], path.name
        if seeds and all(int(count) < 3 for count, _ in seeds):
            assert "+-" not in json.dumps(kept["claims"]), path.name


def test_runs_that_leave_a_claim_undecided_are_those_that_more_seeds_are_for():
    def judged(experiment):
        return lambda measured: ClaimVerdict("", within(list(measured.values(experiment, "fp", "use").values()), 0.8))

    runs = [
        summary(name, "fp", seed=seed, use=use)
        for name, uses in (("x-a", (0.7, 0.9, 0.8)), ("x-b", (0.9, 0.91, 0.92)))
        for seed, use in enumerate(uses, start=1)
    ]
    late = [{**one, "conditions": "late"} for one in runs]
    published = Published("late", judged("x-a"), "late")
    claims = (Claim("a", "1", "", judged("x-b"), published), Claim("b", "1", "", judged("x-b")))
    assert Paper("x", "X", claims).undecided([*runs, *late]) == {("x-a", "fp", "late")}
    assert Paper("x", "X", (*claims, Claim("c", "1", "", judged("x-a")))).undecided(runs) == {("x-a", "fp", "product")}


def test_more_seeds_follow_until_all_is_decided(monkeypatch, tmp_path):
    """Three seeds first, then two more of the undecided runs at a time, ten at most."""
    options = FigureOptions(paper="hygenicc", experiments=("hygenicc-packets-2-udp",), results=tmp_path, quiet=True)
    done = []

    def execute(todo, _options):
        done.extend(todo)
        return []

    monkeypatch.setattr(figure_runner, "_run", execute)
    monkeypatch.setattr(figure_runner, "completed_runs", lambda *_: [(spec, {}) for spec in done])
    monkeypatch.setattr(figure_runner, "write_digests", lambda _options: {})
    monkeypatch.setattr(figure_runner, "write_pages", lambda _options: [])
    open_until = 7
    wanted = {("hygenicc-packets-2-udp", "static", "packets")}
    still = lambda _self, summaries: wanted if max(spec.seed for spec in done) < open_until else set()  # noqa: E731
    monkeypatch.setattr(Paper, "undecided", still)
    monkeypatch.setattr(RunSpec, "summary", lambda self, _folder: {} if self in done else None)
    figure_runner.make_figures(options)
    seeds = {}
    for spec in done:
        seeds.setdefault(spec.control, []).append(spec.seed)
    assert seeds.pop("static") == [1, 2, 3, 4, 5, 6, 7]
    assert set(map(tuple, seeds.values())) == {(1, 2, 3)}
    open_until = 99
    done.clear()
    figure_runner.make_figures(options)
    assert max(spec.seed for spec in done) == figure_runner.MAX_ADDED_SEED
