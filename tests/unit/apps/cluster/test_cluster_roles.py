"""Which role is asked for when, and what a switch's answer leads to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apps.cluster.role_manager import RoleManager
from apps.runtime.connection.connection_limits import EvictionReason
from controller.cluster.leadership import Leadership, LeaseSnapshot
from controller.cluster.write_gate import WriteGate
from controller.errors import ProtocolError, SwitchReplyError
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import ControllerRole
from controller.openflow.messages import encode_role_request

TTL_S = 3.0
MASTER, SLAVE = ControllerRole.MASTER, ControllerRole.SLAVE


class FakeReply:
    """An answer that is there already: the role that was asked for, nothing, or a refusal."""

    def __init__(self, body: bytes | Exception | None) -> None:
        self.body = body

    def wait(self, timeout_s: float) -> bytes | None:
        if isinstance(self.body, Exception):
            raise self.body
        return self.body


class FakeConnection:
    """A switch's connection: what is asked for is kept, and answered by ``answer``."""

    def __init__(self, held: Callable[[], int | None], dpid: int = 1) -> None:
        self.dpid, self.closed = dpid, False
        self.gate = WriteGate(held)
        self.asked: list[tuple[int, int]] = []
        self.answer: Exception | bytes | None = b""
        self.on_report: Any = None
        self.on_close: Any = None
        self.cut: list[EvictionReason | None] = []

    def keep(self) -> None: ...

    def ask(self, encode: Callable[[int], bytes]) -> FakeReply:
        body = encode(1)[HEADER.size :]
        self.asked.append((int.from_bytes(body[:4]), int.from_bytes(body[8:])))
        return FakeReply(body if self.answer == b"" else self.answer)

    def disconnect(self, reason: EvictionReason | None = None) -> None:
        self.cut.append(reason)
        self.closed = True


class Run:
    """Roles with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 10.0
        self.leadership = Leadership(TTL_S)
        self.roles = RoleManager(
            lambda dpid: self.leadership.desired_role(self.now_s),
            lambda dpid: self.leadership.active_generation(self.now_s),
            lambda: self.now_s,
            lambda function, *arguments: function(*arguments),
        )
        self.controlled: list[int] = []
        self.released: list[int] = []
        self.roles.control = lambda connection: self.controlled.append(connection.dpid)
        self.roles.release = lambda connection: self.released.append(connection.dpid)

    def hear(self, generation: int, *, mine: bool) -> None:
        self.leadership.update(LeaseSnapshot(self.now_s, 7, "n", 7 if mine else 8, generation))
        self.roles.round()

    def connect(self) -> Any:
        connection = FakeConnection(lambda: self.leadership.active_generation(self.now_s))
        self.roles.on_connected(connection)  # type: ignore[arg-type]
        return connection


@pytest.fixture
def run() -> Run:
    return Run()


def test_nothing_is_asked_before_it_is_known_who_is_active_and_master_once_by_that_node(run: Run) -> None:
    switch = run.connect()
    assert (switch.asked, run.controlled, switch.gate.is_open) == ([], [], False)
    for _ in range(3):
        run.hear(5, mine=True)
    assert (switch.asked, run.controlled, switch.gate.is_open) == ([(MASTER, 5)], [1], True)


def test_the_standby_is_a_slave_under_the_generation_of_the_active_node(run: Run) -> None:
    run.hear(5, mine=False)
    switch = run.connect()
    assert (switch.asked, run.controlled, switch.gate.is_open) == ([(SLAVE, 5)], [], False)
    run.hear(6, mine=False)
    run.hear(7, mine=True)
    assert switch.asked == [(SLAVE, 5), (SLAVE, 6), (MASTER, 7)]
    assert run.controlled == [1]


def test_a_lease_that_has_run_out_releases_the_switch_and_the_same_key_has_to_be_confirmed_again(run: Run) -> None:
    switch = run.connect()
    run.hear(5, mine=True)
    run.now_s += TTL_S
    run.roles.round()
    assert (run.released, switch.gate.is_open) == ([1], False)
    run.hear(5, mine=True)
    assert switch.asked == [(MASTER, 5), (MASTER, 5)]
    assert (run.controlled, switch.gate.is_open) == ([1, 1], True)


@pytest.mark.parametrize("refusal", ["ROLE_REQUEST_FAILED / STALE", "ROLE_REQUEST_FAILED / UNSUP"])
def test_a_refused_generation_is_never_asked_for_again(run: Run, refusal: str) -> None:
    switch = run.connect()
    switch.answer = SwitchReplyError(refusal)
    for _ in range(5):
        run.hear(5, mine=True)
    assert (switch.asked, run.controlled, run.roles.refused) == ([(MASTER, 5)], [], 1)
    switch.answer = b""
    run.hear(6, mine=True)
    assert run.controlled == [1]


def test_is_slave_closes_the_gate_and_the_same_generation_is_not_asked_for_again(run: Run) -> None:
    switch = run.connect()
    run.hear(5, mine=True)
    run.roles.on_demoted(switch)
    for _ in range(5):
        run.hear(5, mine=True)
    assert (run.released, switch.asked, switch.gate.is_open) == ([1], [(MASTER, 5)], False)


@pytest.mark.parametrize("answer", [None, encode_role_request(1, SLAVE, 5)[HEADER.size :], ProtocolError("malformed")])
def test_a_switch_that_does_not_confirm_has_to_connect_again(run: Run, answer: bytes | Exception | None) -> None:
    switch = run.connect()
    switch.answer = answer
    run.hear(5, mine=True)
    assert (switch.cut, run.controlled) == ([None], [])
    assert run.roles.connection(1) is None


def test_a_second_connection_replaces_the_first(run: Run) -> None:
    run.hear(5, mine=False)
    first = run.connect()
    second = run.connect()
    assert (first.cut, run.roles.connection(1)) == ([EvictionReason.REPLACED], second)
    second.on_close()
    assert run.roles.connection(1) is None
