"""Scenarios: what is refused and how it is named, scaling, timelines, discovery."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import plugins
from controller.errors import InvalidValueError
from experiments import experiment_runner
from experiments import scenarios as package
from experiments.evaluation.claims import MIN_SEEDS
from experiments.experiment_options import ExperimentOptions
from experiments.scenarios.scenario import (
    AlgorithmChange,
    LimitChange,
    Limits,
    Scenario,
    Source,
    WebRequests,
    parse_control,
)
from experiments.scenarios.traffic import Job

LIMITS = {1: Limits(400_000_000, 300_000_000)}
SOURCE = Source(1, 1, 3, "udp", 100_000_000)
TWO_WAYS = (Source(1, 1, 2, "tcp"), Source(1, 2, 1, "tcp"))
JOB = Job(1, maps=1, map_s=1.0, reduces=1, reduce_s=0.1, fetch_bytes=1000)


def make(**changes):
    return Scenario(
        **{"name": "x", "title": "x", "limits": LIMITS, "sources": (SOURCE,), "duration_s": 10.0, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"topology": "ring"}, "topology"),
        ({"pns": 1}, "pns"),
        ({"duration_s": 0.5}, "duration_s"),
        ({"sources": ()}, "sources"),
        ({"sources": (Source(2, 1, 3, "tcp"),)}, "sources[0].vlan_vid"),
        ({"sources": (SOURCE, Source(1, 1, 1, "tcp"))}, "sources[1].receiver"),
        ({"sources": (Source(1, 12, 3, "tcp"),)}, "sources[0].sender"),
        ({"sources": (Source(1, 1, 3, "sctp"),)}, "sources[0].protocol"),
        ({"sources": (Source(1, 1, 3, "udp"),)}, "sources[0].rate_bps"),
        ({"sources": (Source(1, 1, 3, "udp", 10_000, octets=5),)}, "sources[0].octets"),
        ({"sources": (Source(1, 1, 3, "tcp", spans=((5.0, 11.0),)),)}, "sources[0].spans"),
        ({"sources": (Source(1, 1, 3, "tcp", spans=((0.0, 1.0),), max_burst_s=1.0),)}, "sources[0].spans"),
        ({"sources": (replace(SOURCE, flows=2),)}, "sources[0].flows"),
        ({"sources": TWO_WAYS, "job": replace(JOB, fetches=0)}, "job.fetches"),
        ({"sources": TWO_WAYS, "job": replace(JOB, map_s=0.0)}, "job.map_s"),
        ({"sources": TWO_WAYS[:1], "job": JOB}, "job.vlan_vid"),
        ({"sources": (*TWO_WAYS, TWO_WAYS[0]), "job": JOB}, "job.vlan_vid"),
        ({"sources": (*TWO_WAYS, SOURCE), "job": JOB}, "job.vlan_vid"),
        ({"sources": TWO_WAYS, "job": replace(JOB, vlan_vid=2)}, "job.vlan_vid"),
        ({"sources": (Source(1, 1, 3, "tcp", octets=5, flows=2),)}, "sources[0].flows"),
        ({"sources": (Source(1, 1, 3, "tcp", flows=0),)}, "sources[0].flows"),
        ({"sources": (replace(SOURCE, congestion_control="reno"),)}, "sources[0].congestion_control"),
        ({"sources": (Source(1, 1, 3, "tcp", congestion_control="vegas"),)}, "sources[0].congestion_control"),
        ({"sources": (replace(SOURCE, requests=WebRequests(1.0)),)}, "sources[0].requests"),
        ({"sources": (Source(1, 1, 3, "tcp", 5, requests=WebRequests(1.0)),)}, "sources[0].rate_bps"),
        ({"sources": (Source(1, 1, 3, "tcp", requests=WebRequests(0.0)),)}, "sources[0].requests.sessions_per_s"),
        ({"sources": (Source(1, 1, 3, "tcp", requests=WebRequests(1.0, 0.5)),)}, "sources[0].requests.mean_requests"),
        (
            {"sources": (Source(1, 1, 3, "tcp", requests=WebRequests(1.0, sizes=((9, 0.5),))),)},
            "sources[0].requests.sizes",
        ),
        ({"limits": {1: Limits(400, 300, send_ceiling_bps=399)}}, "limits[1].send_ceiling_bps"),
        ({"vn_limits": {(1, 3): Limits(400, 300, weight=0.0)}}, "vn_limits[1, 3].weight"),
        ({"vn_limits": {(1, 12): Limits(400, 300)}}, "vn_limits[1, 12]"),
        ({"events": (LimitChange(1.0, 1, 12, weight=2.0),)}, "events[0].pn"),
        ({"promise": "everything"}, "promise"),
        ({"shaping": "nobody"}, "shaping"),
        ({"phases": {"late": (9.0, 12.0)}}, "phases.late"),
        ({"events": (LimitChange(11.0, 1, 3, receive_bps=1),)}, "events[0].at_s"),
        ({"events": (AlgorithmChange(1.0, 7, "fp"),)}, "events[0].vlan_vid"),
        ({"isolation": ("before", "after")}, "isolation"),
        ({"isolation": ("a", "a"), "phases": {"a": (0.0, 1.0)}}, "isolation"),
        ({"controls": ("fair",)}, "control"),
        ({"controls": ("",)}, "control"),
        ({"controls": ("fp d",)}, "control"),
        ({"controls": ("none d=1",)}, "control"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changes, key):
    with pytest.raises(InvalidValueError) as caught:
        make(**changes)
    assert caught.value.key == key


def test_controls_have_parameters():
    assert parse_control("fp d=4 floor=0.1") == ("fp", {"d": 4.0, "floor": 0.1})
    assert parse_control("static") == ("static", {})


def test_scaling_changes_every_rate_and_size_and_no_time_weight_or_page():
    scenario = make(
        limits={1: Limits(400_000_000, 300_000_000, 500_000_000, None, 2.0)},
        sources=(
            SOURCE,
            Source(1, 2, 3, "tcp", octets=20_000_000),
            Source(1, 1, 3, "tcp", requests=WebRequests(40.0), congestion_control="reno"),
        ),
        vn_limits={(1, 3): Limits(100_000_000, 200_000_000)},
        events=(
            LimitChange(5.0, 1, 3, receive_bps=100_000_000),
            LimitChange(5.0, 1, 3, send_ceiling_bps=600_000_000, weight=3.0),
        ),
        phases={"first": (0.0, 5.0)},
        topology="dets-fig7",
        topology_options={"edges": 2, "core_rate_bps": 500_000_000},
    )
    small = scenario.scaled(0.05)
    assert small.link_rate_bps == 50_000_000
    assert small.limits[1] == Limits(20_000_000, 15_000_000, 25_000_000, None, 2.0)
    assert small.vn_limits[1, 3] == Limits(5_000_000, 10_000_000)
    assert [source.rate_bps for source in small.sources] == [5_000_000, None, None]
    assert small.sources[1].octets == 1_000_000
    assert small.sources[2].requests == WebRequests(2.0)
    assert [event.fields for event in small.events] == [
        {"receive_limit_bps": 5_000_000},
        {"send_ceiling_bps": 30_000_000, "weight": 3.0},
    ]
    assert (small.phases, small.duration_s) == (scenario.phases, scenario.duration_s)
    assert {link.rate_bps for link in small.fabric().core_links} == {25_000_000}


def test_a_vn_has_the_weight_of_its_vlan_unless_it_has_its_own():
    own = {(1, 1): Limits(1, 1), (1, 2): Limits(1, 1, weight=3.0)}
    scenario = make(limits={1: Limits(2, 2, weight=5.0)}, vn_limits=own)
    weights = [scenario.limits_of(scenario.fabric().vn(1, pn)).weight for pn in (1, 2, 3)]
    assert weights == [5.0, 3.0, 5.0]


def test_a_congestion_control_that_a_fabric_lacks_is_refused_there():
    scenario = make(sources=(SOURCE, Source(1, 2, 3, "tcp", congestion_control="dctcp")))
    assert scenario.on("model") is scenario
    with pytest.raises(InvalidValueError) as caught:
        scenario.on("ovs", 0.05)
    assert caught.value.key == "sources[1].congestion_control"


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 50.0), st.floats(1.0, 20.0))
def test_sessions_are_in_order_within_their_spans_and_the_same_for_a_seed(seed, per_s, mean_requests):
    requests = WebRequests(per_s, mean_requests, ((500, 0.5), (5_000, 0.5)))
    scenario = make(sources=(Source(1, 1, 3, "tcp", requests=requests, spans=((1.0, 3.0), (5.0, 9.0))),))
    (sessions,) = scenario.sessions(seed)
    begun = [begin_s for begin_s, _ in sessions]
    assert begun == sorted(begun)
    assert all(1.0 <= at_s < 3.0 or 5.0 <= at_s < 9.0 for at_s in begun)
    assert all(answers and set(answers) <= {500, 5_000} for _, answers in sessions)
    assert scenario.sessions(seed) == (sessions,)


def test_sessions_come_at_their_rate_with_their_mean_number_of_requests():
    (sessions,) = make(sources=(Source(1, 1, 3, "tcp", requests=WebRequests(200.0)),)).sessions(1)
    assert len(sessions) == pytest.approx(2_000, rel=0.07)
    assert sum(len(answers) for _, answers in sessions) / len(sessions) == pytest.approx(10.0, rel=0.07)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.floats(0.05, 20.0))
def test_bursts_are_in_order_within_the_run_and_the_same_for_a_seed(seed, max_burst_s):
    scenario = make(sources=(Source(1, 1, 3, "tcp", max_burst_s=max_burst_s),))
    (spans,) = scenario.timeline(seed)
    times = list(itertools.chain.from_iterable(spans))
    assert times == sorted(times)
    assert times[0] == 0.0
    assert times[-1] <= scenario.duration_s
    assert all(end_s - begin_s <= max_burst_s for begin_s, end_s in spans)
    assert scenario.timeline(seed) == (spans,)


def test_each_seed_and_source_has_bursts_of_its_own():
    scenario = make(sources=(Source(1, 1, 3, "tcp", max_burst_s=1.0), Source(1, 2, 3, "tcp", max_burst_s=1.0)))
    one, two = scenario.timeline(1)
    assert one != two
    assert scenario.timeline(2)[0] != one


def test_a_fabric_in_real_time_runs_a_part():
    scenario = make(duration_s=10.0, emulated_s=4.0, controls=("none", "fp"), emulated_controls=("fp",))
    assert scenario.on("model").duration_s == 10.0
    assert scenario.on("ovs", 0.1).duration_s == 4.0
    assert scenario.on("ovs", 0.1).link_rate_bps == 100_000_000
    assert (scenario.controls_on("model"), scenario.controls_on("ovs")) == (("none", "fp"), ("fp",))


def test_what_is_cut_off_ends_there():
    scenario = make(
        sources=(
            SOURCE,
            replace(SOURCE, spans=((1.0, 2.0), (3.0, 9.0), (9.0, 10.0))),
            replace(SOURCE, spans=((5.0, 6.0),)),
        ),
        phases={"first": (0.0, 5.0), "last": (5.0, 10.0)},
        events=(LimitChange(3.0, 1, 3, receive_bps=1), LimitChange(5.0, 1, 3, receive_bps=2)),
    ).lasting(4.0)
    assert [source.spans for source in scenario.sources] == [(), ((1.0, 2.0), (3.0, 4.0))]
    assert scenario.phases == {"first": (0.0, 4.0)}
    assert [event.at_s for event in scenario.events] == [3.0]


def test_figure_5_in_real_time_has_many_seeds_of_fp_and_a_short_blast():
    scenario = package.scenarios()["dets-fig5"]
    assert [scenario.seeds_on("ovs", control) for control in scenario.controls_on("ovs")] == [1, 10, 2]
    assert scenario.seeds_on("model", "static") == 5
    short = scenario.on("ovs", 0.05)
    assert (short.duration_s, short.judged, short.sources[-1].rate_bps) == (11.0, (6.0, 11.0), 16_000_000)
    assert [short.phase_at(time_s) for time_s in (0.0, 5.9, 6.0, 11.0)] == ["TCP alone"] * 2 + ["UDP blast", ""]


NEW = """
from experiments.scenarios.scenario import Limits, Scenario, Source

