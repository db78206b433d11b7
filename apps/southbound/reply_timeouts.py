"""Timeouts of switches' replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from controller.errors import ProtocolError

# Time limit for a reply of a switch during bring-up or a comparison of its tables.
ANSWER_TIMEOUT_S = 10.0
MAX_REPLY_S = 60.0  # time limit for a complete reply
STALL_TOLERANCE_S = 0.2  # delay of a wait's end that shows a stalled process


class PendingReply(Protocol):
    """A pending reply; ``arrived_s`` is when its last part so far arrived."""

    arrived_s: float

    def wait(self, timeout_s: float) -> bytes | None:
        """Return the reply, or None if it is incomplete in time."""


def await_reply(reply: PendingReply, clock: Callable[[], float]) -> bytes:
    """Wait for a reply and return its body.

    Raises ProtocolError if no part of the reply arrives for ANSWER_TIMEOUT_S, if the reply is incomplete after
    MAX_REPLY_S, or if it is malformed. A wait that ended more than STALL_TOLERANCE_S late does not count: during that
    time the process was stopped or busy, and did not read the socket.
    """
    idle_since_s = clock()
    last_due_s = idle_since_s + MAX_REPLY_S
    while True:
        idle_since_s = max(idle_since_s, reply.arrived_s)
        due_s = min(idle_since_s + ANSWER_TIMEOUT_S, last_due_s)
        body = reply.wait(due_s - clock())
        if body is not None:
            return body
        late_s = clock() - due_s
        if late_s > STALL_TOLERANCE_S:
            idle_since_s, last_due_s = clock(), last_due_s + late_s
        elif due_s >= last_due_s:
            raise ProtocolError(f"no end of its answer within {MAX_REPLY_S:g} s")
        elif reply.arrived_s <= idle_since_s:
            raise ProtocolError(f"no answer within {ANSWER_TIMEOUT_S:g} s")
