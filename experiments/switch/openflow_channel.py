"""One controller's connection to a software switch: its role, and the messages in either direction."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controller.openflow.constants import ControllerRole, MessageType
from experiments.switch import replies


@dataclass(eq=False)
class OpenFlowChannel:
    """A switch's state for one controller. A new connection is EQUAL (OpenFlow 1.3.5, section 6.3.6)."""

    role: ControllerRole = ControllerRole.EQUAL
    messages: list[bytes] = field(default_factory=list)
    rest: bytes = b""
    miss_send_len: int = 128
    broken: bool = False
    late: list[tuple[float, bytes]] = field(default_factory=list)
    lagging: deque[tuple[float, bytes]] = field(default_factory=deque)

    def start(self) -> None:
        """Start again: HELLO first, nothing left over from the last connection."""
        vars(self).update(vars(OpenFlowChannel(messages=[replies.message(MessageType.HELLO, 0)])))
