"""The vswitch in the kernel, frame by frame: what goes in at one interface's far end and comes out at the others'."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from topologies import ebpf_vlan_switch

VLANS = (1, 2, 7, 100, 4094)
NAMES = ("trunk", *(f"acc{vid}" for vid in VLANS))
SOL_PACKET, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 263, 8, 1 << 4
ETHER_TYPE = 0x88B5  # for local experiments, IEEE 802
BODY = bytes(range(64))


@dataclass(frozen=True)
class Port:
    """The far end of an interface, where a VN or an edge switch would be."""

    raw: socket.socket

    def send(self, vid: int | None = None) -> None:
        tag = b"" if vid is None else struct.pack("!HH", 0x8100, vid)
        self.raw.send(b"\x02" * 6 + b"\x04" * 6 + tag + struct.pack("!H", ETHER_TYPE) + BODY)

    def received(self) -> int | str | None:
        """Return the VLAN id of the one frame that came, "untagged", or None."""
        found: list[int | str] = []
        while select.select([self.raw], [], [], 0)[0]:
            data, said, _, address = self.raw.recvmsg(2048, 256)
            if address[2] == socket.PACKET_OUTGOING or struct.pack("!H", ETHER_TYPE) not in data[12:18]:
                continue
            status, _, _, _, _, tci, _ = struct.unpack(
                "=IIIHHHH", next(d for _, kind, d in said if kind == PACKET_AUXDATA)
            )
            assert data.endswith(BODY)
            found.append(tci & 0xFFF if status & TP_STATUS_VLAN_VALID else "untagged")
        assert len(found) <= 1
        return found[0] if found else None


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, Port]]:
    with contextlib.ExitStack() as stack:
        far: dict[str, Port] = {}
        for name in NAMES:
            subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-far"], check=True)
            stack.callback(subprocess.run, ["ip", "link", "del", name], check=True)
            for end in (name, f"{name}-far"):
                subprocess.run(["ip", "link", "set", end, "up"], check=True)
            raw = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)))
            raw.bind((f"{name}-far", 0))
            raw.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            far[name] = Port(raw)
        ebpf_vlan_switch.attach("trunk", {f"acc{vid}": vid for vid in VLANS})
        yield far


def came_out(ports: dict[str, Port]) -> dict[str, int | str]:
    time.sleep(0.05)
    return {name: vid for name, port in ports.items() if (vid := port.received()) is not None}


@pytest.mark.parametrize("vid", VLANS)
def test_frames_of_a_vn_leave_with_its_tag_and_come_back_without(ports: dict[str, Port], vid: int) -> None:
    ports[f"acc{vid}"].send()
    assert came_out(ports) == {"trunk": vid}
    ports["trunk"].send(vid)
    assert came_out(ports) == {f"acc{vid}": "untagged"}


def test_priority_bits_do_not_matter(ports: dict[str, Port]) -> None:
    ports["trunk"].send(0xE000 | 7)
    assert came_out(ports) == {"acc7": "untagged"}


@pytest.mark.parametrize("vid", [None, 0, 3, 101, 4095])
def test_what_comes_in_with_no_vlan_of_this_pn_is_dropped(ports: dict[str, Port], vid: int | None) -> None:
    ports["trunk"].send(vid)
    assert came_out(ports) == {}


@pytest.mark.parametrize("vid", [1, 2, 4094])
def test_a_vn_cannot_tag_its_frames_itself(ports: dict[str, Port], vid: int) -> None:
    ports["acc2"].send(vid)
    assert came_out(ports) == {}


def test_a_second_program_at_an_interface_is_refused(ports: dict[str, Port]) -> None:
    with pytest.raises(OSError, match="rtnetlink: File exists"):
        ebpf_vlan_switch.attach("trunk", {"acc1": 1})
    with pytest.raises(OSError, match="no interface"):
        ebpf_vlan_switch.attach("no-such", {})
    ports["acc1"].send()
    assert came_out(ports) == {"trunk": 1}
