"""What a node costs that shares a fabric with others, by processor time and memory: 1, 2 and 4 nodes in one process.

Each node is a real one, but for OpenFlow and etcd: a controller with its part of the switches, and links over loopback.
Every node has as many entries, of which CROSSING lead to VNs of others where there are any, and all receivers are
congested: every entry is reported and granted in every interval. A node's own switches answer from columns; that, and
waiting for messages, does not count. With nodes that cost nothing more, a node of many takes as long as one alone.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import yaml

from apps.runtime.garbage import keep_memory
from controller.central.controller import CentralController
from controller.cluster.ownership import Owner
from controller.config.load import parse_config
from controller.fabric.description import Config
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host, Pair
from controller.nodes.sharing import Sharing
from controller.openflow.meters import METER_CONFIG, METER_STATS
from experiments.machine.controller_process import free_ports

NODES = (1, 2, 4)
CROSSING = 0.75
SWITCHES, PORTS = 2, 128  # of each node
VLAN, ALGORITHM = 10, "fp"
LIMIT_BPS, OFFERED = 1_000_000_000, 2.0
INTERVAL_S, ARRIVES_S, CONNECT_S = 0.055, 0.02, 60.0
SETTLE, MEASURED, TURNS = 40, 20, 3


def measure_nodes(entries: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return what an interval costs a node of 1, 2 and 4 with about so many ``entries`` each.

    ``loop_us`` and ``transport_us`` are processor time of the control loop and of ZeroMQ's thread, for an entry;
    ``loop_us`` is the least of TURNS. ``kb`` is memory for an entry of a node, as far as Python and numpy know of it.
    """
    keep_memory()  # as a controller's launcher does
    found: dict[str, Any] = {}
    turns = [{nodes: _cost(nodes, entries) for nodes in NODES} for _ in range(TURNS)]
    for nodes in NODES:
        made = min((turn[nodes] for turn in turns), key=lambda one: one["loop_us"])
        made["kb"] = _memory_kb(nodes, entries)
        costs = f"{made['loop_us']:.3f} us, transport {made['transport_us']:.3f} us, {made['kb']:.2f} kB"
        tell(f"{nodes} nodes, an entry: {costs}")
        found[str(nodes)] = made
    return found


def efficiency(found: dict[str, Any], nodes: int) -> float:
    """Return the entries of an interval that a node of so many manages, of those that one alone does."""
    return float(found["1"]["loop_us"] / found[str(nodes)]["loop_us"])


def crossing_ns(found: dict[str, Any], nodes: int) -> float:
    """Return what an entry that crosses takes more than one that does not, on both sides, with the transport."""
    one, many = found["1"], found[str(nodes)]
    return float(1e3 * (many["loop_us"] - one["loop_us"] + many["transport_us"]) / CROSSING)


def _cost(nodes: int, entries: int) -> dict[str, float]:
    with _fabric(nodes, entries) as fabric:
        fabric.run(SETTLE)
        gc.collect()
        gc.disable()
        try:
            all_s, here_s = time.process_time(), time.thread_time()
            for node in fabric.nodes:
                node.took_s = 0.0
            fabric.run(MEASURED)
            transport_s = time.process_time() - all_s - (time.thread_time() - here_s)
        finally:
            gc.enable()
        of_each = sum(node.entries for node in fabric.nodes) * MEASURED
        took_s = sum(node.took_s for node in fabric.nodes)
        return {
            "entries": fabric.nodes[0].entries,
            "loop_us": 1e6 * took_s / of_each,
            "transport_us": 1e6 * transport_s / of_each,
        }


def _memory_kb(nodes: int, entries: int) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        with _fabric(nodes, entries) as fabric:
            fabric.run(SETTLE)
            gc.collect()
            return tracemalloc.get_traced_memory()[0] / sum(node.entries for node in fabric.nodes) / 1e3
    finally:
        tracemalloc.stop()


class _Node:
    """One node, and what its calls have taken of the thread's processor time, ``took_s``."""

    def __init__(self, number: int, nodes: int) -> None:
        self.number, self.name = number, f"n{number}"
        self.took_s, self.entries = 0.0, 0
        self.dpids = range(number * SWITCHES + 1, (number + 1) * SWITCHES + 1)
        self.links: Any = None
        self._due: dict[str, bytes] = {}
        self.central = CentralController(_config(nodes))
        self.sharing = Sharing(self.central, self.name) if nodes > 1 else None

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Count what is done meanwhile as this node's."""
        began_s = time.thread_time()
        yield
        self.took_s += time.thread_time() - began_s

    def interval(self, stats: dict[int, Any], now_s: float) -> None:
        """Do what a node does in an interval."""
        with self.measured():
            if self.sharing is not None:
                for name, data in self.links.receive():
                    self.sharing.hear(name, data, now_s)
            self.central.interval(stats, dict.fromkeys(stats, now_s), now_s)
            self.central.tick(now_s)
            if self.sharing is not None:
                self.sharing.round(list(self.dpids), now_s)
                for name, data in self.sharing.take_messages().items():
                    self.links.send(name, data)


