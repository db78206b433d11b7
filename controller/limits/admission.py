"""Admission: whether the ports and links of a configured fabric can keep the guarantees.

The calculation is in hose_model.py. Limits are checked against the fabric as built, that is, the access ports and the
``links`` of the configuration, not against the links that are up: a guarantee must not depend on what is broken at the
moment.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from controller.errors import InvalidValueError
from controller.fabric import topology as forwarding
from controller.fabric.config_model import Config
from controller.fabric.topology import hops
from controller.fabric.vn_table import VnTable
from controller.limits.hose_model import (
    STEP_BPS,
    AdmissionError,
    HoseTopology,
    Link,
    Overload,
    Port,
    PortPair,
    VnLimits,
    admit,
    overloads,
)
from controller.units import MAX_RATE_BPS, format_rate

_NO_BOUND_BPS = 2**62  # of an edge switch in ``core_topology``: its ports are checked by ``port_topology``


def port_topology(config: Config) -> HoseTopology:
    """Return the capacities of the edge ports without the overhead of frames, by ``SWITCH:PORT``."""
    ports = {f"{switch.name}:{port.port_no}": port for switch, port in config.ports()}
    capacity_bps: dict[Port, int] = {name: port.admissible_bps for name, port in ports.items()}
    overhead: dict[Port, int] = {name: port.frame_overhead_bytes for name, port in ports.items()}
    return HoseTopology(capacity_bps, {}, {}, overhead)


def core_topology(config: Config) -> HoseTopology:
    """Return the capacities of the core links, and the paths between edge switches, which represent their ports.

    Each direction of a link counts separately and is named by its ends: ``s1:1001-c1:1``. Paths are the ones that
    forwarding takes when all links of the configuration are up. Capacities are without the overhead of frames.
    """
    built = forwarding.Topology()
    capacity_bps: dict[Link, int] = {}
    overhead: dict[Link, int] = {}
    names: dict[forwarding.PortId, str] = {}
    for switch in config.switches.values():
        built.add_switch(switch.dpid)
    for link in config.links:
        for one, other in (link.ends, link.ends[::-1]):
            port = forwarding.PortId(one.dpid, one.port_no)
            built.record_probe(port, forwarding.PortId(other.dpid, other.port_no), 0.0)
            names[port] = f"{one}-{other}"
            capacity_bps[names[port]] = link.admissible_bps
            overhead[names[port]] = link.frame_overhead_bytes
    edges = {switch.dpid: switch.name for switch in config.switches.values() if switch.ports}
    between = ((a, b) for a in edges for b in edges if a != b)
    found = hops(built.paths(), built.links(), between) if config.links else {}
    paths: dict[PortPair, tuple[Link, ...]] = {
        (edges[a], edges[b]): tuple(names[hop] for hop in direction) for (a, b), direction in found.items() if direction
    }
    return HoseTopology(dict.fromkeys(edges.values(), _NO_BOUND_BPS), capacity_bps, paths, overhead)


def core_overloaded(core: HoseTopology, vns: Iterable[VnLimits]) -> bool:
    """Return whether some traffic matrix within the limits overloads a core link."""
    return bool(overloads(core, _by_switch(vns).values()))


def admit_core(
    core: HoseTopology, unchanged: Iterable[VnLimits], changed: VnLimits, *, sending: bool | None = None
) -> None:
    """Raise AdmissionError unless the core links carry the limits of ``changed`` and those of the others.

    The VNs of a VLAN behind one switch take the same paths, so that in the core they count as one VN with the sum of
    their limits. That makes the check fast on fabrics of thousands of ports, and is exact.
    """
    together = _by_switch([*unchanged, changed])
    of_switch = together[changed.vlan_vid, _switch(changed)]
    try:
        admit(core, together.values(), of_switch, sending=sending)
    except AdmissionError as error:
        direction = error.key.rpartition(".")[2]
        vn_bps = changed.send_limit_bps if direction == "send_limit" else changed.receive_limit_bps
        # The error is about the switch's sum: what the other VNs of the switch have of it is not this VN's.
        largest_bps = max(error.largest_bps - (error.value_bps - vn_bps), 0) // STEP_BPS * STEP_BPS
        key = f"vlans.{changed.vlan_vid}.{changed.port}.{direction}"
        raise AdmissionError(key, vn_bps, error.overload, largest_bps) from None


def _by_switch(vns: Iterable[VnLimits]) -> dict[tuple[int, str], VnLimits]:
    """Return the VNs of each (VLAN, switch) as one VN with the sum of their limits."""
    sums: dict[tuple[int, str], tuple[int, int]] = {}
    for vn in vns:
        send_bps, receive_bps = sums.get((vn.vlan_vid, _switch(vn)), (0, 0))
        sums[vn.vlan_vid, _switch(vn)] = (send_bps + vn.send_limit_bps, receive_bps + vn.receive_limit_bps)
    # Sums are cut at MAX_RATE_BPS: above the capacity of any link, a higher sum makes no difference.
    return {
        (vid, switch): VnLimits(vid, switch, min(send_bps, MAX_RATE_BPS), min(receive_bps, MAX_RATE_BPS))
        for (vid, switch), (send_bps, receive_bps) in sums.items()
    }


def _switch(vn: VnLimits) -> str:
    return str(vn.port).rpartition(":")[0]


class AdmittedLimits:
    """Checks a new limit against a fabric, together with the limits of all other VNs."""

    def __init__(self, config: Config) -> None:
        self._names = {switch.dpid: switch.name for switch in config.switches.values()}
        self._ports, self._core = port_topology(config), core_topology(config)

    def check(self, vns: VnTable, row: int, *, sending: bool | None) -> None:
        """Raise InvalidValueError unless the limits of VN ``row`` in ``vns`` fit the fabric.

        The error names ``send_limit_bps`` or ``receive_limit_bps`` (``sending`` selects the new one; None: both), the
        port or the link that would be overloaded, and the largest limit that would fit.
        """
        limits = [self._limits(vns, other) for other in range(len(vns))]
        changed = limits.pop(row)
        try:
            admit(self._ports, limits, changed, sending=sending)
            admit_core(self._core, limits, changed, sending=sending)
        except AdmissionError as error:
            key = f"{error.key.rpartition('.')[2]}_bps"
            largest = f"at most {error.largest_bps} ({format_rate(error.largest_bps)}) fits"
            reason = f"does not fit: {error.overload}; {largest if error.largest_bps else 'nothing fits'}"
            raise InvalidValueError(key, error.value_bps, reason) from error

    def core_overload(self, vns: VnTable) -> Overload | None:
        """Return a core link that some traffic matrix within the limits overloads, None if there is none.

        As in ``admit_core``, the VNs of a VLAN behind one switch count as one.
        """
        if not self._core.link_capacity_bps:
            return None
        dpids, switch = np.unique(vns.dpid, return_inverse=True)
        # One number for each (VLAN, switch).
        groups, group = np.unique(vns.vlan_vid * len(dpids) + switch, return_inverse=True)
        send_bps, receive_bps = (
            np.minimum(np.bincount(group, weights=column), MAX_RATE_BPS).astype(np.int64).tolist()
            for column in (vns.send_limit_bps, vns.receive_limit_bps)
        )
        names = [self._names[dpid] for dpid in dpids.tolist()]
        together = (
            VnLimits(one // len(dpids), names[one % len(dpids)], send, receive)
            for one, send, receive in zip(groups.tolist(), send_bps, receive_bps, strict=True)
        )
        return next(iter(overloads(self._core, together)), None)

    def _limits(self, vns: VnTable, row: int) -> VnLimits:
        key = vns.key(row)
        place = f"{self._names[key.dpid]}:{key.port_no}"
        return VnLimits(key.vlan_vid, place, int(vns.send_limit_bps[row]), int(vns.receive_limit_bps[row]))
