"""Rules that a configuration as a whole must keep: known algorithms, and limits that ports and links can carry.

Only this part of reading a configuration uses algorithms and the routes of frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from controller.config.sections import VlanSection
from controller.config.yaml_document import Path, Problem, show_path, show_value
from controller.errors import InvalidValueError
from controller.fabric.config_model import DIRECTIONS, MIN_FRAME_BYTES, Config, EdgePort, Vn
from controller.fabric.vn_table import VnTable
from controller.limits.admission import admit_core, core_overloaded, core_topology
from controller.limits.change_validation import check_used
from controller.limits.flood_limits import MIN_FLOOD_BPS, largest_flood_limit, min_receive_limits
from controller.limits.hose_model import AdmissionError, VnLimits, port_overload
from controller.policy.registry import make_policy, policies
from controller.policy.shardability import check_shardable
from controller.units import format_rate


def algorithm_problems(path: Path, section: VlanSection, interval_ms: int) -> Iterator[Problem]:
    """Yield the problems of a VLAN's algorithm, its shadow and their parameters, at an interval."""
    for key, parameters_key in (("algorithm", "parameters"), ("shadow", "shadow_parameters")):
        if section.has_bad(key) or section.has_bad(parameters_key):
            continue
        name, parameters = getattr(section, key), getattr(section, parameters_key)
        if name is not None:
            try:
                make_policy(name, parameters, key=key, parameters_key=parameters_key, interval_ms=interval_ms)
            except InvalidValueError as error:
                yield Problem((*path, *error.key.split(".", 1)), f"{show_value(error.value)} {error.reason}")
        elif parameters:
            yield Problem((*path, parameters_key), f"is set without {key}, to which the parameters belong")


def unused_problems(path: Path, section: VlanSection) -> Iterator[Problem]:
    """Yield a problem for each ceiling and weight of a VLAN that its algorithm does not use."""
    if section.has_bad("algorithm") or section.has_bad("shadow"):
        return
    for key in ("send_ceiling", "receive_ceiling"):
        ceiling_bps = getattr(section, key)
        try:
            if ceiling_bps is not None:
                check_used("ceilings", key, ceiling_bps, section.algorithm, section.shadow)
        except InvalidValueError as error:
            yield Problem((*path, key), f"{format_rate(ceiling_bps)} {error.reason}")
    if "weight" in section.model_fields_set and not section.has_bad("weight"):
        try:
            check_used("weights", "weight", section.weight, section.algorithm, section.shadow)
        except InvalidValueError as error:
            yield Problem((*path, "weight"), f"{section.weight:g} {error.reason}")


def port_problems(path: Path, port: EdgePort, vlans: Mapping[int, VlanSection]) -> Iterator[Problem]:
    """Yield a problem for each sum of limits above the port's capacity, and for each unused value of a VN.

    Unknown capacities and limits are 0.
    """
    for vn, direction in product(port.vns, DIRECTIONS):
        ceiling_bps = getattr(vn, f"{direction}_ceiling_bps")
        if ceiling_bps is None:
            continue
        vlan, key = vlans[vn.vlan_vid], f"{direction}_ceiling"
        try:
            if ceiling_bps != getattr(vlan, key):  # the VLAN's own value is checked with the VLAN
                check_used("ceilings", key, ceiling_bps, vlan.algorithm, vlan.shadow)
        except InvalidValueError as error:
            message = f"the {key} of VLAN {vn.vlan_vid}, {format_rate(ceiling_bps)}, {error.reason}"
            yield Problem((*path, "vns", str(vn.vlan_vid), key), message)
    for vn in port.vns:
        if vn.weight is None:
            continue
        try:
            check_used("weights", "weight", vn.weight, vlans[vn.vlan_vid].algorithm, vlans[vn.vlan_vid].shadow)
        except InvalidValueError as error:
            message = f"the weight of VLAN {vn.vlan_vid}, {vn.weight:g}, {error.reason}"
            yield Problem((*path, "vns", str(vn.vlan_vid), "weight"), message)
    for direction in DIRECTIONS if port.capacity_bps else ():
        limits_bps = {vn.vlan_vid: getattr(vn, f"{direction}_limit_bps") for vn in port.vns}
        overload = port_overload(show_path(path), direction, limits_bps.values(), port.admissible_bps)
        if overload is not None:
            terms = " + ".join(f"{format_rate(bps)} (VLAN {vid})" for vid, bps in limits_bps.items())
            capacity, overhead_bytes = format_rate(port.capacity_bps), port.frame_overhead_bytes
            if overhead_bytes:
                admissible = f"{format_rate(port.admissible_bps)} in frames of {MIN_FRAME_BYTES} bytes"
                capacity += f", {admissible} with frame_overhead_bytes: {overhead_bytes},"
            message = f"{capacity} is below the sum of the port's {direction} limits, {terms} = "
            yield Problem((*path, "capacity"), message + format_rate(overload.load_bps))


