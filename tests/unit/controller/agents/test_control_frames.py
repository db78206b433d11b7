"""DETS's messages as Ethernet control frames: golden bytes, round trips, and octets that say nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.agents.control_frames import (
    CONTROLLER_MAC,
    LAYOUTS,
    LONG_PARAMETER_BYTES,
    NO_RATE,
    SHORT_PARAMETER_BYTES,
    ControlFrame,
    FrameAddress,
    FrameRejectCause,
    FrameRejection,
    Opcode,
    SequenceWindow,
    capacity,
    decode,
    encode,
    mac_numbers,
    records,
)
from controller.errors import InvalidValueError
from controller.openflow.ethernet import ETH_TYPE_LOCAL_EXPERIMENT, is_control

A, B = 0x0016_3E00_0001, 0x0016_3E00_0002
TO_AGENT = FrameAddress(A, CONTROLLER_MAC, 10, 0xCAFE_BABE)

PAIR = {"sender": [A], "receiver": [B]}
KEEP_ALIVE = records(Opcode.KEEP_ALIVE, **PAIR)
HEADER = "00163e000001 02de75000001 8100 e00a 8808"
GOLDEN = {
    Opcode.TRAFFIC_REPORT: (
        {**PAIR, "measured_kbps": [50_000], "dropped_kbps": [1], "limit_kbps": [NO_RATE]}
        | {"available_kbps": [100_000], "flags": [5]},
        "de01 01 01 0007 00000100 cafebabe 00163e000001 00163e000002 0000c350 00000001 ffffffff 000186a0 00000005",
    ),
    Opcode.INITIALIZE: (PAIR, "de02 01 01 0007 00000100 cafebabe 00163e000001 00163e000002"),
    Opcode.SET_RATE: (
        {"sender": [A, A], "receiver": [B, A], "rate_kbps": [20_000, 1]},
        "de03 01 02 0007 00000100 cafebabe 00163e000001 00163e000002 00004e20 00163e000001 00163e000001 00000001",
    ),
    Opcode.KEEP_ALIVE: (PAIR, "de04 01 01 0007 00000100 cafebabe 00163e000001 00163e000002"),
    Opcode.DEACTIVATE: (PAIR, "de05 01 01 0007 00000100 cafebabe 00163e000001 00163e000002"),
    Opcode.HELLO: (
        {"features": [7], "interval_ms": [55], "most_classes": [128], "link_rate_kbps": [1_000_000]},
        "de06 01 01 0007 00000100 cafebabe 00000007 0037 0080 000f4240",
    ),
}


@pytest.mark.parametrize("opcode", Opcode)
def test_the_bytes_are_those_of_the_specification(opcode: Opcode) -> None:
    columns, text = GOLDEN[opcode]
    expected = bytes.fromhex(HEADER) + bytes.fromhex(text).ljust(46, b"\0")
    [frame] = encode(TO_AGENT, opcode, records(opcode, **columns), 7, 0x100)
    assert frame.hex(" ") == expected.hex(" ")
    assert len(frame) == 64  # the least tagged frame, FCS left out
    read = decode(frame)
    assert isinstance(read, ControlFrame)
    assert (read.speaker, read.opcode, read.sequence, read.clock_ms) == (TO_AGENT, opcode, 7, 0x100)
    assert (read.entries == records(opcode, **columns)).all()


def test_untagged_frames_have_60_octets_and_no_vlan() -> None:
    speaker = FrameAddress(A, B, None, 1, ETH_TYPE_LOCAL_EXPERIMENT)
    [frame] = encode(speaker, Opcode.KEEP_ALIVE, KEEP_ALIVE, 0, 0)
    assert len(frame) == 60
    assert frame[12:14].hex() == "88b5"
    read = decode(frame)
    assert isinstance(read, ControlFrame)
    assert read.speaker == speaker


def test_frames_hold_as_many_entries_as_the_specification_says() -> None:
    assert [capacity(one) for one in Opcode] == [1, 2, 2, 2, 2, 1]
    assert [capacity(one, LONG_PARAMETER_BYTES) for one in Opcode] == [46, 123, 92, 123, 123, 1]
    whole = records(
        Opcode.TRAFFIC_REPORT, **{name: [A & 0xFFFFFFFF] * 46 for name in LAYOUTS[Opcode.TRAFFIC_REPORT].names}
    )
    [frame] = encode(TO_AGENT, Opcode.TRAFFIC_REPORT, whole, 0, 0, LONG_PARAMETER_BYTES)
    assert len(frame) == 18 + 2 + 12 + 46 * 32


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Opcode, np.ndarray]:
    opcode = draw(st.sampled_from(list(Opcode)))
    count = draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(numbers(32)))
    columns = {}
    for name in LAYOUTS[opcode].names or ():
        if name in ("sender", "receiver"):
            columns[name] = rng.integers(0, 2**48, count) & ~(1 << 40)
        else:
            columns[name] = rng.integers(1, 2 ** (8 * LAYOUTS[opcode][name].itemsize), count)
    return opcode, records(opcode, **columns)


@given(messages(), numbers(16), numbers(32), st.sampled_from([64, 200, LONG_PARAMETER_BYTES]))
def test_what_was_said_is_read(message: tuple[Opcode, np.ndarray], sequence: int, clock_ms: int, octets: int) -> None:
    opcode, entries = message
    frames = encode(TO_AGENT, opcode, entries, sequence, clock_ms, octets)
    read = [decode(frame) for frame in frames]
    assert all(isinstance(one, ControlFrame) for one in read)
    assert [one.sequence for one in read] == [(sequence + n) % 2**16 for n in range(len(frames))]
    assert (np.concatenate([one.entries for one in read]) == entries).all()


@given(messages(), st.data())
def test_a_flipped_octet_or_a_truncation_is_a_refusal_or_a_message(message, data) -> None:
    opcode, entries = message
    frame = encode(TO_AGENT, opcode, entries[: capacity(opcode, 200)], 1, 2, 200)[0]
    cut = decode(frame[: data.draw(st.integers(0, len(frame) - 1))])
    assert isinstance(cut, FrameRejection | ControlFrame)
    flipped = bytearray(frame)
    flipped[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    read = decode(flipped)
    assert isinstance(read, FrameRejection | ControlFrame)
    if isinstance(read, ControlFrame):
        assert encode(read.speaker, read.opcode, read.entries, read.sequence, read.clock_ms, 200)


@given(st.binary(max_size=200))
def test_no_octets_raise(octets: bytes) -> None:
    assert isinstance(decode(octets), FrameRejection | ControlFrame)
    head = bytes.fromhex(HEADER) + octets.ljust(46, b"\0")
    assert isinstance(decode(head), FrameRejection | ControlFrame)


def broken(at: int, value: int, opcode: Opcode = Opcode.SET_RATE) -> FrameRejection:
    frame = bytearray(bytes.fromhex(HEADER) + bytes.fromhex(GOLDEN[opcode][1]).ljust(46, b"\0"))
    frame[at] = value
    read = decode(frame)
    assert isinstance(read, FrameRejection)
    return read


def test_each_cause_is_named() -> None:
    whole = bytes.fromhex(HEADER) + bytes.fromhex(GOLDEN[Opcode.SET_RATE][1]).ljust(46, b"\0")
    assert broken(0, 0x01).cause is FrameRejectCause.ADDRESS
    assert broken(16, 0x08).cause is FrameRejectCause.NOT_CONTROL
    assert broken(18, 0x00) == (FrameRejectCause.OPCODE, "opcode 0003")
    assert broken(20, 2) == (FrameRejectCause.VERSION, "version 2, expected 1")
    assert broken(21, 0) == (FrameRejectCause.COUNT, "count 0, expected 1 to 2")
    assert broken(21, 3) == (FrameRejectCause.COUNT, "count 3, expected 1 to 2")
    assert broken(32, 0x01).cause is FrameRejectCause.ADDRESS
    assert decode(whole[:-1]).cause is FrameRejectCause.SHORT
    assert decode(whole[:13]) == (FrameRejectCause.SHORT, "13 octets, expected at least 14")
    assert decode(whole[:17]) == (FrameRejectCause.SHORT, "17 octets, expected an 802.1Q tag")
    assert decode(whole + bytes(LONG_PARAMETER_BYTES)).cause is FrameRejectCause.LONG
    assert broken(60, 1, Opcode.KEEP_ALIVE).cause is FrameRejectCause.PADDING
    assert broken(63, 0) == (FrameRejectCause.RATE, "rate 0, expected at least 1 kb/s")


def test_what_cannot_be_said_names_field_value_and_limit() -> None:
    with pytest.raises(InvalidValueError, match="rate_kbps: 0 is below 1"):
        encode(TO_AGENT, Opcode.SET_RATE, records(Opcode.SET_RATE, **PAIR, rate_kbps=[0]), 0, 0)
    with pytest.raises(InvalidValueError, match="rate_kbps: 4294967296 is outside 0 to 4294967295"):
        records(Opcode.SET_RATE, **PAIR, rate_kbps=[2**32])
    with pytest.raises(InvalidValueError, match=r"columns: .* must be sender, receiver, rate_kbps"):
        records(Opcode.SET_RATE, **PAIR)
    with pytest.raises(InvalidValueError, match="vlan_vid: 4095 is outside 1 to 4094"):
        encode(FrameAddress(A, B, 4095, 0), Opcode.KEEP_ALIVE, KEEP_ALIVE, 0, 0)
    with pytest.raises(InvalidValueError, match=r"destination: '01000000000.' must be a unicast address"):
        encode(FrameAddress(1 << 40, B, 10, 0), Opcode.KEEP_ALIVE, KEEP_ALIVE, 0, 0)
    with pytest.raises(InvalidValueError, match=r"entries: .* must be records of SET_RATE"):
        encode(TO_AGENT, Opcode.SET_RATE, KEEP_ALIVE, 0, 0)
    with pytest.raises(InvalidValueError, match="epoch: 4294967296 is outside 0 to 4294967295"):
        encode(FrameAddress(A, B, 10, 2**32), Opcode.KEEP_ALIVE, KEEP_ALIVE, 0, 0)
    with pytest.raises(InvalidValueError, match="rate_kbps: 1 must have 2 values, as the others"):
        records(Opcode.SET_RATE, sender=[A, A], receiver=[B, A], rate_kbps=[1])
    for octets in (SHORT_PARAMETER_BYTES - 1, LONG_PARAMETER_BYTES + 1):
        with pytest.raises(InvalidValueError, match=f"longest_octets: {octets} is outside 44 to 1498"):
            encode(TO_AGENT, Opcode.KEEP_ALIVE, KEEP_ALIVE, 0, 0, octets)


def said(sequence: int, epoch: int = 1) -> ControlFrame:
    read = decode(encode(FrameAddress(A, B, 10, epoch), Opcode.KEEP_ALIVE, KEEP_ALIVE, sequence, 0)[0])
    assert isinstance(read, ControlFrame)
    return read


def test_old_and_repeated_frames_are_no_news_and_a_new_epoch_is() -> None:
    order = SequenceWindow()
    first = [(sequence, 1) for sequence in (65_534, 65_535, 65_535, 0, 65_535, 32_767, 32_766)]
    news = [order.accept(said(sequence, epoch)) for sequence, epoch in [*first, (5, 2), (4, 2), (6, 2)]]
    assert news == [True, True, False, True, False, True, False, True, False, True]


def test_addresses_are_octets_and_numbers() -> None:
    entries = records(Opcode.KEEP_ALIVE, sender=[A, B], receiver=[B, 2**48 - 1])
    assert entries["sender"].tolist() == [[0, 0x16, 0x3E, 0, 0, 1], [0, 0x16, 0x3E, 0, 0, 2]]
    assert mac_numbers(entries["receiver"]).tolist() == [B, 2**48 - 1]


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        ("8808", True),
        ("88b5 00", True),
        ("8100 000a 8808", True),
        ("8100 000a 88b5 00", True),
        ("8100 000a 0800", False),
        ("8100 8808", False),
        ("8100 8808 00", False),
        ("88", False),
        ("", False),
        ("0800 8808", False),
    ],
)
def test_frames_of_agents_are_told_by_their_ethertype(octets: str, expected: bool) -> None:
    assert is_control(bytes(12) + bytes.fromhex(octets)) == expected
