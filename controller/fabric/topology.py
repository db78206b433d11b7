"""Links between switches, the tree for broadcasts and the paths between switches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PROBE_INTERVAL_S = 1.0
# A link is down after three lost probes in a row; a port that goes down takes its links with it at once.
LINK_TIMEOUT_S = 3.5
LATE_S = 1.5  # time after the last probe when another one is late
MAX_LATE = 50  # ports that repeat a probe in an interval; others follow in the next intervals
HOLD_S = 1.0  # time in which a port with a link reported down gets no new link: paths do not follow every flap
MAX_NEIGHBOURS = 8  # of a port in each direction; a port has one, except on a segment that several switches share


class PortId(NamedTuple):
    """One port of one switch."""

    dpid: int
    port_no: int


class Link(NamedTuple):
    """A bidirectional link, the lower end first."""

    a: PortId
    b: PortId


@dataclass(frozen=True)
class SwitchPaths:
    """The paths over the links: ``tree`` are the links to flood along.

    ``next_port`` is the port out of which a frame leaves a switch towards another one, by (dpid, dpid of the other).
    """

    tree: frozenset[Link]
    next_port: dict[tuple[int, int], int]


class FloodTree:
    """The links to flood along, which form no loop. Sets of switches are integers, a bit for each."""

    def __init__(self, links: Iterable[Link]) -> None:
        self._ports: defaultdict[int, dict[int, int]] = defaultdict(dict)  # by dpid: port and the dpid at its end
        for link in links:
            for end, other in (link, link[::-1]):
                self._ports[end.dpid][end.port_no] = other.dpid
        # The bit of each switch in sets of switches.
        self._bit = {dpid: 1 << number for number, dpid in enumerate(sorted(self._ports))}
        # By dpid and port: the set of switches that the port leads to.
        self._behind: dict[int, dict[int, int]] = {dpid: {} for dpid in self._ports}
        for dpid in self._ports:
            if not self._behind[dpid]:
                self._find_behind(dpid)

    def switches(self, dpids: Iterable[int]) -> int:
        """Return the bit set of those ``dpids`` that are in the tree."""
        return sum(self._bit.get(dpid, 0) for dpid in set(dpids))

    def ports_towards(self, dpid: int, switches: int) -> tuple[int, ...]:
        """Return the ports of a switch behind which the tree has one of these switches, in ascending order."""
        return tuple(port_no for port_no, behind in sorted(self._behind.get(dpid, {}).items()) if behind & switches)

    def _find_behind(self, root: int) -> None:
        """Find the switches behind each port of the tree that contains ``root``."""
        order, parent = [root], {root: root}  # the switches from the root downwards
        for dpid in order:  # grows during the loop
            for other in self._ports[dpid].values():
                if other not in parent:
                    parent[other] = dpid
                    order.append(other)
        subtree = {dpid: self._bit[dpid] for dpid in order}
        for dpid in order[:0:-1]:  # from the leaves upwards, without the root
            subtree[parent[dpid]] |= subtree[dpid]
        for dpid in order:
            for port_no, other in self._ports[dpid].items():
                is_child = parent[other] == dpid and other != root
                self._behind[dpid][port_no] = subtree[other] if is_child else subtree[root] & ~subtree[dpid]


class Topology:
    """Switches and links that come and go. A link is up while probes from both ends arrive.

    The cost of a probe does not grow with the fabric: each link is probed twice a second. Nor can a switch inflate it:
    a port has at most MAX_NEIGHBOURS neighbours in each direction, and a port whose link was reported down has none for
    HOLD_S.
    """

    def __init__(self) -> None:
        self._switches: set[int] = set()
        self._probed_s: dict[tuple[PortId, PortId], float] = {}  # by sender and receiver, the latest at the end
        self._directions_at: defaultdict[PortId, set[tuple[PortId, PortId]]] = defaultdict(set)  # by either end
        self._held_until_s: dict[PortId, float] = {}  # until when these ports get no link
        self._links: frozenset[Link] = frozenset()
        self._next_late = 0  # with which of the late ports ``overdue_probes`` goes on
        self._links_of: defaultdict[int, set[Link]] = defaultdict(set)  # by the dpid of either end

    def limited_to(self, switches: Iterable[int], is_edge: Callable[[PortId], bool]) -> Topology:
        """Return the topology between some switches, without edge ports."""
        limited = Topology()
        limited._switches = self._switches & set(switches)
        for ends, at_s in self._probed_s.items():
            if {end.dpid for end in ends} <= limited._switches and not any(map(is_edge, ends)):
                limited.record_probe(*ends, at_s)
        return limited

    @property
    def switches(self) -> frozenset[int]:
        """The dpids of the switches that are up."""
        return frozenset(self._switches)

    def add_switch(self, dpid: int) -> None:
        """Record that a switch is up."""
        self._switches.add(dpid)
        for ends in self._probed_s:
            if dpid in (ends[0].dpid, ends[1].dpid):
                self._update_link(*ends)

    def remove_switch(self, dpid: int) -> None:
        """Record that a switch is down, and remove its links."""
        self._switches.discard(dpid)
        self._remove([ends for ends in self._probed_s if dpid in (ends[0].dpid, ends[1].dpid)])

    def remove_port(self, port: PortId, now_s: float) -> bool:
        """Record that a port is down, and remove its link; return whether it had one."""
        directions = list(self._directions_at.get(port, ()))
        if had_link := self._remove(directions):
            still_held = {end: until_s for end, until_s in self._held_until_s.items() if until_s > now_s}
            self._held_until_s = still_held | dict.fromkeys(
                {end for ends in directions for end in ends}, now_s + HOLD_S
            )
        return had_link

    def record_probe(self, sender: PortId, receiver: PortId, now_s: float) -> bool:
        """Record that ``receiver`` got a probe from ``sender``; return whether that brought a link up."""
        ends = (sender, receiver)
        if sender.dpid == receiver.dpid or any(now_s < self._held_until_s.get(end, now_s) for end in ends):
            return False
        if self._probed_s.pop(ends, None) is None:  # the first one between these ports
            if any(len(self._directions_at.get(end, ())) >= 2 * MAX_NEIGHBOURS for end in ends):
                return False
            for end in ends:
                self._directions_at[end].add(ends)
        self._probed_s[ends] = now_s  # at the end of the dict, which is in the order of time
        return self._update_link(sender, receiver)

    def expire(self, now_s: float) -> bool:
        """Discard probes older than LINK_TIMEOUT_S; return whether that took a link down."""
        return self._remove(list(takewhile(lambda ends: now_s - self._probed_s[ends] > LINK_TIMEOUT_S, self._probed_s)))

    def overdue_probes(self, now_s: float) -> list[PortId]:
        """Return at most MAX_LATE ports that must repeat a probe: their link is up, and its last probe is late.

        A full link loses probes as it loses other frames: such ports then send a probe in every interval. Of more than
        MAX_LATE ports, each call returns the next ones.
        """
        overdue = takewhile(lambda ends: self.is_late(ends, now_s), self._probed_s)  # in the order of time
        late = [ends[0] for ends in overdue if Link(min(ends), max(ends)) in self._links]
        self._next_late += MAX_LATE
        return [late[(self._next_late + n) % len(late)] for n in range(min(len(late), MAX_LATE))]

    def is_late(self, ends: tuple[PortId, PortId], now_s: float) -> bool:
        """Return whether the last probe of a known (sender, receiver) is older than LATE_S."""
        return now_s - self._probed_s[ends] > LATE_S

    def extend_timeouts(self, seconds: float) -> None:
        """Extend the timeouts of all links, since the controller did not read its sockets for that time."""
        self._probed_s = {ends: at_s + seconds for ends, at_s in self._probed_s.items()}

    def refresh_switches(self, dpids: Container[int], now_s: float) -> None:
        """Extend the validity of probes from and to these switches, which are not read now."""
        for ends in [ends for ends in self._probed_s if ends[0].dpid in dpids or ends[1].dpid in dpids]:
            del self._probed_s[ends]
            self._probed_s[ends] = now_s

    def probes_received_at(self, dpids: Container[int]) -> list[tuple[PortId, PortId]]:
        """Return the (sender, receiver) of the recent probes at these switches."""
        return [ends for ends in self._probed_s if ends[1].dpid in dpids]

    def drop_probes(self, directions: Iterable[tuple[PortId, PortId]]) -> bool:
        """Drop probes of (sender, receiver) that another node no longer receives; return whether a link went down."""
        return self._remove([ends for ends in directions if ends in self._probed_s])

    def links(self) -> frozenset[Link]:
        """Return the links that are up; the same object until one changes."""
        return self._links

    def is_linked(self, port: PortId) -> bool:
        """Return whether a port has a link that is up."""
        return any(Link(min(pair), max(pair)) in self._links for pair in self._directions_at.get(port, ()))

    def fabric_ports(self, dpid: int) -> set[int]:
        """Return the ports of a switch that lead to other switches."""
        return {port.port_no for link in self._links_of[dpid] for port in link if port.dpid == dpid}

    def paths(self) -> SwitchPaths:
        """Return the tree and the paths over the links that are up.

        Of several links between two switches the one with the lowest ports is used. Paths are shortest, the tree is a
        minimum spanning tree (Kruskal). Both depend only on the links, not on the order in which they were found.
        """
        between: dict[int, dict[int, Link]] = {dpid: {} for dpid in sorted(self._switches)}
        tree = set[Link]()
        # By dpid: the switches that the tree connects with it. Connected switches share one list.
        component = {dpid: [dpid] for dpid in between}
        for link in sorted(self.links()):
            dpid_a, dpid_b = link.a.dpid, link.b.dpid
            if dpid_b in between[dpid_a]:
                continue
            between[dpid_a][dpid_b] = between[dpid_b][dpid_a] = link
            if component[dpid_a] is not component[dpid_b]:
                tree.add(link)
                smaller, larger = sorted((component[dpid_a], component[dpid_b]), key=len)
                larger += smaller
                component.update(dict.fromkeys(smaller, larger))
        return SwitchPaths(frozenset(tree), _next_ports(between))

    def _remove(self, directions: Iterable[tuple[PortId, PortId]]) -> bool:
        """Drop the probes of some (sender, receiver) ports; return whether that took a link down."""
        down = False
        for ends in directions:
            del self._probed_s[ends]
            for end in ends:
                self._directions_at[end].discard(ends)
                if not self._directions_at[end]:
                    del self._directions_at[end]
            down = self._update_link(*ends) or down
        return down

    def _update_link(self, one: PortId, other: PortId) -> bool:
        """Re-evaluate the link of two ports; return whether its state changed."""
        received = (one, other) in self._probed_s and (other, one) in self._probed_s
        up = received and one.dpid != other.dpid and {one.dpid, other.dpid} <= self._switches
        link = Link(min(one, other), max(one, other))
        if up == (link in self._links):
            return False
        self._links = self._links | {link} if up else self._links - {link}
        for end in link:
            (self._links_of[end.dpid].add if up else self._links_of[end.dpid].discard)(link)
        return True


def _next_ports(between: dict[int, dict[int, Link]]) -> dict[tuple[int, int], int]:
    """Return the port by which a shortest path leaves a switch towards another one, by (dpid, dpid of the other).

    ``between`` has the link to each neighbour, by both dpids; the first ones ascend. Of several neighbours at the same
    distance, the one with the lowest dpid is used.
    """
    next_ports: dict[tuple[int, int], int] = {}
    dpids = list(between)
    row = {dpid: number for number, dpid in enumerate(dpids)}
    hops = _hop_counts([[row[neighbour] for neighbour in links] for links in between.values()])
    for dpid in dpids:
        neighbours = sorted(between[dpid])
        if not neighbours:
            continue
        links = [between[dpid][neighbour] for neighbour in neighbours]
        ports = [link.a.port_no if link.a.dpid == dpid else link.b.port_no for link in links]
        own_hops, neighbour_hops = hops[row[dpid]], hops[[row[neighbour] for neighbour in neighbours]]
        is_nearer = (neighbour_hops == own_hops - 1.0) & np.isfinite(own_hops)  # (neighbours, targets)
        reachable = np.flatnonzero(is_nearer.any(axis=0))
        for target, index in zip(reachable.tolist(), is_nearer.argmax(axis=0)[reachable].tolist(), strict=True):
            next_ports[dpid, dpids[target]] = ports[index]
    return next_ports


def _hop_counts(neighbours: list[list[int]]) -> NDArray[np.float64]:
    """Return the number of hops between any two switches, (switches, switches), infinite without a path.

    ``neighbours`` has the indices of each switch's neighbours. The algorithm is that of Floyd and Warshall.
    """
    hop_counts = np.full((len(neighbours), len(neighbours)), np.inf)
    for switch, switch_neighbours in enumerate(neighbours):
        hop_counts[switch, switch_neighbours] = 1.0
        hop_counts[switch, switch] = 0.0
    for via in range(len(neighbours)):
        np.minimum(hop_counts, hop_counts[:, via, None] + hop_counts[via], out=hop_counts)
    return hop_counts


def hops(
    paths: SwitchPaths, links: Iterable[Link], pairs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], list[PortId]]:
    """Return for each of ``pairs`` (from dpid, to dpid) the ports out of which frames leave along the path, in order.

    ``links`` are the links from which ``paths`` were computed. Pairs without a path, or of one switch, have no hops.
    """
    opposite_end = {end: other for link in links for end, other in ((link.a, link.b), (link.b, link.a))}
    all_hops: dict[tuple[int, int], list[PortId]] = {}
    for start, target in pairs:
        path: list[PortId] = []
        dpid = start
        while dpid != target:
            port_no = paths.next_port.get((dpid, target))
            if port_no is None:
                path = []
                break
            path.append(PortId(dpid, port_no))
            dpid = opposite_end[path[-1]].dpid
        all_hops[start, target] = path
    return all_hops