def link_problems(config: Config) -> Iterator[Problem]:
    """Yield a problem for the first limit in the file with which some traffic matrix would overload a core link.

    ``config`` must have no other problem.
    """
    if not config.links:
        return
    core = core_topology(config)
    vns = list(config.vns())
    limits = [VnLimits(vn.vlan_vid, _location(config, vn), vn.send_limit_bps, vn.receive_limit_bps) for vn in vns]
    if not core_overloaded(core, limits):
        return
    # More VNs never lower the load. A binary search finds how many VNs, in the order of the file, fit.
    fit, too_many = 0, len(limits)
    while too_many - fit > 1:
        middle = (fit + too_many) // 2
        fit, too_many = (fit, middle) if core_overloaded(core, limits[:middle]) else (middle, too_many)
    try:
        admit_core(core, limits[:fit], limits[fit])
    except AdmissionError as error:
        direction = error.key.rpartition(".")[2].removesuffix("_limit")
        subject = f"the {direction} limit of VLAN {vns[fit].vlan_vid} at {limits[fit].port}"
        message = f"{subject}, {format_rate(error.value_bps)}, does not fit: {error.overload}"
        offer = f"at most {format_rate(error.largest_bps)}" if error.largest_bps else "nothing"
        rest = f"; {offer} fits next to the limits before it"
        names = [[f"link {one}-{other}" for one, other in (link.ends, link.ends[::-1])] for link in config.links]
        index = next((index for index, both in enumerate(names) if error.overload.location in both), 0)
        capacity_path = ("links", f"[{index}]", "capacity")
        yield Problem(_limit_path(config, vns[fit], direction), message, see=capacity_path, rest=rest)


def flood_problems(config: Config) -> Iterator[Problem]:
    """Yield a problem for each ``flood_limit`` with which floods could exceed the receive limit of a VN of the VLAN.

    ``config`` must have no other problem.
    """
    receive_bps: dict[int, list[int]] = {}
    own_limit_vns: dict[int, list[Vn]] = {}
    for vn in config.vns():
        receive_bps.setdefault(vn.vlan_vid, []).append(vn.receive_limit_bps)
        if vn.flood_limit_bps is not None:
            own_limit_vns.setdefault(vn.vlan_vid, []).append(vn)
    yield from _own_flood_problems(config, own_limit_vns)
    for vid, limits_bps in receive_bps.items():
        if vid in own_limit_vns:
            continue
        flood_bps, smallest_bps = config.vlans[vid].flood_limit_bps, min(limits_bps)
        largest_bps = largest_flood_limit(smallest_bps, len(limits_bps))
        if flood_bps is None or MIN_FLOOD_BPS <= flood_bps <= largest_bps:
            continue
        if flood_bps < MIN_FLOOD_BPS:
            reason = f"is below {format_rate(MIN_FLOOD_BPS)}, what two meters can carry"
        else:
            others = max(len(limits_bps) - 1, 1)
            reason = f"does not fit: {others} VNs may flood to one whose receive limit is {format_rate(smallest_bps)}"
        fits = f"at most {largest_bps} ({format_rate(largest_bps)}) fits" if largest_bps else "nothing fits"
        yield Problem(("vlans", str(vid), "flood_limit"), f"{format_rate(flood_bps)} {reason}; {fits}")


