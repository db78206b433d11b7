"""``dets bench interval``: blasts by pairs that are known."""

from __future__ import annotations

from itertools import pairwise

import pytest

from experiments.bench.interval import bench, blast


@pytest.mark.parametrize("algorithm", ["fp", "level"])
def test_at_half_the_interval_meters_meet_a_blast_in_half_the_time(
    monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(blast, "PHASES", 6)
    usual, shorter = (blast.figures(blast.on_model(interval_ms, algorithm)) for interval_ms in (55, 27))
    for name in list(usual)[1:]:  # median and most
        assert shorter[name] is not None
        assert usual[name] is not None
        assert shorter[name] < 0.6 * usual[name]


def test_blasts_begin_in_every_phase_of_an_interval_and_end_before_the_next_one() -> None:
    scenario = blast.scenario(55)
    spans = scenario.sources[0].spans[1:]
    phases = sorted(start_s % 0.055 for start_s, _ in spans)
    assert max(later - one for one, later in pairwise(phases)) < 1.5 * 0.055 / blast.PHASES
    assert all(end_s + 2.0 < start_s for (_, end_s), (start_s, _) in pairwise(spans))


def test_what_was_decided_before_a_blast_is_not_the_answer_to_it() -> None:
    decided = [(9.9, 1e6), (10.0, 100e6), (10.05, 28e6), (10.1, 27e6), (10.2, 1e6)]
    assert blast._decided_ms(decided, 9.95) == pytest.approx(150.0)
    assert blast._decided_ms(decided, 10.3) == pytest.approx(1000.0)


def test_they_are_rows_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blast, "PHASES", 2)
    rows = list(bench._blasts([10, 55], ["model"]))
    cases = [(row["interval_ms"], row["case"]) for row in rows]
    assert cases == [(10, "blast"), (55, "blast")]
    assert "| model | blast | blast to meters, median, ms | " in bench.table(rows)
