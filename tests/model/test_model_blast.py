"""How soon meters meet a blast by pairs that are known."""

from __future__ import annotations

import pytest

from experiments.bench.loop import bench, surge_reaction


@pytest.mark.parametrize(("interval_ms", "algorithm"), [(55, "fp"), (55, "level"), (27, "fp")])
def test_meters_meet_a_blast_soon(monkeypatch: pytest.MonkeyPatch, interval_ms: int, algorithm: str) -> None:
    monkeypatch.setattr(surge_reaction, "PHASES", 6)
    found = surge_reaction.figures(interval_ms, algorithm)
    assert found["least_ms"] < found["median_ms"] < 1.2 * interval_ms
    assert found["most_ms"] < bench.TARGET_BLAST * interval_ms