scenario = Scenario(
    name="{name}",
    title="two senders",
    topology="dets-fig1",
    pns=3,
    limits={{1: Limits(send_bps=400_000_000, receive_bps=200_000_000)}},
    sources=(Source(1, 1, 3, "udp", 300_000_000), Source(1, 2, 3, "tcp")),
    duration_s=2.0,
    controls=("none", "level"),
    seeds=1,
)
"""


@pytest.fixture
def faults(monkeypatch):
    """What is left out, by name, from here on."""
    monkeypatch.setattr(plugins, "faults", {})
    return lambda: {plugin.name: (plugin.origin, reason) for plugin, reason in plugins.faults.items()}


def test_every_scenario_of_the_project_is_loaded(faults):
    assert package.scenarios()
    assert faults() == {}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("two_senders_misnamed", NEW.format(name="three"), "name: 'three' must be two-senders-misnamed"),
        (
            "two_senders_afar",
            NEW.format(name="two-senders-afar").replace("dets-fig1", "my-line"),
            "topology: 'my-line' is not one of",
        ),
        ("two_senders_open", "scenario = (", "SyntaxError: '(' was never closed"),
        ("two_senders_gone", "import nothing_of_this_name", "ModuleNotFoundError: No module named"),
        ("two_senders_none", "", "AttributeError: "),
        ("two_senders_end", "raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named_and_the_others_are_there(
    name, text, reason, tmp_path, monkeypatch, faults
):
    before = package.scenarios()
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert package.scenarios() == before
    ((called, (origin, why)),) = faults().items()
    assert (called, origin) == (name.replace("_", "-"), f"experiments/scenarios/{name}.py")
    assert why.startswith(reason)
    with pytest.raises(InvalidValueError) as caught:
        experiment_runner.run(called, ExperimentOptions(fabric="model"))
    assert (caught.value.key, caught.value.value) == ("NAME", called)
    assert f"{name}.py: {reason}" in caught.value.reason


VARIANTS = """
from experiments.scenarios.scenario import Limits, Scenario, Source

