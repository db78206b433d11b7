"""A vswitch of access ports and one trunk in the kernel: two eBPF programs a PN instead of a bridge in userspace.

A PN has one VN in each VLAN, so that its vswitch has nothing to learn: what a VN sends leaves on the trunk with the
VLAN's tag, what comes in on the trunk goes to the VN of its tag, without it. Frames that a VN has tagged itself, and
those on the trunk without a tag or with that of a VLAN without a VN here, are dropped.

The programs (linux/bpf.h) are written here instruction by instruction, loaded by bpf(2) and attached to interfaces'
ingress over rtnetlink; the interfaces hold them, and they go when the interfaces go. Standard library only.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping

from topologies import bpf

_TPID = socket.htons(0x8100)
_VID_MASK = 0x0FFF
_NAME = b"dets_vlan"

_MESSAGE = struct.Struct("=IHHII")  # struct nlmsghdr
_TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
_RTM_NEWQDISC, _RTM_NEWTFILTER = 36, 44
_REQUEST_ACK_EXCL_CREATE = 0x1 | 0x4 | 0x200 | 0x400
_INGRESS_PARENT, _INGRESS_HANDLE = 0xFFFFFFF1, 0xFFFF0000
_TCA_KIND, _TCA_OPTIONS, _TCA_BPF_FD, _TCA_BPF_NAME, _TCA_BPF_FLAGS = 1, 2, 6, 7, 8
_TCA_BPF_FLAG_ACT_DIRECT = 1
_ETH_P_ALL = 0x0003
_PRIORITY = 1


def attach(trunk: str, access: Mapping[str, int]) -> None:
    """Switch frames between interfaces: ``trunk`` and the access ports, names to VLAN ids. OSError says what refused.

    The interfaces must be new: nothing may be at their ingress.
    """
    trunk_index = socket.if_nametoindex(trunk)
    indices = {vid: socket.if_nametoindex(name) for name, vid in access.items()}
    for vid, index in indices.items():
        _run_at_ingress(index, access_program(vid, trunk_index))
    _run_at_ingress(trunk_index, trunk_program(indices))


def why_not() -> str:
    """Return why this process may not load such programs, "" where it may."""
    try:
        os.close(bpf.load_program(access_program(1, 1), _NAME))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def access_program(vlan_vid: int, trunk_index: int) -> bytes:
    """Return what an access port does with a VN's frame: tag it and send it on the trunk."""
    return b"".join(
        (
            bpf.move(bpf.R6, bpf.R1),
            bpf.load_word(bpf.R1, bpf.R6, bpf.SKB_VLAN_PRESENT),
            bpf.jump_if_equal(bpf.R1, 0, 2),
            *bpf.leave(bpf.TC_ACT_SHOT),
            bpf.move(bpf.R1, bpf.R6),
            bpf.set_to(bpf.R2, _TPID),
            bpf.set_to(bpf.R3, vlan_vid),
            bpf.call(bpf.VLAN_PUSH),
            *_redirect(bpf.set_to(bpf.R1, trunk_index)),
        )
    )


def trunk_program(ports: Mapping[int, int]) -> bytes:
    """Return what the trunk does with a frame: give it, without its tag, to the port (an index) of its VLAN."""
    lines_to_pop = 2 * len(ports)  # from the first choice's jump: over the other choices and the two lines that drop
    choices = [
        line
        for number, (vid, index) in enumerate(ports.items())
        for line in (bpf.set_to(bpf.R8, index), bpf.jump_if_equal(bpf.R7, vid, lines_to_pop - 2 * number))
    ]
    return b"".join(
        (
            bpf.move(bpf.R6, bpf.R1),
            bpf.load_word(bpf.R7, bpf.R6, bpf.SKB_VLAN_PRESENT),
            bpf.jump_if_equal(bpf.R7, 0, 2 + len(choices)),
            bpf.load_word(bpf.R7, bpf.R6, bpf.SKB_VLAN_TCI),
            bpf.and_with(bpf.R7, _VID_MASK),
            *choices,
            *bpf.leave(bpf.TC_ACT_SHOT),
            bpf.move(bpf.R1, bpf.R6),
            bpf.call(bpf.VLAN_POP),
            *_redirect(bpf.move(bpf.R1, bpf.R8)),
        )
    )


def _redirect(index_to_r1: bytes) -> tuple[bytes, ...]:
    return index_to_r1, bpf.set_to(bpf.R2, 0), bpf.call(bpf.REDIRECT), bpf.line(0x95)


def _run_at_ingress(interface_index: int, program: bytes) -> None:
    descriptor = bpf.load_program(program, _NAME)
    try:
        qdisc = _TCMSG.pack(socket.AF_UNSPEC, interface_index, _INGRESS_HANDLE, _INGRESS_PARENT, 0)
        _ask(_RTM_NEWQDISC, qdisc + _attribute(_TCA_KIND, b"ingress\0"))
        options = (
            _attribute(_TCA_BPF_FD, struct.pack("=I", descriptor))
            + _attribute(_TCA_BPF_NAME, _NAME + b"\0")
            + _attribute(_TCA_BPF_FLAGS, struct.pack("=I", _TCA_BPF_FLAG_ACT_DIRECT))
        )
        protocol = _PRIORITY << 16 | socket.htons(_ETH_P_ALL)
        tc_filter = _TCMSG.pack(socket.AF_UNSPEC, interface_index, 0, _INGRESS_HANDLE, protocol)
        _ask(_RTM_NEWTFILTER, tc_filter + _attribute(_TCA_KIND, b"bpf\0") + _attribute(_TCA_OPTIONS, options))
    finally:
        os.close(descriptor)


def _ask(kind: int, body: bytes) -> None:
    """Send one request over rtnetlink and wait for its acknowledgement; raise OSError if it is an error."""
    header = _MESSAGE.pack(_MESSAGE.size + len(body), kind, _REQUEST_ACK_EXCL_CREATE, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.send(header + body)
        answer = netlink.recv(65536)
    error = -struct.unpack_from("=i", answer, _MESSAGE.size)[0]
    if error:
        raise OSError(error, f"rtnetlink: {os.strerror(error)}")


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)
