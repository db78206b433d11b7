"""``dets bench attack``: a controller with three well-behaved switches, and one attack after the other.

The switches carry traffic all the time: in one VLAN more than a receiver's limit, in the other less. The attacker is a
process of its own. One of the senders pauses regularly, so that grants must change. For each attack this is measured:
missed control intervals; how often a receiver of the well-behaved switches got less than its guarantee over more than a
second; growth of the controller's memory; and time from the end of the attack until everything works again. These
switches have no queues, so what a receiver gets in a single interval varies around its limit.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from apps.cli.support.answers import RequestError
from experiments.bench.attack.attacks import ATTACKS, GOOD_DPIDS
from experiments.bench.attack.hostile_peer import HOSTILE_DPID
from experiments.bench.harness import Target, check_bounds, check_known, finished, missed_intervals, resident_bytes
from experiments.machine.controller_process import ROOT, ControllerProcess, free_ports
from experiments.machine.cpu_usage import withheld_s
from experiments.wire.fabric import WireFabric

SECONDS = 5.0
INTERVAL_MS = 55
MAX_GROWTH_MB = 64.0
MAX_RECOVERY_S = 1.0
_POLL_INTERVAL_S = 0.05
_RECOVERY_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 15.0
_LINK_BPS = 1_000_000_000
_LIMIT_BPS = 400_000_000
_OFFERED = {10: 300e6, 20: 300e6}  # of each sender: two in VLAN 10 overload their receiver, one in VLAN 20 does not
_LINK_PORT = 10
_EVERYBODY = 2**48 - 1
_SETTLE_S = 2.0
GUARANTEED = 0.95
_PERIOD_S = 2.4
_CHANGE_S = 0.9  # after a change of the load, until one receiver is uncongested and the others have their grants


@dataclass
class Outcome:
    """Results of an attack; ``switches_lost`` is how often a well-behaved switch had to reconnect.

    ``withheld_intervals`` are those in which the machine left the controller waiting for a processor.
    """

    about: str
    missed_intervals: int
    missed_guarantees: int
    growth_mb: float
    recovered_s: float
    switches_lost: int
    withheld_intervals: float

    def targets(self, name: str) -> list[Target]:
        """Return the targets of the attack of this name."""
        return [
            Target(f"{name}: intervals missed", self.missed_intervals, "", 0),
            Target(f"{name}: guarantees missed, switches lost", self.missed_guarantees + self.switches_lost, "", 0),
            Target(f"{name}: memory", self.growth_mb, "MB", MAX_GROWTH_MB),
            Target(f"{name}: recovered", self.recovered_s, "s", MAX_RECOVERY_S),
        ]


def run(
    seconds: Annotated[float, "How long each attack lasts."] = SECONDS,
    attack: Annotated[list[str] | None, "Only this attack; repeatable."] = None,
) -> dict[str, Any]:
    """Cost of hostile OpenFlow and REST peers for the control loop and the tenants of other switches."""
    check_bounds(seconds=(seconds, 1, 600))
    names = attack or list(ATTACKS)
    check_known("attack", names, list(ATTACKS))
    outcomes: dict[str, Outcome] = {}
    for name in names:  # each with its own controller, so that no attack affects the next
        with TemporaryDirectory(prefix="dets-attack-") as folder, AttackedFabric(Path(folder)) as fabric:
            outcomes[name] = fabric.attacked(name, seconds)
            print(f"{name:20} {outcomes[name]}", flush=True)
    figures = {name: asdict(outcome) for name, outcome in outcomes.items()}
    targets = [target for name, outcome in outcomes.items() for target in outcome.targets(name)]
    return finished(
        "attack", figures, targets, {"seconds": seconds, "interval_ms": INTERVAL_MS, "switches": len(GOOD_DPIDS)}
    )


def configuration(openflow_port: int, rest_port: int) -> dict[str, Any]:
    """Return the configuration of the well-behaved switches and of the attacker's."""

    def ports() -> dict[int, Any]:
        return {number: {"capacity": _LINK_BPS, "trunk": list(_OFFERED)} for number in (1, 2)}

    return {
        "control": {"interval_ms": INTERVAL_MS},
        "openflow": {"listen": f"127.0.0.1:{openflow_port}"},
        "rest": {"listen": f"127.0.0.1:{rest_port}", "requests_per_s": 1_000},
        "vlans": {vid: {"send_limit": _LIMIT_BPS, "receive_limit": _LIMIT_BPS, "algorithm": "fs"} for vid in _OFFERED},
        "switches": {f"s{dpid}": {"dpid": dpid, "ports": ports()} for dpid in (*GOOD_DPIDS, HOSTILE_DPID)},
    }


