"""Frames between shards: what is written is read, and nothing else is."""

from __future__ import annotations

import struct
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star
from support.corrupted_bytes import corrupted

from controller.fabric.vn_table import VnTable
from controller.node_protocol.decoder import PreviousMessage, decode
from controller.node_protocol.encoder import encode
from controller.node_protocol.header import Header, fabric_digest, is_omitted
from controller.node_protocol.message_types import (
    GrantMessage,
    GrantRecord,
    LinkUseMessage,
    MarkReadingsMessage,
    OmittedColumns,
    PortReadingsMessage,
    QueueReadingsMessage,
    ReportMessage,
)
from controller.node_protocol.rejection import MessageRejectedError, RejectCause

VNS, LINKS = 20, 30
FABRIC = b"12345678"
HEAD = Header(incarnation=3, number=7, ack=5)
KINDS = (
    *(ReportMessage, GrantMessage, LinkUseMessage),
    *(QueueReadingsMessage, PortReadingsMessage, MarkReadingsMessage),
)
rates, numbers = st.floats(0.0, 1e12), st.integers(0, 2**64 - 1)


def ints(values):
    return np.array(values, dtype=np.int64)


@st.composite
def frames(draw):
    first = sorted(draw(st.sets(st.integers(0, VNS - 1), max_size=6)))
    pairs = sorted(draw(st.sets(st.tuples(st.integers(0, VNS - 1), st.integers(0, VNS - 1)), max_size=12)))
    receiver, sender = ints([pair[0] for pair in pairs]), ints([pair[1] for pair in pairs])

    def column(size, values=rates):
        return np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype=np.float64)

    def booleans(size):
        return np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=np.bool_)

    kind = draw(st.sampled_from(KINDS))
    if kind is QueueReadingsMessage:
        return QueueReadingsMessage(ints(first), *(column(len(first)) for _ in range(5)))
    if kind is MarkReadingsMessage:
        return MarkReadingsMessage(ints(first), column(len(first)), column(len(first)))
    if kind in (LinkUseMessage, PortReadingsMessage):
        links = sorted(draw(st.sets(st.integers(0, LINKS - 1), max_size=6)))
        return kind(ints(links), column(len(links)), column(len(links)))
    if kind is GrantMessage:
        senders = ints(draw(st.lists(st.integers(1, 2**32 - 1), min_size=len(first), max_size=len(first))))
        return GrantMessage(
            ints(first), senders, booleans(len(first)), sender, receiver, column(len(pairs)), booleans(len(pairs))
        )
    unread = ints(draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(pairs), max_size=len(pairs))))
    drops, active = booleans(len(pairs)), booleans(len(pairs))
    limits = column(len(pairs), rates | st.just(np.inf))
    loads = (column(len(first)) for _ in range(3))
    others = [column(len(pairs)) for _ in range(4)]
    rates_of = others[0], others[1], limits, *others[2:]
    return ReportMessage(ints(first), *loads, sender, receiver, *rates_of, unread, drops, active)


@given(
    frame=frames(),
    head=st.builds(Header, *[numbers] * 3, st.booleans(), st.tuples(numbers, numbers), *[st.just(0)] * 3),
)
def test_what_is_written_is_read(frame, head):
    read_head, read = decode(encode(head, FABRIC, frame), FABRIC, VNS, LINKS)
    assert read_head == head
    assert type(read) is type(frame)
    for field in fields(frame):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(frame, field.name))


@settings(max_examples=300)
@given(frame=frames(), data=st.data())
def test_damaged_frames_are_refused_or_are_frames(frame, data):
    octets = corrupted(data, encode(HEAD, FABRIC, frame))
    try:
        head, read = decode(octets, FABRIC, VNS, LINKS)
    except MessageRejectedError:
        return
    assert encode(head, FABRIC, read) == octets


@given(data=st.binary(max_size=200))
def test_noise_is_refused(data):
    with pytest.raises(MessageRejectedError):
        decode(data, FABRIC, VNS, LINKS)


