"""Kills and stops in a row, at random: of both nodes and of etcd's members, while traffic is limited and limits change.

Two controllers, three members of etcd, two software switches. In each turn something is killed or paused, sometimes a
second thing with it, and comes back after a while. What is judged is what the switches and the history hold:

1. Each switch had one writer at a time, by its own log of who changed it.
2. Every change that was acknowledged is in the history, whose revisions have no gap.
3. Nothing was freed: no meter of a pair that talks was deleted, or set to much more than what stood before.
"""

from __future__ import annotations

import json
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.forwarding.pipeline import Table
from controller.openflow.frames import BROADCAST, FrameHeader, build_frame
from controller.openflow.match import Match
from experiments.bench.cluster.switch_logs import MeterLog, second_writer
from experiments.machine.controller_pair import NAMES, ControllerPair, kill_machine_of
from experiments.wire.fabric import WireFabric

LINK_BPS, LIMIT_BPS, OFFERED_BPS = 1_000_000_000, 400_000_000, 300_000_000
TALKING, CHANGED = 10, 20  # VLANs
SWITCHES, PORTS, UPLINK = (1, 2), (1, 2, 3), 4
RECEIVER, SENDERS = (1, 3), ((1, 1), (1, 2), (2, 1))
CHANGED_VN = f"/v1/vns/{CHANGED}/s1/1"
RISE = 1.2  # of a grant whose traffic stays as it is
LONGEST_PAUSE_S, LONGEST_WAIT_S = 6.0, 4.0
BOTH_READY_SHARE = 0.8  # of the turns begin with a standby that can take over
SECOND_SHARE = 0.3  # of the turns have a second disturbance
REQUEST_S, SETTLE_S = 5.0, 60.0
_ETH_TYPE = 0x88B5


def document(openflow_port: int, rest_port: int) -> dict[str, Any]:
    """Return the configuration of the two switches."""
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


@dataclass
class KillsReport:
    """What came of it. ``problems`` are to be none; ``kept`` counts changes that were acknowledged."""

    disturbances: dict[str, int] = field(default_factory=dict)
    generations: int = 0
    kept: int = 0
    refused: int = 0
    meters_set: int = 0
    highest_rise: float = 0.0
    problems: list[str] = field(default_factory=list)


def run_kills(count: int, seed: int, folder: Path, tell: Callable[[str], None] = lambda _line: None) -> KillsReport:
    """Disturb a pair so many times, and return what came of it. Raises ControllerError if it does not come back."""
    with ControllerPair(document, folder) as pair, _fabric(pair) as fabric:
        run = _Run(pair, fabric, random.Random(seed))
        run.begin()
        for turn in range(count):
            told = run.turn()
            tell(f"{turn + 1:>3}: {told}")
        return run.judge()


def _fabric(pair: ControllerPair) -> WireFabric:
    fabric = WireFabric(pair.openflow[0], standbys=pair.openflow[1:], retry_s=0.1)
    for dpid in SWITCHES:
        fabric.add_switch(dpid, dict.fromkeys((*PORTS, UPLINK), float(LINK_BPS)))
    fabric.link((SWITCHES[0], UPLINK), (SWITCHES[1], UPLINK))
    return fabric


