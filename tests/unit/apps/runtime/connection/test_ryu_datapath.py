"""A switch under control: its replies are read with all others', and whatever else it sends holds up itself alone."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import support.framework  # noqa: F401
from eventlet import patcher
from eventlet.greenio import GreenSocket
from ryu.base import app_manager
from ryu.controller import ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, register_instance
from ryu.controller.ofp_handler import OFPHandler
from ryu.lib import hub
from support.openflow_bytes import message, meter_records, multipart_reply

from apps.runtime.connection.connection_limits import SWITCH_ALLOWANCE
from apps.runtime.connection.ryu_datapath import READER, PeerDatapath
from apps.runtime.connection.switch_connection import SwitchConnection, send_bulk_request
from apps.runtime.sockets import native as native_sockets
from controller.errors import ProtocolError
from controller.openflow.constants import MULTIPART_REPLY_MORE, VERSION, MessageType
from controller.openflow.meters import METER_STATS
from controller.openflow.multipart import encode_meter_stats_request


class Switch:
    """A connection on loopback; ``reports`` gathers what the switch reports, and ends with ``loop``."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.end = socket.create_connection(server.getsockname())
            accepted, address = server.accept()
        plain = self.plain = patcher.original("socket").socket(
            fileno=accepted.detach()
        )  # of which eventlet makes its own
        plain.setblocking(False)
        self.datapath = PeerDatapath(GreenSocket(plain), address)
        self.datapath.state = MAIN_DISPATCHER
        self.datapath.id = 1
        self.connection = self.datapath.connection = SwitchConnection(self.datapath, lambda: 0.0)
        self.reports: list[int] = []
        self.acts = True
        self.connection.on_report = self._report
        self.datapath.keep()
        self.loop = hub.spawn(self._run)
        self.ended = False
        hub.sleep(0.0)

    def _report(self, _kind: int, message: bytes) -> bool:
        self.reports.append(int.from_bytes(message[4:8]))
        return self.acts

    def _run(self) -> None:
        self.datapath._receive_loop()
        self.ended = True

    def says(self, kind: MessageType, *xids: int) -> bytes:
        return b"".join(message(kind, xid=xid) for xid in xids)


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Switch]]:
    nobody = SimpleNamespace(observers={}, send_event_to_observers=lambda *_event: None)
    monkeypatch.setitem(app_manager.SERVICE_BRICKS, "ofp_event", nobody)
    made = [Switch(), Switch()]
    wait_for(lambda: all(switch.datapath.direct_send_socket() is not None for switch in made))
    yield made
    for switch in made:
        switch.end.close()
        switch.datapath.close()
        wait_for(lambda switch=switch: switch.loop.dead)
        switch.plain.close()


def wait_for(condition: Any) -> None:
    """Give others their turn until it is so; a test that waits in vain fails."""
    for _ in range(200):
        if condition():
            return
        hub.sleep(0.005)
    raise AssertionError("it is waited for in vain")


def test_replies_and_reports_in_one_piece_are_all_taken(switches: list[Switch]) -> None:
    switch, _other = switches
    first, second = switch.connection.barrier(), switch.connection.barrier()
    late = switch.connection.barrier()
    data = switch.says(MessageType.BARRIER_REPLY, first.xid) + switch.says(MessageType.ERROR, 77)
    switch.end.send(data + switch.says(MessageType.BARRIER_REPLY, second.xid))
    wait_for(lambda: second.done)
    assert (first.done, switch.reports) == (True, [77])
    switch.end.send(switch.says(MessageType.BARRIER_REPLY, late.xid)[:5])
    hub.sleep(0.01)
    assert not late.done
    switch.end.send(switch.says(MessageType.BARRIER_REPLY, late.xid)[5:])
    wait_for(lambda: late.done)  # it goes on by the shared reader after a report


