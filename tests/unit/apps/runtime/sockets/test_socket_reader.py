"""What comes at sockets, however it is cut: what bulk requests take, and what is handed on."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ryu.lib import hub
from support.openflow_bytes import message, multipart_reply

from apps.runtime.sockets import native as native_sockets
from apps.runtime.sockets.bulk_request import BulkBarrier, BulkMeterStats
from apps.runtime.sockets.socket_reader import MESSAGE_BATCH, READ_BYTES, SocketReader, replies_in
from controller.openflow.constants import MULTIPART_REPLY_MORE, MessageType, MultipartType
from controller.openflow.meters import decode_meter_stats

XID, BARRIER_XID, METERS = 77, 78, 3
compiled = pytest.mark.skipif(native_sockets.library is None, reason="no C compiler was there when it was installed")


def record(meter_id: int, bands: int = 1) -> bytes:
    head = struct.pack("!IH6xIQQII", meter_id, 40 + 16 * bands, 1, 10, 2**60 + meter_id, 9, 500)
    return head + struct.pack("!QQ", 4, 5) * bands


BODY = b"".join(record(number) for number in range(METERS))
ANSWER, DONE = multipart_reply(XID, BODY), message(MessageType.BARRIER_REPLY, xid=BARRIER_XID)
NEARLY = [
    multipart_reply(XID + 1, BODY),
    multipart_reply(XID, BODY[:-56]),
    multipart_reply(XID, BODY + record(9)),
    multipart_reply(XID, BODY, flags=MULTIPART_REPLY_MORE),
    multipart_reply(XID, BODY, what=MultipartType.QUEUE),
    multipart_reply(XID, record(1, bands=2) + record(2, bands=0) + record(3)),  # as long as three meters of one band
    ANSWER[:2] + bytes([0, 40]) + ANSWER[4:],
    bytes([1]) + ANSWER[1:],
]
PACKET_IN = message(MessageType.PACKET_IN, 60)
OTHERS = [
    message(MessageType.BARRIER_REPLY),
    PACKET_IN,
    message(MessageType.BARRIER_REPLY, version=1),
    message(MessageType.MULTIPART_REPLY, 12),
    message(MessageType.ERROR, 4),
    message(MessageType.BARRIER_REPLY, 9, xid=BARRIER_XID),
    message(200, 9),
    message(MessageType.ROLE_REPLY, 24),
    (MESSAGE_BATCH + 3) * message(MessageType.BARRIER_REPLY),
]
PARTS = [multipart_reply(XID, BODY[:112], flags=MULTIPART_REPLY_MORE), multipart_reply(XID, BODY[112:])]
NEARLY_PARTS = [
    multipart_reply(XID, b"", flags=MULTIPART_REPLY_MORE),
    multipart_reply(XID, BODY[:112]),
    multipart_reply(XID, BODY[:112] + record(5), flags=MULTIPART_REPLY_MORE),
    multipart_reply(XID, record(1, bands=3) + record(2, bands=0)[:-16], flags=MULTIPART_REPLY_MORE),
    multipart_reply(XID + 1, BODY[:112], flags=MULTIPART_REPLY_MORE),
    multipart_reply(XID, BODY[:100], flags=MULTIPART_REPLY_MORE),
    multipart_reply(XID, BODY[:112], what=MultipartType.PORT_STATS, flags=MULTIPART_REPLY_MORE),
]
ODD_PART = multipart_reply(XID, record(1, bands=2) + record(2, bands=0), flags=MULTIPART_REPLY_MORE)
streams = st.lists(
    st.sampled_from([ANSWER, DONE]) | st.sampled_from([*NEARLY, *OTHERS]) | st.binary(max_size=20), max_size=6
)


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    mine, other = socket.socketpair()
    with mine, other:
        mine.setblocking(False)
        yield mine, other


part_streams = st.lists(
    st.sampled_from([*PARTS, PARTS[0] + PARTS[1]]) | st.sampled_from([DONE, *NEARLY_PARTS, *OTHERS]), max_size=5
)
in_parts = patch("apps.runtime.sockets.bulk_request._MAX_METERS", 2)  # so few meters are in one message


def received(inbox: SocketReader, chunks: Sequence[bytes], fileno: int, other: socket.socket) -> list[Any]:
    """Return what an inbox hands on of what comes in these chunks."""
    got: list[Any] = []
    for number, chunk in enumerate(chunks):
        other.sendall(chunk)
        got += [
            (number, bytes(arrival.octets), [tuple(one) for one in arrival.replies], arrival.only_replies)
            for arrival in inbox.receive([fileno], float(number))
        ]
    return got


def read(chunks: Sequence[bytes]) -> tuple[list[Any], list[Any]]:
    """Return what an inbox hands on of what comes in these chunks, and what a bulk request has taken."""
    roll, barriers = BulkMeterStats(), BulkBarrier()
    inbox = SocketReader(roll, barriers)
    with pair() as (mine, other):
        roll.expect([METERS])
        roll.start([mine.fileno()], [XID])
        barriers.start([mine.fileno()], [BARRIER_XID])
        roll.stats[:] = np.zeros(METERS, roll.stats.dtype)
        got = received(inbox, chunks, mine.fileno(), other)
        begun, part = roll.partial_reply(mine.fileno())
        other.close()
        got += [bytes(arrival.octets) for arrival in inbox.receive([mine.fileno()], 99.0)]
        filled = int(roll.filled[0])
        told = [roll.at_s.tobytes(), roll.stats[:filled].tobytes(), roll.cancel(mine.fileno())]
        told += [barriers.at_s.tobytes(), barriers.cancel(mine.fileno())]
        told += [roll.meter_id[:filled].tolist(), begun.tobytes(), part]
    return got, told


def chunked(stream: list[bytes], cuts: list[int]) -> list[bytes]:
    data, chunks = b"".join(stream), []
    for cut in cuts:
        chunks.append(data[:cut])
        data = data[cut:]
    return [chunk for chunk in [*chunks, data] if chunk]


@compiled
@given(streams, st.lists(st.integers(1, 300), max_size=5))
def test_both_forms_tell_replies_apart_alike(stream: list[bytes], cuts: list[int]) -> None:
    quick, plain = SocketReader(BulkMeterStats(), BulkBarrier()), SocketReader(BulkMeterStats(), BulkBarrier())
    plain._room, plain._octets = None, memoryview(bytearray(READ_BYTES))
    chunks = chunked(stream, cuts)
    with pair() as (mine, other), pair() as (its, another):
        assert received(quick, chunks, mine.fileno(), other) == received(plain, chunks, its.fileno(), another)
        assert b"".join(one for _, one, *_ in received(plain, chunks, its.fileno(), another)) == b"".join(stream)
        another.close()
        assert [bytes(one.octets) for one in plain.receive([its.fileno()], 0.0)] == [b""]
        assert list(plain.receive([mine.fileno()], 0.0)) == [], "nothing has come"


def left_of(stream: list[bytes], taken: list[bytes]) -> set[bytes]:
    """Return what may be left of messages when these were taken, wherever they stand."""
    places = itertools.combinations(range(len(stream)), len(taken))
    same = [some for some in places if sorted(stream[at] for at in some) == sorted(taken)]
    return {b"".join(one for at, one in enumerate(stream) if at not in some) for some in same}


@compiled
@pytest.mark.parametrize(("some", "messages"), [(streams, [ANSWER]), (part_streams, PARTS)])
@given(data=st.data(), cuts=st.lists(st.integers(1, 150), max_size=5))
def test_what_is_not_taken_is_handed_on_as_it_came(
    some: Any, messages: list[bytes], data: st.DataObject, cuts: list[int]
) -> None:
    stream = data.draw(some)
    with in_parts if messages == PARTS else nullcontext():
        got, (_, stats, awaited, _, unconfirmed, ids, begun, part) = read(chunked(stream, cuts))
    assert stats == decode_meter_stats(BODY).tobytes()[: len(stats)]
    assert begun == (stats if awaited else b"")
    assert awaited == (len(ids) < METERS)
    taken = messages[: {0: 0, 2: 1, METERS: len(messages)}[len(ids)]] + [DONE] * (not unconfirmed)
    whole = [one for each in stream for one in (PARTS if each == PARTS[0] + PARTS[1] else [each])]
    assert b"".join(octets for _, octets, *_ in got[:-1]) + part in left_of(whole, taken)


@compiled
class TestParts:
    """Meters that come in several messages."""

    @in_parts
    def test_they_go_to_the_columns_wherever_they_are_cut(self) -> None:
        one, two = PARTS
        data = one + two
        cuts = [[data[:cut], data[cut:]] for cut in range(1, len(data))]
        cuts.append([*(one[at : at + 1] for at in range(128)), DONE, *(two[at : at + 1] for at in range(72))])
        for chunks in cuts:
            got, (at_s, stats, awaited, _, unconfirmed, *_) = read(chunks)
            assert got == [b""], "the end alone"
            assert (stats, awaited) == (decode_meter_stats(BODY).tobytes(), False)
            assert at_s == np.array([len(chunks) - 1.0]).tobytes(), "when the last one came"
            assert unconfirmed == (DONE not in chunks)

    @in_parts
    @pytest.mark.parametrize(
        ("chunks", "left", "meters"),
        [
            pytest.param([PARTS[0], PACKET_IN + PARTS[1]], PACKET_IN + PARTS[1], [0, 1], id="something in between"),
            pytest.param([ODD_PART[:50], ODD_PART[50:] + DONE], ODD_PART + DONE, [], id="a part with other bands"),
            pytest.param([PARTS[0] + PACKET_IN[:1], PACKET_IN[1:]], PACKET_IN, [0, 1], id="its beginning"),
            pytest.param([PARTS[0] + PACKET_IN[:2]], PACKET_IN[:2], [0, 1], id="a type that is none"),
            pytest.param([PARTS[0] + b"\x01"], b"\x01", [0, 1], id="a version that is none"),
            *(([odd[:cut], odd[cut:]], odd, []) for odd in NEARLY_PARTS for cut in (1, 7, 15, 40, len(odd))),
        ],
    )
    def test_what_is_no_part_is_left_as_it_came(self, chunks: list[bytes], left: bytes, meters: list[int]) -> None:
        got, (at_s, _, awaited, _, _, ids, begun, part) = read([one for one in chunks if one])
        assert b"".join(octets for _, octets, *_ in got[:-1]) == left
        assert (np.isnan(np.frombuffer(at_s)).all(), awaited, ids, part) == (True, True, meters, b"")
        assert begun == decode_meter_stats(BODY[: 56 * len(meters)]).tobytes(), "the awaited reply begins so"

    def test_less_than_one_message_is_not_kept(self) -> None:
        got, _ = read([ANSWER[:40], ANSWER[40:]])
        assert [octets for _, octets, *_ in got[:-1]] == [ANSWER[:40], ANSWER[40:]]


@compiled
class TestBulkRequest:
    """What is an answer, and what is not."""

    @pytest.mark.parametrize("stream", [ANSWER, DONE + ANSWER, ANSWER + DONE])
    def test_an_answer_goes_to_the_columns_and_barriers_before_and_after_it_are_confirmed(self, stream: bytes) -> None:
        got, (at_s, stats, awaited, confirmed_s, unconfirmed, *_) = read([stream])
        assert got == [b""], "the end alone"
        assert (stats, at_s, awaited) == (decode_meter_stats(BODY).tobytes(), np.array([0.0]).tobytes(), False)
        assert (confirmed_s == np.array([0.0]).tobytes(), unconfirmed) == (stream != ANSWER, stream == ANSWER)

    def test_a_second_one_was_not_asked_for(self) -> None:
        got, _ = read([ANSWER + ANSWER])
        assert got == [(0, ANSWER, [(MessageType.MULTIPART_REPLY, XID, 0, len(ANSWER))], True), b""]

    @pytest.mark.parametrize("what", range(len(NEARLY)))
    def test_what_is_nearly_one_is_left_as_it_came(self, what: int) -> None:
        got, (at_s, _, awaited, *_) = read([NEARLY[what]])
        assert got[0][1] == NEARLY[what]
        assert np.isnan(np.frombuffer(at_s)).all()
        assert awaited

    def test_no_more_than_so_many_replies_are_told_apart(self) -> None:
        barriers = (MESSAGE_BATCH + 1) * message(MessageType.BARRIER_REPLY)
        ((_, _, replies, only_replies), _end), _ = read([barriers])
        assert (len(replies), only_replies) == (MESSAGE_BATCH, False)


@compiled
def test_the_replies_of_each_socket_are_its_own() -> None:
    inbox = SocketReader(BulkMeterStats(), BulkBarrier())
    with pair() as (mine, other), pair() as (its, another):
        other.sendall(2 * DONE)
        another.sendall(OTHERS[0] + OTHERS[7])
        got = list(inbox.receive([mine.fileno(), its.fileno()], 0.0))
        assert [[tuple(reply) for reply in one.replies] for one in got] == [
            replies_in(memoryview(data))[0] for data in (2 * DONE, OTHERS[0] + OTHERS[7])
        ]


@compiled
def test_many_sockets_are_read_though_there_is_room_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.runtime.sockets.socket_reader._BUFFER_BYTES", 300 << 10)
    inbox, data = SocketReader(BulkMeterStats(), BulkBarrier()), bytes(range(1, 200)) * 300
    with ExitStack() as stack:
        pairs = [stack.enter_context(pair()) for _ in range(5)]
        for _mine, other in pairs:
            other.sendall(data)
        filenos = [mine.fileno() for mine, _ in pairs]
        got = [(arrival.fileno, bytes(arrival.octets)) for arrival in inbox.receive(filenos, 0.0)]
    assert got == [(fileno, data) for fileno in filenos]


def test_who_waits_is_woken_when_nobody_is_awaited_any_more() -> None:
    roll = BulkBarrier()
    assert roll.wait(0.0), "nobody is called"
    roll.start([5, 300], [1, 2])
    assert not roll.wait(0.0)
    waiting = hub.spawn(lambda: came.append(roll.wait(10.0)))
    came: list[bool] = []
    hub.sleep(0.0)
    assert roll.cancel(5)
    assert not roll.cancel(5)
    hub.sleep(0.0)
    assert came == []
    assert roll.cancel(300)
    waiting.wait()
    assert came == [True]
    roll.start([7], [3])
    assert not roll.cancel(5)
    assert not roll.cancel(-1)
    roll.start([], [])
    assert not roll.cancel(7), "the next call ends the last one"
