"""What one host that changes its address costs two nodes that share switches, however many hosts there are.

Real controllers and the frames between them, without sockets: one has all hosts, the other has just started.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from apps.runtime.garbage import keep_all, keeping
from controller.central.controller import CentralController
from controller.cluster.ownership import Owner
from controller.config.load import parse_config
from controller.fabric.description import Config
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host
from controller.nodes.sharing import Sharing
from controller.openflow.meters import METER_CONFIG

LEAST_HOSTS, MOST_HOSTS = 100, 1_000_000
SWITCHES = ((1, 2), (3, 4))  # of each node
VLANS, OF_VN = (10, 20, 30, 40), 32
INTERVAL_S, SETTLE, TURNS, MOST_INTERVALS = 0.055, 40, 20, 100_000
_FIRST_MAC = 0x02_00_00_00_00_00


def measure_hosts(hosts: int, tell: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Return what a change costs among a hundredth of so many ``hosts``, a tenth, and all of them, by their number.

    ``say_ms`` and ``hear_ms`` are of the control loop's processor time, the least of TURNS, ``octets`` what crosses,
    ``longest_ms`` the longest piece in which a node that has started takes all hosts.
    """
    found: dict[str, dict[str, float]] = {}
    for count in (hosts // 100, hosts // 10, hosts):
        made = found[str(count)] = _Two(count).measured()
        tell(
            f"{count} hosts, one changes: {made['say_ms']:.3f} ms where it is, {made['hear_ms']:.3f} ms at a peer, "
            f"{made['octets']} octets; all come to a peer in pieces of up to {made['longest_ms']:.1f} ms"
        )
    return found


class _Two:
    """A node with so many hosts, and one that has just started; ``took_s`` is what an interval took them, by part."""

    def __init__(self, hosts: int) -> None:
        config = _config(-(-hosts // (len(SWITCHES[0]) * len(VLANS) * OF_VN)))
        self.centrals = [CentralController(config) for _ in SWITCHES]
        self.nodes = [Sharing(central, name) for central, name in zip(self.centrals, "ab", strict=True)]
        self.now_s, self.took_s = 1000.0, {"say": 0.0, "hear": 0.0}
        self.octets, self.pieces_s, self._breathe = 0, [0.0], keeping(lambda: None)  # as in apps/cluster/exchange.py
        owners = {dpid: Owner(name, 1, 1) for name, dpids in zip("ab", SWITCHES, strict=True) for dpid in dpids}
        for node, central, dpids in zip(self.nodes, self.centrals, SWITCHES, strict=True):
            node.hear_owners(owners, 1, self.now_s)
            for dpid in dpids:
                central.switch_connected(dpid, [], np.empty(0, METER_CONFIG), self.now_s)
        keys = [key for row in range(len(central.vns)) if (key := central.vns.key(row)).dpid in SWITCHES[0]]
        for number in range(hosts):
            key = keys[number % len(keys)]
            self.centrals[0].network.learn(Host(key.vlan_vid, _FIRST_MAC + number), PortId(*key[1:]))
        self.hosts, self.places = hosts, [PortId(*key[1:]) for key in keys if key.vlan_vid == VLANS[0]]
        keep_all()

    def measured(self) -> dict[str, float]:
        """Let the other node know all hosts, then let one host come, and move, TURNS times."""
        here, there = (central.network for central in self.centrals)
        for _ in range(MOST_INTERVALS):
            if len(there.hosts()) == self.hosts:
                break
            self.interval()
        longest_s = max(self.pieces_s)
        for _ in range(SETTLE):
            self.interval()
        made: dict[str, list[float]] = {"say": [], "hear": [], "octets": []}
        gc.collect()
        gc.disable()
        try:
            for turn in range(TURNS):
                here.learn(host := Host(VLANS[0], _FIRST_MAC + self.hosts), self.places[turn % 2])
                self.interval()
                if there.vn_of(host) != here.vn_of(host):
                    raise RuntimeError("a peer does not know of a change")
                for part, took_s in self.took_s.items():
                    made[part].append(1e3 * took_s)
                made["octets"].append(self.octets)
                for _ in range(SETTLE):
                    self.interval()
        finally:
            gc.enable()
        least = {part: min(values) for part, values in made.items()}
        return {
            "say_ms": least["say"],
            "hear_ms": least["hear"],
            "octets": least["octets"],
            "longest_ms": 1e3 * longest_s,
        }

    def interval(self) -> None:
        """Let the first node say what is due, and the other one take it, and the other way around."""
        self.now_s += INTERVAL_S
        for speaker, hearer, name in ((0, 1, "ab"), (1, 0, "ba")):
            began_s = time.thread_time()
            self.nodes[speaker].round(list(SWITCHES[speaker]), self.now_s)
            message = bytes(self.nodes[speaker].take_messages().get(name[1], b""))
            said_s = time.thread_time()
            if message:
                self.nodes[hearer].hear(name[0], message, self.now_s)
            piece_s = time.thread_time()
            for _ in self.nodes[hearer].take_hosts(self.now_s):
                self.pieces_s.append(time.thread_time() - piece_s)
                self._breathe()
                piece_s = time.thread_time()
            ended_s = time.thread_time()
            if speaker == 0:
                self.took_s, self.octets = {"say": said_s - began_s, "hear": ended_s - said_s}, len(message)


def _config(ports: int) -> Config:
    limits = {"send_limit": "1M", "receive_limit": "1M", "algorithm": "fs"}
    cluster = {"node": "a", "etcd": ["http://127.0.0.1:1"], "share": "switches", "listen": "127.0.0.1:6654"}
    switches = {f"s{dpid}": _switch(dpid, ports) for dpids in SWITCHES for dpid in dpids}
    document = {"vlans": dict.fromkeys(VLANS, limits), "switches": switches, "cluster": cluster}
    return parse_config(json.dumps(document), "hosts.yaml")


def _switch(dpid: int, ports: int) -> dict[str, Any]:
    of_ports = {number: {"capacity": "100G", "trunk": list(VLANS)} for number in range(1, ports + 1)}
    return {"dpid": dpid, "ovsdb": "tcp:127.0.0.1:6640", "ports": of_ports}