class AttackedFabric:
    """The controller and its well-behaved switches in a chain, with traffic; ready inside its ``with``."""

    def __init__(self, folder: Path) -> None:
        self._openflow_port, self._rest_port = free_ports(2)
        self.controller = ControllerProcess(configuration(self._openflow_port, self._rest_port), folder)
        self._flows: dict[int, list[int]] = {}  # by VLAN, to the receiver
        self._fabric = WireFabric(("127.0.0.1", self._openflow_port), retry_s=0.1)
        for dpid in GOOD_DPIDS:
            self._fabric.add_switch(dpid, dict.fromkeys((1, 2, _LINK_PORT, _LINK_PORT + 1), float(_LINK_BPS)))
        for one, other in pairwise(GOOD_DPIDS):
            self._fabric.link((one, _LINK_PORT + 1), (other, _LINK_PORT))

    def __enter__(self) -> AttackedFabric:
        self.controller.__enter__()
        try:
            self._fabric.start()
            self.controller.wait_ready({f"s{dpid}" for dpid in GOOD_DPIDS})
            time.sleep(_SETTLE_S)
            self._introduce()
            time.sleep(_SETTLE_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.controller.__exit__()
        self._fabric.stop(check=False)

    def _sender_is_on(self, on: bool) -> None:
        with self._fabric.locked():
            self._fabric.rates.set_rates([self._flows[10][-1]], [_OFFERED[10] if on else 0.0])

    def _kept(self, on: bool) -> list[float]:
        """Return the rate of each receiver now, as a part of what is sent to it within its limit: 1 is all of it.

        ``on``: whether the sender that pauses, the last one of VLAN 10, sends now.
        """
        with self._fabric.locked():
            delivered_bps = self._fabric.rates.delivered_bps
            return [
                float(delivered_bps[flows].sum())
                / min(_OFFERED[vid] * (len(flows) - (vid == 10 and not on)), _LIMIT_BPS)
                for vid, flows in self._flows.items()
            ]

    def _introduce(self) -> None:
        """Announce the hosts and start the senders, all towards the second port of the last switch."""
        mac = {(dpid, port): 0x02_00_00_00_00_00 | dpid << 8 | port for dpid in GOOD_DPIDS for port in (1, 2)}
        receiver = mac[GOOD_DPIDS[-1], 2]
        with self._fabric.locked():
            rates = self._fabric.rates
            for vid, rate_bps in _OFFERED.items():
                senders = GOOD_DPIDS[:2] if vid == 10 else GOOD_DPIDS[:1]
                self._flows[vid] = [
                    rates.offer(dpid, 1, rate_bps, eth_src=mac[dpid, 1], eth_dst=receiver, vlan_vid=vid)
                    for dpid in senders
                ]
                # Of the receiver only broadcasts, so that the controller learns its address.
                rates.offer(GOOD_DPIDS[-1], 2, 1e6, eth_src=receiver, eth_dst=_EVERYBODY, vlan_vid=vid)

    def attacked(self, name: str, seconds: float) -> Outcome:
        """Run one attack and return its results."""
        loop_before, memory_mb = self._loop(), self._memory_mb()
        withheld_before_s = withheld_s(self.controller.pid)
        missed_guarantees = 0
        connections_before = self._connections()
        port = self._rest_port if ATTACKS[name].on_rest else self._openflow_port
        attacker = subprocess.Popen(
            [
                *(sys.executable, "-m", "experiments.bench.attack.attacks", name),
                *("127.0.0.1", str(port), str(seconds)),
            ],
            cwd=ROOT,
        )
        max_memory_mb, began_s, changed_s, sender_on = memory_mb, time.monotonic(), time.monotonic(), True
        kept_parts: list[list[float]] = []  # the results of ``_kept`` since the last change of the load
        while attacker.poll() is None and (now_s := time.monotonic()) - began_s < seconds + _END_TIMEOUT_S:
            max_memory_mb = max(max_memory_mb, self._memory_mb())
            if now_s - changed_s >= _PERIOD_S:
                # A receiver misses its guarantee if the mean of its parts is below GUARANTEED.
                missed_guarantees += sum(
                    sum(rates_bps) < GUARANTEED * len(rates_bps) for rates_bps in zip(*kept_parts, strict=True)
                )
                kept_parts.clear()
                sender_on, changed_s = not sender_on, now_s
                self._sender_is_on(sender_on)
            elif now_s - changed_s >= _CHANGE_S:
                kept_parts.append(self._kept(sender_on))
            time.sleep(_POLL_INTERVAL_S)
        self._sender_is_on(True)
        if attacker.poll() is None:
            attacker.send_signal(signal.SIGKILL)
            attacker.wait()
        recovered_s = self._recovery_s()
        loop_after = self._loop()
        return Outcome(
            ATTACKS[name].about,
            missed_intervals(loop_before, loop_after),
            missed_guarantees,
            round(max_memory_mb - memory_mb, 1),
            recovered_s,
            self._connections() - connections_before,
            round((withheld_s(self.controller.pid) - withheld_before_s) * 1e3 / INTERVAL_MS, 1),
        )

    def _loop(self) -> dict[str, Any]:
        """Return the loop's figures; a controller that does not answer has _RECOVERY_TIMEOUT_S to recover."""
        deadline_s = time.monotonic() + _RECOVERY_TIMEOUT_S
        while True:
            self.controller.check_alive()
            try:
                return dict(self.controller.get("/v1/loop"))
            except RequestError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_POLL_INTERVAL_S)

    def _connections(self) -> int:
        """Return how often the well-behaved switches have connected."""
        return sum(self._fabric.connections(dpid) for dpid in GOOD_DPIDS)

    def _memory_mb(self) -> float:
        """Return the controller's resident memory in MB."""
        return resident_bytes(self.controller.pid) / 1e6

    def _recovery_s(self) -> float:
        """Wait until the well-behaved switches are ready and the loop keeps its interval; return the seconds."""
        began_s = time.monotonic()
        last_loop = None
        while (now_s := time.monotonic()) - began_s < _RECOVERY_TIMEOUT_S:
            try:
                states = self.controller.health().get("switches", {})
                loop = self.controller.get("/v1/loop")
            except RequestError:
                last_loop = None
                time.sleep(_POLL_INTERVAL_S)
                continue
            ready = all(states.get(f"s{dpid}") == "ready" for dpid in GOOD_DPIDS)
            keeps_interval = (
                last_loop is not None and loop["rounds"] > last_loop["rounds"] and not missed_intervals(last_loop, loop)
            )
            if ready and keeps_interval:
                return round(now_s - began_s, 2)
            last_loop = loop
            time.sleep(2.5 * INTERVAL_MS / 1e3)
        return _RECOVERY_TIMEOUT_S
