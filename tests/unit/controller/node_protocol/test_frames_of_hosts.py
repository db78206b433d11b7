"""Hosts of VNs as nodes tell each other: what is written is read, and nothing else is."""

from __future__ import annotations

import struct
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corrupted_bytes import corrupted

from controller.node_protocol.host_update import HostUpdateHeader, VnHosts, decode_host_update, encode_host_update
from controller.node_protocol.rejection import MessageRejectedError, RejectCause

VNS, FABRIC, HEAD = 20, b"12345678", HostUpdateHeader(3, 7, 5, 9, 4, 6)
macs = st.integers(0, 2**48 - 1).map(lambda mac: mac & ~(1 << 40))
numbers = st.integers(0, 2**64 - 1)


def column(values, dtype=np.int64):
    return np.array(values, dtype=dtype)


@st.composite
def frames(draw):
    since, until = sorted(draw(st.tuples(numbers, numbers)))
    head = HostUpdateHeader(draw(numbers), draw(numbers), since, until, draw(numbers), draw(numbers))
    vns = draw(st.lists(st.tuples(st.integers(0, VNS - 1), st.lists(macs, max_size=4)), max_size=4))
    of_all = [mac for _, some in vns for mac in some]
    learned = [draw(st.integers(0, until)) for _ in of_all]
    words = column(of_all, np.uint64), column(learned, np.uint64)
    return head, VnHosts(*words, column([row for row, _ in vns]), column([len(some) for _, some in vns]))


@given(frames())
def test_what_is_written_is_read(frame):
    head, hosts = frame
    read_head, read = decode_host_update(encode_host_update(head, FABRIC, hosts), FABRIC, VNS)
    assert read_head == head
    for field in fields(hosts):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(hosts, field.name))


@settings(max_examples=300)
@given(frame=frames(), data=st.data())
def test_damaged_frames_are_refused_or_are_frames(frame, data):
    octets = corrupted(data, encode_host_update(frame[0], FABRIC, frame[1]))
    try:
        head, read = decode_host_update(octets, FABRIC, VNS)
    except MessageRejectedError:
        return
    assert encode_host_update(head, FABRIC, read) == octets


def hosts_of_two():
    return VnHosts(column([10, 12, 14], np.uint64), column([6, 0, 9], np.uint64), column([4, 2]), column([1, 2]))


def test_hosts_are_on_the_wire_as_the_table_says():
    head = b"DETS" + bytes([7, 8, 0, 0]) + FABRIC + struct.pack("<QQQQQQII", 3, 7, 5, 9, 4, 6, 3, 2)
    assert encode_host_update(HEAD, FABRIC, hosts_of_two()) == head + struct.pack(
        "<6Q4I", 10, 12, 14, 6, 0, 9, 4, 2, 1, 2
    )


@pytest.mark.parametrize(
    ("at", "octets", "cause"),
    [
        (0, b"DOTS", RejectCause.NOT_A_FRAME),
        (4, b"\x02", RejectCause.VERSION),
        (5, b"\x03", RejectCause.NOT_A_FRAME),
        (6, b"\x01", RejectCause.NOT_A_FRAME),
        (8, b"87654321", RejectCause.FABRIC),
        (32, struct.pack("<Q", 10), RejectCause.VALUE),  # since what is after the end
        (64, struct.pack("<I", 4), RejectCause.LENGTH),
        (68, struct.pack("<I", 2**32 - 1), RejectCause.LENGTH),
        (72 + 6, b"\x01", RejectCause.VALUE),  # an address of more than 48 bits
        (72 + 5, b"\x01", RejectCause.VALUE),  # a multicast one
        (96, struct.pack("<Q", 10), RejectCause.VALUE),  # learned later than the frame knows of
        (120, struct.pack("<I", VNS), RejectCause.ROW),
        (128, struct.pack("<I", 2), RejectCause.LENGTH),  # not as many hosts as there are
    ],
)
def test_frames_that_say_what_cannot_be_are_refused(at, octets, cause):
    whole = encode_host_update(HEAD, FABRIC, hosts_of_two())
    with pytest.raises(MessageRejectedError) as refused:
        decode_host_update(whole[:at] + octets + whole[at + len(octets) :], FABRIC, VNS)
    assert refused.value.cause is cause


def test_counts_that_add_up_beyond_what_a_number_holds_are_refused():
    many = VnHosts(column([], np.uint64), column([], np.uint64), column([1] * 4), column([2**32 - 1] * 4))
    with pytest.raises(MessageRejectedError) as refused:
        decode_host_update(encode_host_update(HEAD, FABRIC, many), FABRIC, VNS)
    assert refused.value.cause is RejectCause.LENGTH
