"""The links that a fabric uses at the moment, with the capacities that its configuration tells."""

from __future__ import annotations

from controller.config.load import Config
from controller.fabric.links import FabricLinks
from controller.fabric.topology import Link, Port, Topology
from controller.fabric.vns import VnTable


class LinksInUse:
    """Remembers the links until the topology changes."""

    def __init__(self, config: Config) -> None:
        self._names = {switch.dpid: switch.name for switch in config.switches.values()}
        self._capacity_bps = {
            Port(end.dpid, end.port_no): link.capacity_bps for link in config.links for end in link.ends
        }
        self._seen: frozenset[Link] | None = None
        self._links: FabricLinks | None = None

    def of(self, vns: VnTable, topology: Topology) -> FabricLinks:
        """Return the links of the paths in use; the very same object as long as the same links are up."""
        up = topology.links()
        if self._links is None or up != self._seen:
            self._seen = up
            self._links = FabricLinks.of(vns, self._names, self._capacity_bps, topology.paths(), up)
        return self._links
