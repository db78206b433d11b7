"""The configuration of controllers and static limits for a scenario: the same on every fabric."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controller.policy.registry import policies
from experiments.machine.cluster_process import ShardedNodes
from experiments.machine.controller_process import ControllerProcess, configuration, free_ports
from experiments.ovs.static_limits import TCP_BURST_S, UDP_BURST_S, QueueRates, Share, equal_shares, whole_limits
from experiments.runs.scenario_run import DEFAULT_SETTINGS, RunSettings
from experiments.scenarios.scenario import CONDITIONS, LimitChange, Limits, Scenario, parse_control
from topologies.fabric import Fabric, PhysicalNode, VirtualNode

NO_OVSDB = "tcp:127.0.0.1:1"  # no server listens there


def controller_configuration(
    scenario: Scenario,
    fabric: Fabric,
    control: str,
    openflow_port: int,
    rest_port: int,
    settings: RunSettings = DEFAULT_SETTINGS,
) -> dict[str, Any]:
    """Return the controller's configuration under an algorithm."""
    algorithm, parameters = parse_control(control)
    ports = (openflow_port, rest_port)
    receive_bps = {vid: limits.receive_bps for vid, limits in scenario.limits.items()}
    document = configuration(fabric, receive_bps, algorithm, parameters, *ports, queues=scenario.queues)
    document["control"] |= {"interval_ms": settings.interval_ms}
    document["queues"]["max_rate"] = "limit" if CONDITIONS[scenario.conditions].shaped else "capacity"
    for vid, limits in scenario.limits.items():
        document["vlans"][vid] |= _limit_keys(limits, algorithm)
    agents = agents_at(fabric, settings.shaping)
    if agents:
        document["agents"] = {"long_frames": True}
    for pn, mode in agents.items():
        document["switches"][pn.switch]["ports"][pn.port_no]["agent"] = mode
    if settings.shaping == "agent":
        for switch in document["switches"].values():
            switch["profile"] = "no-meters"
    for (vid, number), limits in scenario.vn_limits.items():
        pn = fabric.pn(number)
        port = document["switches"][pn.switch]["ports"][pn.port_no]
        port.setdefault("vns", {})[vid] = _limit_keys(limits, algorithm)
    if scenario.promise != "limits" and fabric.core_links:
        document["links"] = [
            {"between": [f"{link.switch_a}:{link.port_a}", f"{link.switch_b}:{link.port_b}"], "capacity": link.rate_bps}
            for link in fabric.core_links
        ]
    return document


@contextmanager
def controllers(
    scenario: Scenario, fabric: Fabric, control: str, folder: Path, settings: RunSettings, *, ovsdb: bool = True
) -> Iterator[tuple[ControllerProcess | ShardedNodes, list[tuple[str, int]]]]:
    """Run the controller of a scenario, or the nodes one of which is to be killed; yield it and the switches' targets.

    Without ``ovsdb`` no switch has a database: the configuration of one controller has no address, that of sharded
    nodes, which need queues, has an address without a server.
    """

    def document(openflow_port: int, rest_port: int) -> dict[str, Any]:
        made = controller_configuration(scenario, fabric, control, openflow_port, rest_port, settings)
        for switch in () if ovsdb else made["switches"].values():
            switch.pop("ovsdb", None)
            switch |= {} if settings.kill_at_s is None else {"ovsdb": NO_OVSDB}
        return made

    if settings.kill_at_s is None:
        openflow_port, rest_port = free_ports(2)
        with ControllerProcess(document(openflow_port, rest_port), folder) as controller:
            yield controller, [("127.0.0.1", openflow_port)]
    else:
        with ShardedNodes(document, folder / "nodes") as nodes:
            yield nodes, nodes.openflow


def borrows(algorithm: str) -> bool:
    """Whether an algorithm uses ceilings: under others the product rejects them."""
    return policies[algorithm].borrows


def fields_in_use(change: LimitChange, algorithm: str) -> dict[str, float]:
    """Return a change's fields for the product under an algorithm; {} if the change is about unused ceilings alone."""
    return {name: value for name, value in change.fields.items() if "ceiling" not in name or borrows(algorithm)}


def agents_at(fabric: Fabric, shaping: str) -> dict[PhysicalNode, str]:
    """Return the PNs with an agent, and the controller's trust in each: ``trust`` or ``verify``.

    ``shaping`` is one of scenario.SHAPINGS. With "mixed" only PNs with odd numbers have agents.
    """
    if shaping == "meter":
        return {}
    mode = "verify" if shaping == "both" else "trust"
    return {pn: mode for pn in fabric.pns if shaping != "mixed" or pn.number % 2}


def uplink_classes(scenario: Scenario, fabric: Fabric, control: str) -> dict[int, dict[int, tuple[int, int]]]:
    """Return the (min, max) rates in bit/s of each VLAN at the senders' own schedulers, by PN.

    {} without schedulers.

    Under static limits a scheduler serves a VLAN at most at its send limit.
    """
    if not scenario.uplink_queues or control == "none":
        return {}
    classes: dict[int, dict[int, tuple[int, int]]] = {}
    for vn in fabric.vns():
        limits, link_bps = scenario.limits_of(vn), vn.pn.link_rate_bps
        max_bps = limits.send_bps if control == "static" else limits.send_ceiling_bps or limits.send_bps
        classes_of_pn = classes.setdefault(vn.pn.number, {})
        classes_of_pn[vn.vlan_vid] = min(limits.send_bps, link_bps), min(max(max_bps, limits.send_bps), link_bps)
    senders = {source.sender for source in scenario.sources}
    return {number: vlans for number, vlans in classes.items() if number in senders}


def static_limits(scenario: Scenario, fabric: Fabric) -> tuple[list[Share], QueueRates]:
    """Return the equal shares of all pairs, and the queues of the receiving PNs if the scenario has queues.

    If the senders' own schedulers hold send limits, a pair has all of its sender's and receiver's. A pair with TCP has
    the burst that TCP needs.
    """
    bursts_s: dict[tuple[VirtualNode, VirtualNode], float] = {}
    for source in scenario.sources:
        pair = fabric.vn(source.vlan_vid, source.sender), fabric.vn(source.vlan_vid, source.receiver)
        burst_s = TCP_BURST_S if source.protocol == "tcp" else UDP_BURST_S
        bursts_s[pair] = max(bursts_s.get(pair, 0.0), burst_s)
    limits = {vn: scenario.limits_of(vn) for vn in fabric.vns()}
    send = {vn: limit.send_bps for vn, limit in limits.items()}
    receive = {vn: limit.receive_bps for vn, limit in limits.items()}
    receiving = dict.fromkeys(receiver.pn for _, receiver in bursts_s) if scenario.queues else {}
    queues = {pn: {vid: receive[fabric.vn(vid, pn.number)] for vid in pn.vlans} for pn in receiving}
    return (whole_limits if scenario.uplink_queues else equal_shares)(bursts_s, send, receive), queues


def _limit_keys(limits: Limits, algorithm: str) -> dict[str, float]:
    """Return limits as keys of the configuration file; ceilings only for algorithms that use them."""
    keys = {"send_limit": limits.send_bps, "receive_limit": limits.receive_bps, "weight": limits.weight}
    if borrows(algorithm):
        keys |= {"send_ceiling": limits.send_ceiling_bps, "receive_ceiling": limits.receive_ceiling_bps}
    return {key: value for key, value in keys.items() if value is not None}
