"""What comes at sockets, however it is cut: the compiled form reads what the plain one does."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ryu.lib import hub

from apps.runtime.sockets import kernel as socket_kernel
from apps.runtime.sockets.arrivals import MESSAGES_AT_ONCE, Inbox
from apps.runtime.sockets.roll_call import MeterCall, RollCall
from controller.openflow.constants import MULTIPART_REPLY_MORE, VERSION, MessageType, MultipartType
from controller.openflow.meters import decode_meter_stats

XID, BARRIER_XID, METERS = 77, 78, 3
compiled = pytest.mark.skipif(socket_kernel.library is None, reason="no C compiler was there when it was installed")


def record(meter_id: int, bands: int = 1) -> bytes:
    head = struct.pack("!IH6xIQQII", meter_id, 40 + 16 * bands, 1, 10, 2**60 + meter_id, 9, 500)
    return head + struct.pack("!QQ", 4, 5) * bands


def reply(xid: int, body: bytes, what: int = MultipartType.METER, flags: int = 0) -> bytes:
    head = struct.pack("!BBHIHH4x", VERSION, MessageType.MULTIPART_REPLY, 16 + len(body), xid, what, flags)
    return head + body


def message(kind: int, length: int = 8, version: int = VERSION, xid: int = 5) -> bytes:
    return struct.pack("!BBHI", version, kind, length, xid) + bytes(max(length - 8, 0))


BODY = b"".join(record(number) for number in range(METERS))
ANSWER, DONE = reply(XID, BODY), message(MessageType.BARRIER_REPLY, xid=BARRIER_XID)
NEARLY = [
    reply(XID + 1, BODY),
    reply(XID, BODY[:-56]),
    reply(XID, BODY + record(9)),
    reply(XID, BODY, flags=MULTIPART_REPLY_MORE),
    reply(XID, BODY, what=MultipartType.QUEUE),
    reply(XID, record(1, bands=2) + record(2, bands=0) + record(3)),  # as long as three meters of one band
    ANSWER[:2] + bytes([0, 40]) + ANSWER[4:],
    bytes([1]) + ANSWER[1:],
]
OTHERS = [
    message(MessageType.BARRIER_REPLY),
    message(MessageType.PACKET_IN, 60),
    message(MessageType.BARRIER_REPLY, version=1),
    message(MessageType.MULTIPART_REPLY, 12),
    message(MessageType.ERROR, 4),
    message(MessageType.BARRIER_REPLY, 9, xid=BARRIER_XID),
    message(200, 9),
    message(MessageType.ROLE_REPLY, 24),
    (MESSAGES_AT_ONCE + 3) * message(MessageType.BARRIER_REPLY),
]
PARTS = [reply(XID, BODY[:112], flags=MULTIPART_REPLY_MORE), reply(XID, BODY[112:])]
NEARLY_PARTS = [
    reply(XID, b"", flags=MULTIPART_REPLY_MORE),
    reply(XID, BODY[:112]),
    reply(XID, BODY[:112] + record(5), flags=MULTIPART_REPLY_MORE),
    reply(XID, record(1, bands=3) + record(2, bands=0)[:-16], flags=MULTIPART_REPLY_MORE),
    reply(XID + 1, BODY[:112], flags=MULTIPART_REPLY_MORE),
    reply(XID, BODY[:100], flags=MULTIPART_REPLY_MORE),
    reply(XID, BODY[:112], what=MultipartType.PORT_STATS, flags=MULTIPART_REPLY_MORE),
]
streams = st.lists(
    st.sampled_from([ANSWER, DONE]) | st.sampled_from([*NEARLY, *OTHERS]) | st.binary(max_size=20), max_size=6
)


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    mine, other = socket.socketpair()
    with mine, other:
        mine.setblocking(False)
        yield mine, other


def plain(inbox: Inbox) -> Inbox:
    """Return the same inbox without its compiled form."""
    inbox._room, inbox._octets = None, memoryview(bytearray(256 << 10))
    return inbox


part_streams = st.lists(
    st.sampled_from([*PARTS, PARTS[0] + PARTS[1]]) | st.sampled_from([DONE, *NEARLY_PARTS, *OTHERS]), max_size=5
)
in_parts = patch("apps.runtime.sockets.roll_call._MOST_METERS", 2)  # so few meters are in one message


def read(chunks: Sequence[bytes], *, is_plain: bool) -> tuple[list[Any], list[Any]]:
    """Return what an inbox makes of what comes in these chunks, and of the roll call."""
    roll, barriers, got = MeterCall(), RollCall(), []
    inbox = plain(Inbox(roll, barriers)) if is_plain else Inbox(roll, barriers)
    with pair() as (mine, other):
        roll.expect([METERS])
        roll.call([mine.fileno()], [XID])
        barriers.call([mine.fileno()], [BARRIER_XID])
        roll.stats[:] = np.zeros(METERS, roll.stats.dtype)
        for number, chunk in enumerate(chunks):
            other.sendall(chunk)
            got += [
                (number, bytes(arrival.octets), [tuple(one) for one in arrival.replies], arrival.only_replies)
                for arrival in inbox.receive([mine.fileno()], float(number))
            ]
        begun, part = roll.so_far(mine.fileno())
        other.close()
        got += [bytes(arrival.octets) for arrival in inbox.receive([mine.fileno()], 99.0)]
        filled = int(roll.filled[0])
        told = [roll.at_s.tobytes(), roll.stats[:filled].tobytes(), roll.take_back(mine.fileno())]
        told += [barriers.at_s.tobytes(), barriers.take_back(mine.fileno())]
        told += [roll.meter_id[:filled].tolist(), begun.tobytes(), part]
    return got, told


@compiled
@given(streams, st.lists(st.integers(1, 300), max_size=5))
def test_both_forms_read_alike(stream: list[bytes], cuts: list[int]) -> None:
    data, chunks = b"".join(stream), []
    for cut in cuts:
        chunks.append(data[:cut])
        data = data[cut:]
    chunks = [chunk for chunk in [*chunks, data] if chunk]
    assert read(chunks, is_plain=False) == read(chunks, is_plain=True)


@compiled
@given(part_streams, st.lists(st.integers(1, 150), max_size=5))
def test_both_forms_read_parts_alike(stream: list[bytes], cuts: list[int]) -> None:
    data, chunks = b"".join(stream), []
    for cut in cuts:
        chunks.append(data[:cut])
        data = data[cut:]
    chunks = [chunk for chunk in [*chunks, data] if chunk]
    with in_parts:
        got, told = read(chunks, is_plain=False)
        assert (got, told) == read(chunks, is_plain=True)
    left = sum(len(octets) for _, octets, *_ in got[:-1]) + len(told[7])
    taken = {0: 0, 2: len(PARTS[0]), 3: len(PARTS[0] + PARTS[1])}[len(told[5])] + len(DONE) * (not told[4])
    assert left + taken == sum(map(len, stream)), "what is not taken is handed on"


@pytest.mark.parametrize("is_plain", [True, pytest.param(False, marks=compiled)])
class TestParts:
    """Meters that come in several messages."""

    @in_parts
    @pytest.mark.parametrize("cut", range(1, 200))
    def test_they_go_to_the_columns_wherever_they_are_cut(self, is_plain: bool, cut: int) -> None:
        data = b"".join(PARTS)
        got, (at_s, stats, awaited, *_) = read([data[:cut], data[cut:]], is_plain=is_plain)
        assert got == [b""], "the end alone"
        assert (stats, awaited) == (decode_meter_stats(BODY).tobytes(), False)
        assert at_s == np.array([1.0]).tobytes(), "when the last one came"

    @in_parts
    def test_they_come_octet_by_octet(self, is_plain: bool) -> None:
        one, two = PARTS
        chunks = [*(one[at : at + 1] for at in range(128)), DONE, *(two[at : at + 1] for at in range(72))]
        got, (_, stats, awaited, _, unconfirmed, *_) = read(chunks, is_plain=is_plain)
        assert (got, awaited, unconfirmed) == ([b""], False, False)
        assert stats == decode_meter_stats(BODY).tobytes()

    @in_parts
    def test_what_comes_in_between_is_left_as_it_came(self, is_plain: bool) -> None:
        packet_in = message(MessageType.PACKET_IN, 60)
        got, (at_s, _, awaited, _, _, ids, begun, *_) = read([PARTS[0], packet_in + PARTS[1]], is_plain=is_plain)
        assert got == [(1, packet_in + PARTS[1], [], False), b""]
        assert (np.isnan(np.frombuffer(at_s)).all(), awaited, ids) == (True, True, [0, 1])
        assert begun == decode_meter_stats(BODY[:112]).tobytes(), "what the reply that is awaited now begins with"

    @in_parts
    def test_a_part_with_other_bands_is_left_whole(self, is_plain: bool) -> None:
        odd = reply(XID, record(1, bands=2) + record(2, bands=0), flags=MULTIPART_REPLY_MORE)
        got, (_, _, awaited, _, _, ids, *_) = read([odd[:50], odd[50:] + DONE], is_plain=is_plain)
        assert (got[0][1], awaited, ids) == (odd + DONE, True, [])

    @in_parts
    @pytest.mark.parametrize("what", range(len(NEARLY_PARTS)))
    def test_what_is_nearly_a_part_is_left_as_it_came(self, is_plain: bool, what: int) -> None:
        for cut in (1, 7, 15, 40, len(NEARLY_PARTS[what])):
            data = NEARLY_PARTS[what]
            got, (_, _, _, _, _, ids, _begun, part, *_) = read(
                [one for one in (data[:cut], data[cut:]) if one], is_plain=is_plain
            )
            assert b"".join(octets for _, octets, *_ in got[:-1]) == data
            assert (ids, part) == ([], b"")

    @in_parts
    def test_a_beginning_that_turns_out_to_be_another_message_is_left_whole(self, is_plain: bool) -> None:
        packet_in = message(MessageType.PACKET_IN, 60)
        chunks = [PARTS[0] + packet_in[:1], packet_in[1:]]
        got, (_, _, _, _, _, ids, _begun, part, *_) = read(chunks, is_plain=is_plain)
        assert got == [(1, packet_in, [], False), b""]
        assert (ids, part) == ([0, 1], b"")

    def test_less_than_one_message_is_not_kept(self, is_plain: bool) -> None:
        got, _ = read([ANSWER[:40], ANSWER[40:]], is_plain=is_plain)
        assert [octets for _, octets, *_ in got[:-1]] == [ANSWER[:40], ANSWER[40:]]


@pytest.mark.parametrize("is_plain", [True, pytest.param(False, marks=compiled)])
class TestRollCall:
    """What is an answer, and what is not."""

    def test_an_answer_goes_to_the_columns_and_nowhere_else(self, is_plain: bool) -> None:
        got, (at_s, stats, awaited, *_) = read([ANSWER], is_plain=is_plain)
        assert got == [b""], "the end alone"
        assert at_s == np.array([0.0]).tobytes()
        assert stats == decode_meter_stats(BODY).tobytes()
        assert not awaited

    def test_barriers_are_confirmed_before_and_after_it(self, is_plain: bool) -> None:
        for stream in (DONE + ANSWER, ANSWER + DONE):
            got, (_, stats, awaited, at_s, unconfirmed, *_) = read([stream], is_plain=is_plain)
            assert (got, awaited, unconfirmed) == ([b""], False, False)
            assert (stats, at_s) == (decode_meter_stats(BODY).tobytes(), np.array([0.0]).tobytes())

    def test_a_second_one_was_not_asked_for(self, is_plain: bool) -> None:
        got, _ = read([ANSWER + ANSWER], is_plain=is_plain)
        assert got == [(0, ANSWER, [(MessageType.MULTIPART_REPLY, XID, 0, len(ANSWER))], True), b""]

    @pytest.mark.parametrize("what", range(len(NEARLY)))
    def test_what_is_nearly_one_is_left_as_it_came(self, is_plain: bool, what: int) -> None:
        got, (at_s, _, awaited, *_) = read([NEARLY[what]], is_plain=is_plain)
        assert got[0][1] == NEARLY[what]
        assert np.isnan(np.frombuffer(at_s)).all()
        assert awaited

    def test_no_more_than_so_many_replies_are_told_apart(self, is_plain: bool) -> None:
        barriers = (MESSAGES_AT_ONCE + 1) * message(MessageType.BARRIER_REPLY)
        ((_, _, replies, only_replies), _end), _ = read([barriers], is_plain=is_plain)
        assert (len(replies), only_replies) == (MESSAGES_AT_ONCE, False)


@compiled
def test_many_sockets_are_read_though_there_is_room_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.runtime.sockets.arrivals._ROOM_BYTES", 300 << 10)
    inbox, data = Inbox(MeterCall(), RollCall()), bytes(range(1, 200)) * 300
    pairs = [socket.socketpair() for _ in range(5)]
    for mine, other in pairs:
        mine.setblocking(False)
        other.sendall(data)
    filenos = [mine.fileno() for mine, _ in pairs]
    got = [(arrival.fileno, bytes(arrival.octets)) for arrival in inbox.receive(filenos, 0.0)]
    assert got == [(fileno, data) for fileno in filenos]
    for one in pairs:
        for end in one:
            end.close()


def test_who_waits_is_woken_when_nobody_is_awaited_any_more() -> None:
    roll = RollCall()
    assert roll.wait(0.0), "nobody is called"
    roll.call([5, 300], [1, 2])
    assert not roll.wait(0.0)
    waiting = hub.spawn(lambda: came.append(roll.wait(10.0)))
    came: list[bool] = []
    hub.sleep(0.0)
    assert roll.take_back(5)
    assert not roll.take_back(5)
    hub.sleep(0.0)
    assert came == []
    assert roll.take_back(300)
    waiting.wait()
    assert came == [True]
    roll.call([7], [3])
    assert not roll.take_back(5)
    assert not roll.take_back(-1)
    roll.call([], [])
    assert not roll.take_back(7), "the next call ends the last one"
