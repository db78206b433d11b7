"""One controller's connection to a software switch: its role, and the messages in either direction."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from controller.openflow.constants import ControllerRole, MessageType
from experiments.switch import replies


@dataclass(eq=False)
class OpenFlowChannel:
    """A switch's state for one controller. A new connection is EQUAL (OpenFlow 1.3.5, section 6.3.6).

    ``messages`` are to be sent now. ``rest`` is the incomplete message at the end of the received bytes. ``broken``: a
    message had an impossible length, so the rest cannot be read. With injected faults ``late`` has replies with the
    times at which they are sent, and ``lagging`` received bytes with the times at which they are handled.
    """

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
