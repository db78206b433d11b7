"""Hosts of VNs, snapshots of switches, and bundles, as nodes send them: what is written is read, and nothing else."""

from __future__ import annotations

import struct
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corrupted_bytes import corrupted

from controller.node_protocol.bundle import MAX_FRAMES, Bundle, unbundle
from controller.node_protocol.host_update import HostUpdateHeader, VnHosts, decode_host_update, encode_host_update
from controller.node_protocol.rejection import MessageRejectedError, RejectCause
from controller.node_protocol.switch_snapshot import SnapshotHeader, SwitchSnapshot, decode_places, encode_snapshot

VNS, FABRIC = 20, b"12345678"
macs = st.integers(0, 2**48 - 1).map(lambda mac: mac & ~(1 << 40))
numbers, counts = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)


def column(values, dtype=np.int64):
    return np.array(values, dtype=dtype)


@st.composite
def host_updates(draw):
    since, until = sorted(draw(st.tuples(numbers, numbers)))
    head = HostUpdateHeader(draw(numbers), draw(numbers), since, until, draw(numbers), draw(numbers))
    vns = draw(st.lists(st.tuples(st.integers(0, VNS - 1), st.lists(macs, max_size=4)), max_size=4))
    of_all = [mac for _, some in vns for mac in some]
    learned = [draw(st.integers(0, until)) for _ in of_all]
    words = column(of_all, np.uint64), column(learned, np.uint64)
    return head, VnHosts(*words, column([row for row, _ in vns]), column([len(some) for _, some in vns]))


@st.composite
def snapshots(draw):
    hellos = draw(st.lists(st.tuples(numbers, numbers, counts, counts, st.booleans()), max_size=6))
    types = np.uint64, np.uint64, np.int64, np.int64, np.bool_
    return SnapshotHeader(draw(numbers), draw(numbers)), SwitchSnapshot(
        column(draw(st.lists(numbers, max_size=4)), np.uint64),
        *(column([one[end] for one in hellos], dtype) for end, dtype in enumerate(types)),
        column(draw(st.lists(st.integers(0, VNS - 1), max_size=4))),
        column(draw(st.lists(numbers, max_size=4)), np.uint64),
    )


HOSTS = encode_host_update, decode_host_update
SWITCHES = encode_snapshot, decode_places
both = pytest.mark.parametrize(("messages", "codec"), [(host_updates(), HOSTS), (snapshots(), SWITCHES)])


@both
@given(data=st.data())
def test_what_is_written_is_read(messages, codec, data):
    (encode, decode), (head, sent) = codec, data.draw(messages)
    read_head, read = decode(encode(head, FABRIC, sent), FABRIC, VNS)
    assert read_head == head
    for field in fields(sent):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(sent, field.name))


@both
@settings(max_examples=300)
@given(data=st.data())
def test_damaged_messages_are_refused_or_are_messages(messages, codec, data):
    (encode, decode), (head, sent) = codec, data.draw(messages)
    octets = corrupted(data, encode(head, FABRIC, sent))
    try:
        head, read = decode(octets, FABRIC, VNS)
    except MessageRejectedError:
        return
    assert encode(head, FABRIC, read) == octets


def one_update():
    hosts = VnHosts(column([10, 12, 14], np.uint64), column([6, 0, 9], np.uint64), column([4, 2]), column([1, 2]))
    return encode_host_update(HostUpdateHeader(3, 7, 5, 9, 4, 6), FABRIC, hosts)


def test_hosts_are_on_the_wire_as_the_table_says():
    head = b"DETS" + bytes([7, 8, 0, 0]) + FABRIC + struct.pack("<QQQQQQII", 3, 7, 5, 9, 4, 6, 3, 2)
    assert one_update() == head + struct.pack("<6Q4I", 10, 12, 14, 6, 0, 9, 4, 2, 1, 2)


def one_snapshot(sent_to=(5,)):
    nothing = column([], np.uint64)
    hellos = column([1], np.uint64), column([2], np.uint64), column([1]), column([1]), column([False], np.bool_)
    return encode_snapshot(SnapshotHeader(3, 7), FABRIC, SwitchSnapshot(nothing, *hellos, column(sent_to), nothing))


def test_a_snapshot_is_on_the_wire_as_the_table_says():
    head = b"DETS" + bytes([7, 3, 0, 0]) + FABRIC + struct.pack("<QQIIII", 3, 7, 0, 1, 1, 0)
    assert one_snapshot() == head + struct.pack("<QQII?I", 1, 2, 1, 1, False, 5)


@pytest.mark.parametrize("sent_to", [[], [0]])
def test_a_fabric_of_one_vn_has_snapshots_too(sent_to):
    assert decode_places(one_snapshot(sent_to), FABRIC, 1)[1].sent_to.tolist() == sent_to


def check_refused(decode, data, cause):
    with pytest.raises(MessageRejectedError) as refused:
        decode(data, FABRIC, VNS)
    assert refused.value.cause is cause


HEADS = [
    (0, b"DOTS", RejectCause.NOT_A_FRAME),
    (4, b"\x02", RejectCause.VERSION),
    (5, b"\x01", RejectCause.NOT_A_FRAME),
    (6, b"\x01", RejectCause.NOT_A_FRAME),
    (8, b"87654321", RejectCause.FABRIC),
]


@pytest.mark.parametrize(
    ("at", "octets", "cause"),
    [
        *HEADS,
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
def test_hosts_that_cannot_be_are_refused(at, octets, cause):
    whole = one_update()
    check_refused(decode_host_update, whole[:at] + octets + whole[at + len(octets) :], cause)


def test_counts_that_add_up_beyond_what_a_number_holds_are_refused():
    many = VnHosts(column([], np.uint64), column([], np.uint64), column([1] * 4), column([2**32 - 1] * 4))
    whole = encode_host_update(HostUpdateHeader(3, 7, 5, 9, 4, 6), FABRIC, many)
    check_refused(decode_host_update, whole, RejectCause.LENGTH)


@pytest.mark.parametrize(
    ("at", "octets", "cause"),
    [
        *HEADS,
        (36, struct.pack("<I", 2), RejectCause.LENGTH),
        (36, struct.pack("<I", 2**32 - 1), RejectCause.LENGTH),
        (48 + 24, b"\x02", RejectCause.VALUE),  # neither late nor not
        (48 + 25, struct.pack("<I", VNS), RejectCause.ROW),
    ],
)
def test_snapshots_that_cannot_be_are_refused(at, octets, cause):
    whole = one_snapshot()
    check_refused(decode_places, whole[:at] + octets + whole[at + len(octets) :], cause)


def bundle(frames):
    made = Bundle()
    for frame in frames:
        made.put(frame)
    return made.data


@given(frames=st.lists(st.binary(max_size=40), max_size=MAX_FRAMES))
def test_frames_of_a_bundle_come_apart_again(frames):
    assert unbundle(bundle(frames)) == frames


@settings(max_examples=200)
@given(data=st.binary(max_size=60))
def test_noise_is_no_bundle_or_one(data):
    try:
        frames = unbundle(data)
    except MessageRejectedError:
        return
    assert bundle(frames) == data


def test_more_frames_than_there_are_kinds_are_refused():
    with pytest.raises(MessageRejectedError):
        unbundle(bundle([b""] * (MAX_FRAMES + 1)))
