"""A client of a web server on the model: sessions of requests on persistent connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.model.tcp import TcpSource

Answers = tuple[int, ...]
"""The bytes of the answers of one session, one after another."""


@dataclass(slots=True)
class _Busy:
    """A connection that serves a session: the bytes of its remaining answers, and the time of the pending request."""

    left: deque[int]
    wanted_s: float


class RequestClient:
    """A web client: each session takes a free connection, or waits for one, first come, first served.

    A session makes a request when it has a connection and the previous answer has arrived. The connections are TCP
    sources at the server. The time of a request is that of an acknowledgement, which the sources include: so an answer
    is timed at the server, from its first segment to the acknowledgement of its last.
    """

    def __init__(
        self, sessions: Sequence[tuple[float, Answers]], connections: Sequence[TcpSource], slot_s: float
    ) -> None:
        self._waiting = deque(sessions)
        self._connections, self._slot_s = connections, slot_s
        self._busy: dict[int, _Busy] = {}
        self._rows: list[tuple[float, float]] = []

    def step(self, slot: int) -> None:
        """Collect the answers that have arrived, and make the requests that are due; called once in every slot."""
        now_s = slot * self._slot_s
        for number, busy in list(self._busy.items()):
            source = self._connections[number]
            if not source.transferring:
                answered_s = source.transfers[-1].ended_s
                assert answered_s is not None
                self._rows.append((busy.wanted_s, answered_s))
                busy.wanted_s = now_s  # of the next request
                if busy.left:
                    source.transfer(busy.left.popleft(), slot)
                else:
                    del self._busy[number]
        while self._waiting and self._waiting[0][0] <= now_s and len(self._busy) < len(self._connections):
            begin_s, answers = self._waiting.popleft()
            number = next(n for n in range(len(self._connections)) if n not in self._busy)
            # The first request's time includes the wait for a connection.
            self._busy[number] = _Busy(deque(answers[1:]), begin_s)
            self._connections[number].transfer(answers[0], slot)

    def rows(self, end_s: float) -> list[tuple[float, float | None]]:
        """Return (requested, answered) of every request in seconds of the model; None: not answered by ``end_s``.

        A session that got no connection counts as one request without an answer.
        """
        open_s = [busy.wanted_s for busy in self._busy.values()]
        open_s += [begin_s for begin_s, _ in self._waiting if begin_s < end_s]
        return [*self._rows, *((at_s, None) for at_s in open_s)]
