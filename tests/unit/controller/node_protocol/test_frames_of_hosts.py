"""Hosts of VNs as nodes tell each other: what is written is read, and nothing else is."""

from __future__ import annotations

import struct
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.damaged import damaged

from controller.node_protocol.host_update import HostsHead, VnHosts, decode_hosts, encode_hosts
from controller.node_protocol.rejection import Cause, FrameError

VNS, FABRIC, HEAD = 20, b"12345678", HostsHead(3, 7, 5, 9, 4, 6)
macs = st.integers(0, 2**48 - 1).map(lambda mac: mac & ~(1 << 40))
numbers = st.integers(0, 2**64 - 1)


def column(values, dtype=np.int64):
    return np.array(values, dtype=dtype)


@st.composite
def frames(draw):
    since, until = sorted(draw(st.tuples(numbers, numbers)))
    head = HostsHead(draw(numbers), draw(numbers), since, until, draw(numbers), draw(numbers))
    vns = draw(st.lists(st.tuples(st.integers(0, VNS - 1), st.lists(macs, max_size=4)), max_size=4))
    of_all = [mac for _, some in vns for mac in some]
    learned = [draw(st.integers(0, until)) for _ in of_all]
    words = column(of_all, np.uint64), column(learned, np.uint64)
    return head, VnHosts(*words, column([row for row, _ in vns]), column([len(some) for _, some in vns]))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(frames())
def test_what_is_written_is_read(frame):
    head, hosts = frame
    read_head, read = decode_hosts(encode_hosts(head, FABRIC, hosts), FABRIC, VNS)
    assert read_head == head
    for field in fields(hosts):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(hosts, field.name))


@settings(derandomize=True, max_examples=300, deadline=None)
@given(frame=frames(), data=st.data())
def test_damaged_frames_are_refused_or_are_frames(frame, data):
    octets = damaged(data, encode_hosts(frame[0], FABRIC, frame[1]))
    try:
        head, read = decode_hosts(octets, FABRIC, VNS)
    except FrameError:
        return
    assert encode_hosts(head, FABRIC, read) == octets


def hosts_of_two():
    return VnHosts(column([10, 12, 14], np.uint64), column([6, 0, 9], np.uint64), column([4, 2]), column([1, 2]))


def test_hosts_are_on_the_wire_as_the_table_says():
    head = b"DETS" + bytes([7, 8, 0, 0]) + FABRIC + struct.pack("<QQQQQQII", 3, 7, 5, 9, 4, 6, 3, 2)
    assert encode_hosts(HEAD, FABRIC, hosts_of_two()) == head + struct.pack("<6Q4I", 10, 12, 14, 6, 0, 9, 4, 2, 1, 2)


@pytest.mark.parametrize(
    ("at", "octets", "cause"),
    [
        (0, b"DOTS", Cause.NOT_A_FRAME),
        (4, b"\x02", Cause.VERSION),
        (5, b"\x03", Cause.NOT_A_FRAME),
        (6, b"\x01", Cause.NOT_A_FRAME),
        (8, b"87654321", Cause.FABRIC),
        (32, struct.pack("<Q", 10), Cause.VALUE),  # since what is after the end
        (64, struct.pack("<I", 4), Cause.LENGTH),
        (68, struct.pack("<I", 2**32 - 1), Cause.LENGTH),
        (72 + 6, b"\x01", Cause.VALUE),  # an address of more than 48 bits
        (72 + 5, b"\x01", Cause.VALUE),  # a multicast one
        (96, struct.pack("<Q", 10), Cause.VALUE),  # learned later than the frame knows of
        (120, struct.pack("<I", VNS), Cause.ROW),
        (128, struct.pack("<I", 2), Cause.LENGTH),  # not as many hosts as there are
    ],
)
def test_frames_that_say_what_cannot_be_are_refused(at, octets, cause):
    whole = encode_hosts(HEAD, FABRIC, hosts_of_two())
    with pytest.raises(FrameError) as refused:
        decode_hosts(whole[:at] + octets + whole[at + len(octets) :], FABRIC, VNS)
    assert refused.value.cause is cause


def test_counts_that_add_up_beyond_what_a_number_holds_are_refused():
    many = VnHosts(column([], np.uint64), column([], np.uint64), column([1] * 4), column([2**32 - 1] * 4))
    with pytest.raises(FrameError) as refused:
        decode_hosts(encode_hosts(HEAD, FABRIC, many), FABRIC, VNS)
    assert refused.value.cause is Cause.LENGTH
