"""A job of map and reduce tasks on the model: what it fetches, in which order, and who gets the tasks."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from experiments.runs.model_run import run_on_model
from experiments.scenarios.scenario import Limits, Scenario, Source
from experiments.scenarios.traffic import Job

JOB = Job(1, maps=2, map_s=0.5, reduces=3, reduce_s=0.1, fetch_bytes=100_000, fetches=2)
PNS = 4
LINK_BPS = 100_000_000


def job(slow_pn=None, **more):
    """Four PNs, one of which may receive a tenth of what the others may."""
    limits = Limits(LINK_BPS, LINK_BPS)
    sources = tuple(Source(1, one, other, "tcp") for one in range(1, 5) for other in range(1, 5) if one != other)
    few = {} if slow_pn is None else {(1, slow_pn): Limits(LINK_BPS, LINK_BPS // 20)}
    return Scenario(
        "my-job", "a job", {1: limits}, sources, 10.0, topology="dets-fig1", pns=PNS, link_rate_bps=LINK_BPS,
        vn_limits=few, job=dataclasses.replace(JOB, **more),
    )  # fmt: skip


def fetches(scenario, control="static"):
    run = run_on_model(scenario, control, 1, lambda _: None)
    return [(scenario.sources[int(number)], begun, ended) for number, begun, ended in run.transfers.tolist()]


def test_every_task_fetches_from_every_map_task_of_other_pns_once_it_has_ended():
    rows = fetches(job())
    assert len(rows) == JOB.reduces * PNS * JOB.maps * (PNS - 1)
    assert all(ended == ended for _, _, ended in rows)
    ends = JOB.map_ends(1, range(1, PNS + 1))
    assert [round(at_s // JOB.map_s) for at_s, _ in ends] == [0] * PNS + [1] * PNS
    for sender in range(1, PNS + 1):
        first, second = (at_s for at_s, pn in ends if pn == sender)
        of_sender = sorted(begun for source, begun, _ in rows if source.sender == sender)
        assert of_sender[0] >= first
        # before the second has ended each PN has one task, which fetches what the first has left
        assert sum(begun < second for begun in of_sender) <= PNS - 1


def test_a_task_fetches_from_so_many_pns_at_once_and_no_more():
    changes = []
    for source, begun, ended in fetches(job(fetches=2, fetch_bytes=500_000)):
        changes += [(begun, 1, source.receiver), (ended, -1, source.receiver)]
    now, most = Counter(), Counter()
    for _, step, receiver in sorted(changes, key=lambda one: (one[0], one[1])):
        now[receiver] += step
        most[receiver] = max(most[receiver], now[receiver])
    assert set(most.values()) == {2}


def test_a_pn_that_is_slow_gets_fewer_tasks():
    rows = fetches(job(slow_pn=4, fetch_bytes=400_000, reduces=6))
    taken = Counter(source.receiver for source, _, _ in rows)
    assert taken[4] < min(taken[pn] for pn in (1, 2, 3))
    assert sum(taken.values()) == 6 * PNS * JOB.maps * (PNS - 1)


def test_what_is_not_fetched_by_the_end_has_no_end():
    rows = fetches(dataclasses.replace(job(fetch_bytes=10_000_000), duration_s=2.0))
    assert len(rows) == JOB.reduces * PNS * JOB.maps * (PNS - 1)
    assert any(ended != ended for _, _, ended in rows)


@pytest.mark.parametrize("fabric", ["wire", "ovs"])
def test_a_job_is_refused_in_real_time(fabric):
    with pytest.raises(ValueError, match=f"job: 'my-job' is not run on {fabric}"):
        job().on(fabric)
