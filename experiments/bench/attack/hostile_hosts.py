"""Hosts behind an honest switch that send harmful frames: a port and the header of each frame, by its number."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from controller.forwarding.host_probing import ETH_TYPE_IPV4
from controller.forwarding.pipeline import ETH_TYPE_ARP, ETH_TYPE_IPV6, GROUP_BIT
from controller.openflow.ethernet import BROADCAST, FrameHeader, build_frame
from experiments.bench.attack.hostile_peer import HOSTILE_DPID, AttackFunction, HostilePeer, reconnecting

VLAN = 10
_HOST = 0x06_00_00_00_00_00
_SOLICITED = 0x33_33_FF_00_00_00  # solicited-node multicast (RFC 4291, RFC 2464)
_IPV4 = bytes.fromhex("45000020000040004011") + bytes(2) + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + bytes(12)
_FRAME_BATCH = 200


def tenant(frame_of: Callable[[int], tuple[int, FrameHeader]]) -> AttackFunction:
    """Return an attack by hosts behind an honest switch: ``frame_of`` gives the port and header of each frame."""
    sent = itertools.count()

    @reconnecting()
    def attack(peer: HostilePeer, until_s: float) -> None:
        switch = peer.become_ready(HOSTILE_DPID)
        if switch is None:
            return

        def send_frames() -> bool:
            for number in itertools.islice(sent, _FRAME_BATCH):
                port_no, header = frame_of(number)
                switch.inject(port_no, build_frame(header, _IPV4).ljust(60, b"\0"), time.monotonic())
            switch.drain_frames()
            return time.monotonic() > until_s

        peer.behave(switch, send_frames, until_s - time.monotonic())

    return attack


def unknown_destinations(number: int) -> tuple[int, FrameHeader]:
    """Frames to unknown addresses."""
    return 1, FrameHeader(_HOST + number % 2**32, _HOST, VLAN, ETH_TYPE_IPV4)


def from_groups(number: int) -> tuple[int, FrameHeader]:
    """Frames to unknown addresses, from group addresses."""
    return 1, FrameHeader(_HOST + number % 2**32, GROUP_BIT | number % 2**16, VLAN, ETH_TYPE_IPV4)


def broadcast_source(number: int) -> tuple[int, FrameHeader]:
    """Frames to unknown addresses, from the broadcast address."""
    return 1, FrameHeader(_HOST + number % 2**32, BROADCAST, VLAN, ETH_TYPE_IPV4)


def arp_storm(number: int) -> tuple[int, FrameHeader]:
    """Broadcast ARP requests from 65,536 addresses."""
    return 1, FrameHeader(BROADCAST, _HOST + number % 2**16, VLAN, ETH_TYPE_ARP)


def move(number: int) -> tuple[int, FrameHeader]:
    """Frames of eight addresses that move between two ports."""
    return 1 + number % 2, FrameHeader(BROADCAST, _HOST + number // 2 % 8, VLAN, ETH_TYPE_IPV4)


def claim(number: int) -> tuple[int, FrameHeader]:
    """Frames with constantly new addresses at one port, which another port then claims."""
    return 1 + number % 2, FrameHeader(BROADCAST, _HOST + number // 2 % 2**16, VLAN, ETH_TYPE_IPV4)


def solicit_all(number: int) -> tuple[int, FrameHeader]:
    """Multicast Neighbor Solicitations from 65,536 addresses."""
    return 1, FrameHeader(_SOLICITED | number % 2**24, _HOST + number % 2**16, VLAN, ETH_TYPE_IPV6)