scenarios = tuple(
    Scenario("{name}-" + kind, kind, {{1: Limits(1_000_000, 1_000_000)}}, (Source(1, 1, 2, kind, 1_000_000),), 2.0)
    for kind in {kinds}
)
"""


def test_a_file_may_hold_variants_of_a_scenario_and_a_folder_files(tmp_path, monkeypatch):
    (tmp_path / "hum").mkdir()
    (tmp_path / "hum" / "__init__.py").write_text("")
    (tmp_path / "hum" / "fig1.py").write_text(VARIANTS.format(name="hum-fig1", kinds=("tcp", "udp")))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert {"hum-fig1-tcp", "hum-fig1-udp", "dets-fig1"} <= set(package.scenarios())


@pytest.mark.parametrize(
    ("name", "kinds", "reason"), [("other", ("tcp",), "begin with"), ("moo", ("tcp", "tcp"), "twice")]
)
def test_variants_are_named_as_their_file_and_once(name, kinds, reason, tmp_path, monkeypatch, faults):
    (tmp_path / f"moo_{name}.py").write_text(
        VARIANTS.format(name=f"moo-{'moo' if name == 'moo' else 'x'}", kinds=kinds)
    )
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    assert not [one for one in package.scenarios() if one.startswith("moo")]
    assert reason in faults()[f"moo-{name}"][1]


def test_every_scenario_has_seeds_enough_to_decide_on_the_model():
    assert not [name for name, one in package.scenarios().items() if one.seeds_on("model", "") < MIN_SEEDS]
