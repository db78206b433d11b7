"""Forwarding: turns reports of switches into their desired flow entries.

No I/O; time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from controller.batches import batches
from controller.columns import IntArray
from controller.fabric.config_model import EdgePort, Switch
from controller.fabric.port_numbers import PortNumbers
from controller.fabric.topology import PortId, Topology
from controller.fabric.vn_table import VnTable
from controller.forwarding import pipeline
from controller.forwarding.desired_flows import DesiredFlows
from controller.forwarding.host_entries import ForwardingSettings, HostEntries
from controller.forwarding.known_hosts import NOWHERE, KnownHosts
from controller.forwarding.marking_flows import MarkingFlows
from controller.forwarding.metering_flows import MeteringFlows
from controller.forwarding.pairs import Host, HostChange, Pair
from controller.forwarding.path_flows import PathFlows, edges_by_vlan
from controller.forwarding.transit_flows import TransitFlows

# VNs per batch of flow entries.
_BATCH_SIZE = 500


class ForwardingState:
    """Hosts, links and active pairs, and the resulting flow entries (``desired``).

    Flow entries with meters appear once the caller has given a pair its meter (``pairs.add``). In sharded mode
    (``enable_sharding``) flow entries are made for local switches only (``put_switch``, until ``release_switch``);
    hosts, links and paths are those of the whole fabric.

    ``known`` are the hosts, ``of_hosts`` their flow entries; ``host_changes`` counts how often a host came or went.
    """

    def __init__(self, switches: Iterable[Switch], vns: VnTable, settings: ForwardingSettings) -> None:
        self.desired = DesiredFlows()
        self._switches = {switch.dpid: switch for switch in switches}
        self._vns = vns
        self._settings = settings
        self._edges = edges_by_vlan(self._switches.values())
        self._has_agents = any(port.agent != "none" for one in self._switches.values() for port in one.ports.values())
        self.host_changes = 0
        self.known = KnownHosts(len(vns), settings.max_macs_per_vn, settings.mac_ageing_s)
        self._changes: list[HostChange] | None = None
        self.remote_destinations: frozenset[int] = frozenset()  # rows of VNs to which other nodes' switches send
        self._queueless: set[int] = set()  # dpids of switches whose flow entries name no queue
        self.fenced: set[PortId] = set()  # edge ports that carry nothing
        self.numbers = PortNumbers()
        # The meters of VNs, at switches whose own flow entries are made.
        self._own: dict[int, dict[int, pipeline.VnMeters]] = {}
        self._silenced: set[PortId] = set()  # edge ports at which their agents' control frames are dropped
        # No reference back to the network: it must not wait for the garbage collector once it is replaced.
        of_vn, ageing_s = self.known.hosts_of_vn, settings.mac_ageing_s
        self.marked = MarkingFlows(self.desired, vns, of_vn, settings.marking, self.numbers)
        self.pairs = MeteringFlows(self.desired, vns, of_vn, self.marked, self.numbers, ageing_s)
        self._transit = TransitFlows(self.desired)
        is_edge = partial(_is_edge_port, self._switches, self.numbers)
        self.of_hosts = HostEntries(
            self.desired, self._switches, vns, settings, self.known, self.marked, self.numbers, self._queueless
        )
        self.paths = PathFlows(
            self.desired, self._edges, self.marked, is_edge, self._queueless, self.fenced, self.numbers
        )

    @property
    def topology(self) -> Topology:
        """The links between switches."""
        return self.paths.topology

    # -- taking over from a network of another configuration

    def inherit_links(self, before: ForwardingState, dpids: Iterable[int]) -> None:
        """Take over the links between these switches from ``before``, and flood along its tree."""
        self.paths.inherit(before.paths, dpids)
        self.update_paths()

    def inherit_hosts(self, before: ForwardingState, new_row: IntArray) -> None:
        """Take over the hosts of remaining VNs from ``before``; ``new_row`` is indexed by old rows."""
        for host, row in before.hosts().items():
            row_now = int(new_row[row])
            if row_now != NOWHERE and self.known.has_room(row_now, moved=True):
                self.place_remote_host(host, row_now)
                self.known.inherit(host, before.known, new_row)

    # -- switches and links

    def enable_sharding(self) -> None:
        """Enter sharded mode: from now on make flow entries only for switches that are put here.

        Changes of hosts must then be drained (``drain_host_changes``).
        """
        self.desired.only, self._changes = set(), []

    def release_switch(self, dpid: int) -> None:
        """Drop the flow entries of a switch that another node owns now."""
        self.desired.forget(dpid)
        self._own.pop(dpid, None)
        self.paths.release_switch(dpid)

    def _begin(self, dpid: int) -> Iterator[None]:
        """Make a switch's flow entries for known hosts; yield after each batch. Ports follow when the switch is up."""
        only = self.desired.only
        if only is None or dpid in only:
            return
        only.add(dpid)
        self.update_paths()
        yield from self._transit.begin(dpid)
        for batch in batches(self.known.all(), _BATCH_SIZE):
            for host in batch:
                if host in self.known:  # still, after a yield
                    self.of_hosts.put_at(host, dpid)
            yield

    def put_switch(
        self, dpid: int, meters_of_vn: Mapping[int, pipeline.VnMeters], *, set_queue: bool = True
    ) -> Iterator[None]:
        """Put the flow entries for a switch, its edge ports and its VNs, but none for pairs; yield after each batch.

        ``meters_of_vn`` has the meters of each VN at the switch, by row of the VN table. ``set_queue`` tells whether
        the switch's flow entries name queues. The switch is tracked from now on.
        """
        yield from self._begin(dpid)
        was_queueless = dpid in self._queueless
        if was_queueless == set_queue:  # changed: the entries towards hosts name a queue, or no longer do
            self._queueless ^= {dpid}
            for row in np.flatnonzero(self._vns.dpid == dpid).tolist():
                for host in self.hosts_of_vn(row):
                    self.of_hosts.put_to_edge(host)
        general = [pipeline.link_discovery(), pipeline.drop_link_local(), pipeline.drop_group_sources()]
        general += pipeline.pass_unmetered()
        if self._has_agents:
            general += map(pipeline.drop_control, self._settings.control_ethertypes)
        self.desired.put(("switch", dpid), {dpid: general})
        self._own[dpid] = dict(meters_of_vn)
        for port in self._switches[dpid].ports.values():
            self._put_edge(dpid, port)
            yield
        for batch in batches(meters_of_vn.items(), _BATCH_SIZE):
            for row, meters in batch:
                self.put_sender(row, meters)
                self.of_hosts.put_unknown_source(row)
            yield

    def put_sender(self, row: int, meters: pipeline.VnMeters) -> None:
        """Put the flow entries that lead a VN's frames through these meters."""
        vid, dpid, port_no = self._vns.key(row)
        if dpid in self._own:
            self._own[dpid][row] = meters
        port = self.numbers.on_switch(dpid, self._switches[dpid].ports[port_no])
        closed = self._switches[dpid].meters.fail == "closed"
        flows = [
            pipeline.limit_sender(port.port_no, vid, meters.send, closed=closed),
            *pipeline.limit_floods(port.port_no, vid, meters),
            # Packet-ins without a meter of their own share that of floods.
            pipeline.report(port.port_no, vid, meters.flood if meters.report is None else meters.report),
        ]
        if meters.newcomer is not None:
            flows.append(pipeline.limit_newcomer(port.port_no, vid, meters.newcomer))
        if port.agent != "none":
            flows += [
                pipeline.agent_frames(port, vid, ethertype, meters.agent)
                for ethertype in self._settings.control_ethertypes
            ]
        self.desired.put(("sender", row), {dpid: flows})

    def allow_agent_frames(self, port: PortId, speaks: bool) -> None:
        """Let the control frames of the agent behind an edge port reach the controller (``speaks``), or drop them."""
        (self._silenced.discard if speaks else self._silenced.add)(port)
        ethertypes = () if speaks else self._settings.control_ethertypes
        flows = [pipeline.drop_agent_frames(self.numbers.number(port), ethertype) for ethertype in ethertypes]
        self.desired.put(("silence", port), {port.dpid: flows})

    def renumber(self, port: PortId, number: int | None) -> None:
        """Give a port by name another number on its switch, or none; it stays fenced until the caller lifts that."""
        self.fence(port, True)
        edge = self.edge_port(port)
        if edge is None:  # the configuration has no such edge port
            self.numbers.bind(port, None)
            return
        rows = [row for vid in edge.vlan_vids if (row := self._vns.row_of(vid, *port)) is not None]
        self.pairs.forget_senders(frozenset(rows))
        self.numbers.bind(port, number)
        self.marked.renumbered(rows)
        if port.dpid in self._own:
            self._put_edge(port.dpid, edge)
            for row in rows:
                self.put_sender(row, self._own[port.dpid].get(row, pipeline.VnMeters()))
                self.of_hosts.put_unknown_source(row)
            if port in self._silenced:
                self.allow_agent_frames(port, False)

    def port_down(self, port: PortId, now_s: float) -> None:
        """Forget the hosts learned at a port that lost its link."""
        self.paths.port_down(port, now_s)
        for host in self._hosts_at(port):
            self.leave(host, now_s)

    def _hosts_at(self, port: PortId) -> list[Host]:
        """Return the known hosts behind an edge port."""
        edge = self.edge_port(port)
        rows = [self._vns.row_of(vid, *port) for vid in edge.vlan_vids] if edge is not None else []
        return [host for row in rows if row is not None for host in self.hosts_of_vn(row)]

    def fence(self, port: PortId, fenced: bool) -> None:
        """Fence an edge port, which may be the wrong port, so that it carries nothing; or let it carry its VLANs."""
        edge = self.edge_port(port)
        if edge is None or (port in self.fenced) == fenced:
            return
        (self.fenced.add if fenced else self.fenced.discard)(port)
        if fenced:
            for host in self._hosts_at(port):
                self.forget_host(host)
        if port.dpid in self._own:
            self._put_edge(port.dpid, edge)
            self.paths.rebuild(port.dpid)

    def _put_edge(self, dpid: int, port: EdgePort) -> None:
        """Admit the frames of an edge port, unless it is fenced: then no table after CLASSIFY sees any."""
        present = self.numbers.on_switch(dpid, port)
        fenced = PortId(dpid, port.port_no) in self.fenced
        flows = [pipeline.drop_hosts_lldp(present.port_no), *pipeline.refuse_others(present, fenced=fenced)]
        if not fenced:
            flows += [flow for vid in port.vlan_vids for flow in pipeline.admit(present, vid)]
        self.desired.put(("edge", dpid, port.port_no), {dpid: flows})

    def edge_port(self, port: PortId) -> EdgePort | None:
        """Return the configured edge port of this id, or None."""
        switch = self._switches.get(port.dpid)
        return switch.ports.get(port.port_no) if switch else None

    def is_edge(self, port: PortId) -> bool:
        """Return whether a port, by the switch's number, is an edge port of the configuration."""
        return _is_edge_port(self._switches, self.numbers, port)

    def update_paths(self) -> None:
        """Update ``desired`` to the links that are up, before it is read."""
        if self.paths.find():
            self._transit.put_paths(self.paths.next_port, self.desired.tracks)

    # -- hosts

    def learn_host(self, host: Host, port: PortId, now_s: float = math.nan, *, installed: bool = False) -> bool:
        """Learn a host behind an edge port; return whether it is new there. A host that moved leaves its old port.

        A host that moves, that just left with its port, or that is in a switch's tables (``installed``), is added even
        to a full VN, up to twice the limit; beyond that, the newest host is dropped for a host that moves. A new host
        is not learned above the limit: frames to it are flooded, and so reach it.
        """
        row = self._vns.row_of(host.vlan_vid, port.dpid, port.port_no)
        multicast = host.mac >> 40 & 1
        before = self.known.vn_of(host)
        if row is None or multicast or port in self.fenced or before == row:
            return False
        if not self.known.has_room(row, moved=installed or self.known.came_from(host, now_s) is not None):
            if before is None:
                return False
            self.forget_host(self.hosts_of_vn(row)[-1])
        self.place_remote_host(host, row, now_s)
        return True

    def place_remote_host(self, host: Host, row: int, now_s: float = math.nan) -> None:
        """Place a host, also a local one, at the VN of ``row``, whatever the VN's host limit.

        The caller has checked that limit, or the node that owns the host's switch has.
        """
        came_from = self.known.came_from(host, now_s)
        self.forget_host(host)
        self._note_change(host, None, row)
        self.known.come(host, row, now_s, came_from)
        self.update_paths()
        self._transit.place(host, self._vns.key(row).dpid, self._switches)
        self._put_host(host, row)
        self.of_hosts.put_unknown_source(row)

    def drain_host_changes(self) -> list[HostChange]:
        """Return the host changes since the last call, in order, and clear them; used in sharded mode."""
        if not self._changes:
            return []
        changes, self._changes = self._changes, []
        return changes

    def _note_change(self, host: Host, before: int | None, after: int | None) -> None:
        """Count a host's change of VN (rows, None: none), and keep it for peers in sharded mode."""
        self.host_changes += 1
        if self._changes is not None:
            self._changes.append(HostChange(host, before, after))

    def source_aged(self, host: Host, port: PortId) -> None:
        """Forget a host that was silent for the ageing time.

        A host that still receives traffic stays, because pairs' meters need it.
        """
        row = self.known.vn_of(host)
        if row is None or self._vns.key(row)[1:] != tuple(port):
            return
        if row in self.remote_destinations or any(self.pairs.has_entry(pair, host) for pair in self.pairs.to(row)):
            self.of_hosts.put_known_source(host, removed=True)
        else:
            self.forget_host(host)

    def forget_host(self, host: Host) -> None:
        """Forget a host, and drop all flow entries to it."""
        self._forgotten(host, self.known.go(host))

    def leave(self, host: Host, now_s: float) -> None:
        """Forget a host whose port is gone; if it reappears at another port, it has moved."""
        self._forgotten(host, self.known.leave(host, now_s))

    def _forgotten(self, host: Host, row: int | None) -> None:
        """Remove the flow entries and pairs of a host that was at the VN of ``row``."""
        if row is None:
            return
        self._note_change(host, row, None)
        self.of_hosts.drop(host)
        self._transit.forget(host, self._vns.key(row).dpid, self._switches)
        self.marked.hosts_changed(row)
        self.pairs.forget_host(row, host)
        self.of_hosts.put_unknown_source(row)

    def knows(self, host: Host) -> bool:
        """Return whether a host's location is known."""
        return host in self.known

    def hosts(self) -> dict[Host, int]:
        """Return the known hosts, and the row of the VN of each."""
        return {host: row for host in self.known.all() if (row := self.known.vn_of(host)) is not None}

    def hosts_of_vn(self, row: int) -> list[Host]:
        """Return the known hosts of a VN."""
        return self.known.hosts_of_vn(row)

    def _put_host(self, host: Host, row: int) -> None:
        """Put the flow entries to a host at the VN of ``row``."""
        self.of_hosts.put(host)
        for pair in self.pairs.to(row):
            self.pairs.put_entry(pair, host)
        self.marked.hosts_changed(row)

    def mark_vlans(self, vids: frozenset[int]) -> None:
        """Let switches along the path mark the packets of exactly these VLANs, and clear the marks at the edge."""
        changed = self.marked.allow(vids)
        if not changed:
            return
        self.paths.rebuild()
        for host in [host for host in self.known.all() if host.vlan_vid in changed]:
            self._put_host(host, self.known.row_of(host))

    # -- pairs

    def pair_seen(self, host: Host, port: PortId) -> Pair | None:
        """Handle a frame of a VN to a known host without a flow entry: return the pair if it needs a meter."""
        pair = self.pair_of(host, port)
        if pair is not None and self.pairs.has(pair):
            self.pairs.put_entry(pair, host)
            return None
        return pair

    def pair_of(self, host: Host, port: PortId) -> Pair | None:
        """Return the pair of the VN behind a port and the VN of a known host; None within one VN or if unknown."""
        sender, receiver = self.sender_at(host.vlan_vid, port), self.vn_of(host)
        return None if sender is None or receiver is None or sender == receiver else Pair(sender, receiver)

    def sender_at(self, vlan_vid: int, port: PortId) -> int | None:
        """Return the row of the VLAN's VN behind a port, or None."""
        return self._vns.row_of(vlan_vid, port.dpid, port.port_no)

    def vn_of(self, host: Host) -> int | None:
        """Return the row of the VN of a host, None if unknown."""
        return self.known.vn_of(host)

    def pair_aged(self, host: Host, port: PortId) -> Pair | None:
        """Handle an aged flow entry from a VN to a host; return the pair if its meter is no longer needed."""
        pair = self.pair_of(host, port)
        if pair is None:
            return None
        self.pairs.drop_entry(pair, host)
        return None if self.pairs.in_use(pair) else pair


def _is_edge_port(switches: Mapping[int, Switch], numbers: PortNumbers, port: PortId) -> bool:
    """Return whether a port, by the switch's number, is an edge port of the configuration."""
    dpid, port_no = numbers.port(*port)
    switch = switches.get(dpid)
    return switch is not None and port_no in switch.ports
