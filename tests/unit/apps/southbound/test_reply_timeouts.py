"""How long an answer of a switch is waited for, on a manual clock."""

from __future__ import annotations

import pytest

from apps.southbound.reply_timeouts import ANSWER_TIMEOUT_S, MAX_REPLY_S, await_reply
from controller.errors import ProtocolError


class Answer:
    """A reply whose parts come at ``parts_s``, and the clock; a wait ends ``busy_s`` after it should."""

    def __init__(self, *parts_s: float, busy_s: float = 0.0) -> None:
        self.now_s, self.arrived_s, self._parts_s, self._busy_s = 0.0, float("-inf"), list(parts_s), busy_s

    def clock(self) -> float:
        return self.now_s

    def wait(self, timeout_s: float) -> bytes | None:
        ends_s = self.now_s + max(timeout_s, 0.0)
        while self._parts_s and self._parts_s[0] <= ends_s:
            self.arrived_s = self._parts_s.pop(0)
            if not self._parts_s:
                self.now_s = self.arrived_s
                return b"all of it"
        self.now_s, self._busy_s = ends_s + self._busy_s, 0.0
        return None


EVERY_5_S = [5.0 * number for number in range(1, 30)]


@pytest.mark.parametrize(
    ("answer", "error", "ended_s"),
    [
        pytest.param(Answer(), "no answer within 10 s", ANSWER_TIMEOUT_S, id="nothing comes"),
        pytest.param(Answer(9.0, 18.0, 27.0, 36.0), None, 36.0, id="it is long, and parts of it come"),
        pytest.param(Answer(9.0, 18.0, 60.0), "no answer", 18.0 + ANSWER_TIMEOUT_S, id="it stops in the middle"),
        pytest.param(Answer(14.5, busy_s=4.0), None, 14.5, id="it comes while the process hears nobody"),
        pytest.param(Answer(busy_s=4.0), "no answer", 14.0 + ANSWER_TIMEOUT_S, id="nothing comes after that either"),
        pytest.param(Answer(*EVERY_5_S), "no end of its answer within 60 s", MAX_REPLY_S, id="it has no end"),
        pytest.param(Answer(*EVERY_5_S[1:12], 62.0, busy_s=4.0), None, 62.0, id="its end is later by such a time"),
    ],
)
def test_an_answer_is_awaited_while_parts_of_it_come(answer: Answer, error: str | None, ended_s: float) -> None:
    if error is None:
        assert await_reply(answer, answer.clock) == b"all of it"
    else:
        with pytest.raises(ProtocolError, match=error):
            await_reply(answer, answer.clock)
    assert answer.now_s == ended_s
