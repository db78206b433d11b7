"""The switches of ``dets bench loop``: a process full of metered pairs whose counters always grow.

``python -m experiments.bench.loop.switch_process PLAN.json`` reads a plan (``LoopPlan``), fills the tables of its
switches with what the controller itself would have installed, prints ``ready`` on stdout and serves until its stdin
ends. Lines on stdin are ``vary SHARE OFFERED``, a new share of receivers that vary and the load of each sender as a
part of its fair share; ``cut DPID``: that switch reconnects, with full tables; ``watch``: begin to record what is done
to the meters; and ``report``: reply with the record, a line of JSON. If the plan ``waits``, switches connect at
``connect``. Hundreds of switches are two processes, half of the pods each, because a slow process sets meters shortly
before they are read again, and the controller computes no rate over less than 10 ms.

Traffic is made at the meters, which are token buckets. Senders to the receivers that vary pause in every other
interval, and RAA-FE answers with larger and smaller grants in turn, so that every grant changes in every interval and
stays constant on average. Senders to the other receivers never pause, and their grants do not change.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from controller.central.controller import CentralController
from controller.config.loader import parse_config
from controller.fabric.config_model import Config
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host, Pair
from controller.openflow.meters import METER_CONFIG
from experiments.bench.loop.loaded_switches import BusyDatapath, LoadSwing
from experiments.machine.controller_process import dump_yaml
from experiments.switch.options import DatapathOptions
from experiments.wire.fabric import WireFabric

PORTS = 16
# The largest number of switches of a VLAN. Every switch forwards to every host of its VLANs: if all VLANs were
# everywhere, each of a hundred switches would hold the flow entries of all, few of them metered.
POD_SWITCHES = 10
MAX_SENDERS = 100  # of one receiver
# 10 Mb/s or more for each of 100 senders: three frames, the least change for which a meter is modified, are small
# against it.
RECEIVE_LIMIT_BPS = 1_000_000_000
CAPACITY_BPS = 100_000_000_000
# No queue holds the benchmark's receivers: if senders offered more, receive budgets would decide what their meters
# pass, and not the turns.
OFFERED = 0.6
GAIN = 1.0  # RAA-FE's k: with each turn a rate changes by more than the fifth that a meter is modified for
TICK_S = 1.0
SPLIT_SWITCHES = 100  # from here on two processes serve the switches


@dataclass(frozen=True)
class LoopPlan:
    """Switches with ``pairs_per_switch`` metered pairs each; ``varied`` is the share of receivers that vary.

    ``vlan_count`` VLANs are on all ports of all switches. Without it there are as many as the pairs need, each on all
    ``ports`` of the POD_SWITCHES switches of a pod. With ``standby_port`` switches have a second controller there. With
    ``waits`` they connect on command.
    """

    switches: int
    pairs_per_switch: int
    interval_ms: int
    varied: float
    openflow_port: int
    rest_port: int
    ports: int = PORTS
    receive_limit_bps: int = RECEIVE_LIMIT_BPS
    vlan_count: int | None = None
    standby_port: int | None = None
    waits: bool = False

    @property
    def pairs(self) -> int:
        """How many pairs all switches have together."""
        return self.switches * self.pairs_per_switch

    @property
    def vlans(self) -> int:
        """How many VLANs a switch has: enough that no receiver has more than MAX_SENDERS senders."""
        if self.vlan_count is not None:
            return self.vlan_count
        max_senders = min(MAX_SENDERS, self.switches // self.pods * self.ports - 1)
        return -(-self.pairs_per_switch // (self.ports * max_senders))  # rounded up

    @property
    def pods(self) -> int:
        """How many groups of switches there are, each with its own VLANs."""
        return 1 if self.vlan_count is not None else -(-self.switches // POD_SWITCHES)  # rounded up

    def pod(self, dpid: int) -> int:
        """Return the group that a switch belongs to."""
        return (dpid - 1) % self.pods

    def vids(self, dpid: int) -> list[int]:
        """Return the VLANs of a switch."""
        pod = self.pod(dpid)
        return list(range(pod * self.vlans + 1, (pod + 1) * self.vlans + 1))

    def configuration(self) -> dict[str, Any]:
        """Return the controller's configuration as YAML would hold it."""
        limits = {"send_limit": CAPACITY_BPS // self.vlans, "receive_limit": self.receive_limit_bps}
        vlan = {**limits, "algorithm": "fe", "parameters": {"k": GAIN}}

        def ports(dpid: int) -> dict[int, Any]:
            port = {"capacity": CAPACITY_BPS, "trunk": self.vids(dpid)}
            return dict.fromkeys(range(1, self.ports + 1), port)

        return {
            "control": {"interval_ms": self.interval_ms, "mac_ageing_s": 3600},
            "openflow": {"listen": f"127.0.0.1:{self.openflow_port}"},
            "rest": {"listen": f"127.0.0.1:{self.rest_port}"},
            "vlans": dict.fromkeys(range(1, self.pods * self.vlans + 1), vlan),
            "switches": {f"s{dpid}": {"dpid": dpid, "ports": ports(dpid)} for dpid in range(1, self.switches + 1)},
        }

    def config(self) -> Config:
        """Return the checked configuration."""
        return parse_config(dump_yaml(self.configuration()), "bench")


def pairs_of(plan: LoopPlan, central: CentralController) -> list[Pair]:
    """Return ``pairs_per_switch`` pairs of each switch: every VN sends to the next VNs of its VLAN, in a ring."""
    by_vlan = {vid: np.flatnonzero(central.vns.vlan_vid == vid).tolist() for vid in central.config.vlans}
    pairs = []
    for dpid in range(1, plan.switches + 1):
        senders = np.flatnonzero(central.vns.dpid == dpid).tolist()
        per_sender, with_one_more = divmod(plan.pairs_per_switch, len(senders))
        for number, sender in enumerate(senders):
            vlan = by_vlan[int(central.vns.vlan_vid[sender])]
            index = vlan.index(sender)
            pairs += [
                Pair(sender, vlan[(index + step) % len(vlan)])
                for step in range(1, per_sender + (number < with_one_more) + 1)
            ]
    return pairs


def fill(plan: LoopPlan, central: CentralController, datapaths: dict[int, BusyDatapath]) -> None:
    """Let a controller without sockets install the pairs, so that the real controller finds its own state."""
    no_meters = np.empty(0, METER_CONFIG)
    for dpid in datapaths:
        central.switch_connected(dpid, [], no_meters, 0.0)
    for row in range(len(central.vns)):
        key = central.vns.key(row)
        central.fabric.learn(Host(key.vlan_vid, _mac(row)), PortId(key.dpid, key.port_no), 0.0)
    for pair in pairs_of(plan, central):
        central.pairs.on_pair_seen(pair, 0.0)
    while updates := central.drain_updates():  # in batches
        for dpid, update in updates.items():
            datapaths[dpid].receive(update.encode(1), time.monotonic())
            datapaths[dpid].drain_messages()
            assert not datapaths[dpid].refused, datapaths[dpid].refused[0]


def _mac(row: int) -> int:
    """Return the MAC address of the host of a VN."""
    return 0x02_00_00_00_00_00 | row


def load(
    plan: LoopPlan,
    varied_share: float,
    central: CentralController,
    datapaths: dict[int, BusyDatapath],
    offered: float = OFFERED,
) -> None:
    """Set the traffic of all meters.

    ``varied_share`` is the share of receivers whose senders pause in turns; ``offered`` is the load of each sender as a
    part of its fair share of the receive limit.
    """
    pairs = central.state.entries
    senders = np.bincount(pairs.receiver, minlength=len(central.vns))
    share_bps = offered * plan.receive_limit_bps / np.maximum(senders, 1)
    load_swing = LoadSwing()
    varied_receivers = np.arange(len(central.vns)) % 10 < varied_share * 10
    for dpid, datapath in datapaths.items():
        own_rows = np.flatnonzero(central.vns.dpid[pairs.sender] == dpid)
        size = 1 + max(int(pairs.meter_id[own_rows].max(initial=0)), int(datapath.meters.ids().max()))
        offered_bps, varied = np.zeros(size), np.zeros(size, np.bool_)
        offered_bps[pairs.meter_id[own_rows]] = share_bps[pairs.receiver[own_rows]]
        varied[pairs.meter_id[own_rows]] = varied_receivers[pairs.receiver[own_rows]]
        datapath.meters.prepare(offered_bps, varied, load_swing, time.monotonic())


def pair_list(plan: LoopPlan, central: CentralController) -> dict[str, Any]:
    """Return the baseline's input: by dpid, columns of meter ids and receivers."""
    pairs = central.state.entries
    sender_dpid = central.vns.dpid[pairs.sender]
    by_dpid = {}
    for switch in np.unique(sender_dpid).tolist():
        own_mask = sender_dpid == switch
        by_dpid[switch] = {"meter_id": pairs.meter_id[own_mask].tolist(), "receiver": pairs.receiver[own_mask].tolist()}
    return {"limit_bps": plan.receive_limit_bps, "pairs": by_dpid}


def serve(plan: LoopPlan, folder: Path) -> None:
    """Build the fabric, write ``pairs.json`` to ``folder`` for the baseline, and serve until stdin ends.

    From SPLIT_SWITCHES switches on, a child process serves every second pod. This process forwards its commands to the
    child, and joins the child's answers to its own.
    """
    central = CentralController(plan.config())
    options = DatapathOptions()
    datapaths: dict[int, BusyDatapath] = {}
    for dpid in range(1, plan.switches + 1):
        datapath = datapaths[dpid] = BusyDatapath(dpid, options)
        if plan.standby_port is not None:
            datapath.add_controller()
        for port_no in range(1, plan.ports + 1):
            datapath.add_port(port_no, CAPACITY_BPS, time.monotonic())
    fill(plan, central, datapaths)
    load(plan, plan.varied, central, datapaths)
    (folder / "pairs.json").write_text(json.dumps(pair_list(plan, central)))
    if plan.switches < SPLIT_SWITCHES or plan.pods < 2:
        _serve(plan, central, datapaths, sys.stdin, sys.stdout)
        return
    halves = [{dpid: switch for dpid, switch in datapaths.items() if plan.pod(dpid) % 2 == half} for half in range(2)]
    local_end, child_end = socket.socketpair()
    if os.fork() == 0:  # before any thread starts
        local_end.close()
        with child_end.makefile("r") as orders, child_end.makefile("w") as answers:
            _serve(plan, central, halves[1], orders, answers)
        os._exit(0)
    child_end.close()
    with local_end.makefile("rw") as child:
        _serve(plan, central, halves[0], sys.stdin, sys.stdout, child)


def _serve(
    plan: LoopPlan,
    central: CentralController,
    datapaths: dict[int, BusyDatapath],
    commands: Iterable[str],
    output: TextIO,
    child: TextIO | None = None,
) -> None:
    """Serve these switches, and forward the commands to ``child``, the process that serves the other switches."""
    standbys = [] if plan.standby_port is None else [("127.0.0.1", plan.standby_port)]
    controller = "127.0.0.1", plan.openflow_port
    fabric = WireFabric(controller, tick_s=TICK_S, rate_step_s=float("inf"), standbys=standbys)
    fabric.switches.update(datapaths)
    if not plan.waits:
        fabric.start()
    if child is not None:
        child.readline()  # its "ready"
    print("ready", file=output, flush=True)
    for line in commands:
        if child is not None:
            print(line, end="", file=child, flush=True)
        command, *values = line.split()
        if command == "connect":
            fabric.start()
            continue
        if command == "cut":
            if int(values[0]) in datapaths:
                fabric.disconnect(int(values[0]))
            continue
        with fabric.locked():
            if command == "watch":
                for datapath in datapaths.values():
                    datapath.meters.begin_watch()
            elif command == "report":
                reports = [datapath.meters.report() for datapath in datapaths.values()]
                reports += [] if child is None else json.loads(child.readline())
                print(json.dumps(reports), file=output, flush=True)
            else:
                load(plan, float(values[0]), central, datapaths, float(values[1]))
    fabric.stop(check=False)


def main(plan_path: str) -> None:
    """Serve the plan in a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = Path(plan_path)
    serve(LoopPlan(**json.loads(path.read_text())), path.parent)


if __name__ == "__main__":
    main(sys.argv[1])
