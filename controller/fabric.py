"""The operator's fabric as the core sees it: switches and their edge ports."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EdgePort:
    """An edge port. With ``tagged`` it is a trunk of ``vlan_vids``; otherwise an access port of the only one."""

    port_no: int
    vlan_vids: tuple[int, ...]
    tagged: bool
    capacity_bps: int
    name: str | None = None


@dataclass(frozen=True)
class Switch:
    """A switch of the fabric; one without edge ports is a core switch. ``ovsdb`` is None where queues cannot be set."""

    name: str
    dpid: int
    edge_ports: tuple[EdgePort, ...]
    ovsdb: str | None = None

    def edge_port(self, port_no: int) -> EdgePort | None:
        """Return the edge port of that number, or None."""
        return next((port for port in self.edge_ports if port.port_no == port_no), None)
