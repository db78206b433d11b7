"""Ways in which what a switch sends can be wrong; for ``Datapath.faults.corrupt`` and ``Datapath.send_raw``.

datapath.faults.corrupt = once(MessageType.MULTIPART_REPLY, truncated)
datapath.send_raw(garbage(seed=1, size=100))
"""

from __future__ import annotations

import random
from collections.abc import Callable

from controller.openflow.constants import MessageType

Mangle = Callable[[bytes], bytes]


def truncated(buf: bytes) -> bytes:
    """Return the first half of a message whose header promises all of it: what follows is taken for the rest."""
    return buf[: len(buf) // 2]


def longer_than_it_is(buf: bytes) -> bytes:
    """Return the message with a length of 8 bytes too many in its header."""
    return buf[:2] + (len(buf) + 8).to_bytes(2) + buf[4:]


def cut_body(buf: bytes) -> bytes:
    """Return a message that is consistent in itself, but whose body ends 4 bytes early."""
    return buf[:2] + (len(buf) - 4).to_bytes(2) + buf[4:-4]


def refused_request(buf: bytes) -> bytes:
    """Return the error by which a switch refuses the request that ``buf`` answers (BAD_REQUEST / BAD_TYPE)."""
    xid = buf[4:8]
    request = bytes([buf[0], buf[1] - 1]) + (8).to_bytes(2) + xid  # replies have the number behind their request's
    return bytes([buf[0], MessageType.ERROR]) + (20).to_bytes(2) + xid + bytes([0, 1, 0, 1]) + request


def garbage(seed: int, size: int) -> bytes:
    """Return ``size`` random bytes, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def once(message_type: MessageType, mangle: Mangle) -> Mangle:
    """Return a fault for the next message of that type only."""
    return times(1, message_type, mangle)


def times(count: int, message_type: MessageType, mangle: Mangle) -> Mangle:
    """Return a fault for the next ``count`` messages of that type; -1: for all."""
    left = count

    def apply(buf: bytes) -> bytes:
        nonlocal left
        if left and len(buf) > 1 and buf[1] == message_type:
            left -= 1
            return mangle(buf)
        return buf

    return apply
