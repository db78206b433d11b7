"""What a node costs that shares a fabric with others, by processor time and memory: 1, 2 and 4 nodes in one process.

Each node is a real one, but for its greenlets and etcd: a controller with its part of the switches, links over
loopback, and the bytes of OpenFlow through sockets (openflow_loopback.py). Every node has as many entries, of which
CROSSING lead to VNs of others, and all receivers are congested: every entry is reported and granted in every interval.
Switches answer from columns; that, and waiting for messages, does not count.

As many nodes that know nothing of each other are measured in the same way: what one takes that is alone. They take
turns as the others do, with as much memory in use and the same pauses, so that caches and clocks are the same.
"""

from __future__ import annotations

import gc
import math
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import yaml

from apps.runtime.memory_tuning import disable_heap_trimming
from controller.central.controller import CentralController
from controller.cluster.ownership import Owner
from controller.config.loader import parse_config
from controller.fabric.config_model import Config
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host, Pair
from controller.openflow.meters import METER_CONFIG
from controller.partition.node_partition import NodePartition
from experiments.bench.cluster.openflow_loopback import LoopbackSwitches
from experiments.machine.controller_process import free_ports
from experiments.switch import replies

NODES = (1, 2, 4)
LOOP, WITH_OPENFLOW, WHOLE = ("loop_us",), ("loop_us", "openflow_us"), ("loop_us", "openflow_us", "transport_us")
"""parts of a node's processor time: the control loop without OpenFlow and with it, and all that the process takes"""
CROSSING = 0.75
SWITCHES, MAX_OF_SWITCHES = 2, 100_000  # of a node, for each so many of its entries
PORTS, MAX_OF_PORTS = 128, 30_000  # of each switch, for up to so many entries of a node; twice as many ports for more
VLAN, ALGORITHM = 10, "fp"
LIMIT_BPS, OFFERED = 1_000_000_000, 2.0
INTERVAL_S, CONNECT_S, LATEST_S = 0.055, 60.0, 10.0
ARRIVES_S = 0.02  # until peers' frames are there, for each MAX_OF_SWITCHES entries
SETTLE, MEASURED, TURNS = 40, 20, 3