def cause_of_refusal(octets, **known):
    """Return why octets are refused."""
    with pytest.raises(MessageRejectedError) as refused:
        decode(octets, FABRIC, VNS, LINKS, **known)
    return refused.value.cause


def grants(congested=(1, 4), sender=(0, 2, 1), receiver=(1, 1, 4), rate_bps=(1e6, 2e6, 3e6)):
    told = ints(congested), ints([3] * len(congested)), np.full(len(congested), True)
    return GrantMessage(*told, ints(sender), ints(receiver), np.array(rate_bps), np.arange(len(sender)) == 1)


def link_use(link=(1, 4), others_bps=(2e6, 3e6)):
    return LinkUseMessage(ints(link), np.array(others_bps), np.array([1e6, 1e6]))


def queues_read(vn=(1, 4), served_bps=(2e6, 3e6)):
    nothing = np.zeros(2)
    return QueueReadingsMessage(
        ints(vn), np.array(served_bps), nothing, np.array([1e6, 0.0]), nothing, np.array([0.05, 0.05])
    )


def marks_read(vn=(1, 4), beyond_bps=(0.0, 1e6)):
    return MarkReadingsMessage(ints(vn), np.array([2e6, 3e6]), np.array(beyond_bps))


def ports_read(link=(1, 4), transmitted_bps=(2e6, 3e6)):
    return PortReadingsMessage(ints(link), np.array(transmitted_bps), np.array([0.05, 0.05]))


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        (grants(rate_bps=(1e6, np.nan, 3e6)), RejectCause.VALUE),
        (grants(rate_bps=(1e6, -1.0, 3e6)), RejectCause.VALUE),
        (grants(rate_bps=(1e6, np.inf, 3e6)), RejectCause.VALUE),
        (grants(rate_bps=(1e6, 1e16, 3e6)), RejectCause.VALUE),
        (grants(congested=(1, VNS)), RejectCause.ROW),
        (grants(congested=(4, 1)), RejectCause.ROW),
        (grants(sender=(0, VNS, 1)), RejectCause.ROW),
        (grants(receiver=(1, 1, 2**32 - 1)), RejectCause.ROW),
        (grants(sender=(2, 2, 1)), RejectCause.ROW),  # a pair twice
        (grants(receiver=(4, 1, 4)), RejectCause.ROW),
        (link_use(link=(1, LINKS)), RejectCause.ROW),
        (link_use(link=(4, 1)), RejectCause.ROW),
        (link_use(others_bps=(2e6, np.nan)), RejectCause.VALUE),
        (queues_read(vn=(1, VNS)), RejectCause.ROW),
        (queues_read(vn=(4, 1)), RejectCause.ROW),
        (queues_read(served_bps=(2e6, np.nan)), RejectCause.VALUE),
        (queues_read(served_bps=(2e6, -1.0)), RejectCause.VALUE),
        (ports_read(link=(1, LINKS)), RejectCause.ROW),
        (ports_read(link=(1, 1)), RejectCause.ROW),
        (ports_read(transmitted_bps=(np.inf, 1.0)), RejectCause.VALUE),
        (marks_read(vn=(1, VNS)), RejectCause.ROW),
        (marks_read(beyond_bps=(0.0, np.nan)), RejectCause.VALUE),
    ],
)
def test_what_cannot_be_is_refused(frame, cause):
    assert cause_of_refusal(encode(HEAD, FABRIC, frame)) is cause


