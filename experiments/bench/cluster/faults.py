"""Partitions, full disks and clocks that step, one after the other, on a pair whose switches limit traffic (root).

Each node is in a network namespace, on a small disk (tmpfs) and on a clock of its own; so are etcd's members, but for
namespace and clock. After each fault it heals by itself, or by what docs/cluster.md says that operators do;
talking_pair.py judges what the switches and the history hold.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from apps.cluster.etcd import Etcd, EtcdError, put
from controller.errors import InvalidValueError
from experiments.bench.cluster.talking_pair import CHANGED_VN, Judgement, TalkingPair, document, talking_fabric
from experiments.machine.controller_pair import ETCD_MEMBERS, NAMES, ControllerPair
from experiments.machine.controller_process import Place
from experiments.machine.namespaces import Namespaces
from experiments.machine.stepped_clock import SteppedClock

LEASE_S = 3  # by default
HOLD_S, LOOK_EVERY_S = LEASE_S + 1.0, 0.2  # whatever is to happen has begun by then
STEP_S = 5 * 3600
ETCD_DISK, NODE_DISK = "160m", "1m"  # etcd reserves 128 MiB for its log
PAGE_OCTETS = 4096  # that tmpfs gives a file at once
_VALUE_OCTETS = 200_000


@dataclass
class FaultsReport:
    """What came of it, and how long each fault took with what heals it."""

    judgement: Judgement
    took_s: dict[str, float] = field(default_factory=dict)


def run_faults(
    folder: Path, tell: Callable[[str], None] = lambda _line: None, names: Sequence[str] = ()
) -> FaultsReport:
    """Have every fault once, or those with these names.

    Raises InvalidValueError without root or a program that is needed, ControllerError if the pair does not come back.
    """
    if os.geteuid() != 0:
        raise InvalidValueError("faults", True, "needs root: network namespaces and small disks")
    if missing := [what for what in ("ip", "nft", "gcc", "etcd") if shutil.which(what) is None]:
        raise InvalidValueError("faults", True, f"needs {', '.join(missing)}: see scripts/debian-packages")
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        disks = {
            name: stack.enter_context(_disk(folder / name, size))
            for size, names_ in ((ETCD_DISK, [f"etcd{n + 1}" for n in range(ETCD_MEMBERS)]), (NODE_DISK, NAMES))
            for name in names_
        }
        network = stack.enter_context(Namespaces(len(NAMES)))
        clocks = []
        for name in NAMES:
            (folder / f"{name}-clock").mkdir(exist_ok=True)
            clocks.append(SteppedClock(folder / f"{name}-clock"))
        places = [
            Place(host, network.command(number), clocks[number].environment, partial(network.inside, number))
            for number, host in enumerate(network.hosts)
        ]
        pair = stack.enter_context(ControllerPair(document, folder, places, network.host))
        fabric = stack.enter_context(talking_fabric(pair))
        run = _Run(TalkingPair(pair, fabric), network, clocks, disks)
        run.talking.begin()
        report = FaultsReport(run.talking.judgement)
        for name, fault in run.faults().items():
            if not names or name in names:
                began_s = time.monotonic()
                fault()
                pair.wait_ready()
                report.took_s[name] = time.monotonic() - began_s
                tell(f"{name}: {report.took_s[name]:.1f} s")
        run.talking.judge()
        return report


@contextmanager
def _disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a small disk; its folder."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "dets", str(folder)], check=True, timeout=10)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=10)


@contextmanager
def _full(disk: Path) -> Iterator[None]:
    """Leave no space on a disk."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass
    try:
        yield
    finally:
        ballast.unlink()


