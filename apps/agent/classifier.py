"""The class of a frame: an eBPF program with a map from (VLAN id, destination) to the class.

It drops control frames: guests behind this host's uplink must not impersonate the agent, whose own frames bypass the
program.
"""

from __future__ import annotations

import socket
import struct

from apps.agent import ebpf
from apps.agent.netlink import CREATE, EXCL, RTM_NEWTFILTER, TCA_KIND, TCA_OPTIONS, Request, attribute, tc_message
from controller.openflow.ethernet import ETH_TYPE_LOCAL_EXPERIMENT, ETH_TYPE_MAC_CONTROL

DEFAULT_DESTINATION = bytes(6)
"""Stands for every destination without a class of its own."""
_KEY = struct.Struct("=H6s")
_NAME = b"dets_agent"
_TCA_BPF_CLASSID = 3
_ETH_P_ALL = 0x0003
_PRIORITY = 1
_ETHERTYPES = (ETH_TYPE_MAC_CONTROL, ETH_TYPE_LOCAL_EXPERIMENT)
_TPID = 0x8100
TAG_BYTES = 4
# Position of the key on the stack: VLAN id, then the destination.
_KEY_AT, _MAC_AT = -8, -6


def key_of(vlan_vid: int, destination: bytes) -> bytes:
    """Return the map's key of a VLAN (0: untagged) and a destination of six bytes, or DEFAULT_DESTINATION."""
    return _KEY.pack(vlan_vid, destination)


def _read_header() -> tuple[bytes, ...]:
    """Return instructions that write the map's key of a frame, its VLAN and destination, onto the stack.

    R6 must hold the context. For a control frame the program ends by dropping the frame, for a frame that is too short
    by passing it. R7 is the VLAN id, R8 the EtherType behind a tag.
    """
    untagged = (  # the kernel knows no tag; one may still be in the frame's own bytes
        ebpf.load_packet_half(12),
        ebpf.move(ebpf.R8, ebpf.R0),
        ebpf.set_to(ebpf.R7, 0),
        ebpf.jump_unless_equal(ebpf.R0, _TPID, 5),  # no tag here either: over the rest of ``untagged``
        ebpf.load_packet_half(14),
        ebpf.move(ebpf.R7, ebpf.R0),
        ebpf.and_with(ebpf.R7, 0x0FFF),
        ebpf.load_packet_half(16),
        ebpf.move(ebpf.R8, ebpf.R0),
    )
    tagged = (
        ebpf.load_word(ebpf.R7, ebpf.R6, ebpf.SKB_VLAN_TCI),
        ebpf.and_with(ebpf.R7, 0x0FFF),
        ebpf.load_packet_half(12),
        ebpf.move(ebpf.R8, ebpf.R0),
        ebpf.jump(len(untagged)),
    )
    drop = ebpf.exit_program(ebpf.TC_ACT_SHOT)
    control: tuple[bytes, ...] = ()
    for ethertype in _ETHERTYPES:
        control += (ebpf.jump_unless_equal(ebpf.R8, ethertype, len(drop)), *drop)
    end = ebpf.exit_program(ebpf.TC_ACT_OK)
    destination = (
        ebpf.store_half(ebpf.R10, _KEY_AT, ebpf.R7),
        ebpf.move(ebpf.R1, ebpf.R6),
        ebpf.set_to(ebpf.R2, 0),
        ebpf.move(ebpf.R3, ebpf.R10),
        ebpf.add_to(ebpf.R3, _MAC_AT),
        ebpf.set_to(ebpf.R4, 6),
        ebpf.call(ebpf.LOAD_BYTES),
        ebpf.jump_if_equal(ebpf.R0, 0, len(end)),
        *end,
    )
    return (
        ebpf.load_word(ebpf.R7, ebpf.R6, ebpf.SKB_VLAN_PRESENT),
        ebpf.jump_if_equal(ebpf.R7, 0, len(tagged)),
        *tagged,
        *untagged,
        *control,
        *destination,
    )


def _look_up(descriptor: int) -> tuple[bytes, ...]:
    """Return instructions that look up the key on the stack in a map: R0 is the address of its value, or 0."""
    return (
        *ebpf.load_map(ebpf.R1, descriptor),
        ebpf.move(ebpf.R2, ebpf.R10),
        ebpf.add_to(ebpf.R2, _KEY_AT),
        ebpf.call(ebpf.MAP_LOOKUP),
    )


def _set_default_destination() -> tuple[bytes, ...]:
    """Return instructions that replace the destination in the key on the stack by DEFAULT_DESTINATION."""
    return (
        ebpf.set_to(ebpf.R1, 0),
        ebpf.store_half(ebpf.R10, _MAC_AT, ebpf.R1),
        ebpf.store_half(ebpf.R10, _MAC_AT + 2, ebpf.R1),
        ebpf.store_half(ebpf.R10, _MAC_AT + 4, ebpf.R1),
    )


def program(descriptor: int, default_minor: int) -> bytes:
    """Return the classifier program, which looks up a frame's class in the map with this file descriptor.

    The class is that of (VLAN, destination), otherwise that of (VLAN, DEFAULT_DESTINATION), otherwise
    ``default_minor``. The default is set first: otherwise HTB would send frames that are too short to have a class
    without any limit.
    """
    end = ebpf.exit_program(ebpf.TC_ACT_OK)
    use_result = (ebpf.load_word(ebpf.R1, ebpf.R0, 0), ebpf.store_word(ebpf.R6, ebpf.SKB_TC_CLASSID, ebpf.R1), *end)
    return b"".join(
        (
            ebpf.move(ebpf.R6, ebpf.R1),
            ebpf.set_to(ebpf.R1, default_minor),
            ebpf.store_word(ebpf.R6, ebpf.SKB_TC_CLASSID, ebpf.R1),
            *_read_header(),
            *_look_up(descriptor),
            ebpf.jump_if_equal(ebpf.R0, 0, len(use_result)),
            *use_result,
            *_set_default_destination(),
            *_look_up(descriptor),
            ebpf.jump_if_equal(ebpf.R0, 0, len(use_result)),
            *use_result,
            *end,
        )
    )


def attach(interface: int, major: int, descriptor: int) -> Request:
    """Return the request that attaches a loaded program as the classifier of an HTB root."""
    options = attribute(_TCA_BPF_CLASSID, struct.pack("=I", major << 16)) + ebpf.filter_options(descriptor, _NAME)
    message = tc_message(interface, 0, major << 16, _PRIORITY << 16 | socket.htons(_ETH_P_ALL))
    return Request(
        RTM_NEWTFILTER, CREATE | EXCL, message + attribute(TCA_KIND, b"bpf\0") + attribute(TCA_OPTIONS, options)
    )


def load(map_descriptor: int, default_minor: int) -> int:
    """Return a file descriptor of the program; OSError with the verifier's message."""
    return ebpf.load_program(program(map_descriptor, default_minor), _NAME)