def test_one_that_has_used_up_its_allowance_waits_alone(
    switches: list[Switch], monkeypatch: pytest.MonkeyPatch
) -> None:
    loud, quiet = switches
    now_s, cost_s, count = 0.0, 0.001, 100
    of_interval = round(SWITCH_ALLOWANCE.processing_s / cost_s)

    def process(_kind: int, message: bytes) -> bool:
        nonlocal now_s
        now_s += cost_s
        loud.reports.append(int.from_bytes(message[4:8]))
        return True

    monkeypatch.setattr(PeerDatapath, "clock", lambda: now_s)
    loud.datapath.keep()
    loud.connection.on_report = process
    loud.end.send(loud.says(MessageType.ERROR, *range(count)))
    wait_for(lambda: len(loud.reports) >= of_interval)
    assert len(loud.reports) < 2 * of_interval
    reply = quiet.connection.barrier()
    quiet.end.send(quiet.says(MessageType.BARRIER_REPLY, reply.xid))
    wait_for(lambda: reply.done)
    assert len(loud.reports) < count

    def time_passes() -> bool:
        nonlocal now_s
        now_s += 1.0
        return len(loud.reports) == count

    wait_for(time_passes)
    assert loud.reports == list(range(count))


def test_others_run_between_messages_that_take_long(switches: list[Switch]) -> None:
    loud, _quiet = switches
    turns: list[int] = []

    def process(_kind: int, _message: bytes) -> bool:
        loud.reports.append(len(turns))
        end_s = time.monotonic() + 0.004  # more than a slice, less than the allowance
        while time.monotonic() < end_s:
            pass
        return True

    def take_turns() -> None:
        while len(loud.reports) < 2:
            turns.append(len(loud.reports))
            hub.sleep(0.0)

    loud.connection.on_report = process
    other = hub.spawn(take_turns)
    loud.end.send(loud.says(MessageType.ERROR, 1, 2))
    wait_for(lambda: other.dead)
    assert 1 in turns, "another greenlet ran between the two messages"


def test_reports_that_nobody_looks_at_take_the_allowance_of_replies(
    switches: list[Switch], monkeypatch: pytest.MonkeyPatch
) -> None:
    loud, _other = switches
    monkeypatch.setattr(PeerDatapath, "clock", lambda: 0.0)
    loud.datapath.keep()
    loud.acts = False
    loud.end.send(loud.says(MessageType.PACKET_IN, *range(2 * SWITCH_ALLOWANCE.messages)))
    wait_for(lambda: len(loud.reports) >= SWITCH_ALLOWANCE.messages)
    assert len(loud.reports) == SWITCH_ALLOWANCE.messages, "no time passes, so that it is never given another allowance"


def test_errors_go_to_applications_and_not_to_the_framework_which_fails_at_some(
    switches: list[Switch], monkeypatch: pytest.MonkeyPatch
) -> None:
    switch, _other = switches
    events: list[Any] = []
    brick = switch.datapath.ofp_brick
    monkeypatch.setattr(brick, "observers", {ofp_event.EventOFPErrorMsg: {"other application": {MAIN_DISPATCHER}}})
    monkeypatch.setattr(brick, "send_event_to_observers", lambda event, _state: events.append(event.msg.data))
    framework = OFPHandler()
    register_instance(framework)
    brick.get_handlers = framework.get_handlers
    not_ascii = struct.pack("!BBHIHH", VERSION, MessageType.ERROR, 13, 0, 0, 0) + b"\xff"
    switch.end.send(not_ascii * 2)
    wait_for(lambda: len(events) == 2 or switch.loop.dead)
    assert (events, switch.loop.dead) == ([b"\xff"] * 2, False)