def measure_nodes(entries: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return what an interval costs a node of 1, 2 and 4 with about so many ``entries`` each.

    ``shared`` are costs of nodes that share the fabric, ``alone`` of as many that do not: processor time of the control
    loop without OpenFlow, ``loop_us``, of its OpenFlow, ``openflow_us``, and of ZeroMQ's thread, ``transport_us``, for
    an entry; those of the turn in which the loop took least. ``kb`` is memory for an entry of a node, as far as Python
    and numpy know of it, with MAX_OF_SWITCHES entries at most: that takes long.
    """
    disable_heap_trimming()  # as a controller's launcher does
    kinds = [(nodes, shared) for nodes in NODES for shared in (False, True) if nodes > 1 or not shared]
    turns = []
    for turn in range(1, TURNS + 1):
        tell(f"turn {turn} of {TURNS}")
        turns.append({kind: _cost(kind, entries) for kind in kinds})
    found: dict[str, Any] = {str(nodes): {} for nodes in NODES}
    for nodes, shared in kinds:
        made = min((turn[nodes, shared] for turn in turns), key=lambda one: one["loop_us"] + one["openflow_us"])
        made["kb"] = _memory_kb((nodes, shared), min(entries, MAX_OF_SWITCHES))
        found[str(nodes)]["shared" if shared else "alone"] = made
        costs = f"{made['loop_us']:.3f} us, OpenFlow {made['openflow_us']:.3f} us"
        if shared:
            costs += f", transport {made['transport_us']:.3f} us"
        tell(f"{nodes} nodes {'that share' if shared else 'alone'}, an entry: {costs}, {made['kb']:.2f} kB")
    return found


def efficiency(found: dict[str, Any], nodes: int, parts: Sequence[str]) -> float:
    """Return the entries of an interval that a node of so many manages, of those that one alone does.

    ``parts`` are those of its processor time that count.
    """
    alone, shared = (sum(found[str(nodes)][how][part] for part in parts) for how in ("alone", "shared"))
    return float(alone / shared)


def cross_shard_ns(found: dict[str, Any], nodes: int) -> float:
    """Return what an entry that crosses takes more than one that does not, on both sides, with the transport."""
    alone, shared = (sum(found[str(nodes)][how][part] for part in WHOLE) for how in ("alone", "shared"))
    return float(1e3 * (shared - alone) / CROSSING)


def _cost(kind: tuple[int, bool], entries: int) -> dict[str, float]:
    with _fabric(kind, entries) as fabric:
        fabric.run(SETTLE)
        gc.collect()
        gc.disable()
        try:
            all_s, here_s = time.process_time(), time.thread_time()
            for node in fabric.nodes:
                node.took_s.clear()
            fabric.run(MEASURED)
            transport_s = time.process_time() - all_s - (time.thread_time() - here_s)
        finally:
            gc.enable()
        of_each = sum(node.entries for node in fabric.nodes) * MEASURED
        took_s = {part: sum(node.took_s[part] for node in fabric.nodes) for part in ("loop_us", "openflow_us")}
        took_s["transport_us"] = transport_s if kind[1] else 0.0
        costs_us = {part: 1e6 * part_s / of_each for part, part_s in took_s.items()}
        set_share = sum(node.modified_meters for node in fabric.nodes) / of_each
        return {"entries": fabric.nodes[0].entries, "set_share": set_share, **costs_us}


def _memory_kb(kind: tuple[int, bool], entries: int) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        with _fabric(kind, entries) as fabric:
            fabric.run(SETTLE)
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / sum(node.entries for node in fabric.nodes) / 1e3
    finally:
        tracemalloc.stop()


class _Size(NamedTuple):
    """A node's switches, the ports of each, and what a frame takes to arrive."""

    switches: int
    ports: int
    arrives_s: float

    @classmethod
    def from_pair_count(cls, entries: int) -> _Size:
        """Return that of a node with about so many entries."""
        times = max(1, math.ceil(entries / MAX_OF_SWITCHES))
        return cls(SWITCHES * times, PORTS if entries <= MAX_OF_PORTS else 2 * PORTS, ARRIVES_S * times)


class _Node:
    """One node, and what its calls have taken of the thread's processor time, ``took_s``, by part.

    One that shares has the switches of its ``number``, all others the first ones of a fabric of their own.
    """

    def __init__(self, number: int, nodes: int, shared: bool, size: _Size) -> None:
        self.name, self.place = f"n{number}", number if shared else 0
        self.took_s, self.entries, self.modified_meters = defaultdict[str, float](float), 0, 0
        self.dpids = range(self.place * size.switches + 1, (self.place + 1) * size.switches + 1)
        self.links: Any = None
        self.central = CentralController(_config(size.switches * (nodes if shared else 1), size.ports))
        self.sharing: Any = NodePartition(self.central, self.name) if shared else None
        self.wires = LoopbackSwitches(self.central, self.dpids, lambda: self.measured("openflow_us"))

    @contextmanager
    def measured(self, part: str) -> Iterator[None]:
        """Count what is done meanwhile as this node's."""
        began_s = time.thread_time()
        yield
        self.took_s[part] += time.thread_time() - began_s

    def listen(self, peers: Sequence[_Node], now_s: float) -> None:
        """Hear what these have sent, all of it: with all nodes on one machine's cores, frames are late.

        Raises TimeoutError.
        """
        deadline_s = time.monotonic() + LATEST_S
        while True:
            with self.measured("loop_us"):
                for name, data in self.links.receive():
                    self.sharing.hear(name, data, now_s)
                for _ in self.sharing.apply_host_updates(now_s):
                    pass
            late = [
                peer.name
                for peer in peers
                if self.links.traffic[peer.name].received < peer.links.traffic[self.name].sent
            ]
            if not late:
                return
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.name} has not got all frames of {late} within {LATEST_S:g} s")
            time.sleep(ARRIVES_S)

    def interval(self, meters: dict[int, Any], now_s: float) -> None:
        """Do what a node does in an interval; ``meters`` are what its switches say."""
        stats = self.wires.poll(meters)
        with self.measured("loop_us"):
            result = self.central.interval(stats, dict.fromkeys(stats, now_s), now_s)
            self.central.tick(now_s)
        self.modified_meters += len(result.changes.rows)
        self.wires.push()
        if self.sharing is not None:
            with self.measured("loop_us"):
                self.sharing.end_interval(list(self.dpids), now_s)
                for name, message in self.sharing.take_messages().items():
                    self.links.send(name, message)


