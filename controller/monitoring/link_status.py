"""The links of a fabric, configured and discovered, with the commitment of each.

A link's commitment is the most that the limits let through it (the hose model): for each VLAN the lower of the send
limits on one side and the receive limits on the other. On a tree that is exact, otherwise an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import FloatArray
from controller.fabric.config_model import Config
from controller.fabric.topology import Link, PortId, Topology, hops
from controller.fabric.vn_table import VnTable


@dataclass(frozen=True, slots=True)
class FabricLink:
    """A link between two switches: its ends, the lower first; ``capacity_bps`` None: not configured.

    ``admissible_bps`` is the capacity without the overhead of frames.
    """

    link: Link
    capacity_bps: int | None
    admissible_bps: int | None
    up: bool
    up_since_s: float


class LinkUptime:
    """The links that are up, and since when."""

    def __init__(self) -> None:
        self.up: frozenset[Link] = frozenset()
        self._since_s: dict[Link, float] = {}

    def note(self, links: frozenset[Link], now_s: float) -> None:
        """Store the set of links that are up now."""
        if links is not self.up:
            self._since_s = {link: self._since_s.get(link, now_s) for link in links}
            self.up = links

    def list_links(self, config: Config) -> list[FabricLink]:
        """Return the links of the configuration in its order, then other links that are up."""
        configured: dict[Link, tuple[int | None, int | None]] = {}
        for core_link in config.links:
            a, b = sorted(PortId(end.dpid, end.port_no) for end in core_link.ends)
            configured[Link(a, b)] = core_link.capacity_bps, core_link.admissible_bps
        unconfigured = sorted(self.up - configured.keys())
        return [
            FabricLink(link, *configured.get(link, (None, None)), link in self.up, self._since_s.get(link, np.nan))
            for link in (*configured, *unconfigured)
        ]


class LinkCommitments:
    """The commitment of each direction of the configured links, computed one direction at a time."""

    def __init__(self, config: Config) -> None:
        built = Topology()
        for switch in config.switches.values():
            built.add_switch(switch.dpid)
        for one in config.links:
            for sender, receiver in (one.ends, one.ends[::-1]):
                built.record_probe(PortId(sender.dpid, sender.port_no), PortId(receiver.dpid, receiver.port_no), 0.0)
        dpids = sorted(switch.dpid for switch in config.switches.values() if switch.ports)
        self._at = {dpid: at for at, dpid in enumerate(dpids)}  # the index of each edge switch
        # By the port out of which a direction of a link leads: the edge switches (indices) that send and receive there.
        self._ends: dict[PortId, tuple[set[int], set[int]]] = {}
        between = ((a, b) for a in dpids for b in dpids if a != b)
        directions = hops(built.paths(), built.links(), between) if config.links else {}
        for (a, b), direction in directions.items():
            for port in direction:
                senders, receivers = self._ends.setdefault(port, (set(), set()))
                senders.add(self._at[a])
                receivers.add(self._at[b])
        self._vns: VnTable | None = None
        self._limits: tuple[FloatArray, FloatArray] = (np.empty((0, 0)), np.empty((0, 0)))

    def committed_bps(self, port: PortId, vns: VnTable) -> float:
        """Return the commitment of ``vns`` on the link out of a port, bit/s; 0 where no path uses it."""
        if vns is not self._vns:
            vids, vlan = np.unique(vns.vlan_vid, return_inverse=True)
            place = np.array([self._at[dpid] for dpid in vns.dpid.tolist()], dtype=np.int64)
            # The sums of the send limits and of the receive limits, (edge switches, VLANs) each.
            # ``cell`` is one number for the edge switch and the VLAN of each VN.
            cell, shape = place * len(vids) + vlan, (len(self._at), len(vids))
            self._limits = tuple(  # type: ignore[assignment]
                np.bincount(cell, column, shape[0] * shape[1]).reshape(shape)
                for column in (vns.send_limit_bps, vns.receive_limit_bps)
            )
            self._vns = vns
        if port not in self._ends:
            return 0.0
        senders, receivers = (sorted(ends) for ends in self._ends[port])
        sending_bps, receiving_bps = self._limits[0][senders].sum(axis=0), self._limits[1][receivers].sum(axis=0)
        return float(np.minimum(sending_bps, receiving_bps).sum())
