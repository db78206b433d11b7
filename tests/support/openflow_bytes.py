"""Messages of switches, packed field by field (OpenFlow 1.3.5, sections 7.1, 7.3.5 and A.3.5)."""

from __future__ import annotations

import struct

from controller.openflow.constants import VERSION, MessageType, MultipartType


def message(kind: int, length: int = 8, *, version: int = VERSION, xid: int = 5) -> bytes:
    """Return a message whose body is zeros; a ``length`` below 8 stands in its header only."""
    return struct.pack("!BBHI", version, kind, length, xid) + bytes(max(length - 8, 0))


def multipart_reply(xid: int, body: bytes, what: int = MultipartType.METER, flags: int = 0) -> bytes:
    """Return a multipart reply, or a part of one."""
    head = struct.pack("!BBHIHH4x", VERSION, MessageType.MULTIPART_REPLY, 16 + len(body), xid, what, flags)
    return head + body


def meter_records(*meter_ids: int) -> bytes:
    """Return the body of a meter-stats reply: meters of one band, each of which has counted a thousand bytes."""
    return b"".join(struct.pack("!IH6xIQQIIQQ", one, 56, 1, 10, 1000, 9, 0, 0, 0) for one in meter_ids)
