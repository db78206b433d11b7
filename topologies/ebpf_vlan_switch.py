"""A vswitch of access ports and one trunk in the kernel: two eBPF programs per PN instead of a bridge in userspace.

A PN has one VN in each VLAN, so its vswitch has nothing to learn: a VN's frames leave on the trunk with the VLAN's tag;
frames from the trunk go to the VN of their tag, without it. Frames that a VN has tagged itself, and frames from the
trunk without a tag or with the tag of a VLAN without a VN here, are dropped.

The programs (linux/bpf.h) are written here instruction by instruction, loaded by bpf(2) and attached to interfaces'
ingress over rtnetlink; the interfaces hold them, and they disappear with the interfaces. Standard library only.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from apps.agent import ebpf

_TPID = socket.htons(0x8100)
_VID_MASK = 0x0FFF
_NAME = b"dets_vlan"


def attach(trunk: str, access: Mapping[str, int]) -> None:
    """Let the kernel switch frames between the interface ``trunk`` and the access ports.

    ``access`` are the VLAN ids of the access ports, by interface name. No interface may have an ingress qdisc. Raises
    OSError with the kernel's reason.
    """
    trunk_index = socket.if_nametoindex(trunk)
    indices = {vid: socket.if_nametoindex(name) for name, vid in access.items()}
    for vid, index in indices.items():
        ebpf.run_at(ebpf.INGRESS, index, access_program(vid, trunk_index), _NAME)
    ebpf.run_at(ebpf.INGRESS, trunk_index, trunk_program(indices), _NAME)


def unsupported_reason() -> str:
    """Return why this process cannot load eBPF programs; "" if it can."""
    try:
        os.close(ebpf.load_program(access_program(1, 1), _NAME))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def access_program(vlan_vid: int, trunk_index: int) -> bytes:
    """Return an access port's program: drop a frame with a tag, or tag the frame and send it to the trunk."""
    return b"".join(
        (
            ebpf.move(ebpf.R6, ebpf.R1),
            ebpf.load_word(ebpf.R1, ebpf.R6, ebpf.SKB_VLAN_PRESENT),
            ebpf.jump_if_equal(ebpf.R1, 0, 2),  # no tag: over the two lines that drop
            *ebpf.exit_program(ebpf.TC_ACT_SHOT),
            ebpf.move(ebpf.R1, ebpf.R6),
            ebpf.set_to(ebpf.R2, _TPID),
            ebpf.set_to(ebpf.R3, vlan_vid),
            ebpf.call(ebpf.VLAN_PUSH),
            *_redirect(ebpf.set_to(ebpf.R1, trunk_index)),
        )
    )


def trunk_program(ports: Mapping[int, int]) -> bytes:
    """Return the trunk's program: send a frame without its tag to the port of its VLAN, or drop it.

    ``ports`` are interface indices by VLAN id. R7 is the frame's VLAN id. Each choice, of two lines, sets R8 to a
    port's index, and jumps to the end if the VLAN is the port's: over the other choices and the two lines that drop.
    """
    choices: list[bytes] = []
    for number, (vid, index) in enumerate(ports.items(), 1):
        lines_to_end = 2 * (len(ports) - number) + 2
        choices += [ebpf.set_to(ebpf.R8, index), ebpf.jump_if_equal(ebpf.R7, vid, lines_to_end)]
    return b"".join(
        (
            ebpf.move(ebpf.R6, ebpf.R1),
            ebpf.load_word(ebpf.R7, ebpf.R6, ebpf.SKB_VLAN_PRESENT),
            ebpf.jump_if_equal(ebpf.R7, 0, 2 + len(choices)),  # no tag: to the two lines that drop
            ebpf.load_word(ebpf.R7, ebpf.R6, ebpf.SKB_VLAN_TCI),
            ebpf.and_with(ebpf.R7, _VID_MASK),
            *choices,
            *ebpf.exit_program(ebpf.TC_ACT_SHOT),
            ebpf.move(ebpf.R1, ebpf.R6),
            ebpf.call(ebpf.VLAN_POP),
            *_redirect(ebpf.move(ebpf.R1, ebpf.R8)),
        )
    )


def _redirect(index_to_r1: bytes) -> tuple[bytes, ...]:
    """Return the end of a program that sends the frame out of the interface whose index the given line puts in R1."""
    # R2 are the flags of bpf_redirect; 0x95 is the exit, with the verdict that bpf_redirect has returned in R0.
    return index_to_r1, ebpf.set_to(ebpf.R2, 0), ebpf.call(ebpf.REDIRECT), ebpf.instruction(0x95)
