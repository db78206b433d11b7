"""The environment for faults (root): nodes in network namespaces, on small disks and with their own clocks.

Etcd's members have small disks as well; they, and the switches, are in the machine's own namespace. Each switch
connects from its own address, so that nodes can be cut off from one switch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from controller.errors import InvalidValueError
from experiments.bench.cluster.testbed.loaded_cluster import SWITCHES
from experiments.machine.cluster_process import ETCD_MEMBERS, name_of
from experiments.machine.controller_process import ProcessLocation
from experiments.machine.namespaces import Namespaces
from experiments.machine.stepped_clock import SteppedClock

ETCD_DISK, NODE_DISK = "160m", "1m"  # etcd reserves 128 MiB for its log


@dataclass(frozen=True)
class FaultEnvironment:
    """By node number: the ``network`` with their namespaces, their ``clocks``, and the ``places`` where they run.

    ``disks`` are the mount points of small disks, by the name of a node or of a member of etcd; ``sources`` the
    addresses of the switches, by dpid.
    """

    network: Namespaces
    clocks: Sequence[SteppedClock]
    places: Sequence[ProcessLocation]
    disks: dict[str, Path]
    sources: dict[int, str]


@contextmanager
def prepare_environment(folder: Path, nodes: int) -> Iterator[FaultEnvironment]:
    """Prepare the environment for ``nodes`` nodes, with their files in ``folder``.

    Raises InvalidValueError without root or a program that is needed.
    """
    if os.geteuid() != 0:
        raise InvalidValueError("faults", True, "needs root: network namespaces and small disks")
    if missing_programs := [program for program in ("ip", "nft", "gcc", "etcd") if shutil.which(program) is None]:
        raise InvalidValueError("faults", True, f"needs {', '.join(missing_programs)}: see scripts/debian-packages")
    folder.mkdir(parents=True, exist_ok=True)
    names = [name_of(number) for number in range(nodes)]
    sizes = {f"etcd{number + 1}": ETCD_DISK for number in range(ETCD_MEMBERS)} | dict.fromkeys(names, NODE_DISK)
    with ExitStack() as stack:
        disks = {name: stack.enter_context(_disk(folder / name, size)) for name, size in sizes.items()}
        network = stack.enter_context(Namespaces(nodes, more=len(SWITCHES)))
        clocks = []
        for name in names:
            (folder / f"{name}-clock").mkdir(exist_ok=True)
            clocks.append(SteppedClock(folder / f"{name}-clock"))
        locations = [
            ProcessLocation(host, network.command(number), clocks[number].environment, partial(network.inside, number))
            for number, host in enumerate(network.hosts)
        ]
        yield FaultEnvironment(network, clocks, locations, disks, dict(zip(SWITCHES, network.more_hosts, strict=True)))


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill a disk."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def _disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a small disk; yield its folder."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "dets", str(folder)], check=True, timeout=10)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=10)
