"""Controls have titles for people, whatever algorithm they name; lines of pictures show what the papers' figures do."""

from __future__ import annotations

import numpy as np
import pytest
from support.constructed_runs import scenario_run

from controller.errors import InvalidValueError
from controller.policy.registry import policies
from experiments.evaluation.oracle import oracle_of
from experiments.evaluation.plots import LINE_COLOURS, received_lines, title_of
from experiments.scenarios.scenario import LimitChange, Limits, Scenario, Source

M = 1_000_000
INTERVALS = 20


def run_of(sources, delivered_mbps, limits, **more):
    """A run whose sources deliver constant rates."""
    more = {"topology": "dets-fig1", "pns": 6, "duration_s": INTERVALS * 0.055} | more
    scenario = Scenario("x", "x", limits=limits, sources=sources, **more)
    return scenario_run(scenario, np.array(delivered_mbps) * M)


def shown(run):
    return [
        (
            one.label,
            one.colour,
            round(one.rate_bps.mean() / M),
            one.promised_bps is not None and one.promised_bps[0] / M,
        )
        for one in received_lines(run, oracle_of(run))
    ]


def test_a_vlans_rate_has_the_colour_of_its_limit_whoever_sends_first():
    limits = {1: Limits(60 * M, 60 * M), 2: Limits(20 * M, 20 * M)}
    run = run_of((Source(2, 2, 3, "tcp"), Source(1, 1, 3, "tcp")), [19, 58], limits)
    blue, red = LINE_COLOURS[:2]
    assert shown(run) == [("VLAN 1, PN 3", blue, 58, 60.0), ("VLAN 2, PN 3", red, 19, 20.0)]


def test_a_tagged_sender_is_shown_next_to_all_that_its_receiver_gets():
    run = run_of((Source(1, 1, 3, "tcp"), Source(1, 2, 3, "tcp")), [30, 10], {1: Limits(60 * M, 60 * M)}, tagged=2)
    assert [line[0::2] for line in shown(run)] == [("VLAN 1, PN 3", 40), ("part of PN 2", 10)]
    with pytest.raises(InvalidValueError, match="tagged"):
        run_of((Source(1, 1, 3, "tcp"),), [1], {1: Limits(60 * M, 60 * M)}, tagged=7)


def test_the_limit_of_a_receiver_is_the_one_in_force():
    changes = (LimitChange(0.55, 1, 3, receive_bps=20 * M), LimitChange(0.55, 1, 4, send_bps=20 * M))
    sources = (Source(1, 1, 3, "tcp"), Source(1, 1, 4, "tcp"))
    more = {"events": changes, "vn_limits": {(1, 4): Limits(60 * M, 50 * M)}}
    run = run_of(sources, [30, 10], {1: Limits(60 * M, 60 * M)}, **more)
    first, second = (line.promised_bps / M for line in received_lines(run, oracle_of(run)))
    assert first.tolist() == [60.0] * 10 + [20.0] * 10
    assert second.tolist() == [50.0] * 20


def test_where_senders_share_links_each_is_one_line_next_to_what_the_oracle_gives_it():
    limits = {vid: Limits(10 * M, 10 * M, 1000 * M, 1000 * M) for vid in (1, 2)}
    sources = (Source(1, 1, 2, "tcp"), Source(2, 1, 3, "tcp"), Source(2, 1, 4, "tcp"))
    run = run_of(sources, [480, 240, 250], limits, promise="entities")
    blue, red = LINE_COLOURS[:2]
    assert shown(run) == [("VLAN 1, from PN 1", blue, 480, 500.0), ("VLAN 2, from PN 1", red, 490, 500.0)]


def test_of_many_lines_each_vlan_has_a_colour_and_a_label():
    limits = {vid: Limits(100 * M, 100 * M) for vid in (1, 2)}
    sources = tuple(Source(vid, 1, pn, "tcp") for pn in (2, 3, 4) for vid in (1, 2))
    blue, red = LINE_COLOURS[:2]
    found = [line[:2] for line in shown(run_of(sources, [5] * 6, limits))]
    assert found == [
        ("VLAN 1, 3 receivers", blue),
        ("", blue),
        ("", blue),
        ("VLAN 2, 3 receivers", red),
        ("", red),
        ("", red),
    ]


def test_a_title_is_the_algorithms_own() -> None:
    assert {name: title_of(name) for name in policies} == {name: one.title for name, one in policies.items()}
    assert title_of("max-min probe=3") == f"{policies['max-min'].title}, probe=3"
    assert (title_of("none"), title_of("gone d=2")) == ("no control", "gone, d=2")  # a baseline, and a removed one
