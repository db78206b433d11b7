"""Which class a frame is for: an eBPF program with a map from (VLAN id, destination) to the class.

It drops control frames: whoever is behind this host's uplink must not speak for its agent, whose own frames go around.
"""

from __future__ import annotations

import socket
import struct

from apps.agent import bpf
from apps.agent.netlink import CREATE, EXCL, RTM_NEWTFILTER, TCA_KIND, TCA_OPTIONS, Request, attribute, tc_message
from controller.openflow.frames import ETH_TYPE_LOCAL_EXPERIMENT, ETH_TYPE_MAC_CONTROL

REST = bytes(6)
"""Stands for every destination without a class of its own."""
_KEY = struct.Struct("=H6s")
_NAME = b"dets_agent"
_TCA_BPF_CLASSID = 3
_ETH_P_ALL = 0x0003
_PRIORITY = 1
_ETHERTYPES = (ETH_TYPE_MAC_CONTROL, ETH_TYPE_LOCAL_EXPERIMENT)
_TPID = 0x8100
TAG_OCTETS = 4
# Where the key stands on the stack: VLAN id, then the destination.
_KEY_AT, _MAC_AT = -8, -6


def key_of(vlan_vid: int, destination: bytes) -> bytes:
    """Return the map's key of a VLAN (0: untagged) and a destination of six octets, or REST."""
    return _KEY.pack(vlan_vid, destination)


def _read_header() -> tuple[bytes, ...]:
    """Return what reads a frame's header; R6 holds the context.

    After it the stack holds the key of VLAN and destination. Control frames are dropped there, and frames too short to
    be read pass.
    """
    untagged = (  # or tagged in the frame's own octets
        bpf.load_packet_half(12),
        bpf.move(bpf.R8, bpf.R0),
        bpf.set_to(bpf.R7, 0),
        bpf.jump_unless_equal(bpf.R0, _TPID, 5),
        bpf.load_packet_half(14),
        bpf.move(bpf.R7, bpf.R0),
        bpf.and_with(bpf.R7, 0x0FFF),
        bpf.load_packet_half(16),
        bpf.move(bpf.R8, bpf.R0),
    )
    tagged = (
        bpf.load_word(bpf.R7, bpf.R6, bpf.SKB_VLAN_TCI),
        bpf.and_with(bpf.R7, 0x0FFF),
        bpf.load_packet_half(12),
        bpf.move(bpf.R8, bpf.R0),
        bpf.jump(len(untagged)),
    )
    refuse = bpf.leave(bpf.TC_ACT_SHOT)
    control = tuple(
        one for ethertype in _ETHERTYPES for one in (bpf.jump_unless_equal(bpf.R8, ethertype, len(refuse)), *refuse)
    )
    end = bpf.leave(bpf.TC_ACT_OK)
    destination = (
        bpf.store_half(bpf.R10, _KEY_AT, bpf.R7),
        bpf.move(bpf.R1, bpf.R6),
        bpf.set_to(bpf.R2, 0),
        bpf.move(bpf.R3, bpf.R10),
        bpf.add_to(bpf.R3, _MAC_AT),
        bpf.set_to(bpf.R4, 6),
        bpf.call(bpf.LOAD_BYTES),
        bpf.jump_if_equal(bpf.R0, 0, len(end)),
        *end,
    )
    return (
        bpf.load_word(bpf.R7, bpf.R6, bpf.SKB_VLAN_PRESENT),
        bpf.jump_if_equal(bpf.R7, 0, len(tagged)),
        *tagged,
        *untagged,
        *control,
        *destination,
    )


def _look_up(descriptor: int) -> tuple[bytes, ...]:
    """Return what looks the key on the stack up in a map: R0 holds where its value stands, or 0."""
    return (
        *bpf.load_map(bpf.R1, descriptor),
        bpf.move(bpf.R2, bpf.R10),
        bpf.add_to(bpf.R2, _KEY_AT),
        bpf.call(bpf.MAP_LOOKUP),
    )


def _to_rest() -> tuple[bytes, ...]:
    """Return what makes the key on the stack that of the VLAN's REST."""
    return (
        bpf.set_to(bpf.R1, 0),
        bpf.store_half(bpf.R10, _MAC_AT, bpf.R1),
        bpf.store_half(bpf.R10, _MAC_AT + 2, bpf.R1),
        bpf.store_half(bpf.R10, _MAC_AT + 4, bpf.R1),
    )


def program(descriptor: int, default_minor: int) -> bytes:
    """Return the classifier that looks into a map: class of (VLAN, destination), else of (VLAN, REST), else default.

    The default is set first of all: a frame too short to be read ends the program there (and class 0 would be none:
    HTB sends such frames at once).
    """
    end = bpf.leave(bpf.TC_ACT_OK)
    found = (bpf.load_word(bpf.R1, bpf.R0, 0), bpf.store_word(bpf.R6, bpf.SKB_TC_CLASSID, bpf.R1), *end)
    return b"".join(
        (
            bpf.move(bpf.R6, bpf.R1),
            bpf.set_to(bpf.R1, default_minor),
            bpf.store_word(bpf.R6, bpf.SKB_TC_CLASSID, bpf.R1),
            *_read_header(),
            *_look_up(descriptor),
            bpf.jump_if_equal(bpf.R0, 0, len(found)),
            *found,
            *_to_rest(),
            *_look_up(descriptor),
            bpf.jump_if_equal(bpf.R0, 0, len(found)),
            *found,
            *end,
        )
    )


def attach(interface: int, major: int, descriptor: int) -> Request:
    """Return the request that lets a loaded program classify what an HTB root sends."""
    options = attribute(_TCA_BPF_CLASSID, struct.pack("=I", major << 16)) + bpf.filter_options(descriptor, _NAME)
    where = tc_message(interface, 0, major << 16, _PRIORITY << 16 | socket.htons(_ETH_P_ALL))
    return Request(
        RTM_NEWTFILTER, CREATE | EXCL, where + attribute(TCA_KIND, b"bpf\0") + attribute(TCA_OPTIONS, options)
    )


def load(map_descriptor: int, default_minor: int) -> int:
    """Return a file descriptor of the program; OSError with what the verifier says."""
    return bpf.load_program(program(map_descriptor, default_minor), _NAME)
