"""Seawall's claims, on figures made by hand."""

from __future__ import annotations

import pytest
from support.constructed_runs import summary, verdict, with_seeds

from experiments.papers.seawall import paper
from experiments.scenarios.seawall import CHANGES, PUBLISHED


def run(experiment, control, rates=None, **figures):
    phases = {} if rates is None else {"settled": {"delivered_bps_by_sender": rates}}
    return summary(experiment, control, phases=phases, **figures)


def judged(key, *runs):
    return verdict(paper, key, *runs).holds


def tasks(experiment, control, maps_s, reduce_s):
    return run(experiment, control, completions_s=[maps_s] * 5 + [reduce_s - 1.0] * 9 + [reduce_s])


@pytest.mark.parametrize(("ends_s", "holds"), [(30.0, True), (26.0, False), (34.0, False)])
def test_figure_3_is_neither_sooner_nor_later_than_the_paper(ends_s, holds):
    """Six tasks that end after 15 units of 2 s are 90 of activity."""
    assert judged("maps-none", tasks("seawall-fig3-equal", "none", ends_s, ends_s)) is holds
    assert judged("maps-equal", tasks("seawall-fig3-equal", "seawall", ends_s, ends_s)) is holds


def test_figure_3_counts_a_task_by_its_last_source_and_one_that_does_not_end():
    good = tasks("seawall-fig3-tasks", "seawall", 12.0, 30.0)  # 6 units each for five, 15 for the last: 45
    assert (judged("maps-tasks", good), judged("maps-last", good)) == (True, True)
    late = tasks("seawall-fig3-tasks", "seawall", 12.0, 34.0)
    assert (judged("maps-tasks", late), judged("maps-last", late)) == (True, False)
    never = run("seawall-fig3-tasks", "seawall", completions_s=[12.0] * 5 + [30.0] * 9 + [None])
    assert (judged("maps-tasks", never), judged("maps-last", never)) == (False, False)


@pytest.mark.parametrize(
    ("flows", "share", "holds"), [(1, 0.55, True), (1, 0.65, False), (2, 0.30, True), (2, 0.20, False)]
)
def test_without_control_flows_have_equal_parts(flows, share, holds):
    assert judged(f"flows-none-{flows}", run(f"seawall-fig9-b{flows}", "none", [share, 1.0 - share])) is holds


def test_without_control_the_share_falls_with_the_receivers():
    def runs(*shares):
        counts = zip((1, 2, 4, 8), shares, strict=True)
        return [run(f"seawall-fig10-{count}", "none", [share, 1.0 - share]) for count, share in counts]

    assert judged("receivers-none", *runs(0.50, 0.36, 0.22, 0.12)) is True
    assert judged("receivers-none", *runs(0.50, 0.50, 0.50, 0.50)) is False
    assert judged("receivers-none", *runs(0.50, 0.36, 0.22, 0.12)[:3]) is None


def test_what_turns_a_claim_is_named_and_else_what_was_tried():
    def udp(share, control, experiment="seawall-fig9-a"):
        return run(experiment, control, [share, 1.0 - share])

    bad = [udp(0.5, "seawall"), udp(0.2, PUBLISHED)]
    assert paper.deciding(with_seeds(bad)) == {"udp": "as published, ours: 50.0 +- 0.0 %"}
    by_hosts = udp(0.48, PUBLISHED, "seawall-hosts-fig9-a")
    hosts = "as published, shaped by hosts (`--shaping agent`): 48.0 +- 0.0 %"
    assert paper.deciding(with_seeds([*bad, by_hosts])) == {"udp": hosts}
    name, change = next(iter(CHANGES.items()))
    none = [udp(0.2, "seawall"), udp(0.2, PUBLISHED), udp(0.3, change)]
    tried = f"not turned by as published; as published, not turned by {name}, ours"
    assert paper.deciding(with_seeds(none)) == {"udp": tried}
