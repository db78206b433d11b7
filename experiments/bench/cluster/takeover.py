"""The time from the end of the active node to the first meter that the other node sets by a decision, and its cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.bench.cluster.testbed.failure_injection import ENDS, FailureInjector
from experiments.bench.loop.bench import SwitchProcessControl, fabric_process, wait_pairs
from experiments.bench.loop.switch_process import LoopPlan
from experiments.machine.cluster_process import Cluster
from experiments.machine.controller_process import ControllerProcess, free_ports
from experiments.machine.cpu_usage import process_cpu_s
from experiments.machine.process_runner import wait_until

INTERVAL_MS = 55
VARIED = 0.1  # of the receivers; the grants of the others do not change undisturbed
SETTLE_S, AFTER_S = 5.0, 2.0
TAKEOVER_S = 60.0
POLL_INTERVAL_S = 0.2


def measure(switches: int, pairs_per_switch: int, repeats: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Return the costs of a node alone and of active and standby nodes, and the figures of every takeover.

    ``seconds`` is how long each cost is measured. Raises ControllerError if the nodes do not recover.
    """
    openflow_port, rest_port = free_ports(2)
    plan = LoopPlan(switches, pairs_per_switch, INTERVAL_MS, VARIED, openflow_port, rest_port)
    (folder / "alone").mkdir(parents=True, exist_ok=True)
    with fabric_process(plan, folder / "alone"), ControllerProcess(plan.configuration(), folder / "alone") as node:
        node.wait_ready(set(plan.configuration()["switches"]), timeout_s=TAKEOVER_S)
        wait_pairs(node, plan)
        time.sleep(SETTLE_S)
        alone = costs({"node": node.pid}, node, seconds)
    print(f"a node alone: {alone['node_percent']:.1f} % of a processor", flush=True)

    def document(openflow_port: int, rest_port: int) -> dict[str, Any]:
        return replace(plan, openflow_port=openflow_port, rest_port=rest_port).configuration()

    with Cluster(document, folder / "pair") as pair:
        first_port, second_port = (port for _host, port in pair.openflow)
        with fabric_process(
            replace(plan, openflow_port=first_port, standby_port=second_port), folder / "pair"
        ) as send_command:
            return {"alone": alone, **_measure_pair(pair, send_command, plan, repeats, seconds)}


def _measure_pair(
    pair: Cluster,
    send_command: SwitchProcessControl,
    plan: LoopPlan,
    repeats: int,
    seconds: float,
) -> dict[str, Any]:
    """Return the CPU costs of both nodes, and the takeovers by how the active node ended."""
    active = _settled(pair, plan)
    members = {f"member_{number}": member.pid for number, member in enumerate(pair.etcd.members, 1)}
    pids = {"active": pair.nodes[active].pid, "standby": pair.nodes[1 - active].pid, **members}
    cost = costs(pids, pair.nodes[active], seconds)
    print(
        f"active node of a pair: {cost['active_percent']:.1f} %, standby: {cost['standby_percent']:.1f} %", flush=True
    )
    takeovers: dict[str, list[dict[str, Any]]] = {name: [] for name in ENDS}
    for _ in range(repeats):
        for name, end in ENDS.items():
            figures = _take_over(pair, send_command, plan, end)
            print(
                f"{name}: {figures['first_s']:.3f} s at the first switch, {figures['last_s']:.3f} s at all", flush=True
            )
            takeovers[name].append(figures)
    return {"pair": cost, "takeovers": takeovers}


def _take_over(
    pair: Cluster, send_command: SwitchProcessControl, plan: LoopPlan, end: Callable[[FailureInjector, int], None]
) -> dict[str, Any]:
    """End the active node by ``end``; return how long the standby took to set meters, and the violated guarantees.

    The switches log for AFTER_S before the end, as a reference, and from then until AFTER_S after the takeover.
    "first_s" and "last_s" are when the standby first set a meter of the first and of the last switch, in seconds from
    the end. Of "steady" senders, those to receivers that do not vary, "missed" were below their guarantee, and
    "missed_before" in the reference. "filled_again" counts meters. Afterwards the ended node runs again.
    """
    injector, active = FailureInjector(pair), _settled(pair, plan)
    standby = 1 - active
    send_command("watch")
    time.sleep(AFTER_S)
    reports_before = send_command.ask("report")
    send_command("watch")
    began_s = time.monotonic()
    end(injector, active)
    wait_until(
        lambda: all(str(standby) in switch["first_set_s"] for switch in send_command.ask("report")),
        "a take-over",
        TAKEOVER_S,
        pair.nodes[standby].check_alive,
        POLL_INTERVAL_S,
    )
    time.sleep(AFTER_S)
    reports = send_command.ask("report")
    injector.undo()
    delays_s = [switch["first_set_s"][str(standby)] - began_s for switch in reports]
    return {
        "first_s": min(delays_s),
        "last_s": max(delays_s),
        "steady": sum(switch["steady"] for switch in reports),
        "missed": sum(switch["missed"] for switch in reports),
        "missed_before": sum(switch["missed"] for switch in reports_before),
        "filled_again": sum(switch["filled_again"] for switch in reports),
    }


def _settled(pair: Cluster, plan: LoopPlan) -> int:
    """Wait until the nodes are ready and all pairs are measured; return the active node."""
    pair.wait_ready()
    active = pair.wait_controls()
    wait_pairs(pair.nodes[active], plan)
    time.sleep(SETTLE_S)
    return active


def costs(pids: dict[str, int], node: ControllerProcess, seconds: float) -> dict[str, float]:
    """Return the use of processes, percent of a processor, and a node's processor time per interval, ms."""
    rounds_before, begun_s, node_before_s = _rounds(node), time.monotonic(), process_cpu_s(node.pid)
    before_s = {name: process_cpu_s(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    duration_s = time.monotonic() - begun_s
    percents = {
        f"{name}_percent": 100 * (process_cpu_s(pid) - before_s[name]) / duration_s for name, pid in pids.items()
    }
    return {
        **percents,
        "interval_cpu_ms": 1e3 * (process_cpu_s(node.pid) - node_before_s) / max(_rounds(node) - rounds_before, 1),
    }


def _rounds(node: ControllerProcess) -> int:
    """Return how many rounds a node has run."""
    return int(node.get("/v1/loop")["rounds"])
