"""The ECN field of IP: matched, set, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ip_frames import IPV4, IPV6, ip_frame, traffic_class

from controller.errors import InvalidValueError, ProtocolError
from controller.openflow.actions import SetIpEcn, UnknownActionError, decode_actions, encode_actions
from controller.openflow.ethernet import FrameHeader, build_frame, ip_ecn_of, parse_frame, with_ip_ecn
from controller.openflow.match import Match, UnknownMatchError, encode_match, match_from_oxms, read_oxms

CE_OF_VLAN_10 = Match(vlan_vid=10, eth_type=IPV4, ip_ecn=3)


def decode_match(octets: bytes) -> Match:
    return match_from_oxms(read_oxms(memoryview(octets), 0, "match")[0])


def test_the_bytes_of_a_match_and_an_action() -> None:
    """By hand (OpenFlow 1.3.5, section 7.2.3): class 0x8000, field 9, one byte; padded to 8."""
    fields = bytes.fromhex("80000a02 0800 80000c02 100a 80001201 03")
    assert encode_match(CE_OF_VLAN_10) == b"\x00\x01\x00\x15" + fields + bytes(3)
    assert decode_match(encode_match(CE_OF_VLAN_10)) == CE_OF_VLAN_10
    action = bytes.fromhex("0019 0010 80001201 01 00000000000000")
    assert encode_actions([SetIpEcn(1)]) == action
    assert decode_actions(memoryview(action), "FLOW_MOD") == (SetIpEcn(1),)


@pytest.mark.parametrize("eth_type", [None, 0x0806, 0x88CC])
def test_it_needs_an_ethertype_of_ip(eth_type: int | None) -> None:
    with pytest.raises(InvalidValueError, match=r"match\.ip_ecn: 3 needs eth_type 0x0800 or 0x86dd"):
        Match(eth_type=eth_type, ip_ecn=3)
    with pytest.raises(UnknownMatchError, match="needs eth_type"):
        decode_match(bytes.fromhex("0001 0009 80001201 03 00000000000000"))


@pytest.mark.parametrize("value", [-1, 4])
def test_values_beyond_two_bits_are_refused(value: int) -> None:
    with pytest.raises(InvalidValueError, match=r"match\.ip_ecn: .* is not an integer from 0 to 3"):
        Match(eth_type=IPV6, ip_ecn=value)
    with pytest.raises(InvalidValueError, match=r"set_ip_ecn\.ip_ecn: .* is not an integer from 0 to 3"):
        SetIpEcn(value)
    with pytest.raises(UnknownActionError, match="set_ip_ecn"):
        decode_actions(memoryview(bytes.fromhex("0019 0010 80001201 04 00000000000000")), "FLOW_MOD")


def test_a_field_of_another_size_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="oxm_length of ip_ecn"):
        decode_match(bytes.fromhex("0001 000a 80001202 0003 000000000000"))


@settings(max_examples=200)
@given(
    st.sampled_from([IPV4, IPV6]),
    st.integers(0, 255),
    st.integers(0, 3),
    st.none() | st.just(10),
    st.integers(0, 2**48 - 1),
)
def test_setting_it_keeps_the_dscp_and_the_checksum_right(
    eth_type: int, before: int, ip_ecn: int, vlan_vid: int | None, source: int
) -> None:
    frame = ip_frame(eth_type, before, source, 2, vlan_vid)
    assert ip_ecn_of(frame, parse_frame(frame)) == before & 3
    changed = with_ip_ecn(frame, ip_ecn)
    assert traffic_class(changed) == before & ~3 | ip_ecn
    assert parse_frame(changed) == parse_frame(frame)
    assert with_ip_ecn(changed, before & 3) == frame


def test_what_is_no_ip_packet_has_none_and_stays_as_it_is() -> None:
    arp = build_frame(FrameHeader(1, 2, 10, 0x0806), bytes(46))
    short = build_frame(FrameHeader(1, 2, None, IPV4), b"\x45")
    for frame in (arp, short):
        assert ip_ecn_of(frame, parse_frame(frame)) is None
        assert with_ip_ecn(frame, 3) == frame
