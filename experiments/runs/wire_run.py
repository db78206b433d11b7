"""A scenario with the real application and software switches: the model's traffic in real time, OpenFlow over TCP."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from controller.config.loader import parse_config
from controller.fabric.vn_table import VnTable
from experiments.machine.controller_process import free_ports
from experiments.model.control.control_plane import write_queues
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.runs.model_run import ModelTraffic, Progress, described, run_on_model
from experiments.runs.recorded_decisions import NodesDecisions, apply_event, decisions_of
from experiments.runs.run_configuration import controller_configuration, controllers
from experiments.runs.scenario_run import DEFAULT_SETTINGS, RunSettings, ScenarioRun
from experiments.scenarios.scenario import BASELINES, INTERVAL_S, LimitChange, Scenario
from experiments.wire.real_time_model import WireModel

BEGIN_IN_S = 0.5
PROGRESS_S = 0.25


def run_on_wire(
    scenario: Scenario,
    control: str,
    seed: int,
    progress: Progress,
    folder: Path,
    settings: RunSettings = DEFAULT_SETTINGS,
) -> ScenarioRun:
    """Run a scenario under a control; files of the run go to ``folder``.

    Choice: a baseline, which has no controller, runs on the model: without OpenFlow real time would add nothing.
    Choice: there is no OVSDB, so the ports have from the start the queues that the controller would write; they do not
    follow changes of limits.
    """
    if control in BASELINES:
        run = run_on_model(scenario, control, seed, progress, settings)
        return dataclasses.replace(run, fabric="wire")
    slot_s = settings.slot_s
    folder.mkdir(parents=True, exist_ok=True)
    fabric = scenario.fabric()
    model = ModelFabric(fabric, ModelOptions(slot_s=slot_s, seed=seed))
    if settings.make is not None:
        for datapath in model.switches.values():
            settings.make(datapath)
    # This configuration only gives the queues; ``controllers`` makes its own.
    openflow_port, rest_port = free_ports(2)
    document = controller_configuration(scenario, fabric, control, openflow_port, rest_port)
    parsed = parse_config(yaml.safe_dump(document), "wire")
    write_queues(model, parsed, VnTable.from_config(parsed))
    with (
        controllers(scenario, fabric, control, folder, settings, ovsdb=False) as (controller, openflow),
        WireModel(model, openflow[0], openflow[1:]) as wire,
    ):
        controller.wait_ready({switch.name for switch in fabric.switches})
        if settings.announce is not None:
            settings.announce(controller.url)
        wire.announce_hosts()
        wire.longest_step_s = 0.0  # stalls before the traffic do not matter
        unknown_bps = np.full(len(scenario.pairs), np.inf)  # until the recorded decisions replace them, at the end
        with wire.locked():
            begin_s = wire.now_s + BEGIN_IN_S
            begun_s = time.monotonic() + BEGIN_IN_S
            traffic = ModelTraffic(model, scenario, seed, settings.congestion_control, begin_s, unknown_bps.copy)
        decisions = decisions_of(controller, scenario, fabric)
        times_s = {PROGRESS_S * number for number in range(1, int(scenario.duration_s / PROGRESS_S) + 1)}
        times_s |= {scenario.duration_s, scenario.judged[1]}
        final_reports: dict[str, Any] = {}
        events = {event: event.at_s for event in scenario.events}
        reported_s = 0.0
        kill_at_s = settings.kill_at_s
        for time_s in sorted(times_s | set(events.values()) | ({kill_at_s} if kill_at_s is not None else set())):
            wire.run(begin_s + time_s + (slot_s if time_s == scenario.duration_s else 0.0))
            for event in [event for event, at_s in events.items() if at_s == time_s]:
                apply_event(controller, fabric, event)
            if time_s == kill_at_s and isinstance(decisions, NodesDecisions):
                decisions.kill()
            decisions.poll()
            if time_s == scenario.judged[1]:
                with wire.locked():
                    final_reports["switches"] = described(model)
                final_reports["vns"] = decisions.get("/v1/vns")
            progress(time_s - reported_s)
            reported_s = time_s
        decisions.stop()
        controller.check_alive()
        warnings = _warnings(wire)
        if any(isinstance(event, LimitChange) for event in scenario.events):
            warnings.append("queues do not follow changes of limits on this fabric")
        with wire.locked():
            run = traffic.run(control, "wire", {"warnings": warnings, **decisions.notes(begun_s)}, final_reports)
    return dataclasses.replace(run, granted_bps=decisions.granted_bps(scenario, fabric, begun_s, run.time_s))


def _warnings(wire: WireModel) -> list[str]:
    """Return a warning if this machine stalled the software switches for more than an interval; otherwise []."""
    if wire.longest_step_s <= INTERVAL_S:
        return []
    stall_ms = wire.longest_step_s * 1000
    return [
        f"this machine was busy: the software switches stood still for up to {stall_ms:.0f} ms, more than an interval"
    ]
