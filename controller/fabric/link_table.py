"""The links that pairs share, as rows: the capacities that a network-wide allocation must respect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.config_model import Config
from controller.fabric.pair_table import PairTable
from controller.fabric.topology import Link, PortId, SwitchPaths, Topology, hops
from controller.fabric.vn_table import VnTable

_SENDING = " (sending)"


@dataclass(frozen=True)
class LinkTable:
    """A row for each direction of a link: access links up, access links down, and core links of known capacity.

    ``names`` and ``capacity_bps`` have shape (links,). ``up`` and ``down`` (vns,) are the rows of each VN's access
    link, from its hosts and to its hosts. ``switch`` (vns,) is the index of each VN's switch. With ``p = a * switches +
    b``, the core links on the path from switch ``a`` to switch ``b`` are ``path_link[path_offsets[p]:path_offsets[p +
    1]]``.
    """

    names: tuple[str, ...]
    capacity_bps: FloatArray
    up: IntArray
    down: IntArray
    switch: IntArray
    switches: int
    path_offsets: IntArray
    path_link: IntArray

    @classmethod
    def build(
        cls,
        vns: VnTable,
        switch_names: Mapping[int, str],
        core_capacity_bps: Mapping[PortId, int],
        paths: SwitchPaths,
        links: Iterable[Link],
        interfaces: Mapping[tuple[int, int], str] = {},
    ) -> LinkTable:
        """Return the links of a fabric; ``core_capacity_bps`` has ports as keys, out of which frames enter a core link.

        ``paths`` and ``links`` are the paths and links in use; a link without a capacity is no constraint.
        ``interfaces`` are the names of edge ports that are configured by name; the keys are (dpid, port number).
        """
        ports, port = _access_ports(vns)
        dpids, switch = np.unique(vns.dpid, return_inverse=True)
        access_bps = np.zeros(ports.shape[1])
        access_bps[port] = vns.capacity_bps
        locations = [
            f"{switch_names.get(dpid, f'{dpid:016x}')}:{interfaces.get((dpid, port_no), port_no)}"
            for dpid, port_no in ports.T.tolist()
        ]
        core_row = {end: 2 * len(locations) + number for number, end in enumerate(core_capacity_bps)}
        path_hops = hops(paths, links, ((a, b) for a in dpids.tolist() for b in dpids.tolist()))
        core_paths = [[core_row[hop] for hop in path if hop in core_row] for path in path_hops.values()]
        return cls(
            (
                *(location + _SENDING for location in locations),
                *(f"{location} (receiving)" for location in locations),
                *(f"out of {switch_names.get(end.dpid, f'{end.dpid:016x}')}:{end.port_no}" for end in core_row),
            ),
            np.concatenate([access_bps, access_bps, np.array(list(core_capacity_bps.values()), dtype=np.float64)]),
            port,
            port + len(locations),
            switch,
            len(dpids),
            np.concatenate([[0], np.cumsum([len(path) for path in core_paths])]).astype(np.int64),
            np.array([row for path in core_paths for row in path], dtype=np.int64),
        )

    @classmethod
    def access_links(cls, vns: VnTable) -> LinkTable:
        """Return the access links only."""
        return cls.build(vns, {}, {}, SwitchPaths(frozenset(), {}), ())

    def location(self, vn: int) -> str:
        """Return a VN's location, as ``SWITCH:PORT``."""
        return self.names[int(self.up[vn])].removesuffix(_SENDING)

    def pair_links(self, entries: PairTable, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Return the links of the pairs in ``rows``: those of the i-th are ``links[offsets[i]:offsets[i + 1]]``.

        They are the sender's access link, the receiver's access link, and the core links of the path.
        """
        sender, receiver = entries.sender[rows], entries.receiver[rows]
        path = self.switch[sender] * self.switches + self.switch[receiver]
        first_core, core_count = self.path_offsets[path], self.path_offsets[path + 1] - self.path_offsets[path]
        offsets = np.concatenate([[0], np.cumsum(core_count + 2)]).astype(np.int64)
        links = np.empty(int(offsets[-1]), dtype=np.int64)
        is_core = np.ones(len(links), dtype=np.bool_)
        is_core[offsets[:-1]] = is_core[offsets[:-1] + 1] = False
        links[offsets[:-1]], links[offsets[:-1] + 1] = self.up[sender], self.down[receiver]
        # 0, 1, 2 ... for the core links of each pair.
        index_in_path = np.arange(int(core_count.sum())) - np.repeat(np.cumsum(core_count) - core_count, core_count)
        links[is_core] = self.path_link[np.repeat(first_core, core_count) + index_in_path]
        return offsets, links


@dataclass(frozen=True)
class LinkPorts:
    """The port at which each row of ``LinkTable`` can be read, shape (links,), and the direction of its frames there.

    ``inward`` marks the links from hosts: the port receives their frames; into all other links it sends.
    """

    dpid: NDArray[np.uint64]
    port_no: IntArray
    inward: BoolArray

    @classmethod
    def build(cls, vns: VnTable, core: Iterable[PortId]) -> LinkPorts:
        """Return the ports of the links of ``LinkTable.build``.

        ``core`` are the ports out of which frames enter core links, in the order of its ``core_capacity_bps``.
        """
        access, ends = _access_ports(vns)[0].astype(np.uint64), list(core)
        dpid, port_no = np.concatenate([access, access, np.array(ends, dtype=np.uint64).reshape(-1, 2).T], axis=1)
        return cls(dpid, port_no.astype(np.int64), np.arange(len(dpid)) < access.shape[1])


def _access_ports(vns: VnTable) -> tuple[NDArray[np.uint64], IntArray]:
    """Return the dpids and numbers of the edge ports, (2, ports), and the index of each VN's port, (vns,)."""
    ports, port = np.unique(np.stack([vns.dpid, vns.port_no.astype(np.uint64)]), axis=1, return_inverse=True)
    return ports, port.reshape(-1)


class LinkTableCache:
    """Caches the link table until the topology changes."""

    def __init__(self, config: Config) -> None:
        self._names = {switch.dpid: switch.name for switch in config.switches.values()}
        self._capacity_bps = {
            PortId(end.dpid, end.port_no): link.capacity_bps for link in config.links for end in link.ends
        }
        self._interfaces = {
            (switch.dpid, port.port_no): port.interface for switch, port in config.ports() if port.interface is not None
        }
        self._seen: frozenset[Link] | None = None
        self._links: LinkTable | None = None
        self._ports: LinkPorts | None = None

    def link_table(self, vns: VnTable, topology: Topology) -> LinkTable:
        """Return the links of the paths in use; the same object while the same links are up."""
        up = topology.links()
        if self._links is None or up != self._seen:
            self._seen = up
            self._links = LinkTable.build(vns, self._names, self._capacity_bps, topology.paths(), up, self._interfaces)
        return self._links

    def ports(self, vns: VnTable) -> LinkPorts:
        """Return the ports at which the links can be read; the same object while the configuration lasts."""
        if self._ports is None:
            self._ports = LinkPorts.build(vns, self._capacity_bps)
        return self._ports
