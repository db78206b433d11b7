"""What decides a claim: the verdicts under each of the conditions."""

from __future__ import annotations

import pytest
from support.constructed_runs import summary

from experiments.evaluation.claims import Measured
from experiments.figures.result_digests import conditions_digest, deciding_condition, warnings_of
from experiments.papers.dets import COMPARED, paper


@pytest.mark.parametrize(
    ("verdicts", "decides"),
    [
        ((True, True, True, True), "nothing: it holds under all"),
        ((False, False, False, False), "nothing: it fails under all"),
        ((False, True, False, True), "the receiver's shaping queue"),
        ((False, False, True, True), "the delay of grants"),
        ((False, True, True, True), "the receiver's shaping queue or the delay of grants"),
        ((True, True, True, False), "both together"),
        ((True, False, True, True), "the two conditions make up for each other"),
        ((True, None, True, False), "not known"),
        ((False, True), "the receiver's shaping queue"),  # a fabric without late grants
        ((True,), "not known"),
    ],
)
def test_what_decides(verdicts, decides):
    assert deciding_condition(dict(zip(("product", "unshaped", "late", "paper"), verdicts))) == decides  # noqa: B905


def test_claims_about_fe_are_judged_with_both_gains():
    runs = [summary("dets-fig6", control, seed=seed, use_of_oracle=use + seed / 100, received_swing=0.2 - use / 10)
            for control, use in (("fe", 0.9), ("fe k=0.07", 0.5), ("sp", 0.8), ("fp", 0.7), ("fs", 0.6))
            for seed in (1, 2, 3)]  # fmt: skip
    holds = {claim.key: claim.judge(Measured(runs)).holds for claim in COMPARED}
    assert (holds["explicit-use"], holds["explicit-use-k"]) == (False, True)
    assert (holds["explicit-unrest"], holds["explicit-unrest-k"]) == (False, True)
    assert holds["slow-over-fast"] is True


def test_only_runs_that_were_made_under_all_conditions_are_compared():
    runs = [
        {**summary("dets-fig6", "sp", seed=seed, use_of_oracle=0.5), "conditions": conditions, "manifest": {}}
        for conditions, seeds in (("product", (1, 2, 3)), ("unshaped", (2, 3)))
        for seed in seeds
    ]
    made = {"fabric": "ovs", "judged": {}, "machine": {}, "programs": {}, "command": "x"}
    digest = conditions_digest(paper, runs, made)
    assert (digest["runs"], digest["conditions"]) == (4, ["product", "unshaped"])
    assert [row[2] for row in digest["tables"]["dets-fig6"][1:]] == ["2", "2"]


def test_warnings_are_counted_by_kind_whatever_their_numbers():
    busy = ["the processors were idle for only {}% of the run", "no programs"]
    runs = [{"notes": {"warnings": [busy[0].format(n)]}} for n in (3, 12)]
    runs += [{"notes": {"warnings": [busy[0].format(7), busy[1]]}}, {"notes": {}}]
    found = warnings_of(runs)
    assert found == {"runs_with_warnings": 3, "warnings": {busy[0].format("N"): 3, busy[1]: 1}}
