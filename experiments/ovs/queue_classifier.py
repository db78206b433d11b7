"""Make the action ``set_queue`` take effect on Open vSwitch's userspace datapath.

There OVS creates the HTB classes of a port's QoS row and reports their statistics, but sends every packet to the
default class. This follower adds what is missing, for the ports of an emulated fabric only:

1. One cBPF classifier on each HTB root that computes the class from the frame. The controller numbers queues by VLAN
   (queue_id == VLAN id) and OVS numbers the class of queue q 1:(q+1), so the class is 1:(VLAN id + 1); a class that
   does not exist falls to HTB's default. On a port with a single VLAN's queue untagged frames go to that queue too (an
   access port sends its one VLAN untagged). A computed class, unlike ``flowid``, holds no reference to the class, so
   that OVS can still delete a queue.
2. A ``pfifo_head_drop`` leaf under each class, about 30 ms long at the class's ceiling. A full ``pfifo`` makes the
   sending system call fail with ENOBUFS, and OVS then drops the rest of its batch, other VLANs' packets included.

The kernel announces every change of qdiscs and classes over rtnetlink, so what ovs-vswitchd creates again is corrected
within milliseconds, without polling. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LEAF_DURATION_S = 0.030
LEAF_FRAME_BITS = 1518 * 8
LEAF_MIN_PACKETS = 30
LEAF_MAX_PACKETS = 1000
ROOT_MAJOR = 1  # OVS creates its HTB root as 1:
ROOT_CLASS_MINOR = 0xFFFE  # OVS's inner class 1:fffe, the port's max-rate; the queues' classes are its children
FILTER_PRIORITY = 7  # OVS uses none on egress; this number marks the fabric's filter
UPLINK_DEFAULT_RATE_BPS = 1_000_000
_SKF_AD_VLAN_TAG = 0xFFFF_F000 + 44  # linux/filter.h
SETTLE_S = 0.002  # OVS announces a QoS row as a train of changes: read once it pauses
RESCAN_S = 2.0  # in case the socket lost announcements
_RTNLGRP_TC = 1 << 3  # RTMGRP_TC of linux/rtnetlink.h
_NLMSG_HEADER = struct.Struct("=IHHII")
_TCMSG = struct.Struct("=BxxxiIII")
_RTM_TC_TYPES = range(36, 47)  # RTM_NEWQDISC to RTM_GETTFILTER


@dataclass(frozen=True, slots=True)
class HtbClass:
    """A leaf class of an HTB root: ``minor`` of its id, its ceiling, and "kind limit" of its qdisc as ``leaf``."""

    minor: int
    ceil_bps: float
    leaf: str


@dataclass(frozen=True, slots=True)
class PortState:
    """The kernel's state of one interface. ``program`` is the bytecode of the fabric's classifier, None without one."""

    has_root: bool
    classes: tuple[HtbClass, ...] = ()
    program: str | None = None


@dataclass(slots=True)
class ClassifierCounters:
    """Counts of the follower, for tests and for a run's manifest."""

    looks: int = 0
    changes: int = 0
    errors: list[str] = field(default_factory=list)


def leaf_packets(ceil_bps: float) -> int:
    """Return the length of a leaf queue, in packets: 30 ms of full frames at ``ceil_bps``, from 30 to 1000."""
    return min(max(round(ceil_bps * LEAF_DURATION_S / LEAF_FRAME_BITS), LEAF_MIN_PACKETS), LEAF_MAX_PACKETS)


def classifier_program(untagged_minor: int | None) -> str:
    """Return cBPF (linux/filter.h) in tc's form: the class id of a frame by its VLAN; 0, no match, without one.

    ``untagged_minor`` is the class of untagged frames.
    """
    untagged = 0 if untagged_minor is None else ROOT_MAJOR << 16 | untagged_minor
    program = (
        (0x28, 0, 0, 12),  # A = EtherType or TPID
        (0x15, 0, 5, 0x8100),  # 802.1Q, or else the last line
        (0x28, 0, 0, 14),  # A = TCI
        (0x54, 0, 0, 0x0FFF),  # A = VLAN id
        (0x04, 0, 0, 1),  # A = minor of the class of queue VLAN id
        (0x44, 0, 0, ROOT_MAJOR << 16),  # A = its class id
        (0x16, 0, 0, 0),  # return A
        (0x06, 0, 0, untagged),
    )
    return _program_text(program)