class _Fabric:
    """Nodes whose switches answer from columns, by meter id."""

    def __init__(self, kind: tuple[int, bool], entries: int) -> None:
        nodes, self._shared = kind
        size = self._size = _Size.from_pair_count(entries)
        self.now_s, self._vns = 1000.0, size.switches * size.ports
        self.nodes, vns = [_Node(number, *kind, size) for number in range(nodes)], self._vns
        self._receivers = max(4, round(entries / vns))
        owners = {dpid: Owner(node.name, node.place + 1, 1) for node in self.nodes for dpid in node.dpids}
        for node in self.nodes:
            if node.sharing is not None:
                node.sharing.hear_owners(owners, 1, self.now_s)
            for dpid in node.dpids:
                node.central.switch_connected(dpid, [], np.empty(0, METER_CONFIG), self.now_s)
            for row in range(node.place * vns, (node.place + 1) * vns):
                key = node.central.vns.key(row)
                node.central.fabric.learn(Host(VLAN, 0x02_00_00_00_00_00 | row), PortId(*key[1:]), self.now_s)

    def close(self) -> None:
        """End all connections."""
        for node in self.nodes:
            node.wires.close()
            if node.links is not None:
                node.links.close()

    def connect(self) -> None:
        """Let the nodes hear each other, and their hosts talk."""
        if self._shared:
            self._link()
        self.run(SETTLE // 2)
        for node in self.nodes:
            for pair in self._pairs(node.place):
                node.central.pairs.on_pair_seen(pair, self.now_s)
            node.wires.push()
            while node.central.network.desired.pending:
                node.wires.push()
            node.entries = len(node.central.state.entries)
        self._counts = [np.zeros((2, node.entries)) for node in self.nodes]

    def run(self, intervals: int) -> None:
        """Let so many intervals pass."""
        for node in self.nodes:
            node.modified_meters = 0
        for _ in range(intervals):
            self.now_s += INTERVAL_S
            for node in self.nodes if self._shared else ():
                node.listen([peer for peer in self.nodes if peer is not node], self.now_s)
            for number, node in enumerate(self.nodes):
                node.interval(self._meters(number), self.now_s)
            time.sleep(self._size.arrives_s)

    def _meters(self, number: int) -> dict[int, Any]:
        """Let all entries send, and their meters drop what is above the limit; those that are set count from zero."""
        node = self.nodes[number]
        state, vns = node.central.state, node.central.vns
        if not node.entries:
            return {dpid: np.zeros(0, replies.METER_STATS) for dpid in node.dpids}
        octets, dropped = self._counts[number]
        again = state.enforcement.modified_s >= self.now_s - 1.5 * INTERVAL_S
        offered_bps = np.full(node.entries, OFFERED * LIMIT_BPS / self._receivers)
        for column, bps in (
            (octets, offered_bps),
            (dropped, np.maximum(offered_bps - state.enforcement.limit_bps, 0.0)),
        ):
            column[again] = 0.0
            column += bps * (INTERVAL_S / 8)
        meters = {}
        for dpid in node.dpids:
            rows = np.flatnonzero(vns.dpid[state.entries.sender] == dpid)
            rows = rows[np.argsort(state.entries.meter_id[rows])]
            made = np.zeros(len(rows), replies.METER_STATS)
            made["meter_id"], made["length"] = state.entries.meter_id[rows], made.itemsize
            made["duration_sec"], made["duration_nsec"] = replies.split_duration(self.now_s - 1000.0)
            made["byte_in_count"], made["band_byte_count"] = octets[rows], dropped[rows]
            meters[dpid] = made
        return meters

    def _pairs(self, place: int) -> Iterator[Pair]:
        """Return the pairs of a node's senders: each VN is sent to by as many as it sends to."""
        vns, nodes = self._vns, len(self.nodes)
        away = round(CROSSING * self._receivers) if self._shared else 0
        for at in range(vns):
            sender = place * vns + at
            for one in range(1, self._receivers - away + 1):
                yield Pair(sender, place * vns + (at + one) % vns)
            for one in range(away):
                other = (place + 1 + one % (nodes - 1)) % nodes
                yield Pair(sender, other * vns + (at + one) % vns)

    def _link(self) -> None:
        from apps.cluster.peer_transport import PeerTransport

        addresses = [f"127.0.0.1:{port}" for port in free_ports(len(self.nodes))]
        for node, address in zip(self.nodes, addresses, strict=True):
            node.links = PeerTransport(address)
        for node in self.nodes:
            others = {
                other.name: (address, other.links.public_key)
                for other, address in zip(self.nodes, addresses, strict=True)
                if other is not node
            }
            node.links.set_peers(others)
        deadline_s = time.monotonic() + CONNECT_S
        while not all(traffic.received for node in self.nodes for traffic in node.links.traffic.values()):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"nodes do not connect within {CONNECT_S:g} s")
            self.run(1)


@contextmanager
def _fabric(kind: tuple[int, bool], entries: int) -> Iterator[_Fabric]:
    fabric = _Fabric(kind, entries)
    try:
        fabric.connect()
        yield fabric
    finally:
        fabric.close()


def _config(switches: int, ports: int) -> Config:
    limits = {"send_limit": 4 * LIMIT_BPS, "receive_limit": LIMIT_BPS, "algorithm": ALGORITHM}
    # Names in the order of numbers, since rows of VNs are in that of names.
    its = {f"s{dpid:02d}": _switch(dpid, ports) for dpid in range(1, switches + 1)}
    return parse_config(yaml.safe_dump({"vlans": {VLAN: limits}, "switches": its}), "nodes.yaml")


def _switch(dpid: int, ports: int) -> dict[str, Any]:
    of_ports = {number: {"capacity": "100G", "access": VLAN} for number in range(1, ports + 1)}
    return {"dpid": dpid, "ovsdb": "tcp:127.0.0.1:6640", "ports": of_ports}
