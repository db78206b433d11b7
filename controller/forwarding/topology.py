"""Which switches are linked, the tree for broadcasts and the paths between switches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx

HELLO_INTERVAL_S = 1.0
# A link of which three hellos in a row were lost is down; a port that goes down takes its links with it at once.
LINK_TIMEOUT_S = 3.5


class Port(NamedTuple):
    """One port of one switch."""

    dpid: int
    port_no: int


class Link(NamedTuple):
    """A link that carries frames both ways, the lower end first."""

    a: Port
    b: Port


@dataclass(frozen=True)
class Paths:
    """What follows from the links: ports to flood along, and the port that leads towards another switch."""

    tree: frozenset[Link]
    next_port: dict[tuple[int, int], int]

    def tree_ports(self, dpid: int) -> set[int]:
        """Return the ports of a switch that are part of the tree."""
        return {port.port_no for link in self.tree for port in link if port.dpid == dpid}


class Topology:
    """Switches and links that come and go. A link is up when both its ends have heard each other lately."""

    def __init__(self) -> None:
        self._switches: set[int] = set()
        self._heard_s: dict[tuple[Port, Port], float] = {}

    def carried(self, switches: Iterable[int], is_edge: Callable[[Port], bool]) -> Topology:
        """Return what is known of the links between some switches, those at edge ports left out."""
        carried = Topology()
        carried._switches = self._switches & set(switches)
        carried._heard_s = {
            ends: at_s
            for ends, at_s in self._heard_s.items()
            if {end.dpid for end in ends} <= carried._switches and not any(map(is_edge, ends))
        }
        return carried

    @property
    def switches(self) -> frozenset[int]:
        """The dpids of the switches that are up."""
        return frozenset(self._switches)

    def add_switch(self, dpid: int) -> None:
        """A switch is up."""
        self._switches.add(dpid)

    def remove_switch(self, dpid: int) -> None:
        """A switch is down, and so are its links."""
        self._switches.discard(dpid)
        self._forget(lambda end: end.dpid == dpid)

    def remove_port(self, port: Port) -> None:
        """A port is down, and so is its link."""
        self._forget(lambda end: end == port)

    def hear(self, sender: Port, receiver: Port, now_s: float) -> bool:
        """Note that ``receiver`` got a hello from ``sender``; tell whether that brought a link up."""
        before = self.links()
        self._heard_s[sender, receiver] = now_s
        return self.links() != before

    def expire(self, now_s: float) -> bool:
        """Forget what was not heard for LINK_TIMEOUT_S; tell whether that took a link down."""
        before = self.links()
        self._heard_s = {ends: at_s for ends, at_s in self._heard_s.items() if now_s - at_s <= LINK_TIMEOUT_S}
        return self.links() != before

    def links(self) -> frozenset[Link]:
        """Return the links that are up."""
        both = (ends for ends in self._heard_s if (ends[1], ends[0]) in self._heard_s)
        known = (ends for ends in both if {ends[0].dpid, ends[1].dpid} <= self._switches)
        return frozenset(Link(min(ends), max(ends)) for ends in known if ends[0].dpid != ends[1].dpid)

    def is_linked(self, port: Port) -> bool:
        """Tell whether a port has a link that is up."""
        return any(port in link for link in self.links())

    def fabric_ports(self, dpid: int) -> set[int]:
        """Return the ports of a switch that lead to other switches."""
        return {port.port_no for link in self.links() for port in link if port.dpid == dpid}

    def paths(self) -> Paths:
        """Return the tree and the paths over the links that are up.

        Of several links between two switches the one with the lowest ports is used. Paths are shortest, the tree is a
        minimum spanning tree; both come out the same for the same links, however they were found.
        """
        graph = nx.Graph()
        graph.add_nodes_from(sorted(self._switches))
        for link in sorted(self.links()):
            if not graph.has_edge(link.a.dpid, link.b.dpid):
                graph.add_edge(link.a.dpid, link.b.dpid, link=link)
        tree = frozenset(data["link"] for _, _, data in nx.minimum_spanning_edges(graph, data=True))
        next_port: dict[tuple[int, int], int] = {}
        for target in graph:
            for dpid, towards in nx.predecessor(graph, target).items():
                if towards:
                    link = graph.edges[dpid, min(towards)]["link"]
                    next_port[dpid, target] = link.a.port_no if link.a.dpid == dpid else link.b.port_no
        return Paths(tree, next_port)

    def _forget(self, gone: Callable[[Port], bool]) -> None:
        self._heard_s = {ends: at_s for ends, at_s in self._heard_s.items() if not (gone(ends[0]) or gone(ends[1]))}