def test_replies_count_towards_the_allowance(switches: list[Switch]) -> None:
    loud, _other = switches
    asked = [loud.connection.barrier() for _ in range(SWITCH_ALLOWANCE.messages + 10)]
    loud.end.send(loud.says(MessageType.BARRIER_REPLY, *(reply.xid for reply in asked)))
    wait_for(lambda: asked[SWITCH_ALLOWANCE.messages // 2].done)
    assert not asked[-1].done
    wait_for(lambda: asked[-1].done)


def test_a_handler_that_fails_ends_its_own_connection_alone(switches: list[Switch]) -> None:
    broken, quiet = switches
    broken.connection.accept_reply = lambda *_message: 1 / 0  # type: ignore[method-assign]
    broken.end.send(broken.says(MessageType.BARRIER_REPLY, 1))
    reply = quiet.connection.barrier()
    wait_for(lambda: broken.loop.dead)
    quiet.end.send(quiet.says(MessageType.BARRIER_REPLY, reply.xid))
    wait_for(lambda: reply.done)


def test_the_loop_ends_when_the_switch_hangs_up(switches: list[Switch]) -> None:
    switch, other = switches
    switch.end.close()
    wait_for(lambda: switch.ended)
    other.datapath.close()
    wait_for(lambda: other.ended)


def answer(xid: int, meters: int = 2, first: int = 0, flags: int = 0) -> bytes:
    """Return a meter-stats reply."""
    return multipart_reply(xid, meter_records(*range(first, first + meters)), flags=flags)


def parts(xid: int) -> tuple[bytes, bytes]:
    """Return the same in two parts."""
    return answer(xid, 1, flags=MULTIPART_REPLY_MORE), answer(xid, 1, first=1)


def called(*switches: Switch) -> list[int]:
    """Call switches of two meters each; return the xids that they are asked with."""
    for switch in switches:
        wait_for(lambda switch=switch: switch.datapath.direct_socket() is not None)
    xids = [switch.connection.reserve(1) for switch in switches]
    filenos = [
        switch.connection.call(READER.meters, encode_meter_stats_request(xid), xid, 1)
        for switch, xid in zip(switches, xids, strict=True)
    ]
    READER.meters.expect([])  # for the same meters as before it would keep what it has, whatever a message holds now
    READER.meters.expect([2] * len(xids))
    READER.meters.start([fileno for fileno in filenos if fileno is not None], xids)
    return xids


def in_pieces(xid: int) -> list[bytes]:
    """Return an answer in two parts that come in two other pieces."""
    data = b"".join(parts(xid))
    return [data[:100], data[100:]]


@pytest.mark.parametrize(("most_meters", "pieces"), [(2, lambda xid: [answer(xid)]), (1, in_pieces)])
def test_a_bulk_request_is_answered_in_one_message_or_in_parts(
    switches: list[Switch], most_meters: int, pieces: Callable[[int], list[bytes]]
) -> None:
    with patch("apps.runtime.sockets.bulk_request._MAX_METERS", most_meters):
        for switch, xid in zip(switches, called(*switches), strict=True):
            for piece in pieces(xid):
                switch.end.send(piece)
                hub.sleep(0.01)
        assert READER.meters.wait(5.0)
    assert not np.isnan(READER.meters.at_s).any()
    assert READER.meters.stats["meter_id"].tolist() == READER.meters.meter_id.tolist() == [0, 1, 0, 1]
    assert all(switch.connection._awaited == {} for switch in switches)
    assert all(switch.datapath._budget._octets == 0 for switch in switches), "it is no more than was asked for"


@pytest.mark.parametrize("before", [b"", message(MessageType.ERROR, xid=77)])
def test_an_answer_that_comes_otherwise_is_awaited_as_any_reply(switches: list[Switch], before: bytes) -> None:
    switch, other = switches
    xid, its_xid = called(switch, other)
    other.end.send(answer(its_xid))
    data = before + answer(xid)
    switch.end.send(data[:40])
    assert READER.meters.wait(5.0), "it is not waited for in the bulk request"
    reply = switch.connection.fall_back(READER.meters)
    switch.end.send(data[40:])
    wait_for(lambda: reply.done)
    assert reply.wait(0.0) == answer(xid)[16:]
    assert np.isnan(READER.meters.at_s).tolist() == [True, False]
    assert switch.reports == [77] * (before != b"")
    (xid,) = called(switch)
    switch.end.send(answer(xid))
    assert READER.meters.wait(5.0)
    assert not np.isnan(READER.meters.at_s).any(), "the next answer is read with all others again"


@patch("apps.runtime.sockets.bulk_request._MAX_METERS", 1)  # so few meters are in one message
@pytest.mark.parametrize("between", [b"", message(MessageType.ERROR, xid=77)])
@pytest.mark.parametrize("cut", [0, 40])
def test_what_came_before_a_bulk_request_ended_is_part_of_the_reply(
    switches: list[Switch], between: bytes, cut: int
) -> None:
    switch, other = switches
    xid, its_xid = called(switch, other)
    other.end.send(answer(its_xid))
    one, two = parts(xid)
    two = between + two
    switch.end.send(one + two[:cut])
    wait_for(lambda: READER.meters.filled.any() or switch.connection._awaited)
    hub.sleep(0.01)
    reply = switch.connection.fall_back(READER.meters)
    assert not reply.done
    assert switch.connection._held_octets == reply.octets == METER_STATS.itemsize
    switch.end.send(two[cut:])
    wait_for(lambda: reply.done)
    assert reply.begun is not None
    assert reply.begun["meter_id"].tolist() == [0]
    assert reply.wait(0.0) == answer(xid, 1, first=1)[16:]
    assert switch.reports == [77] * (between != b"")
    assert switch.connection._held_octets == 0


def test_answers_beyond_what_was_asked_for_take_the_allowance(switches: list[Switch]) -> None:
    loud, _other = switches
    (xid,) = called(loud)
    loud.end.send(4 * answer(xid))
    wait_for(lambda: PeerDatapath.counts.dropped["nobody asked"])
    wait_for(lambda: loud.datapath._budget._messages == 3)


def test_a_switch_that_hangs_up_in_the_middle_is_not_waited_for(switches: list[Switch]) -> None:
    gone, _other = switches
    (xid,) = called(gone)
    gone.end.send(answer(xid)[:70])
    gone.end.close()
    assert READER.meters.wait(5.0)
    wait_for(lambda: gone.ended)
    gone.datapath._end()
    with pytest.raises(ProtocolError, match="disconnected"):
        gone.connection.fall_back(READER.meters).wait(0.0)
    assert gone.connection.call(READER.meters, b"", 1, 1) is None


def test_a_switch_that_refuses_a_bulk_request_says_so(switches: list[Switch]) -> None:
    switch, _other = switches
    (xid,) = called(switch)
    assert switch.connection.fail(xid, ProtocolError("METERS ARE OFF"))
    assert READER.meters.wait(0.0)
    with pytest.raises(ProtocolError, match="METERS ARE OFF"):
        switch.connection.fall_back(READER.meters).wait(0.0)


def test_all_are_asked_at_once_each_with_its_own_xid(switches: list[Switch]) -> None:
    switches[0].datapath.xid, switches[1].datapath.xid = 0, 0xFFFFFFFE
    lanes = send_bulk_request(READER.meters, [switch.connection for switch in switches], encode_meter_stats_request)
    assert lanes == [(switches[0].datapath.fileno, 1), (switches[1].datapath.fileno, 0xFFFFFFFF)]
    for switch, (_fileno, xid) in zip(switches, lanes, strict=True):
        assert switch.end.recv(100) == encode_meter_stats_request(xid)
        assert switch.connection.count.sent == 1


def test_a_switch_that_does_not_read_gets_its_request_behind_what_waits(switches: list[Switch]) -> None:
    full, other = switches
    with suppress(BlockingIOError):
        while True:
            full.plain.send(bytes(100_000))
    connections = [full.connection, other.connection]
    lanes = send_bulk_request(READER.meters, connections, encode_meter_stats_request)
    assert all(lanes), "its answer may come in time"
    assert full.datapath._queue.octets == len(encode_meter_stats_request(0))
    assert other.datapath._queue.octets == 0
    assert full.datapath.direct_send_socket() is None
    lanes = send_bulk_request(READER.meters, connections, encode_meter_stats_request)
    assert full.datapath._queue.octets == 2 * len(encode_meter_stats_request(0)), "behind the other"
    full.datapath.close()
    assert send_bulk_request(READER.meters, connections, encode_meter_stats_request)[0] is None


def test_without_the_compiled_form_nobody_is_called(switches: list[Switch]) -> None:
    """What would take the answer is not there: the switch is asked as usual."""
    switch, _other = switches
    assert switch.datapath.direct_socket() is not None
    with patch.object(native_sockets, "library", None):  # not while the reader reads, which began with it
        assert send_bulk_request(READER.meters, [switch.connection], encode_meter_stats_request) == [None]
    switch.end.setblocking(False)
    with pytest.raises(BlockingIOError):
        switch.end.recv(100)


def test_what_a_gate_keeps_back_is_not_sent_past_it(switches: list[Switch]) -> None:
    guarded, _other = switches
    seen: list[bytes] = []
    guarded.datapath.xid = 0
    guarded.datapath.gate = SimpleNamespace(allows=seen.append)
    assert guarded.datapath.direct_send_socket() is None
    send_bulk_request(READER.meters, [guarded.connection], encode_meter_stats_request)
    assert seen == [encode_meter_stats_request(1)]
    guarded.end.setblocking(False)
    with pytest.raises(BlockingIOError):
        guarded.end.recv(100)
