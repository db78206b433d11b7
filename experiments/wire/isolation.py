"""The isolation run with the real application: the model's switches and traffic in real time, OpenFlow over TCP."""

from __future__ import annotations

from pathlib import Path

import yaml

from controller.config.load import parse_config
from controller.fabric.vns import VnTable
from experiments.isolation import INTERVAL_S, IsolationRun, Progress, build_fabric
from experiments.machine.controller_process import ControllerProcess, configuration, free_ports
from experiments.model.control import write_queues
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.isolation import Phases, limits_of, run_on_model
from experiments.options import ExperimentOptions
from experiments.wire.real_time_model import WireModel


def run_on_wire(options: ExperimentOptions, control: str, folder: Path, progress: Progress) -> IsolationRun:
    """Do what ``experiments.isolation.run_isolation`` does, on software switches and without root.

    Choice: without a controller nobody speaks OpenFlow, and real time would only be waiting: that is left to the model.
    Choice: there is no OVSDB, so the ports have from the start the queues that the controller would write.
    """
    if control != "dets":
        return run_on_model(options, control, folder, progress)
    fabric = build_fabric(options)
    openflow_port, rest_port = free_ports(2)
    limits_bps = limits_of(fabric, options)
    config = configuration(fabric, limits_bps, options.algorithm, options.parameters, openflow_port, rest_port)
    for switch in config["switches"].values():
        del switch["ovsdb"]
    model = ModelFabric(fabric, ModelOptions(slot_s=options.slot_s, seed=options.seed))
    parsed = parse_config(yaml.safe_dump(config), "wire")
    write_queues(model, parsed, VnTable.of_config(parsed))
    progress("waiting for the controller", 0)
    with ControllerProcess(config, folder) as controller, WireModel(model, ("127.0.0.1", openflow_port)) as wire:
        controller.wait_ready({switch.name for switch in fabric.switches})
        wire.introduce_hosts()
        wire.longest_step_s = 0.0
        with wire.locked():
            phases = Phases(model, options)
        vns = phases.run(wire.run, progress, lambda: controller.get("/v1/vns"))
        controller.check_alive()
        return phases.result(control, folder, vns, _warnings(wire))


def _warnings(wire: WireModel) -> list[str]:
    if wire.longest_step_s <= INTERVAL_S:
        return []
    stood_ms = wire.longest_step_s * 1000
    return [
        f"this machine was busy: the software switches stood still for up to {stood_ms:.0f} ms, more than an interval, "
        "and the shortest dips may be due to that"
    ]
