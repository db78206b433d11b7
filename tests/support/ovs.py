"""The application and an Open vSwitch fabric together, and frames put on its wires."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.application import Application

from controller.openflow.ethernet import FrameHeader, build_frame
from experiments.machine.controller_process import configuration, free_ports
from experiments.ovs.fabric import OvsFabric, OvsOptions
from experiments.ovs.ovs_vsctl import ofctl
from topologies.fabric import Fabric

EVERYBODY = 2**48 - 1
TEST_ETH_TYPE = 0x88B5  # IEEE 802: local experimental
_PACKET_OUTGOING = 4
_QUIET_S = 0.4  # a frame has arrived by then, or does not


@contextlib.contextmanager
def controlled(
    fabric: Fabric,
    limits_bps: Mapping[int, int],
    folder: Path,
    datapath: str = "user",
    static_arp: bool = False,
    scheme: str = "tcp",
    **sections: dict[str, Any],
) -> Iterator[tuple[OvsFabric, Application]]:
    """Realize a fabric with the application in control of it, both ready; the application is yet to be stopped."""
    config = configuration(fabric, limits_bps, "fs", {}, *free_ports(2))
    for name, section in sections.items():
        config[name] = {**config.get(name, {}), **section}
    target = f"{scheme}:{config['openflow']['listen']}"
    options = OvsOptions(controller=target, datapath=datapath, static_arp=static_arp)
    with Application(config, folder) as app, OvsFabric(fabric, options) as ovs:
        app.wait_ready()
        yield ovs, app


class Wires:
    """Raw sockets on the PNs' ends of their links: what they send enters the edge switch, what they get has left it.

    ``interfaces`` are looked at all the time; a context manager.
    """

    def __init__(self, interfaces: Iterable[str]) -> None:
        self._sockets: dict[str, socket.socket] = {}
        for interface in interfaces:
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
            sock.bind((interface, 0))
            self._sockets[interface] = sock
        self._number = 0

    def __enter__(self) -> Wires:
        return self

    def __exit__(self, *exception: object) -> None:
        for sock in self._sockets.values():
            sock.close()

    def send(self, interface: str, source: int, destination: int, vlan_vid: int | None, tags: bytes = b"") -> int:
        """Send a frame into the fabric, ``tags`` before that of ``vlan_vid``; return the number that it carries."""
        self._number += 1
        frame = build_frame(FrameHeader(destination, source, vlan_vid, TEST_ETH_TYPE), self._number.to_bytes(4))
        self._sockets[interface].send((frame[:12] + tags + frame[12:]).ljust(60, b"\0"))
        return self._number

    def arrived(self, numbers: Sequence[int], quiet_s: float = _QUIET_S) -> dict[str, Counter[int]]:
        """Return how many times each of these frames came out, by interface, once nothing more comes for a while."""
        counts: dict[str, Counter[int]] = {interface: Counter() for interface in self._sockets}
        names = {sock: interface for interface, sock in self._sockets.items()}
        while ready := select.select(list(names), [], [], quiet_s)[0]:
            heard = False
            for sock in ready:
                data, address = sock.recvfrom(2048)
                number = _number_of(data)
                if address[2] != _PACKET_OUTGOING and number is not None:
                    heard = True
                    if number in numbers:
                        counts[names[sock]][number] += 1
            if not heard and not select.select(list(names), [], [], 0.0)[0]:
                quiet_s = max(quiet_s - 0.02, 0.0)  # others' frames do not keep us here for ever
        return counts

    def reached(
        self, interface: str, source: int, destination: int, vlan_vid: int | None, tags: bytes = b""
    ) -> list[str]:
        """Send one frame; return the interfaces at which it came out, each as often as it did."""
        number = self.send(interface, source, destination, vlan_vid, tags)
        counts = self.arrived([number])
        return sorted(name for name, count in counts.items() for _ in range(count[number]))


class End:
    """A PN's end of its link: frames from one address to another, in and out, whatever their tag."""

    def __init__(self, interface: str, source: int, target: int) -> None:
        self._addresses = target.to_bytes(6) + source.to_bytes(6)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind((interface, 0))
        self._socket.setblocking(False)

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def arrived(self) -> list[bytes]:
        """Return the frames between the two addresses that have come since the last call."""
        frames = []
        while True:
            try:
                data, address = self._socket.recvfrom(2048)
            except BlockingIOError:
                return frames
            if address[2] != _PACKET_OUTGOING and data[:12] == self._addresses:
                frames.append(data)

    def close(self) -> None:
        self._socket.close()


def _number_of(frame: bytes) -> int | None:
    """Return the number that a test frame carries; the kernel may have taken its outer tag off."""
    for at in (12, 16, 20):
        if frame[at : at + 2] == TEST_ETH_TYPE.to_bytes(2):
            return int.from_bytes(frame[at + 2 : at + 6])
    return None


def meter_rates(bridge: str) -> dict[int, int]:
    """Return the rates of a switch's meters by id, kb/s."""
    text = ofctl("dump-meters", bridge)
    return {int(number): int(rate) for number, rate in re.findall(r"meter=(\d+).*?rate=(\d+)", text, re.DOTALL)}


def meter_durations(bridge: str) -> dict[int, float]:
    """Return how long each meter has been there, by id, in seconds."""
    text = ofctl("meter-stats", bridge)
    found = re.findall(r"meter:(\d+).*?duration:([\d.]+)s", text)
    return {int(number): float(duration) for number, duration in found}


def flow_durations(bridge: str) -> dict[str, float]:
    """Return how long each flow entry has been there, by its table, match and actions, in seconds."""
    durations = {}
    for line in ofctl("dump-flows", bridge, "--no-names").splitlines():
        found = re.search(
            r"duration=([\d.]+)s, table=(\d+), .*?((?:idle_timeout=\d+, )?(?:send_flow_rem )?priority=.*)", line
        )
        if found is not None:
            what = re.sub(r"idle_age=\d+, ?", "", found[3])
            durations[f"{found[2]} {what}"] = float(found[1])
    return durations


def wait_until(condition: Any, what: str, timeout_s: float = 15.0) -> Any:
    """Return the condition's value as soon as it is true; AssertionError when it is not in time."""
    waited_s, last_s = 0.0, time.monotonic()
    while not (value := condition()):
        waited_s += min(time.monotonic() - last_s, 1.0)  # a machine that stood still has not made anybody wait
        last_s = time.monotonic()
        assert waited_s < timeout_s, f"not {what} within {timeout_s:g} s"
        time.sleep(0.05)
    return value
