"""The demonstration's traffic over each kind of switch that is emulated: its victim keeps its limit, or it is said why.

Receivers have no queues, so that meters alone hold what is to be held.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from experiments.runs.scenario_run import RunSettings
from experiments.runs.wire_run import run_on_wire
from experiments.scenarios.dets_fig5 import joined_by_udp
from experiments.switch.datapath import Datapath
from experiments.switch.emulated import EMULATED, EmulatedSwitch

pytestmark = pytest.mark.rates
M = 1_000_000
VICTIM_BPS, AGGRESSOR_BPS = 20 * M, 25 * M
WARM_UP_S, BLAST_S = 2.0, 3.0
SCENARIO = joined_by_udp(
    "emulated",
    "the demonstration's traffic",
    senders=3,
    link_rate_bps=50 * M,
    victim_limit_bps=VICTIM_BPS,
    aggressor_limit_bps=AGGRESSOR_BPS,
    udp_rate_bps=16 * M,
    warmup_s=WARM_UP_S,
    blast_s=BLAST_S,
    cooldown_s=0.5,
    queues=False,
)
# What TCP gets without queues, at meters of its own, of its limit: docs/enforcement.md. Unprotected it gets a quarter.
KEPT = 0.70


@pytest.mark.parametrize("kind", EMULATED, ids=[kind.name for kind in EMULATED])
def test_the_victim_keeps_its_limit_or_health_says_why_not(tmp_path: Path, kind: EmulatedSwitch) -> None:
    said: dict[str, str] = {}
    switches: list[Datapath] = []
    now_s = 0.0

    def make(datapath: Datapath) -> None:
        switches.append(datapath)
        kind.make(datapath)

    def ask(rest_url: str) -> None:
        said["url"] = rest_url

    def note(passed_s: float) -> None:
        nonlocal now_s
        now_s += passed_s
        if now_s >= WARM_UP_S + 0.5 and switches:
            kind.later(switches.pop())
        said["text"] = ""
        for path in ("health", "ports"):
            with urllib.request.urlopen(f"{said['url']}/v1/{path}", timeout=5) as answer:
                said["text"] += answer.read().decode()

    run = run_on_wire(SCENARIO, "fp", 1, note, tmp_path, RunSettings(make=make, announce=ask))
    begun_s = run.time_s[:-1]
    blast = (begun_s >= WARM_UP_S + 0.5) & (begun_s < WARM_UP_S + BLAST_S)
    by_source = run.delivered_bits[blast].sum(axis=0) / (BLAST_S - 0.5)
    victim_bps, aggressor_bps = by_source[:3].sum(), by_source[3:].sum()
    assert (run.delivered_bits.sum(axis=0) > 0).all(), "somebody was cut off"
    if not kind.said:
        assert victim_bps > KEPT * VICTIM_BPS
        assert aggressor_bps < 1.2 * AGGRESSOR_BPS
    else:
        assert kind.said in said["text"]
