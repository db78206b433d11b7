"""Whether a fabric can keep the promises that limits are: the one place where a running controller asks it.

Limits are checked against the fabric as it was built, which is the access ports and the ``links`` of the configuration,
not against the links that happen to be up: a promise should not depend on what is broken at the moment it is given.
"""

from __future__ import annotations

from collections.abc import Iterator

from controller.admission import AdmissionError, Link, Pair, Port, Topology, VnLimits, admit
from controller.config import Config
from controller.errors import InvalidValueError
from controller.forwarding import topology as forwarding
from controller.forwarding.routes import hops
from controller.units import format_rate
from controller.vns import VnTable


def fabric_topology(config: Config) -> Topology:
    """Return the capacities of the edge ports, by ``SWITCH:PORT``, and of the links between them.

    Each direction of a link is one by itself, named by its ends: ``s1:1001-c1:1``. Paths are those that forwarding
    takes when all the links of the configuration are up.
    """
    built = forwarding.Topology()
    capacity_bps: dict[Link, int] = {}
    names: dict[forwarding.Port, str] = {}
    for switch in config.switches.values():
        built.add_switch(switch.dpid)
    for link in config.links:
        for one, other in (link.ends, link.ends[::-1]):
            port = forwarding.Port(one.dpid, one.port_no)
            built.hear(port, forwarding.Port(other.dpid, other.port_no), 0.0)
            names[port] = f"{one}-{other}"
            capacity_bps[names[port]] = link.capacity_bps
    ports: dict[Port, int] = {f"{switch.name}:{port.port_no}": port.capacity_bps for switch, port in config.ports()}
    paths: dict[Pair, tuple[Link, ...]] = dict(_paths(config, built, names)) if config.links else {}
    return Topology(ports, capacity_bps, paths)


def _paths(
    config: Config, built: forwarding.Topology, names: dict[forwarding.Port, str]
) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    """Yield the links between the edge ports of different switches that have a VLAN in common."""
    edges = [(switch, port, set(port.vlan_vids)) for switch, port in config.ports()]
    dpids = {switch.dpid for switch, _, _ in edges}
    way_of = hops(built.paths(), built.links(), ((a, b) for a in dpids for b in dpids if a != b))
    for switch, port, vlan_vids in edges:
        for other, other_port, other_vids in edges:
            way = way_of.get((switch.dpid, other.dpid))
            if way and not vlan_vids.isdisjoint(other_vids):
                pair = (f"{switch.name}:{port.port_no}", f"{other.name}:{other_port.port_no}")
                yield pair, tuple(names[hop] for hop in way)


class AdmittedLimits:
    """Checks new limits against a fabric, beside those that all the other VNs have."""

    def __init__(self, config: Config) -> None:
        self._names = {switch.dpid: switch.name for switch in config.switches.values()}
        self._topology = fabric_topology(config)

    def check(self, vns: VnTable, row: int, *, sending: bool | None) -> None:
        """Raise InvalidValueError unless the limits of VN ``row``, as they stand in ``vns``, fit the fabric.

        The error names ``send_limit_bps`` or ``receive_limit_bps`` (``sending`` says which of them is new; None: both),
        the port or the link that would be overloaded, and the largest limit that would fit.
        """
        limits = [self._limits(vns, other) for other in range(len(vns))]
        try:
            admit(self._topology, limits, limits[row], sending=sending)
        except AdmissionError as error:
            key = f"{error.key.rpartition('.')[2]}_bps"
            largest = f"at most {error.largest_bps} ({format_rate(error.largest_bps)}) fits"
            reason = f"does not fit: {error.overload}; {largest if error.largest_bps else 'nothing fits'}"
            raise InvalidValueError(key, error.value_bps, reason) from error

    def _limits(self, vns: VnTable, row: int) -> VnLimits:
        key = vns.key(row)
        place = f"{self._names[key.dpid]}:{key.port_no}"
        return VnLimits(key.vlan_vid, place, int(vns.send_limit_bps[row]), int(vns.receive_limit_bps[row]))