class _Run:
    def __init__(
        self, talking: TalkingPair, network: Namespaces, clocks: Sequence[SteppedClock], disks: dict[str, Path]
    ) -> None:
        self.talking = talking
        self._pair, self._network, self._clocks, self._disks = talking.pair, network, clocks, disks
        self._ends_before = 0

    def faults(self) -> dict[str, Callable[[], None]]:
        """Return what there is, by name."""
        ports = ", ".join(str(member.port) for member in self._pair.etcd.members)
        to_etcd, from_etcd = f"tcp dport {{ {ports} }}", f"tcp sport {{ {ports} }}"
        return {
            "cut off from etcd": partial(self._without_etcd, from_etcd, to_etcd),
            "no questions to etcd": partial(self._without_etcd, "", to_etcd),
            "no answers of etcd": partial(self._without_etcd, from_etcd, ""),
            "cut off from switches": partial(self._without_switches, True, True),
            "nothing from switches": partial(self._without_switches, True, False),
            "nothing to switches": partial(self._without_switches, False, True),
            "cut off from everything": self._without_link,
            "standby cut off from everything": self._standby_without_link,
            "disk of a member full": self._member_full,
            "disks of etcd full": self._etcd_full,
            "disks of the nodes full": self._nodes_full,
            "clocks step": self._clocks_step,
        }

    # -- partitions

    def _without_etcd(self, incoming: str, outgoing: str) -> None:
        active, _ = self._ready()
        self._network.cut(active, incoming, outgoing)
        try:
            self._taken_over(active)
            self._expect(self._pair.role(active) == "cut off from etcd", f"{NAMES[active]} knows that it is cut off")
        finally:
            self._network.heal(active)

    def _without_switches(self, incoming: bool, outgoing: bool) -> None:
        active, generation = self._ready()
        port = self._pair.openflow[active][1]
        to_node, from_node = f"tcp dport {port}" if incoming else "", f"tcp sport {port}" if outgoing else ""
        self._network.cut(active, to_node, from_node)
        try:
            self._pair.wait(lambda: self._switches(active) == {"disconnected"}, "the switches have gone")
            self._unmoved(active, generation)
        finally:
            self._network.heal(active)

    def _without_link(self) -> None:
        active, _ = self._ready()
        self._network.link(active, up=False)
        try:
            self._taken_over(active)
        finally:
            self._network.link(active, up=True)

    def _standby_without_link(self) -> None:
        active, generation = self._ready()
        self._network.link(1 - active, up=False)
        try:
            self._unmoved(active, generation)
        finally:
            self._network.link(1 - active, up=True)

    # -- disks

    def _member_full(self) -> None:
        active, generation = self._ready()
        member = self._pair.etcd.members[0]
        with _full(self._disks["etcd1"]), closing(Etcd(self._pair.etcd.urls)) as client:

            def ended() -> bool:
                self._write(client)
                return member.ended

            self._pair.wait(ended, "a member whose disk is full has ended")
            self._unmoved(active, generation)
        member.launch()
        member.wait_answers()
        self._unmoved(active, generation)

    def _etcd_full(self) -> None:
        self._ready()
        members = self._pair.etcd.members
        with ExitStack() as stack:
            for number in range(len(members)):
                stack.enter_context(_full(self._disks[f"etcd{number + 1}"]))
            client = stack.enter_context(closing(Etcd(self._pair.etcd.urls)))

            def down() -> bool:
                self._write(client)
                return sum(member.ended for member in members) * 2 > len(members)

            self._pair.wait(down, "most members have ended")
            self._pair.wait(lambda: self._roles() == {"cut off from etcd"}, "nobody is active")
            self._expect(not self.talking.change_once(), "no change is kept without etcd")
            for node in self._pair.nodes:
                node.get(CHANGED_VN)
        for member in members:
            if member.ended:
                member.launch()
        for member in members:
            member.wait_answers()
        self._pair.wait_controls()
        self._kept()

    def _nodes_full(self) -> None:
        """The logs are there; not a byte of them can be written, nor anything else."""
        active, generation = self._ready()
        logs = [node.log_path for node in self._pair.nodes]
        for log in logs:
            with log.open("ab") as file:
                file.write(b"\n" * (-log.stat().st_size % PAGE_OCTETS))
        with _full(self._disks[NAMES[0]]), _full(self._disks[NAMES[1]]):
            sizes = [log.stat().st_size for log in logs]
            self._unmoved(active, generation)
            self._pair.nodes[active].end(signal.SIGKILL)
            self._pair.wait(lambda: self._pair.controls(1 - active), "the other node controls the switches")
            self._kept()
            self._pair.nodes[active].start()
            self._pair.wait_ready()
            self._expect([log.stat().st_size for log in logs] == sizes, "no log could be written")

    # -- clocks

    def _clocks_step(self) -> None:
        """Both ways at the active node, then each way at one of both; a node also starts on a wrong clock."""
        active, generation = self._ready()
        for here_s, there_s in ((STEP_S, 0), (-STEP_S, 0), (-STEP_S, STEP_S)):
            self._clocks[active].step(here_s)
            self._clocks[1 - active].step(there_s)
            self._kept()
        self._unmoved(active, generation)
        self._pair.nodes[active].end(signal.SIGTERM)
        self._pair.wait(lambda: self._pair.controls(1 - active), "the other node controls the switches")
        self._kept()
        self._pair.nodes[active].start()
        self._pair.wait_ready()
        for clock in self._clocks:
            clock.step(0)
        self._kept()

    # -- what is looked at

    def _ready(self) -> tuple[int, int]:
        """Wait until one is active and the other can take over; return the active one and its generation."""
        self._pair.wait_ready()
        active = self._pair.wait_controls()
        self._ends_before = self._ends(active)
        return active, self._generation(active)

    def _ends(self, number: int) -> int:
        """Return how often a node has written that it is active no more."""
        return self._pair.nodes[number].log_path.read_text().count("is not active any more")

    def _generation(self, number: int) -> int:
        return int(self._pair.nodes[number].health()["cluster"]["generation"] or 0)

    def _switches(self, number: int) -> set[str]:
        return set(self._pair.nodes[number].health().get("switches", {}).values())

    def _roles(self) -> set[str | None]:
        return {self._pair.role(number) for number in range(len(NAMES))}

    def _taken_over(self, number: int) -> None:
        """The other node has to take over, and this one to be active no more."""
        self._pair.wait(lambda: self._pair.controls(1 - number), "the other node controls the switches")
        self._expect(self._pair.role(number) != "active", f"{NAMES[number]} is not active as well")
        self._kept()

    def _unmoved(self, number: int, generation: int) -> None:
        """This node has to be active under this generation throughout, and a change to be kept."""
        self._kept()
        until_s = time.monotonic() + HOLD_S
        while time.monotonic() < until_s:
            if self._generation(number) != generation or self._pair.role(1 - number) == "active":
                break
            time.sleep(LOOK_EVERY_S)
        else:
            if self._ends(number) == self._ends_before:
                return
        self._expect(False, f"{NAMES[number]} alone is active, without an interruption")

    def _kept(self) -> None:
        self._pair.wait(self.talking.change_once, "a change is kept")

    def _write(self, client: Etcd) -> None:
        """Let etcd's database grow, unless it is down."""
        with suppress(EtcdError):
            client.transact([], [put("/others/growing", os.urandom(_VALUE_OCTETS))], [])

    def _expect(self, true: bool, what: str) -> None:
        if not true:
            self.talking.judgement.problems.append(f"not so: {what}")