@pytest.mark.parametrize(
    ("at", "octets", "cause"),
    [
        (0, b"DOTS", RejectCause.NOT_A_FRAME),
        (4, b"\x02", RejectCause.VERSION),
        (5, b"\x03", RejectCause.NOT_A_FRAME),
        (6, b"\x02", RejectCause.NOT_A_FRAME),
        (7, b"\x01", RejectCause.NOT_A_FRAME),  # of Reports
        (7, b"\x14", RejectCause.NOT_A_FRAME),
        (8, b"87654321", RejectCause.FABRIC),
        (7, b"\x04", RejectCause.LENGTH),
        (64, struct.pack("<Q", 7), RejectCause.NOT_A_FRAME),
        (72, struct.pack("<I", 3), RejectCause.LENGTH),
        (76, struct.pack("<I", 2**32 - 1), RejectCause.LENGTH),
        (56, struct.pack("<Q", 7), RejectCause.PAIRS),
    ],
)
def test_headers_that_say_something_else_are_refused(at, octets, cause):
    whole = encode(HEAD, FABRIC, grants())
    assert cause_of_refusal(whole[:at] + octets + whole[at + len(octets) :]) is cause


def test_what_was_read_is_on_the_wire_as_the_table_says():
    frame = QueueReadingsMessage(ints([5]), *(np.array([value]) for value in (1.0, 2.0, 3.0, 4.0, 5.0)))
    head = b"DETS" + bytes([7, 5, 0, 0]) + FABRIC + struct.pack("<QQQQQQQII", 3, 7, 5, 0, 0, 0, 0, 1, 0)
    assert encode(HEAD, FABRIC, frame) == head + struct.pack("<5dI", 1.0, 2.0, 3.0, 4.0, 5.0, 5)
    told = GrantMessage(ints([1]), ints([2]), np.array([True]), ints([4]), ints([1]), np.array([1e6]), np.array([True]))
    head = b"DETS" + bytes([7, 2, 0, 0]) + FABRIC + struct.pack("<QQQQQQQII", 3, 7, 5, 0, 0, 0, 0, 1, 1)
    assert encode(HEAD, FABRIC, told) == head + struct.pack("<II?dII?", 1, 2, True, 1e6, 4, 1, True)
    head = b"DETS" + bytes([7, 2, 0, 0]) + FABRIC + struct.pack("<QQQQQQQII", 3, 7, 5, 8, 9, 6, 0, 1, 1)
    without = HEAD._replace(acked_pairs=(8, 9), pairs_ref=6)
    assert encode(without, FABRIC, told) == head + struct.pack("<II?d?", 1, 2, True, 1e6, True)
    head = b"DETS" + bytes([7, 2, 0, 4]) + FABRIC + struct.pack("<QQQQQQQII", 3, 7, 5, 8, 9, 6, 0, 1, 1)
    assert encode(without._replace(omitted=OmittedColumns.FORFEITS), FABRIC, told) == head + struct.pack(
        "<II?d", 1, 2, True, 1e6
    )


@pytest.mark.parametrize("frame", [link_use(), queues_read(), ports_read(), marks_read()])
def test_a_kind_without_pairs_has_no_entries_and_none_of_another_frame(frame):
    whole = encode(HEAD, FABRIC, frame)
    assert cause_of_refusal(whole[:76] + struct.pack("<I", 1) + whole[80:]) is RejectCause.LENGTH
    assert cause_of_refusal(whole[:56] + struct.pack("<Q", 6) + whole[64:]) is RejectCause.PAIRS


def test_the_digest_is_of_which_vns_the_rows_are_and_not_of_their_limits():
    vns, more = VnTable.from_config(star(4)), VnTable.from_config(star(5))
    other = VnTable.from_config(star(4, limits={10: "1M", 20: "2M"}))
    assert fabric_digest(vns) == fabric_digest(other) != fabric_digest(more)
    assert len({fabric_digest(vns, links) for links in ((), ("a", "b"), ("b", "a"), ("ab",))}) == 4


@given(frame=frames(), data=st.data())
def test_a_frame_without_pairs_has_those_that_are_known(frame, data):
    if not isinstance(frame, ReportMessage | GrantMessage):
        return
    _, before = decode(encode(HEAD, FABRIC, frame), FABRIC, VNS)
    known = {type(before): PreviousMessage(HEAD.incarnation, 5, 7, before)}
    head = HEAD._replace(number=9, pairs_ref=data.draw(st.integers(5, 7)))
    read_head, read = decode(encode(head, FABRIC, frame), FABRIC, VNS, before=known)
    assert read_head == head
    for field in fields(frame):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(frame, field.name))
    assert (read.sender is before.sender, read.receiver is before.receiver) == (True, True)


