"""The demonstration's traffic over each kind of emulated switch: its victim keeps its limit, or it is said why not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.emulated_runs import AGGRESSOR_BPS, BLAST_S, VICTIM_BPS, WARM_UP_S, EmulatedRuns

from experiments.switch.emulated import EMULATED, EmulatedSwitch

pytestmark = [pytest.mark.rates, pytest.mark.long]
# What TCP gets without queues, at meters of its own, of its limit: docs/enforcement.md. Unprotected it gets a quarter.
KEPT = 0.70


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedRuns]:
    kinds = [item.callspec.params["kind"].name for item in request.session.items if item.path == request.path]
    with EmulatedRuns(kinds, tmp_path_factory.mktemp("emulated")) as runs:
        yield runs


@pytest.mark.parametrize("kind", EMULATED, ids=[kind.name for kind in EMULATED])
def test_the_victim_keeps_its_limit_or_health_says_why_not(runs: EmulatedRuns, kind: EmulatedSwitch) -> None:
    run, said = runs.of(kind.name)
    begun_s = run.time_s[:-1]
    blast = (begun_s >= WARM_UP_S + 0.5) & (begun_s < WARM_UP_S + BLAST_S)
    by_source = run.delivered_bits[blast].sum(axis=0) / (BLAST_S - 0.5)
    victim_bps, aggressor_bps = by_source[:3].sum(), by_source[3:].sum()
    assert (run.delivered_bits.sum(axis=0) > 0).all(), "somebody was cut off"
    if not kind.expected_fault:
        assert victim_bps > KEPT * VICTIM_BPS
        assert aggressor_bps < 1.2 * AGGRESSOR_BPS
    else:
        assert kind.expected_fault in said
