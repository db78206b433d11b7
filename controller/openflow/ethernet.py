"""The Ethernet header of a frame, with an 802.1Q tag or without."""

from __future__ import annotations

import re
from struct import Struct
from typing import NamedTuple

from controller.errors import InvalidValueError
from controller.openflow.actions import ETH_TYPE_VLAN
from controller.openflow.bounded_reader import Buffer, read
from controller.openflow.constants import ETH_TYPES_IP

ETH_TYPE_LLDP = 0x88CC
# MAC control (IEEE 802.3, clause 31) and local experiments (IEEE 802): the EtherTypes of agents' frames.
ETH_TYPE_MAC_CONTROL = 0x8808
ETH_TYPE_LOCAL_EXPERIMENT = 0x88B5
CONTROL_ETH_TYPES = (ETH_TYPE_MAC_CONTROL, ETH_TYPE_LOCAL_EXPERIMENT)
BROADCAST = 2**48 - 1

_ETHERNET = Struct("!6s6sH")
_MAC = re.compile(r"[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(?:\1[0-9A-Fa-f]{2}){4}")
_TAG = Struct("!HH")
_VID_BITS = 0x0FFF
_IPV4_CHECKSUM = 10  # its offset in the packet
HEADER_BYTES = _ETHERNET.size
TAGGED_HEADER_BYTES = _ETHERNET.size + _TAG.size


class FrameHeader(NamedTuple):
    """Addresses are integers of 48 bits; ``vlan_vid`` is None for an untagged frame and 0 for a priority tag."""

    eth_dst: int
    eth_src: int
    vlan_vid: int | None
    eth_type: int

    @property
    def is_multicast(self) -> bool:
        """Whether the destination is a group address (broadcast included)."""
        return bool(self.eth_dst >> 40 & 1)


def parse_frame(frame: Buffer) -> FrameHeader:
    """Return the header of ``frame``; ``eth_type`` is the one after the outer tag.

    Raises ProtocolError when the frame is cut short.
    """
    view = memoryview(frame)
    eth_dst, eth_src, eth_type = read(_ETHERNET, view, 0, "Ethernet frame", "header")
    vlan_vid = None
    if eth_type == ETH_TYPE_VLAN:
        tci, eth_type = read(_TAG, view, _ETHERNET.size, "Ethernet frame", "802.1Q tag")
        vlan_vid = tci & _VID_BITS
    return FrameHeader(int.from_bytes(eth_dst), int.from_bytes(eth_src), vlan_vid, eth_type)


def is_control(frame: Buffer) -> bool:
    """Return whether a frame is a control frame of agents, by its EtherType."""
    view = memoryview(frame)
    offset = HEADER_BYTES - 2
    if len(view) >= offset + 6 and view[offset : offset + 2] == ETH_TYPE_VLAN.to_bytes(2):
        offset += _TAG.size
    return int.from_bytes(view[offset : offset + 2]) in CONTROL_ETH_TYPES


def ip_ecn_of(frame: Buffer, header: FrameHeader) -> int | None:
    """Return the ECN field of a frame with this header; None if it is no IP packet, or cut short."""
    index = _ecn_at(header)
    if index is None or index >= len(frame):
        return None
    return memoryview(frame)[index] >> _ecn_shift(header) & 0b11


def with_ip_ecn(frame: bytes, ip_ecn: int) -> bytes:
    """Return an IP packet with another ECN field and a corrected IPv4 checksum (RFC 1624, equation 3).

    Other frames are returned unchanged.
    """
    header = parse_frame(frame)
    ecn_index, shift = _ecn_at(header), _ecn_shift(header)
    if ecn_index is None or len(frame) < ecn_index - 1 + _IPV4_CHECKSUM + 2:
        return frame
    changed = bytearray(frame)
    changed[ecn_index] = changed[ecn_index] & ~(0b11 << shift) | ip_ecn << shift
    if shift == 0:  # IPv4: the ECN field is in the first 16-bit word that the checksum covers
        ecn_word, checksum_bytes = (
            slice(ecn_index - 1, ecn_index + 1),
            slice(ecn_index - 1 + _IPV4_CHECKSUM, ecn_index - 1 + _IPV4_CHECKSUM + 2),
        )
        before, after, checksum = (
            int.from_bytes(field) for field in (frame[ecn_word], changed[ecn_word], frame[checksum_bytes])
        )
        total = (~checksum & 0xFFFF) + (~before & 0xFFFF) + after
        total = (total & 0xFFFF) + (total >> 16)
        changed[checksum_bytes] = (~(total + (total >> 16)) & 0xFFFF).to_bytes(2)
    return bytes(changed)


def _ecn_at(header: FrameHeader) -> int | None:
    """Return the index of the byte with the ECN field in a frame: the second byte of the IP packet."""
    if header.eth_type not in ETH_TYPES_IP:
        return None
    return (HEADER_BYTES if header.vlan_vid is None else TAGGED_HEADER_BYTES) + 1


def _ecn_shift(header: FrameHeader) -> int:
    """Return the shift of the ECN field in its byte: IPv6's traffic class begins in the middle of the first byte."""
    return 0 if header.eth_type == ETH_TYPES_IP[0] else 4


def format_mac(address: int) -> str:
    """Return an address in text form: ``00:16:3e:00:00:01``."""
    return address.to_bytes(6).hex(":")


def parse_mac(key: str, text: str) -> int:
    """Return the address in a text with colons or dashes; otherwise raise InvalidValueError, naming ``key``."""
    if _MAC.fullmatch(text) is None:
        raise InvalidValueError(key, text, "is not a MAC address, such as 00:16:3e:00:00:01")
    return int(text.replace(text[2], ""), 16)


def build_frame(header: FrameHeader, payload: bytes) -> bytes:
    """Return the frame with that header and payload, unpadded."""
    tag = b"" if header.vlan_vid is None else _TAG.pack(ETH_TYPE_VLAN, header.vlan_vid)
    return header.eth_dst.to_bytes(6) + header.eth_src.to_bytes(6) + tag + header.eth_type.to_bytes(2) + payload