class _Fabric:
    """Nodes whose switches answer from columns, by meter id."""

    def __init__(self, nodes: int, entries: int) -> None:
        self.now_s, vns = 1000.0, SWITCHES * PORTS
        self.nodes = [_Node(number, nodes) for number in range(nodes)]
        self._receivers = max(4, round(entries / vns))
        owners = {dpid: Owner(node.name, node.number + 1, 1) for node in self.nodes for dpid in node.dpids}
        for node in self.nodes:
            if node.sharing is not None:
                node.sharing.hear_owners(owners, 1, self.now_s)
            for dpid in node.dpids:
                node.central.switch_connected(dpid, [], np.empty(0, METER_CONFIG), self.now_s)
            for row in range(node.number * vns, (node.number + 1) * vns):
                key = node.central.vns.key(row)
                node.central.fabric.learn(Host(VLAN, 0x02_00_00_00_00_00 | row), PortId(*key[1:]), self.now_s)

    def connect(self) -> None:
        """Let the nodes hear each other, and their hosts talk."""
        if len(self.nodes) > 1:
            self._link()
            self.run(SETTLE // 2)
        for node in self.nodes:
            for pair in self._pairs(node.number):
                node.central.pairs.seen(pair, self.now_s)
            self._take(node)
            node.entries = len(node.central.state.entries)
        self._counts = [np.zeros((2, len(node.central.state.entries))) for node in self.nodes]

    def run(self, intervals: int) -> None:
        """Let so many intervals pass."""
        for _ in range(intervals):
            self.now_s += INTERVAL_S
            for node in self.nodes:
                node.interval(self._stats(node), self.now_s)
                with node.measured():
                    self._take(node)
            if len(self.nodes) > 1:
                time.sleep(ARRIVES_S)

    def _take(self, node: _Node) -> None:
        for update in node.central.take_updates().values():
            update.encode(1)

    def _stats(self, node: _Node) -> dict[int, Any]:
        """Let all entries send, and their meters drop what is above the limit; those that are set count from zero."""
        state, vns = node.central.state, node.central.vns
        if not node.entries:
            return {dpid: np.zeros(0, METER_STATS) for dpid in node.dpids}
        octets, dropped = self._counts[node.number]
        again = state.enforcement.modified_s >= self.now_s - 1.5 * INTERVAL_S
        offered_bps = np.full(node.entries, OFFERED * LIMIT_BPS / self._receivers)
        for column, bps in (
            (octets, offered_bps),
            (dropped, np.maximum(offered_bps - state.enforcement.limit_bps, 0.0)),
        ):
            column[again] = 0.0
            column += bps * (INTERVAL_S / 8)
        stats = {}
        for dpid in node.dpids:
            rows = np.flatnonzero(vns.dpid[state.entries.sender] == dpid)
            rows = rows[np.argsort(state.entries.meter_id[rows])]
            made = np.zeros(len(rows), METER_STATS)
            made["meter_id"], made["duration_s"] = state.entries.meter_id[rows], self.now_s - 1000.0
            made["byte_in_count"], made["band_byte_count"] = octets[rows], dropped[rows]
            stats[dpid] = made
        return stats

    def _pairs(self, number: int) -> Iterator[Pair]:
        """Return the pairs of a node's senders: each VN is sent to by as many as it sends to."""
        vns, nodes = SWITCHES * PORTS, len(self.nodes)
        away = round(CROSSING * self._receivers) if nodes > 1 else 0
        for at in range(vns):
            sender = number * vns + at
            for one in range(1, self._receivers - away + 1):
                yield Pair(sender, number * vns + (at + one) % vns)
            for one in range(away):
                other = (number + 1 + one % (nodes - 1)) % nodes
                yield Pair(sender, other * vns + (at + one) % vns)

    def _link(self) -> None:
        from apps.cluster.links import Links

        addresses = [f"127.0.0.1:{port}" for port in free_ports(len(self.nodes))]
        for node, address in zip(self.nodes, addresses, strict=True):
            node.links = Links(address)
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
def _fabric(nodes: int, entries: int) -> Iterator[_Fabric]:
    fabric = _Fabric(nodes, entries)
    try:
        fabric.connect()
        yield fabric
    finally:
        for node in fabric.nodes:
            if node.links is not None:
                node.links.close()


def _config(nodes: int) -> Config:
    limits = {"send_limit": 4 * LIMIT_BPS, "receive_limit": LIMIT_BPS, "algorithm": ALGORITHM}
    switches = {
        f"s{dpid}": {"dpid": dpid, "ovsdb": "tcp:127.0.0.1:6640", "ports": {n: _port() for n in range(1, PORTS + 1)}}
        for dpid in range(1, nodes * SWITCHES + 1)
    }
    return parse_config(yaml.safe_dump({"vlans": {VLAN: limits}, "switches": switches}), "nodes.yaml")


def _port() -> dict[str, Any]:
    return {"capacity": "100G", "access": VLAN}
