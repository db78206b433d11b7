"""Controllers whose switches limit traffic while limits change: what failures must not do.

Three software switches; three hosts that together send more than the receive limit of a fourth one. The switches' logs
and the history must show:
1. Each switch had one writer at a time.
2. Every acknowledged change is in the history, whose revisions have no gap.
3. No sender became unlimited: no meter of an active pair was deleted, or set to much more than its rate before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from apps.cli.support.rest_client import RequestError
from apps.cluster.etcd_client import EtcdClient
from apps.cluster.placement_requests import PlacementRequests
from controller.forwarding.pipeline import Table
from controller.openflow.ethernet import BROADCAST, FrameHeader, build_frame
from controller.openflow.match import Match
from experiments.bench.cluster.testbed.switch_logs import MeterLog, second_writer
from experiments.machine.cluster_process import Cluster
from experiments.wire.fabric import WireFabric

LINK_BPS, LIMIT_BPS, OFFERED_BPS = 1_000_000_000, 400_000_000, 300_000_000
TALKING, CHANGED = 10, 20  # VLANs
SWITCHES, PORTS, UPLINKS = (1, 2, 3), (1, 2, 3), (4, 5)  # in a row
DPIDS = {f"s{dpid}": dpid for dpid in SWITCHES}
RECEIVER, SENDERS = (1, 3), ((1, 1), (2, 1), (3, 1))
CHANGED_VN = f"/v1/vns/{CHANGED}/s1/1"
LISTED = 100  # changes of the history, newest first
RISE = 1.2  # largest rise of a grant whose traffic does not change
PREFIX = "/dets/dets/"  # prefix of the nodes' keys in etcd
_ETH_TYPE = 0x88B5


def document(openflow_port: int, rest_port: int) -> dict[str, Any]:
    """Return the configuration of the switches."""
    vlan = {"send_limit": LIMIT_BPS, "receive_limit": LIMIT_BPS, "algorithm": "fs"}
    return {
        "openflow": {"listen": f"127.0.0.1:{openflow_port}"},
        "rest": {"listen": f"127.0.0.1:{rest_port}"},
        "vlans": {vid: dict(vlan) for vid in (TALKING, CHANGED)},
        "switches": {
            f"s{dpid}": {
                "dpid": dpid,
                "ports": {port_no: {"capacity": LINK_BPS, "trunk": [TALKING, CHANGED]} for port_no in PORTS},
            }
            for dpid in SWITCHES
        },
    }


def shared_document(openflow_port: int, rest_port: int) -> dict[str, Any]:
    """Return the configuration for sharded nodes. Its queues have no effect: they are not simulated."""
    configuration = document(openflow_port, rest_port)
    for switch in configuration["switches"].values():
        switch["ovsdb"] = "tcp:127.0.0.1:1"
    return configuration


@dataclass
class ClusterVerdict:
    """The verdict on a run; ``problems`` must be empty.

    ``generations`` counts the generation ids under which the first switch was changed, ``kept`` acknowledged changes of
    limits, and ``refused`` those that a node did not acknowledge. ``highest_rise`` is the largest factor of a meter's
    rate over its rate at the start, of the ``meters_set``. ``disturbances`` counts random failures by name, ``took_s``
    is how long each fault took, its repair included.
    """

    generations: int = 0
    kept: int = 0
    refused: int = 0
    meters_set: int = 0
    highest_rise: float = 0.0
    disturbances: dict[str, int] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def is_shared_out(rates_kbps: Sequence[int]) -> bool:
    """Whether the meters of all senders are at equal shares of the receiver's limit.

    Their sum is not enough: a meter is below its grant while it compensates for what it passed before
    (docs/enforcement.md), and next to a meter that is still above its share the sum may be the limit.
    """
    share_kbps = LIMIT_BPS / 1e3 / len(SENDERS)
    return len(rates_kbps) == len(SENDERS) and all(abs(rate / share_kbps - 1) < 0.05 for rate in rates_kbps)


def row_of_switches(cluster: Cluster, sources: Mapping[int, str] | None = None) -> WireFabric:
    """Return the switches of ``document``, connected to all nodes, each from its address of ``sources``, if any."""
    fabric = WireFabric(cluster.openflow[0], standbys=cluster.openflow[1:], retry_s=0.1, sources=sources)
    for dpid in SWITCHES:
        fabric.add_switch(dpid, dict.fromkeys((*PORTS, *UPLINKS), float(LINK_BPS)))
    for switch, other in pairwise(SWITCHES):
        fabric.link((switch, UPLINKS[0]), (other, UPLINKS[1]))
    return fabric


def request_placement(cluster: Cluster, send: Callable[[PlacementRequests], object]) -> None:
    """Make a placement request in etcd; ``send`` sends it."""
    with closing(EtcdClient(cluster.etcd.urls)) as etcd:
        send(PlacementRequests(etcd, PREFIX, DPIDS))


class LoadedCluster:
    """The nodes, their switches and the sending hosts. ``judgement`` collects the problems."""

    def __init__(self, cluster: Cluster, fabric: WireFabric) -> None:
        self.cluster, self.fabric, self.judgement = cluster, fabric, ClusterVerdict()
        self._logs: dict[int, MeterLog] = {}
        self._rates_before: dict[int, dict[int, int]] = {}
        self._acknowledged: dict[int, int] = {}  # limit by revision, as acknowledged
        self._limit_bps = 20_000_000

    def begin(self) -> None:
        """Let the hosts send until their limits are shared, then start the switches' logs."""
        self.cluster.wait_ready()
        locations = (RECEIVER, *SENDERS)
        macs = {location: 0x02_00_00_00_00_00 | location[0] << 8 | location[1] for location in locations}

        def hosts_learned() -> bool:
            """Send a frame of each host; return whether every switch has flow entries to all of them."""
            for location, mac in macs.items():
                self.fabric.inject(*location, build_frame(FrameHeader(BROADCAST, mac, TALKING, _ETH_TYPE), bytes(46)))
            time.sleep(0.5)
            with self.fabric.locked():
                matches_by_switch = [
                    {flow.match for flow in switch.tables.flows() if flow.table_id == Table.FORWARD}
                    for switch in self.fabric.switches.values()
                ]
            return all(
                {Match(vlan_vid=TALKING, eth_dst=mac) for mac in macs.values()} <= installed
                for installed in matches_by_switch
            )

        self.cluster.wait(hosts_learned, "the hosts are learned")
        with self.fabric.locked():
            for location in SENDERS:
                ends = {"eth_src": macs[location], "eth_dst": macs[RECEIVER], "vlan_vid": TALKING}
                self.fabric.rates.offer(*location, float(OFFERED_BPS), **ends)
        self.cluster.wait(self._shared, "the receive limit is shared")
        with self.fabric.locked():
            self._logs = {dpid: MeterLog(switch) for dpid, switch in self.fabric.switches.items()}

    def _shared(self) -> bool:
        """Record the rates of the senders' meters; return whether they share the receiver's limit equally."""
        path = f"/v1/pairs?vlan={TALKING}"
        pairs = [pair for number in self.cluster.deciding for pair in self.cluster.nodes[number].get(path)["pairs"]]
        ids = {(pair["sender"]["switch"], pair["meter_id"]) for pair in pairs if pair["granted_bps"]}
        with self.fabric.locked():
            self._rates_before = {
                dpid: {number: switch.meters.setting(number)[0] for name, number in ids if name == f"s{dpid}"}
                for dpid, switch in self.fabric.switches.items()
            }
        return is_shared_out([rate for meters in self._rates_before.values() for rate in meters.values()])

    def change_once(self) -> bool:
        """Change a limit at the nodes, one after the other, until a node acknowledges it; return whether one did.

        A change that was not acknowledged may be stored or not.
        """
        for number, node in enumerate(self.cluster.nodes):
            if number in self.cluster.paused:
                continue
            self._limit_bps += 1000
            try:
                revision = int(node.patch(CHANGED_VN, send_limit_bps=self._limit_bps)["revision"])
            except RequestError:
                self.judgement.refused += 1
                continue
            if revision in self._acknowledged:
                self.judgement.problems.append(f"revision {revision} was given to two changes")
            self._acknowledged[revision] = self._limit_bps
            return True
        return False

    def judge(self) -> ClusterVerdict:
        """Return the verdict on all turns."""
        report = self.judgement
        report.kept = len(self._acknowledged)
        active = self.cluster.wait_controls()
        with self.fabric.locked():
            for dpid, switch in self.fabric.switches.items():
                if problem := second_writer(switch.writers):
                    report.problems.append(f"s{dpid}: {problem}")
            generations = {generation for _, _, generation in self.fabric.switches[SWITCHES[0]].writers}
            report.generations = len(generations)
            for dpid, log in self._logs.items():
                self._judge_meters(dpid, log)
        self._judge_history(active)
        return report

    def _judge_meters(self, dpid: int, log: MeterLog) -> None:
        """Add the problems of a switch's meters: deleted, filled again, or raised too far."""
        report, rates_before = self.judgement, self._rates_before[dpid]
        if deleted := rates_before.keys() & set(log.deleted):
            report.problems.append(f"s{dpid}: meters of active pairs were deleted: {sorted(deleted)}")
        if refilled := rates_before.keys() & set(log.filled_again):
            report.problems.append(f"s{dpid}: a takeover filled meters again: {sorted(refilled)}")
        rises = [rate / rates_before[meter_id] for meter_id, rate in log.set if meter_id in rates_before]
        report.meters_set += len(rises)
        highest = max(rises, default=0.0)
        report.highest_rise = max(report.highest_rise, highest)
        if highest > RISE:
            report.problems.append(f"s{dpid}: a grant rose by the factor {highest:.2f}")

    def _judge_history(self, number: int) -> None:
        """Add the problems of a node's history: revisions out of order, lost or other than acknowledged.

        The effective limit of CHANGED_VN must be the last one in the history.
        """
        node, problems = self.cluster.nodes[number], self.judgement.problems
        newest = int(node.get("/v1/revision")["revision"])
        last_bps = LIMIT_BPS
        listed = [change["revision"] for change in node.get(f"/v1/history?limit={LISTED}")["changes"]]
        if listed != list(range(newest, newest - len(listed), -1)):
            problems.append(f"the history lists revisions out of order: {listed}")
        for revision in range(1, newest + 1):
            try:
                items = node.get(f"/v1/history/{revision}")["items"]
            except RequestError:
                problems.append(f"the history has no revision {revision} of {newest}")
                continue
            # The limit of CHANGED_VN after this revision, in bit/s; [] if the revision is another change.
            values = [
                item["after"] for item in items if (item["vlan_vid"], item["field"]) == (CHANGED, "send_limit_bps")
            ]
            last_bps = values[-1] if values else last_bps
            if revision in self._acknowledged and values != [self._acknowledged[revision]]:
                problems.append(f"revision {revision} is {values}, acknowledged was {self._acknowledged[revision]}")
        problems += [
            f"revision {acknowledged} was acknowledged and is lost"
            for acknowledged in self._acknowledged
            if acknowledged > newest
        ]
        if (effective := node.get(CHANGED_VN)["send_limit_bps"]) != last_bps:
            problems.append(f"{effective} is effective, the history's last is {last_bps}")