def _own_flood_problems(config: Config, own_limit_vns: Mapping[int, Sequence[Vn]]) -> Iterator[Problem]:
    """Yield a problem for each VLAN in which VNs' own flood limits do not fit the receive limits of its VNs.

    ``own_limit_vns`` are the VNs with flood limits of their own, by VLAN id.
    """
    if not own_limit_vns:
        return
    vns = list(config.vns())
    limits_bps = np.array([vn.receive_limit_bps for vn in vns], dtype=np.float64)
    needed_bps = min_receive_limits(VnTable.from_config(config), config.vlans)
    for vid, limited_vns in own_limit_vns.items():
        by_limit = sorted(limited_vns, key=lambda vn: vn.flood_limit_bps or 0)
        smallest, largest = by_limit[0], by_limit[-1]
        rows = [row for row, vn in enumerate(vns) if vn.vlan_vid == vid]
        worst = max(rows, key=(needed_bps - limits_bps).__getitem__)
        if smallest.flood_limit_bps is not None and smallest.flood_limit_bps < MIN_FLOOD_BPS:
            reason = f"is below {format_rate(MIN_FLOOD_BPS)}, what two meters can carry"
            yield _flood_problem(config, smallest, reason)
        elif needed_bps[worst] > limits_bps[worst]:
            needed, has = format_rate(needed_bps[worst]), format_rate(limits_bps[worst])
            location = _location(config, vns[worst])
            reason = f"does not fit: {location} would need a receive limit of {needed} for the floods of others"
            yield _flood_problem(config, largest, f"{reason}, and has {has}")


def _flood_problem(config: Config, vn: Vn, reason: str) -> Problem:
    path = (*_port_path(config, vn), "vns", str(vn.vlan_vid), "flood_limit")
    return Problem(path, f"{format_rate(vn.flood_limit_bps or 0)} {reason}")


def sharding_problems(config: Config) -> Iterator[Problem]:
    """Yield the problems of sharding, if ``cluster.mode`` is ``sharded``.

    ``config`` must have no other problem.
    """
    if config.cluster is None or config.cluster.mode == "active-standby":
        return
    for vid, vlan in config.vlans.items():
        try:
            check_shardable(policies[vlan.algorithm])
        except InvalidValueError as error:
            message = f"{vlan.algorithm} {error.reason}, which cluster.mode: sharded requires"
            yield Problem(("vlans", str(vid), "algorithm"), message)
        if vlan.shadow is not None:
            message = f"{vlan.shadow} is not possible with cluster.mode: sharded: a shadow sees the whole fabric"
            yield Problem(("vlans", str(vid), "shadow"), message)
    if config.queue_mode != "per-vlan":
        yield Problem(("queues", "mode"), f"{config.queue_mode} is not possible with cluster.mode: sharded")
        return
    if config.ecn_source != "phantom":
        message = f"{config.ecn_source} is not possible with cluster.mode: sharded: marks are counted by pair"
        yield Problem(("ecn", "source"), message)
    for switch in config.switches.values():
        path = ("switches", switch.name)
        if switch.ports and (switch.ovsdb is None or switch.profile == "no-queues"):
            message = "has no queues: with cluster.mode: sharded each receiver needs one (ovsdb)"
            yield Problem(path, message, at_key=True)
        for port in switch.ports.values():
            if port.agent != "none":
                message = f"{port.agent} is not possible with cluster.mode: sharded"
                yield Problem((*path, "ports", port.label, "agent"), message)


def _limit_path(config: Config, vn: Vn, direction: str) -> Path:
    """Return the path of a VN's own limit, or of its port if the limit is the VLAN's."""
    port = _port_path(config, vn)
    return (*port, "vns", str(vn.vlan_vid), f"{direction}_limit") if direction in vn.own_limits else port


def _location(config: Config, vn: Vn) -> str:
    """Return the location of a VN: ``s1:3``, ``s1:eth3``."""
    _, switch, _, label = _port_path(config, vn)
    return f"{switch}:{label}"


def _port_path(config: Config, vn: Vn) -> Path:
    return "switches", vn.switch, "ports", config.switches[vn.switch].ports[vn.port_no].label