def uplink_program() -> str:
    """Return cBPF in tc's form for a PN's uplink: the class id of a frame by the tag that its vswitch has pushed.

    That tag is not in the frame until it is on the wire: the kernel's ancillary word SKF_AD_VLAN_TAG has it, 0 without.
    """
    program = (
        (0x28, 0, 0, _SKF_AD_VLAN_TAG),  # A = TCI
        (0x54, 0, 0, 0x0FFF),  # A = VLAN id
        (0x04, 0, 0, 1),  # A = minor of the class of queue VLAN id
        (0x44, 0, 0, ROOT_MAJOR << 16),  # A = its class id
        (0x16, 0, 0, 0),  # return A
    )
    return _program_text(program)


def uplink_lines(interface: str, rate_bps: int, vlans: Mapping[int, tuple[int, int]]) -> list[str]:
    """Return the lines for ``tc -batch`` that give a PN's uplink its rate and a class for each of these VLANs.

    ``vlans`` holds (min, max) rates in bit/s by VLAN id; other frames go to a default class with a small guaranteed
    rate. Classes borrow from each other up to their max. The interface must have nothing at its root.
    """
    root_id, inner_id = f"{ROOT_MAJOR:x}:", f"{ROOT_MAJOR:x}:{ROOT_CLASS_MINOR:x}"
    rates = {0: (min(UPLINK_DEFAULT_RATE_BPS, rate_bps), rate_bps), **vlans}
    lines = [
        f"qdisc add dev {interface} root handle {root_id} htb default 1",
        f"class add dev {interface} parent {root_id} classid {inner_id} htb rate {rate_bps}bit",
    ]
    for vid, (min_rate_bps, max_rate_bps) in rates.items():
        classid = f"{ROOT_MAJOR:x}:{vid + 1:x}"
        limits = f"rate {min_rate_bps}bit ceil {max_rate_bps}bit"
        lines.append(f"class add dev {interface} parent {inner_id} classid {classid} htb {limits}")
        leaf = leaf_packets(max_rate_bps)
        lines.append(f"qdisc add dev {interface} parent {classid} pfifo_head_drop limit {leaf}")
    filter_place = f"dev {interface} parent {root_id} protocol all prio {FILTER_PRIORITY}"
    return [*lines, f'filter add {filter_place} bpf bytecode "{uplink_program()}"']


def desired_program(classes: Iterable[HtbClass]) -> str:
    """Return the classifier for a port with these classes; minor 1 is the default queue's."""
    minors = [c.minor for c in classes if c.minor != 1]
    return classifier_program(minors[0] if len(minors) == 1 else None)


def changes_for(interface: str, state: PortState) -> list[str]:
    """Return the lines for ``tc -batch`` that make ``state`` the desired state; [] if there is nothing to change."""
    if not state.has_root or not state.classes:
        return []
    lines = []
    for htb_class in state.classes:
        packets = leaf_packets(htb_class.ceil_bps)
        if htb_class.leaf != f"pfifo_head_drop {packets}":
            parent = f"{ROOT_MAJOR:x}:{htb_class.minor:x}"
            lines.append(f"qdisc replace dev {interface} parent {parent} pfifo_head_drop limit {packets}")
    program = desired_program(state.classes)
    if state.program != program:
        filter_place = f"dev {interface} parent {ROOT_MAJOR}: protocol all prio {FILTER_PRIORITY}"
        if state.program is not None:
            lines.append(f"filter del {filter_place}")
        lines.append(f'filter add {filter_place} bpf bytecode "{program}"')
    return lines


