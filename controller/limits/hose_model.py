"""Admission: whether the fabric can carry every traffic matrix that a set of limits allows (the hose model).

A VN may send up to its send limit, to any VN of its VLAN, in any split, and receive up to its receive limit. A link
must carry the worst of these matrices. For one VLAN and one link that is the largest flow from the senders to the
receivers over the pairs whose path takes the link (a transport problem). VLANs are independent: their loads add up.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.errors import DetsError, InvalidValueError
from controller.fabric.config_model import DIRECTIONS
from controller.units import MIN_RATE_BPS, check_rate_bps, format_rate

Port = Hashable
Link = Hashable
PortPair = tuple[Port, Port]
CapacityKey = tuple[str, Hashable]
"""("send", port), ("receive", port) or ("link", link)"""

# A limit that is offered instead of a rejected one is a multiple of this: a valid meter rate.
STEP_BPS = 1_000


@dataclass(frozen=True, slots=True)
class VnLimits:
    """The limits of one VN, in bits per second, which admission must guarantee."""

    vlan_vid: int
    port: Port
    send_limit_bps: int
    receive_limit_bps: int


@dataclass(frozen=True, slots=True)
class HoseTopology:
    """The capacities for the check of limits, in bits per second, separate for each direction of a link.

    Raises InvalidValueError, naming the key, for a capacity that is not positive, and for a path with an unknown port
    or link.
    """

    port_capacity_bps: Mapping[Port, int]
    link_capacity_bps: Mapping[Link, int]
    paths: Mapping[PortPair, tuple[Link, ...]]
    """the core links on the path between two edge ports; pairs without core links may be omitted"""
    frame_overhead_bytes: Mapping[Hashable, int] = field(default_factory=dict)
    """of ports and links, for messages: their capacities are already without it"""

    def __post_init__(self) -> None:
        """Raise InvalidValueError for a capacity that is not above 0, or a path over unknown ports or links."""
        for kind, capacities in (
            ("port_capacity_bps", self.port_capacity_bps),
            ("link_capacity_bps", self.link_capacity_bps),
        ):
            for name, capacity_bps in capacities.items():
                if not capacity_bps > 0:
                    raise InvalidValueError(f"{kind}.{name}", capacity_bps, "must be above 0")
        for pair, links in self.paths.items():
            for port in pair:
                if port not in self.port_capacity_bps:
                    raise InvalidValueError(f"paths.{pair}", port, "is not a port with a capacity")
            for link in links:
                if link not in self.link_capacity_bps:
                    raise InvalidValueError(f"paths.{pair}", link, "is not a link with a capacity")


@dataclass(frozen=True, slots=True)
class Overload:
    """A port or link that some traffic matrix within the limits would overload.

    ``capacity_bps`` is without the overhead of the shortest frames.
    """

    location: str
    load_bps: int
    capacity_bps: int
    frame_overhead_bytes: int = 0

    def __str__(self) -> str:
        rates = f"{format_rate(self.load_bps)} of {format_rate(self.capacity_bps)}"
        overhead = self.frame_overhead_bytes
        each = f", which remains if each frame takes {overhead} bytes of overhead" if overhead else ""
        return f"{self.location} would need to carry {rates}{each}"


class AdmissionError(DetsError, ValueError):
    """Limits that do not fit the fabric.

    ``overload`` names the port or link, ``largest_bps`` the largest limit that fits (0: none).
    """

    def __init__(self, key: str, value_bps: int, overload: Overload, largest_bps: int) -> None:
        self.key = key
        self.value_bps = value_bps
        self.overload = overload
        self.largest_bps = largest_bps
        offer = f"at most {format_rate(largest_bps)} fits" if largest_bps else "nothing fits"
        super().__init__(f"{key}: {format_rate(value_bps)} does not fit: {overload}; {offer}")


def port_overload(
    port: Port, direction: str, limits_bps: Iterable[int], capacity_bps: int, frame_overhead_bytes: int = 0
) -> Overload | None:
    """Return the overload of an access port under these limits in one direction (``send``, ``receive``), if any.

    ``capacity_bps`` is without the overhead.
    """
    load_bps = sum(limits_bps)
    words = f"port {port} ({'sending' if direction == 'send' else 'receiving'})"
    return Overload(words, load_bps, capacity_bps, frame_overhead_bytes) if load_bps > capacity_bps else None


def overloads(topology: HoseTopology, vns: Iterable[VnLimits]) -> list[Overload]:
    """Return all overloads under the limits: access ports first, then core links; none if all fit.

    Raises InvalidValueError for a VN at a port without a capacity, two VNs of one VLAN at one port, or a limit that a
    meter cannot carry.
    """
    limit_set = _LimitSet(topology, vns)
    return limit_set.overloads(limit_set.capacities())


def admit(topology: HoseTopology, vns: Iterable[VnLimits], changed: VnLimits, *, sending: bool | None = None) -> None:
    """Raise AdmissionError unless all limits fit when ``changed`` replaces (or joins) the limits of its VN.

    The error names the first overload, and the largest limit with which everything fits, given the VN's other limit as
    requested. That limit is the send limit (``sending`` True) or the receive limit (False); with None, the send limit
    if lowering either one would do. Overloads that exist without this VN are ignored. Raises InvalidValueError as
    ``overloads`` does.
    """
    other_vns = [vn for vn in vns if (vn.vlan_vid, vn.port) != (changed.vlan_vid, changed.port)]
    limit_set = _LimitSet(topology, [*other_vns, changed])
    places = limit_set.capacities(changed.port)
    all_overloads = limit_set.overloads(places)
    if not all_overloads:
        return
    without = _LimitSet(topology, other_vns)
    place_set = set(places)
    existing = {
        overload.location
        for overload in without.overloads([place for place in without.capacities() if place in place_set])
    }
    caused = [overload for overload in all_overloads if overload.location not in existing]
    if caused:
        raise _refusal(limit_set, changed, places, caused[0], existing, sending)


def _refusal(
    limit_set: _LimitSet,
    changed: VnLimits,
    capacity_keys: list[CapacityKey],
    overload: Overload,
    excused: set[str],
    sending: bool | None,
) -> AdmissionError:
    """Return the error for a limit that does not fit, with the highest multiple of STEP_BPS that would.

    ``excused`` are the locations of overloads that exist without the VN of ``changed``.
    """

    def fits(candidate: VnLimits) -> bool:
        return all(found.location in excused for found in limit_set.replaced(candidate).overloads(capacity_keys))

    def with_limit(limit_bps: int, sending_side: bool) -> VnLimits:
        if sending_side:
            return replace(changed, send_limit_bps=limit_bps)
        return replace(changed, receive_limit_bps=limit_bps)

    # The limit to blame is the one whose reduction makes the rest fit; the send limit if both must be reduced.
    if sending is None:
        sending = fits(with_limit(MIN_RATE_BPS, True)) or not fits(with_limit(MIN_RATE_BPS, False))
    value_bps = changed.send_limit_bps if sending else changed.receive_limit_bps
    low, high = 0, -(-value_bps // STEP_BPS)  # in steps; ``high`` does not fit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(with_limit(middle * STEP_BPS, sending)) else (low, middle)
    key = f"vlans.{changed.vlan_vid}.{changed.port}.{'send_limit' if sending else 'receive_limit'}"
    return AdmissionError(key, value_bps, overload, low * STEP_BPS)


class _LimitSet:
    """A set of limits on a topology, by capacity: the access ports in either direction and the core links."""

    def __init__(self, topology: HoseTopology, vns: Iterable[VnLimits]) -> None:
        self.topology = topology
        self.at_port: dict[Port, dict[int, VnLimits]] = {}
        for vn in vns:
            key = f"vlans.{vn.vlan_vid}.{vn.port}"
            if vn.port not in topology.port_capacity_bps:
                raise InvalidValueError(key, vn.port, "is not a port with a capacity")
            if vn.vlan_vid in self.at_port.setdefault(vn.port, {}):
                raise InvalidValueError(key, vn.vlan_vid, "stands twice at this port")
            check_rate_bps(vn.send_limit_bps, f"{key}.send_limit")
            check_rate_bps(vn.receive_limit_bps, f"{key}.receive_limit")
            self.at_port[vn.port][vn.vlan_vid] = vn
        self.pairs: dict[Link, list[PortPair]] = {}
        for pair, links in topology.paths.items():
            if pair[0] in self.at_port and pair[1] in self.at_port:
                for link in links:
                    self.pairs.setdefault(link, []).append(pair)

    def replaced(self, vn: VnLimits) -> _LimitSet:
        """Return the set with other limits for one VN."""
        limit_set = copy.copy(self)
        limit_set.at_port = {**self.at_port, vn.port: {**self.at_port[vn.port], vn.vlan_vid: vn}}
        return limit_set

    def overloads(self, capacity_keys: list[CapacityKey]) -> list[Overload]:
        """Return the overloads among these ports and links."""
        return [overload for place in capacity_keys if (overload := self._overload(place)) is not None]

    def capacities(self, of: Port | None = None) -> list[CapacityKey]:
        """Return the ports and links with a load (of this port, if given), in the order of the checks."""
        ports = self.at_port if of is None else [of]
        links = [link for link, pairs in self.pairs.items() if of is None or any(of in pair for pair in pairs)]
        return [*((kind, port) for port in ports for kind in DIRECTIONS), *(("link", link) for link in links)]

    def _overload(self, key: CapacityKey) -> Overload | None:
        """Return the overload of a port or link by the limits; None if they fit."""
        kind, name = key
        overhead = self.topology.frame_overhead_bytes.get(name, 0)
        if kind != "link":
            here = self.at_port[name].values()
            limits_bps = (vn.send_limit_bps if kind == "send" else vn.receive_limit_bps for vn in here)
            return port_overload(name, kind, limits_bps, self.topology.port_capacity_bps[name], overhead)
        capacity_bps = self.topology.link_capacity_bps[name]
        load_bps = self._link_load_bps(name, capacity_bps)
        return Overload(f"link {name}", load_bps, capacity_bps, overhead) if load_bps > capacity_bps else None

    def _link_load_bps(self, link: Link, sufficient_bps: int) -> int:
        """Return the worst load of a link, or an upper bound of it that is at most ``sufficient_bps``."""
        by_vlan: dict[int, list[tuple[VnLimits, VnLimits]]] = {}
        for sender_port, receiver_port in self.pairs[link]:
            receivers = self.at_port[receiver_port]
            for vlan_vid, sender in self.at_port[sender_port].items():
                if vlan_vid in receivers:
                    by_vlan.setdefault(vlan_vid, []).append((sender, receivers[vlan_vid]))
        simple_bps = sum(_either_side_bps(pairs) for pairs in by_vlan.values())
        if simple_bps <= sufficient_bps:
            return simple_bps
        return sum(_worst_load_bps(pairs) for pairs in by_vlan.values())


def _either_side_bps(pairs: list[tuple[VnLimits, VnLimits]]) -> int:
    """Return the lower sum of all senders' and all receivers' limits: an upper bound of the load."""
    sending = {sender.port: sender.send_limit_bps for sender, _ in pairs}
    receiving = {receiver.port: receiver.receive_limit_bps for _, receiver in pairs}
    return min(sum(sending.values()), sum(receiving.values()))


def _worst_load_bps(pairs: list[tuple[VnLimits, VnLimits]]) -> int:
    """Return the largest flow over these pairs of one VLAN.

    It equals ``_either_side_bps`` when every sender is paired with every receiver, as on any tree.
    """
    senders, receivers = {sender.port for sender, _ in pairs}, {receiver.port for _, receiver in pairs}
    if len({(sender.port, receiver.port) for sender, receiver in pairs}) == len(senders) * len(receivers):
        return _either_side_bps(pairs)
    import networkx as nx  # 285 modules, which the controller's start does not need

    graph = nx.DiGraph()
    for sender, receiver in pairs:
        graph.add_edge("source", ("from", sender.port), capacity=sender.send_limit_bps)
        graph.add_edge(("from", sender.port), ("to", receiver.port))  # without a capacity: unlimited
        graph.add_edge(("to", receiver.port), "sink", capacity=receiver.receive_limit_bps)
    return int(nx.maximum_flow_value(graph, "source", "sink"))
