"""``dets bench rest`` in its smallest: the phases do what they say, on the real application."""

from __future__ import annotations

from functools import partial

import pytest
from support.skipped_rounds import FEW_INTERVALS

from experiments.bench.rest import bench
from experiments.bench.rest.hostile_clients import Attack


def test_the_smallest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large attack is test_wire_rest_attack's."""
    monkeypatch.setattr(bench, "Attack", partial(Attack, rapid=1_000, slow=10))
    result = bench.run(vlans=2, pairs=16, changes=20, streams=2, seconds=1.0)
    figures = result["figures"]
    assert figures["vns listed"] == 40
    assert figures["scraped bytes"] > 1000
    assert figures["streams open at the end"] == 2
    assert figures["states streamed"] >= 2
    for phase in ("at rest", "a switch comes back"):
        assert figures[phase]["missed_intervals"] <= FEW_INTERVALS + figures[phase]["withheld_intervals"], phase
    assert figures["an attack"]["body 413"] == 50
    assert figures["ten pages, a scrape every 5 s, a client at the rate limit"]["requests"] > 10
    assert [row["target"] for row in result["targets"]] == [0] * 10
