"""Congestion marks on a link of the emulated fabric, where no queueing discipline of the kernel makes any.

An eBPF program at the egress of an interface keeps a virtual queue that is served at the link's rate. Packets that are
ECN-capable (RFC 3168) and find more than a threshold waiting get a mark (CE); no packet is held up or dropped. It looks
at the queue as it is in that instant. The interface holds the program. Standard library only.
"""

from __future__ import annotations

import os
import socket

from apps.agent import ebpf

_NAME = b"dets_marker"
_KEY_AT = -4  # on the program's stack


def mark_at(interface: str, rate_bps: int, threshold_s: float, depth_s: float) -> None:
    """Mark what leaves an interface while more than ``threshold_s`` of a link of this rate would wait.

    No more than ``depth_s`` ever waits. OSError says what the kernel refused.
    """
    number = ebpf.create_counter_map()
    try:
        code = program(number, rate_bps, threshold_s, depth_s)
        ebpf.run_at(ebpf.EGRESS, socket.if_nametoindex(interface), code, _NAME)
    finally:
        os.close(number)


def program(empty_at: int, rate_bps: int, threshold_s: float, depth_s: float) -> bytes:
    """Return the program; ``empty_at`` is the map of the time at which the virtual queue will be empty, ns."""
    byte_ns, threshold_ns, depth_ns = round(8e9 / rate_bps), round(threshold_s * 1e9), round(depth_s * 1e9)
    return b"".join(
        (
            ebpf.move(ebpf.R6, ebpf.R1),
            ebpf.call(ebpf.KTIME_GET_NS),
            ebpf.move(ebpf.R7, ebpf.R0),
            ebpf.set_to(ebpf.R1, 0),
            ebpf.store_word(ebpf.R10, _KEY_AT, ebpf.R1),
            *ebpf.load_map(ebpf.R1, empty_at),
            ebpf.move(ebpf.R2, ebpf.R10),
            ebpf.add_to(ebpf.R2, _KEY_AT),
            ebpf.call(ebpf.MAP_LOOKUP),
            ebpf.jump_unless_equal(ebpf.R0, 0, 2),
            *ebpf.exit_program(ebpf.TC_ACT_OK),
            ebpf.move(ebpf.R8, ebpf.R0),
            ebpf.instruction(0x79, ebpf.R1, ebpf.R8),  # R1 = when it is empty
            ebpf.instruction(0x3D, ebpf.R1, ebpf.R7, offset=1),  # R1 >= now, or else
            ebpf.move(ebpf.R1, ebpf.R7),
            ebpf.move(ebpf.R9, ebpf.R1),
            ebpf.instruction(0x1F, ebpf.R9, ebpf.R7),  # R9 = what waits
            ebpf.instruction(0x25, ebpf.R9, offset=4, constant=depth_ns),  # full: it takes no more
            ebpf.load_word(ebpf.R2, ebpf.R6, ebpf.SKB_LEN),
            ebpf.instruction(0x27, ebpf.R2, constant=byte_ns),
            ebpf.instruction(0x0F, ebpf.R1, ebpf.R2),
            ebpf.instruction(0x7B, ebpf.R8, ebpf.R1),
            ebpf.instruction(0xB5, ebpf.R9, offset=2, constant=threshold_ns),  # R9 <= threshold: no mark
            ebpf.move(ebpf.R1, ebpf.R6),
            ebpf.call(ebpf.ECN_SET_CE),
            *ebpf.exit_program(ebpf.TC_ACT_OK),
        )
    )
