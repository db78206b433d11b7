"""What every message to one switch passes: nothing that changes the switch goes out before it confirmed the role.

A new connection is EQUAL, may write next to a master and is not fenced by any generation id (docs/adr/0140). So the
gate is closed until the switch has confirmed the role MASTER under the generation that this node holds, and closes
for good as soon as a message finds that it holds that generation no more: the switch then has to be asked again.
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
_MULTIPART_TYPE_AT, _MULTIPART_BODY_AT = 8, 16


def is_read_only(data: Buffer) -> bool:
    """Return whether no message of these changes a switch: requests for roles do not, multipart requests with one
    exception neither (table features with a body set them, 7.3.5.5). Bytes that are no whole messages may change it.
    """
    offset = 0
    while offset + HEADER.size <= len(data):
        _version, kind, length, _xid = HEADER.unpack_from(data, offset)
        if kind not in _READ_ONLY_TYPES or length < HEADER.size:
            return False
        if kind == MessageType.MULTIPART_REQUEST and length > _MULTIPART_BODY_AT:
            what = int.from_bytes(data[offset + _MULTIPART_TYPE_AT : offset + _MULTIPART_TYPE_AT + 2])
            if what == MultipartType.TABLE_FEATURES:
                return False
        offset += length
    return offset == len(data)


class WriteGate:
    """The gate of one connection. ``held`` returns the generation that this node holds now, None if it holds none."""

    def __init__(self, held: Callable[[], int | None] = lambda: None) -> None:
        self.held = held
        self._confirmed: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether messages that change the switch may go out."""
        return self._confirmed is not None and self._confirmed == self.held()

    def confirm(self, generation: int) -> None:
        """The switch has confirmed that this node is its master under this generation."""
        self._confirmed = generation

    def close(self) -> None:
        """Let nothing more out that changes the switch until it confirms again."""
        self._confirmed = None

    def allows(self, data: Buffer) -> bool:
        """Return whether these messages may go out now; if not, the gate is closed from then on."""
        if self.is_open or is_read_only(data):
            return True
        self.close()
        return False