def read_state(interface: str) -> PortState:
    """Read the kernel's state of an interface; OSError if tc fails, for example because the interface is gone."""
    qdiscs = _tc_json("qdisc", "show", "dev", interface)
    has_root = any(
        qdisc["kind"] == "htb" and qdisc.get("root") and qdisc["handle"] == f"{ROOT_MAJOR}:" for qdisc in qdiscs
    )
    if not has_root:
        return PortState(has_root=False)
    leaves = {
        qdisc["parent"]: f"{qdisc['kind']} {qdisc.get('options', {}).get('limit', '')}"
        for qdisc in qdiscs
        if "parent" in qdisc
    }
    classes = []
    for minor, ceil_bps in _read_classes(interface):
        classes.append(HtbClass(minor, ceil_bps, leaves.get(f"{ROOT_MAJOR:x}:{minor:x}", "")))
    program = None
    for row in _tc_json("filter", "show", "dev", interface, "parent", f"{ROOT_MAJOR}:"):
        if row.get("pref") == FILTER_PRIORITY and "bytecode" in row.get("options", {}):
            instructions = row["options"]["bytecode"]["insns"]
            program = _program_text(
                (instruction["code"], instruction["jt"], instruction["jf"], instruction["k"])
                for instruction in instructions
            )
    return PortState(True, tuple(sorted(classes, key=lambda htb_class: htb_class.minor)), program)


class QueueClassifier:
    """Follows a set of interfaces in its own thread, from ``start()`` to ``stop()``; a context manager.

    ``error`` is None unless the follower has stopped by an error; ``counters`` count its actions.
    """

    def __init__(self, interfaces: Iterable[str]) -> None:
        self.interfaces = tuple(interfaces)
        self.counters = ClassifierCounters()
        self.error: Exception | None = None
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="queue-classifier", daemon=True)

    def __enter__(self) -> QueueClassifier:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the follower."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it."""
        if self._thread.is_alive():
            os.write(self._stop_write, b"x")
            self._thread.join(timeout=10)

    def wait_ready(self, timeout_s: float = 5.0) -> None:
        """Wait until every interface with an HTB root has what it needs; TimeoutError naming the others."""
        deadline = time.monotonic() + timeout_s
        while unfinished := [
            interface for interface in self.interfaces if changes_for(interface, read_state(interface))
        ]:
            if time.monotonic() > deadline or self.error is not None:
                raise TimeoutError(f"queues not made real on {', '.join(unfinished)}: {self.error or 'no answer'}")
            time.sleep(0.02)

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as error:
            self.error = error
            print(f"queue classifier stopped: {error!r}", file=sys.stderr)

    def _follow(self) -> None:
        """Repair the queues of interfaces after each change that the kernel announces, until stopped."""
        with _open_rtnetlink() as announcements:
            self._repair(self.interfaces)
            while True:
                ready, _, _ = select.select([announcements.fileno(), self._stop_read], [], [], RESCAN_S)
                if self._stop_read in ready:
                    return
                if not ready:
                    self._repair(self.interfaces)
                    continue
                changed = drain(announcements)
                time.sleep(SETTLE_S)
                changed |= drain(announcements)
                names = self.interfaces if 0 in changed else self._interfaces_of(changed)
                self._repair(names)

    def _interfaces_of(self, indices: set[int]) -> list[str]:
        """Return the followed interfaces that have one of these interface indices."""
        names = []
        for interface in self.interfaces:
            with contextlib.suppress(OSError):
                if socket.if_nametoindex(interface) in indices:
                    names.append(interface)
        return names

    def _repair(self, interfaces: Iterable[str]) -> None:
        """Read interfaces and write what their queues lack; errors are kept for diagnosis."""
        for interface in interfaces:
            try:
                self.counters.looks += 1
                lines = changes_for(interface, read_state(interface))
                if lines:
                    self.counters.changes += 1
                    _tc_batch(lines)
            except OSError as error:
                # An interface is gone, or OVS has deleted a class: the next announcement or rescan brings another read.
                # The error is kept for diagnosis.
                self.counters.errors.append(f"{interface}: {error}")
                del self.counters.errors[:-100]


