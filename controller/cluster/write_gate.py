"""The gate for all messages to one switch: no message that changes the switch passes before MASTER is confirmed.

A new connection is EQUAL, may write next to a master and is not fenced by any generation id (docs/adr/0140). So the
gate is closed until the switch has confirmed the role MASTER under this node's generation. It closes for good when a
message finds that the node no longer holds that generation: the role must then be requested again.
"""

from __future__ import annotations

from collections.abc import Callable

from controller.openflow.bounded_reader import HEADER, Buffer
from controller.openflow.constants import MessageType, MultipartType

_READ_ONLY_TYPES = frozenset(
    {
        *(MessageType.HELLO, MessageType.ERROR, MessageType.ECHO_REQUEST, MessageType.ECHO_REPLY),
        *(MessageType.FEATURES_REQUEST, MessageType.GET_CONFIG_REQUEST, MessageType.MULTIPART_REQUEST),
        *(MessageType.BARRIER_REQUEST, MessageType.QUEUE_GET_CONFIG_REQUEST, MessageType.ROLE_REQUEST),
        MessageType.GET_ASYNC_REQUEST,
    }
)
_MULTIPART_TYPE_OFFSET, _MULTIPART_BODY_OFFSET = 8, 16  # bytes from the begin of a message


def is_read_only(data: Buffer) -> bool:
    """Return whether none of these OpenFlow messages, one after the other in ``data``, changes a switch.

    Role requests change nothing, nor do multipart requests, except table features with a body (7.3.5.5). Bytes that are
    no whole messages may change the switch.
    """
    offset = 0
    while offset + HEADER.size <= len(data):
        _version, message_type, length, _xid = HEADER.unpack_from(data, offset)
        if message_type not in _READ_ONLY_TYPES or length < HEADER.size:
            return False
        if message_type == MessageType.MULTIPART_REQUEST and length > _MULTIPART_BODY_OFFSET:
            type_offset = offset + _MULTIPART_TYPE_OFFSET
            if int.from_bytes(data[type_offset : type_offset + 2]) == MultipartType.TABLE_FEATURES:
                return False
        offset += length
    return offset == len(data)


class WriteGate:
    """The gate of one connection. ``held`` returns the generation that this node holds now, None without one."""

    def __init__(self, held: Callable[[], int | None] = lambda: None) -> None:
        self.held = held
        self._confirmed: int | None = None

    @property
    def is_open(self) -> bool:
        """Return whether messages that change the switch may pass."""
        return self._confirmed is not None and self._confirmed == self.held()

    def confirm(self, generation: int) -> None:
        """Record that the switch confirmed this node as its master under this generation."""
        self._confirmed = generation

    def close(self) -> None:
        """Hold back messages that change the switch until the next confirmation."""
        self._confirmed = None

    def allows(self, data: Buffer) -> bool:
        """Return whether these messages may pass now; if not, close the gate."""
        if self.is_open or is_read_only(data):
            return True
        self.close()
        return False
