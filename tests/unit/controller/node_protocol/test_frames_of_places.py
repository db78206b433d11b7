"""Snapshots of a node's switches, and messages of several frames: what is written is read, and nothing else is."""

from __future__ import annotations

import struct
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corrupted_bytes import corrupted

from controller.node_protocol.bundle import MAX_FRAMES, Bundle, unbundle
from controller.node_protocol.rejection import MessageRejectedError, RejectCause
from controller.node_protocol.switch_snapshot import SnapshotHeader, SwitchSnapshot, decode_places, encode_snapshot

VNS, FABRIC, HEAD = 20, b"12345678", SnapshotHeader(3, 7)
dpids = st.integers(0, 2**64 - 1)


def column(values, dtype=np.int64):
    return np.array(values, dtype=dtype)


@st.composite
def snapshots(draw):
    hellos = draw(st.lists(st.tuples(dpids, dpids, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), max_size=6))
    return SwitchSnapshot(
        column(draw(st.lists(dpids, max_size=4)), np.uint64),
        *(column([one[end] for one in hellos], np.uint64) for end in (0, 1)),
        *(column([one[end] for one in hellos]) for end in (2, 3)),
        column(draw(st.lists(st.booleans(), min_size=len(hellos), max_size=len(hellos))), np.bool_),
        column(draw(st.lists(st.integers(0, VNS - 1), max_size=4))),
        column(draw(st.lists(dpids, max_size=4)), np.uint64),
    )


@given(places=snapshots(), head=st.builds(SnapshotHeader, *[st.integers(0, 2**64 - 1)] * 2))
def test_what_is_written_is_read(places, head):
    data = encode_snapshot(head, FABRIC, places)
    read_head, read = decode_places(data, FABRIC, VNS)
    assert read_head == head
    for field in fields(places):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(places, field.name))


@settings(max_examples=300)
@given(places=snapshots(), data=st.data())
def test_damaged_snapshots_are_refused_or_are_snapshots(places, data):
    octets = corrupted(data, encode_snapshot(HEAD, FABRIC, places))
    try:
        head, read = decode_places(octets, FABRIC, VNS)
    except MessageRejectedError:
        return
    assert encode_snapshot(head, FABRIC, read) == octets


@pytest.mark.parametrize("sent_to", [[], [0]])
def test_a_fabric_of_one_vn_has_snapshots_too(sent_to):
    nothing = column([], np.uint64)
    hellos = nothing, nothing, column([]), column([]), column([], np.bool_)
    data = encode_snapshot(HEAD, FABRIC, SwitchSnapshot(nothing, *hellos, column(sent_to), nothing))
    assert decode_places(data, FABRIC, 1)[1].sent_to.tolist() == sent_to


@pytest.mark.parametrize(
    ("at", "octets", "cause"),
    [
        (0, b"DOTS", RejectCause.NOT_A_FRAME),
        (4, b"\x02", RejectCause.VERSION),
        (5, b"\x01", RejectCause.NOT_A_FRAME),
        (8, b"87654321", RejectCause.FABRIC),
        (36, struct.pack("<I", 2), RejectCause.LENGTH),
        (36, struct.pack("<I", 2**32 - 1), RejectCause.LENGTH),
        (48 + 24, b"\x02", RejectCause.VALUE),  # neither late nor not
        (48 + 25, struct.pack("<I", VNS), RejectCause.ROW),
    ],
)
def test_snapshots_that_say_what_cannot_be_are_refused(at, octets, cause):
    nothing = column([], np.uint64)
    hellos = column([1], np.uint64), column([2], np.uint64), column([1]), column([1]), column([False], np.bool_)
    whole = encode_snapshot(HEAD, FABRIC, SwitchSnapshot(nothing, *hellos, column([5]), nothing))
    with pytest.raises(MessageRejectedError) as refused:
        decode_places(whole[:at] + octets + whole[at + len(octets) :], FABRIC, VNS)
    assert refused.value.cause is cause


def message(frames):
    made = Bundle()
    for frame in frames:
        made.put(frame)
    return made.data


@given(frames=st.lists(st.binary(max_size=40), max_size=MAX_FRAMES))
def test_frames_of_a_message_come_apart_again(frames):
    assert unbundle(message(frames)) == frames


@settings(max_examples=200)
@given(data=st.binary(max_size=60))
def test_noise_is_no_message_or_one(data):
    try:
        frames = unbundle(data)
    except MessageRejectedError:
        return
    assert message(frames) == data


def test_more_frames_than_there_are_kinds_are_refused():
    with pytest.raises(MessageRejectedError):
        unbundle(message([b""] * (MAX_FRAMES + 1)))
