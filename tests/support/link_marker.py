"""Congestion marks on a link of the emulated fabric, where no queueing discipline of the kernel makes any.

An eBPF program at the egress of an interface keeps a virtual queue that is served at the link's rate. Packets that are
ECN-capable (RFC 3168) and find more than a threshold waiting get a mark (CE); no packet is held up or dropped. It looks
at the queue as it is in that instant. The interface holds the program. Standard library only.
"""

from __future__ import annotations

import os
import socket

from apps.agent import bpf

_NAME = b"dets_marker"
_KEY_AT = -4  # on the program's stack


def mark_at(interface: str, rate_bps: int, threshold_s: float, depth_s: float) -> None:
    """Mark what leaves an interface while more than ``threshold_s`` of a link of this rate would wait.

    No more than ``depth_s`` ever waits. OSError says what the kernel refused.
    """
    number = bpf.make_number()
    try:
        code = program(number, rate_bps, threshold_s, depth_s)
        bpf.run_at(bpf.EGRESS, socket.if_nametoindex(interface), code, _NAME)
    finally:
        os.close(number)


def program(empty_at: int, rate_bps: int, threshold_s: float, depth_s: float) -> bytes:
    """Return the program; ``empty_at`` is the map of the time at which the virtual queue will be empty, ns."""
    byte_ns, threshold_ns, depth_ns = round(8e9 / rate_bps), round(threshold_s * 1e9), round(depth_s * 1e9)
    return b"".join(
        (
            bpf.move(bpf.R6, bpf.R1),
            bpf.call(bpf.KTIME_GET_NS),
            bpf.move(bpf.R7, bpf.R0),
            bpf.set_to(bpf.R1, 0),
            bpf.store_word(bpf.R10, _KEY_AT, bpf.R1),
            *bpf.load_map(bpf.R1, empty_at),
            bpf.move(bpf.R2, bpf.R10),
            bpf.add_to(bpf.R2, _KEY_AT),
            bpf.call(bpf.MAP_LOOKUP),
            bpf.jump_unless_equal(bpf.R0, 0, 2),
            *bpf.leave(bpf.TC_ACT_OK),
            bpf.move(bpf.R8, bpf.R0),
            bpf.line(0x79, bpf.R1, bpf.R8),  # R1 = when it is empty
            bpf.line(0x3D, bpf.R1, bpf.R7, offset=1),  # R1 >= now, or else
            bpf.move(bpf.R1, bpf.R7),
            bpf.move(bpf.R9, bpf.R1),
            bpf.line(0x1F, bpf.R9, bpf.R7),  # R9 = what waits
            bpf.line(0x25, bpf.R9, offset=4, constant=depth_ns),  # full: it takes no more
            bpf.load_word(bpf.R2, bpf.R6, bpf.SKB_LEN),
            bpf.line(0x27, bpf.R2, constant=byte_ns),
            bpf.line(0x0F, bpf.R1, bpf.R2),
            bpf.line(0x7B, bpf.R8, bpf.R1),
            bpf.line(0xB5, bpf.R9, offset=2, constant=threshold_ns),  # R9 <= threshold: no mark
            bpf.move(bpf.R1, bpf.R6),
            bpf.call(bpf.ECN_SET_CE),
            *bpf.leave(bpf.TC_ACT_OK),
        )
    )