class _Run:
    def __init__(self, pair: ControllerPair, fabric: WireFabric, random_: random.Random) -> None:
        self._pair, self._fabric, self._random = pair, fabric, random_
        self._report = KillsReport()
        self._undo: list[Callable[[], None]] = []
        self._dead: set[int] = set()
        self._logs: dict[int, MeterLog] = {}
        self._standing: dict[int, dict[int, int]] = {}
        self._kept: dict[int, int] = {}  # limit by revision, as acknowledged
        self._limit_bps = 20_000_000

    # -- traffic

    def begin(self) -> None:
        """Let the hosts talk until their limits are shared, and write down what is done to the switches from then."""
        self._pair.wait_ready()
        places = (RECEIVER, *SENDERS)
        macs = {place: 0x02_00_00_00_00_00 | place[0] << 8 | place[1] for place in places}

        def known() -> bool:
            for place, mac in macs.items():
                self._fabric.inject(*place, build_frame(FrameHeader(BROADCAST, mac, TALKING, _ETH_TYPE), bytes(46)))
            time.sleep(0.5)
            with self._fabric.locked():
                matches = [
                    {flow.match for flow in switch.tables.flows() if flow.table_id == Table.FORWARD}
                    for switch in self._fabric.switches.values()
                ]
            return all({Match(vlan_vid=TALKING, eth_dst=mac) for mac in macs.values()} <= one for one in matches)

        self._pair.wait(known, "the hosts are known")
        with self._fabric.locked():
            for place in SENDERS:
                ends = {"eth_src": macs[place], "eth_dst": macs[RECEIVER], "vlan_vid": TALKING}
                self._fabric.rates.offer(*place, float(OFFERED_BPS), **ends)
        self._pair.wait(self._shared, "the receive limit is shared")
        with self._fabric.locked():
            self._logs = {dpid: MeterLog(switch) for dpid, switch in self._fabric.switches.items()}

    def _shared(self) -> bool:
        """Whether the senders' meters share the receiver's limit; notes their rates as those that stand."""
        active = self._pair.active
        if active is None:
            return False
        entries = self._pair.nodes[active].get(f"/v1/entries?vlan={TALKING}")["entries"]
        ids = {(entry["sender"]["switch"], entry["meter_id"]) for entry in entries if entry["granted_bps"]}
        with self._fabric.locked():
            self._standing = {
                dpid: {number: switch.meters.setting(number)[0] for name, number in ids if name == f"s{dpid}"}
                for dpid, switch in self._fabric.switches.items()
            }
        rates = [rate for meters in self._standing.values() for rate in meters.values()]
        return len(rates) == len(SENDERS) and abs(sum(rates) * 1e3 / LIMIT_BPS - 1) < 0.05

    # -- one turn

    def turn(self) -> str:
        """Disturb, change a limit meanwhile and afterwards, and wait until a node controls the switches again."""
        if self._random.random() < BOTH_READY_SHARE:
            self._pair.wait_ready()
        names = [self._disturb()]
        if self._random.random() < SECOND_SHARE:
            names.append(self._disturb())
        self._change_once()
        time.sleep(self._random.uniform(0.0, LONGEST_WAIT_S))
        self._change_once()
        while self._undo:
            self._undo.pop()()
        begun_s = time.monotonic()
        active = self._pair.wait_controls()
        self._pair.wait(self._change_once, "a change is kept", SETTLE_S)
        return f"{', '.join(names)}; {NAMES[active]} in control {time.monotonic() - begun_s:.1f} s after all were back"

    def _disturb(self) -> str:
        active = self._pair.active
        if active is None:
            active = self._random.randrange(len(NAMES))
        member = self._random.randrange(len(self._pair.etcd.members))
        pause_s = self._random.uniform(0.3, LONGEST_PAUSE_S)
        kinds: Mapping[str, Callable[[], None]] = {
            "active node killed": lambda: self._kill(active, signal.SIGKILL),
            "active node's machine dead": lambda: self._kill_machine(active),
            "active node stopped": lambda: self._kill(active, signal.SIGTERM),
            "active node paused": lambda: self._pause(active, pause_s),
            "standby killed": lambda: self._kill(1 - active, signal.SIGKILL),
            "standby paused": lambda: self._pause(1 - active, pause_s),
            "member of etcd killed": lambda: self._kill_member(member),
            "member of etcd paused": lambda: self._pause_member(member, pause_s),
        }
        name = self._random.choice(list(kinds))
        kinds[name]()
        self._report.disturbances[name] = self._report.disturbances.get(name, 0) + 1
        return name

    def _kill(self, number: int, what: signal.Signals) -> None:
        self._pair.resume(number)
        self._pair.nodes[number].end(what)
        if number not in self._dead:
            self._dead.add(number)
            self._undo.append(lambda: self._restart(number))

    def _kill_machine(self, number: int) -> None:
        if number not in self._dead:
            kill_machine_of(self._pair.nodes[number].pid)
            self._kill(number, signal.SIGKILL)

    def _restart(self, number: int) -> None:
        self._dead.discard(number)
        self._pair.nodes[number].start()

    def _pause(self, number: int, seconds: float) -> None:
        if number in self._dead:
            return
        self._pair.send_signal(number, signal.SIGSTOP)

        def resume() -> None:
            time.sleep(seconds)
            self._pair.resume(number)

        self._undo.append(resume)

    def _kill_member(self, number: int) -> None:
        member = self._pair.etcd.members[number]
        member.stop()

        def restart() -> None:
            member.stop()  # it may have been killed twice
            member.launch()
            member.wait_answers()

        self._undo.append(restart)

    def _pause_member(self, number: int, seconds: float) -> None:
        member = self._pair.etcd.members[number]
        member.send_signal(signal.SIGSTOP)

        def resume() -> None:
            time.sleep(seconds)
            member.send_signal(signal.SIGCONT)

        self._undo.append(resume)

    def _change_once(self) -> bool:
        """Ask both nodes for a change; return whether one has kept it. What is not acknowledged may be kept or not."""
        for number, node in enumerate(self._pair.nodes):
            if number in self._pair.paused:
                continue
            self._limit_bps += 1000
            body = json.dumps({"send_limit_bps": self._limit_bps}).encode()
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(node.rest_url + CHANGED_VN, body, headers, method="PATCH")
            try:
                with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
                    revision = int(json.load(answer)["revision"])
            except (OSError, ValueError) as error:
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                self._report.refused += 1
                continue
            if revision in self._kept:
                self._report.problems.append(f"revision {revision} was given to two changes")
            self._kept[revision] = self._limit_bps
            return True
        return False

    # -- the judgement

    def judge(self) -> KillsReport:
        """Return what came of all turns."""
        report = self._report
        report.kept = len(self._kept)
        active = self._pair.wait_controls()
        with self._fabric.locked():
            for dpid, switch in self._fabric.switches.items():
                if said := second_writer(switch.writers):
                    report.problems.append(f"s{dpid}: {said}")
            generations = {generation for _, _, generation in self._fabric.switches[SWITCHES[0]].writers}
            report.generations = len(generations)
            for dpid, log in self._logs.items():
                self._judge_meters(dpid, log)
        self._judge_history(active)
        return report

    def _judge_meters(self, dpid: int, log: MeterLog) -> None:
        report, standing = self._report, self._standing[dpid]
        if gone := standing.keys() & set(log.deleted):
            report.problems.append(f"s{dpid}: meters of pairs that talk were deleted: {sorted(gone)}")
        if refilled := standing.keys() & set(log.filled_again):
            report.problems.append(f"s{dpid}: a take-over filled meters again: {sorted(refilled)}")
        rises = [rate / standing[number] for number, rate in log.set if number in standing]
        report.meters_set += len(rises)
        highest = max(rises, default=0.0)
        report.highest_rise = max(report.highest_rise, highest)
        if highest > RISE:
            report.problems.append(f"s{dpid}: a grant rose to {highest:.2f} of what it was")

    def _judge_history(self, number: int) -> None:
        node, problems = self._pair.nodes[number], self._report.problems
        newest = int(node.get("/v1/revision")["revision"])
        last_bps = LIMIT_BPS
        for revision in range(1, newest + 1):
            try:
                items = node.get(f"/v1/history/{revision}")["items"]
            except urllib.error.HTTPError as error:
                with error:
                    problems.append(f"the history has no revision {revision} of {newest}")
                continue
            values = [one["after"] for one in items if (one["vlan_vid"], one["field"]) == (CHANGED, "send_limit_bps")]
            last_bps = values[-1] if values else last_bps
            if revision in self._kept and values != [self._kept[revision]]:
                problems.append(f"revision {revision} holds {values}, acknowledged was {self._kept[revision]}")
        problems += [f"revision {one} was acknowledged and is lost" for one in self._kept if one > newest]
        if (in_force := node.get(CHANGED_VN)["send_limit_bps"]) != last_bps:
            problems.append(f"{in_force} is in force, the history's last is {last_bps}")
