"""The oracles against plain references: limits with ceilings, and entities on links."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constructed_runs import scenario_run

from controller.allocation.max_min import FlowPaths, max_min
from controller.seawall.entity_max_min import entity_max_min
from experiments.evaluation.entity_oracle import entity_rates
from experiments.evaluation.oracle import guarantees_over_time, oracle_of
from experiments.scenarios.scenario import LimitChange, Limits, Scenario, Source, WebRequests

M = 1_000_000
INTERVALS = 20
PROPERTY = settings(derandomize=True, deadline=None, max_examples=100)


def oracle_for(*sources, intervals=INTERVALS, seed=1, **changes):
    scenario = Scenario(
        **{
            "name": "x",
            "title": "x",
            "limits": {1: Limits(20 * M, 30 * M, 100 * M, 100 * M)},
            "sources": sources,
            "duration_s": intervals * 0.055,
            "topology": "dets-fig1",
            "pns": 5,
            "link_rate_bps": 100 * M,
            "promise": "ceilings",
            **changes,
        }
    )
    return oracle_of(scenario_run(scenario, np.zeros(len(sources)), seed=seed))


def filled(uses, capacity, demand, weight, rates):
    """Progressive filling, flow by flow: all that may still grow do so by weight, until the next one is content."""
    rates = rates.copy()
    while True:
        used = uses.T @ rates
        full = used >= capacity - 1e-6
        growing = (rates < demand - 1e-6) & ~(uses & full).any(axis=1)
        if not growing.any():
            return rates
        growth = np.where(growing, weight, 0.0)
        on_link = uses.T @ growth
        steps = [(capacity - used)[link] / on_link[link] for link in np.flatnonzero(on_link > 0)]
        rates += growth * min([*steps, *((demand - rates)[growing] / weight[growing])])


def test_excess_goes_to_those_that_want_more_up_to_ceilings_and_links():
    """Receive limit 30 of a port of 100 Mb/s; each sender may send 20, and up to 100 if it is there."""
    oracle = oracle_for(Source(1, 1, 5, "udp", 90 * M), Source(1, 2, 5, "udp", 10 * M))
    np.testing.assert_allclose(oracle.rate_bps[0], [90 * M, 10 * M])
    capped = oracle_for(
        Source(1, 1, 5, "udp", 90 * M), Source(1, 2, 5, "udp", 10 * M), vn_limits={(1, 1): Limits(20 * M, 30 * M)}
    )
    np.testing.assert_allclose(capped.rate_bps[0], [20 * M, 10 * M])


def test_guarantees_come_before_weights():
    """VLAN 1 is promised 60 of 100 Mb/s and VLAN 2 has ten times its weight: 60 first, the rest 1 to 10."""
    both = (Source(1, 1, 5, "tcp"), Source(2, 2, 5, "tcp"))
    limits = {1: Limits(60 * M, 60 * M, 100 * M, 100 * M, 1.0), 2: Limits(18 * M, 18 * M, 100 * M, 100 * M, 10.0)}
    np.testing.assert_allclose(oracle_for(*both, limits=limits).rate_bps[0], [62 * M, 38 * M])


def test_changes_of_limits_ceilings_and_weights_are_followed():
    both = (Source(1, 1, 5, "tcp"), Source(1, 2, 5, "tcp"))
    events = (LimitChange(0.275, 1, 1, weight=4.0), LimitChange(0.55, 1, 1, send_ceiling_bps=25 * M))
    rates = oracle_for(*both, events=events, promise="entities").rate_bps
    np.testing.assert_allclose(rates[[0, 4, 5, 9, 10]], np.array([[50, 50]] * 2 + [[80, 20]] * 2 + [[25, 75]]) * M)


def test_without_ceilings_a_promise_of_ceilings_is_one_of_limits():
    scenario = {"limits": {1: Limits(20 * M, 30 * M)}}
    three = [Source(1, n, 5, "udp", 25 * M) for n in (1, 2, 3)]
    plain, borrowing = (oracle_for(*three, **scenario, promise=promise) for promise in ("limits", "ceilings"))
    np.testing.assert_allclose(plain.rate_bps, borrowing.rate_bps)


def test_a_sender_has_one_share_of_a_link_whatever_its_destinations():
    """PNs 1 and 3 send over a core link of 60 Mb/s, the first to two PNs: pairs would give it 40 of 60."""
    narrow = {"topology": "dets-fig7", "topology_options": {"edges": 3, "core_rate_bps": 60 * M}}
    sources = (*(Source(1, 1, n, "udp", 90 * M) for n in (2, 4)), Source(1, 3, 2, "udp", 90 * M))
    rates = oracle_for(*sources, promise="entities", **narrow).rate_bps[0]
    np.testing.assert_allclose(rates, [15 * M, 15 * M, 30 * M])
    pairs = oracle_for(*sources, promise="ceilings", limits={1: Limits(90 * M, 90 * M)}, **narrow).rate_bps[0]
    np.testing.assert_allclose(pairs, [20 * M] * 3)


def test_what_an_entity_leaves_of_one_link_it_has_on_another():
    """PN 1 shares the port of PN 5 with PN 2, and has the rest of its own for PN 4."""
    sources = (Source(1, 1, 5, "tcp"), Source(1, 1, 4, "udp", 30 * M), Source(1, 2, 5, "tcp"))
    rates = oracle_for(*sources, promise="entities").rate_bps[0]
    np.testing.assert_allclose(rates, [50 * M, 30 * M, 50 * M])


def test_web_requests_are_wanted_when_their_sessions_begin():
    requests = WebRequests(sessions_per_s=40.0, mean_requests=3.0, sizes=((14_480, 1.0),))
    oracle = oracle_for(Source(1, 1, 5, "tcp", requests=requests), intervals=400)
    scenario = Scenario("x", "x", {1: Limits(1, 1)}, (Source(1, 1, 5, "tcp", requests=requests),), 22.0)
    answers = [octets for begin_s, mine in scenario.sessions(1)[0] if begin_s < 21.5 for octets in mine]
    assert oracle.rate_bps.sum() * 0.055 == pytest.approx(len(answers) * 10 * 1518 * 8, rel=0.05)
    assert (oracle.demand_bps >= oracle.rate_bps).all()


def test_what_is_promised_where_nothing_is_said():
    def promised(promise):
        one, rates = (Source(1, 1, 2, "tcp"),), {1: Limits(20 * M, 30 * M)}
        scenario = Scenario("x", "x", rates, one, 1.1, link_rate_bps=100 * M, promise=promise)
        found = guarantees_over_time(scenario, np.arange(3) * 0.055)
        return found.most_send_bps[0, 0], found.most_receive_bps[0, 0], found.weight[0, 0]

    assert promised("limits") == promised("ceilings") == (20 * M, 30 * M, 1.0)
    assert promised("entities") == (100 * M, 100 * M, 1.0)


@st.composite
def stars(draw):
    """Senders with demands and weights, on the star of four senders and one receiver."""
    senders = draw(st.integers(2, 4))
    rates = [draw(st.integers(1, 90)) for _ in range(senders)]
    limits = [draw(st.integers(1, 10)) for _ in range(senders)]
    ceilings = [draw(st.integers(10, 100)) for _ in range(senders)]
    weights = [draw(st.sampled_from([0.5, 1.0, 3.0])) for _ in range(senders)]
    return rates, limits, ceilings, weights, draw(st.integers(5, 60)), draw(st.integers(60, 100))


@PROPERTY
@given(stars())
def test_limits_then_excess_is_what_two_fillings_give(star):
    rates, limits, ceilings, weights, limit, ceiling = star
    of_vns = {
        (1, n): Limits(limits[n - 1] * M, 30 * M, ceilings[n - 1] * M, 30 * M, weights[n - 1])
        for n in range(1, len(rates) + 1)
    }
    of_vns[1, 5] = Limits(20 * M, limit * M, 20 * M, ceiling * M)
    sources = [Source(1, n, 5, "udp", rate * M) for n, rate in enumerate(rates, start=1)]
    found = oracle_for(*sources, vn_limits=of_vns, intervals=19).rate_bps[0] / M

    uses = np.hstack([np.eye(len(rates), dtype=bool), np.ones((len(rates), 1), dtype=bool)])
    demand, weight = np.array(rates, dtype=float), np.array(weights)
    first = filled(uses, np.array([*limits, limit], dtype=float), demand, weight, np.zeros(len(rates)))
    left = np.array([*ceilings, ceiling], dtype=float) - uses.T @ first
    second = filled(uses, left, demand - first, weight, np.zeros(len(rates)))
    np.testing.assert_allclose(found, first + second, atol=0.05)


@st.composite
def networks(draw):
    """Flows over links, with the entity of each."""
    flows, links, entities = draw(st.integers(1, 8)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    ways = [sorted(draw(st.sets(st.integers(0, links - 1), min_size=1))) for _ in range(flows)]
    entity = [draw(st.integers(0, entities - 1)) for _ in range(flows)]
    weight = [draw(st.sampled_from([0.5, 1.0, 2.0])) for _ in range(entities)]
    capacity = [draw(st.integers(1, 100)) for _ in range(links)]
    demand = [draw(st.one_of(st.integers(0, 100), st.just(np.inf))) for _ in range(flows)]
    arrays = (np.array(entity, dtype=np.int64), *(np.array(one, dtype=float) for one in (weight, capacity, demand)))
    return [np.array(way, dtype=np.int64) for way in ways], *arrays


@PROPERTY
@given(networks())
def test_entities_of_one_flow_each_are_weighted_max_min(network):
    links, _, _, capacity, demand = network
    weight = np.linspace(0.5, 2.0, len(links))
    found = entity_rates(links, np.arange(len(links)), weight, capacity, demand)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in links])]).astype(np.int64)
    known = max_min(FlowPaths(offsets, np.concatenate(links), len(capacity)), capacity, demand, weight).rate_bps
    np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-9)


@PROPERTY
@given(networks())
def test_nobody_has_more_than_it_wants_and_no_link_more_than_it_carries(network):
    links, entity, weight, capacity, demand = network
    found = entity_rates(links, entity, weight, capacity, demand)
    used = np.zeros(len(capacity))
    for way, rate in zip(links, found, strict=True):
        used[way] += rate
    assert (found >= 0).all()
    assert (found <= demand * (1 + 1e-6) + 1e-9).all()
    assert (used <= capacity * (1 + 1e-6)).all()


@PROPERTY
@given(networks(), st.sampled_from([0.25, 8.0]))
def test_weights_count_in_proportion_only(network, factor):
    links, entity, weight, capacity, demand = network
    rates = [entity_rates(links, entity, weight * one, capacity, demand) for one in (1.0, factor)]
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-6, atol=1e-9)


@PROPERTY
@given(networks())
def test_the_policys_own_law_agrees_on_one_link(network):
    links, entity, weight, capacity, demand = network
    one = FlowPaths(np.arange(len(links) + 1), np.zeros(len(links), dtype=np.int64), 1)
    law = entity_max_min(one, entity, capacity[:1], demand, weight[entity]).rate_bps
    found = entity_rates([np.zeros(1, dtype=np.int64)] * len(links), entity, weight, capacity[:1], demand)
    np.testing.assert_allclose(found, law, rtol=1e-6, atol=1e-9)


@PROPERTY
@given(networks())
def test_the_policys_own_law_gives_everybody_as_much(network):
    """And what step 4 leaves: on a link where nothing is left both agree."""
    links, entity, weight, capacity, demand = network
    offsets = np.concatenate([[0], np.cumsum([len(way) for way in links])]).astype(np.int64)
    paths = FlowPaths(offsets, np.concatenate(links), len(capacity))
    law = entity_max_min(paths, entity, capacity, demand, weight[entity]).rate_bps
    found = entity_rates(links, entity, weight, capacity, demand)
    assert (law >= found * (1 - 1e-6) - 1e-9).all()
    used = np.bincount(np.concatenate(links), np.repeat(found, np.diff(offsets)), minlength=len(capacity))
    if (np.isclose(used, capacity) | (found >= demand * (1 - 1e-9)).all()).all():
        np.testing.assert_allclose(found, law, rtol=1e-6, atol=1e-9)
