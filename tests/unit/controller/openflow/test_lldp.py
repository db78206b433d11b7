from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import InvalidValueError, ProtocolError
from controller.openflow import lldp

KEY = b"the key of this run"
DPID, PORT_NO = 0x1F, 3
NONCE = lldp.authenticator(KEY, DPID, PORT_NO)
FRAME = lldp.build(DPID, PORT_NO, NONCE)


def test_a_frame_byte_by_byte() -> None:
    assert lldp.build(0x1F, 3, bytes(range(16))).hex() == (
        "0180c200000e" + "02000000001f" + "88cc"
        "0216" + "07" + b"dpid:000000000000001f".hex() + "0402" + "0733" + "0602" + "0078"
        "fe14" + "02de7501" + "000102030405060708090a0b0c0d0e0f" + "0000"
    )


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1), st.binary(min_size=1))
def test_what_is_built_is_parsed(dpid: int, port_no: int, key: bytes) -> None:
    frame = lldp.build(dpid, port_no, lldp.authenticator(key, dpid, port_no))
    info = lldp.parse(frame)
    assert info is not None
    assert (info.dpid, info.port_no) == (dpid, port_no)
    assert lldp.is_authentic(info, key)
    assert not lldp.is_authentic(info, key + b"x")
    assert len(frame) >= 60


def test_what_others_add_to_a_frame_of_ours_is_left_out() -> None:
    foreign = bytes.fromhex("fe04" + "00000002")
    assert lldp.parse(FRAME[:14] + foreign + FRAME[14:]) == lldp.parse(FRAME)


def test_a_copied_authenticator_proves_no_other_port() -> None:
    forged = lldp.parse(lldp.build(DPID, 4, lldp.authenticator(KEY, DPID, PORT_NO)))
    assert forged is not None
    assert not lldp.is_authentic(forged, KEY)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        FRAME[:10],
        FRAME[:12] + b"\x08\x00" + FRAME[14:],
        FRAME[:12] + b"\x81\x00\x00\x0a" + FRAME[12:],
        FRAME[:14] + bytes.fromhex("0207041122334455660402053106020078"),
        FRAME[:14] + bytes.fromhex("02070411223344556604020531060200780000"),
        FRAME.replace(bytes.fromhex("02de7501"), bytes.fromhex("00000001")),
    ],
)
def test_other_frames_are_not_ours(frame: bytes) -> None:
    assert lldp.parse(frame) is None


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"dpid:0", b"dpid:x", "LLDP: chassis id"),
        (b"dpid:", b"dpie:", "LLDP: chassis id"),
        (b"\x04\x02\x073", b"\x04\x02\x07x", "LLDP: port id"),
        (b"\x04\x02\x073", b"\x04\x02\x070", "LLDP: port id"),
        (b"\x04\x02\x073", b"\x04\x0c\x0700000000019", "LLDP: port id"),  # beyond what digits are looked at
        (b"\x04\x02\x073", b"\x06\x02\x073", "LLDP: TLV of type 3: found twice"),
        (b"\xfe\x14", b"\xfe\x13", "LLDP: "),
        (b"\x00\x78", b"\x00\x78\xff\xff", "LLDP: length of TLV 127: 511"),
        (
            b"\xfe\x14\x02\xde\x75\x01" + NONCE,
            b"\xfe\x13\x02\xde\x75\x01" + NONCE[1:],
            "LLDP: authenticator: 15 bytes, expected 16",
        ),
    ],
)
def test_a_frame_of_ours_that_is_damaged_is_told(old: bytes, new: bytes, told: str) -> None:
    assert FRAME.count(old) == 1
    with pytest.raises(ProtocolError, match=told):
        lldp.parse(FRAME.replace(old, new))


@given(st.data())
def test_damage_never_raises_anything_else(data: st.DataObject) -> None:
    damaged = bytearray(FRAME[: data.draw(st.integers(0, len(FRAME)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        info = lldp.parse(bytes(damaged))
    except ProtocolError:
        return
    assert info is None or len(info.nonce) == lldp.NONCE_BYTES


@pytest.mark.parametrize(("dpid", "port_no", "nonce"), [(2**64, 1, bytes(16)), (1, 0, bytes(16)), (1, 1, bytes(15))])
def test_what_does_not_fit_is_refused(dpid: int, port_no: int, nonce: bytes) -> None:
    with pytest.raises(InvalidValueError):
        lldp.build(dpid, port_no, nonce)
