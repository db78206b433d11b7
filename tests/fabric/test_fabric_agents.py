"""Agents on an emulated fabric's PNs, with the real controller and no meter: Open vSwitch carries their frames."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.evaluation.measures import isolation_measures
from experiments.evaluation.run_matrix import SCALE
from experiments.runs.ovs_run import run_on_ovs
from experiments.runs.scenario_run import RunSettings
from experiments.scenarios import scenarios
from experiments.scenarios.dets_uplink import STOP_S

pytestmark = [pytest.mark.rates, pytest.mark.long]


@pytest.mark.parametrize(("shaping", "kept"), [("meter", False), ("agent", True), ("both", True)])
def test_an_agent_alone_keeps_vns_apart_on_their_uplink(tmp_path: Path, shaping: str, kept: bool) -> None:
    scenario = scenarios()["dets-uplink"].on("ovs", SCALE["ovs"]).lasting(STOP_S)  # what comes after is not judged
    settings = replace(RunSettings(), shaping=shaping)
    run = run_on_ovs(scenario, "fp", 1, lambda _passed_s: None, tmp_path, settings)
    figures = isolation_measures(run)
    share = figures["victim_goodput_bps_during"] / figures["victim_goodput_limit_bps"]
    assert share >= 0.95 if kept else share < 0.7
    (switch,) = run.seen["switches"].values()
    assert ("meter=" in json.dumps(switch["dump-meters"])) == (shaping != "agent")
    assert "htb de75:" not in subprocess.run(["tc", "qdisc"], capture_output=True, text=True, check=True).stdout