ONE_GRANT = grants((1,), (0,), (1,), (1e6,))


@pytest.mark.parametrize(
    ("known", "head", "cause"),
    [
        (None, HEAD._replace(pairs_ref=6), RejectCause.PAIRS),
        (PreviousMessage(HEAD.incarnation, 5, 7, grants()), HEAD._replace(pairs_ref=4), RejectCause.PAIRS),
        (PreviousMessage(HEAD.incarnation, 5, 7, grants()), HEAD._replace(pairs_ref=8), RejectCause.PAIRS),
        (PreviousMessage(HEAD.incarnation - 1, 5, 7, grants()), HEAD._replace(pairs_ref=6), RejectCause.PAIRS),
        (PreviousMessage(HEAD.incarnation + 1, 5, 7, grants()), HEAD._replace(pairs_ref=6), RejectCause.TOKEN),
        (PreviousMessage(HEAD.incarnation, 5, 7, ONE_GRANT), HEAD._replace(pairs_ref=6), RejectCause.LENGTH),
    ],
)
def test_a_frame_without_pairs_that_are_known_is_refused(known, head, cause):
    before = {GrantMessage: known} if known else None
    assert cause_of_refusal(encode(head, FABRIC, grants()), before=before) is cause


def report(rows=3):
    loads, column = (np.array([1e6]),) * 3, np.arange(rows) * 1e6
    pairs, unread = (np.arange(rows), np.full(rows, 4)), np.full(rows, 7)
    flags = np.arange(rows) == 0, np.arange(rows) == 1
    return ReportMessage(ints([4]), *loads, *pairs, column, column, column, column, column, unread, *flags)


@pytest.mark.parametrize(
    ("frame", "left"),
    [
        *((report(), left) for left in range(16) if not left & OmittedColumns.FORFEITS),
        (grants(), OmittedColumns.FORFEITS),
    ],
)
def test_columns_that_are_left_out_are_the_same_everywhere(frame, left):
    data = encode(HEAD._replace(omitted=left), FABRIC, frame)
    head, read = decode(data, FABRIC, VNS)
    assert head.omitted == left
    usual = {"unread_intervals": (1, 0), "active": (2, True), "forfeits": (4, False)}
    usual |= {"last_bps": (8, 0.0), "refused_bps": (8, 0.0)}
    for field in fields(frame):
        bit, value = usual.get(field.name, (0, None))
        column, said = getattr(read, field.name), getattr(frame, field.name)
        np.testing.assert_array_equal(column, np.full(len(said), value) if left & bit else said)
        assert is_omitted(column) is bool(left & bit)
    assert encode(head, FABRIC, read) == data


def test_limits_that_the_hearer_has_granted_are_its_own():
    frame = report()
    _, before = decode(encode(HEAD, FABRIC, frame), FABRIC, VNS)
    known = {ReportMessage: PreviousMessage(HEAD.incarnation, 7, 7, before)}
    head = HEAD._replace(number=9, pairs_ref=7, limits_ref=5)
    granted = GrantRecord(before.sender, np.array([9.0, 8.0, 7.0, 6.0]), ints([3, 0, 2]))
    data = encode(head, FABRIC, frame)
    _, read = decode(data, FABRIC, VNS, before=known, sent_grants={5: granted})
    assert read.limit_bps.tolist() == [6.0, 9.0, 7.0]
    assert len(data) == len(encode(head._replace(limits_ref=0), FABRIC, frame)) - 8 * 3
    others = {4: granted}, {5: granted._replace(sender=before.sender.copy())}, {}
    for other in others:
        assert cause_of_refusal(data, before=known, sent_grants=other) is RejectCause.PAIRS
    data = encode(head._replace(pairs_ref=0), FABRIC, frame)
    assert cause_of_refusal(data, before=known, sent_grants={5: granted}) is RejectCause.PAIRS
