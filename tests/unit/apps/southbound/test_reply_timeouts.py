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

    def awaited(self) -> bytes:
        return await_reply(self, self.clock)


def test_a_switch_that_says_nothing_is_given_up() -> None:
    answer = Answer()
    with pytest.raises(ProtocolError, match="no answer within 10 s"):
        answer.awaited()
    assert answer.now_s == ANSWER_TIMEOUT_S


def test_a_long_answer_may_take_its_time_as_long_as_parts_of_it_come() -> None:
    answer = Answer(9.0, 18.0, 27.0, 36.0)
    assert answer.awaited() == b"all of it"
    assert answer.now_s == 36.0


def test_one_that_stops_in_the_middle_is_given_up_then() -> None:
    answer = Answer(9.0, 18.0, 60.0)
    with pytest.raises(ProtocolError, match="no answer"):
        answer.awaited()
    assert answer.now_s == 18.0 + ANSWER_TIMEOUT_S


def test_time_in_which_the_process_heard_nobody_does_not_count() -> None:
    answer = Answer(14.5, busy_s=4.0)
    assert answer.awaited() == b"all of it"
    silent = Answer(busy_s=4.0)
    with pytest.raises(ProtocolError, match="no answer"):
        silent.awaited()
    assert silent.now_s == 14.0 + ANSWER_TIMEOUT_S


def test_an_answer_without_an_end_is_given_up_though_parts_of_it_come() -> None:
    answer = Answer(*(5.0 * number for number in range(1, 30)))
    with pytest.raises(ProtocolError, match="no end of its answer within 60 s"):
        answer.awaited()
    assert answer.now_s == MAX_REPLY_S


def test_the_end_may_come_later_when_the_process_heard_nobody() -> None:
    answer = Answer(*(5.0 * number for number in range(1, 13)), 62.0, busy_s=0.0)
    answer._parts_s[:1] = []  # nothing comes before 10 s, and the wait for it ends late
    answer._busy_s = 4.0
    assert answer.awaited() == b"all of it"