def drain(announcements: socket.socket) -> set[int]:
    """Read all pending messages; return their interface indices, and 0 (all interfaces) if messages were lost."""
    indices: set[int] = set()
    while True:
        try:
            data = announcements.recv(1 << 16)
        except BlockingIOError:
            return indices
        except OSError:  # ENOBUFS: the socket's buffer overflowed
            indices.add(0)
            continue
        indices |= announced_indices(data)


def announced_indices(data: bytes) -> set[int]:
    """Return the interface indices of a train of rtnetlink messages about traffic control."""
    indices, offset = set(), 0
    while offset + _NLMSG_HEADER.size + _TCMSG.size <= len(data):
        length, kind, _, _, _ = _NLMSG_HEADER.unpack_from(data, offset)
        if length < _NLMSG_HEADER.size:
            break
        if kind in _RTM_TC_TYPES:
            indices.add(_TCMSG.unpack_from(data, offset + _NLMSG_HEADER.size)[1])
        offset += (length + 3) & ~3  # messages begin at multiples of four bytes (NLMSG_ALIGN)
    return indices


def _open_rtnetlink() -> socket.socket:
    """Return a non-blocking netlink socket that receives announcements about traffic control."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind((0, _RTNLGRP_TC))
    return sock


def _read_classes(interface: str) -> list[tuple[int, float]]:
    """Return (minor, ceil in bit/s) of the leaf classes. tc 6.1 prints classes only as text."""
    rows = []
    for line in _tc("class", "show", "dev", interface).splitlines():
        words = line.split()
        if words[:2] != ["class", "htb"]:
            continue
        minor = int(words[2].split(":")[1], 16)
        if minor != ROOT_CLASS_MINOR:
            rows.append((minor, parse_tc_rate(words[words.index("ceil") + 1])))
    return rows


def parse_tc_rate(text: str) -> float:
    """Return bit/s of a rate as tc prints it: ``40Mbit``, ``12500Kbit``, ``1Gbit``, ``800bit``."""
    digits = text.removesuffix("bit")
    scale = {"K": 1e3, "M": 1e6, "G": 1e9}.get(digits[-1:], 0)
    return float(digits[:-1]) * scale if scale else float(digits)


def _program_text(program: Iterable[tuple[int, int, int, int]]) -> str:
    """Return a cBPF program in the form of tc: the number of instructions, then the instructions."""
    lines = [" ".join(map(str, line)) for line in program]
    return ",".join([str(len(lines)), *lines])


def _tc_json(*arguments: str) -> list[dict[str, Any]]:
    """Run tc with JSON output, and return its rows."""
    text = _tc("-j", *arguments)
    return list(json.loads(text)) if text.strip() else []


def _tc(*arguments: str, lines: str | None = None) -> str:
    """Run tc, with ``lines`` as its input, and return its output; OSError if it fails."""
    done = subprocess.run(["tc", *arguments], input=lines, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        raise OSError(f"tc {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _tc_batch(lines: list[str]) -> None:
    _tc("-batch", "-", lines="\n".join(lines) + "\n")


def main(interfaces: list[str]) -> int:
    """Follow the named interfaces until SIGTERM or SIGINT, or until the parent process has ended.

    ``python -m experiments.ovs.queue_classifier s1-eth1 s1-eth2``
    """
    if not interfaces:
        print("usage: python -m experiments.ovs.queue_classifier INTERFACE...", file=sys.stderr)
        return 2
    parent, stopped = os.getppid(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopped.set())
    with QueueClassifier(interfaces) as classifier:
        while not stopped.wait(0.5) and classifier.error is None and os.getppid() == parent:
            pass
    return 0 if classifier.error is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
