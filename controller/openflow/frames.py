"""The Ethernet header of a frame, with an 802.1Q tag or without."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from controller.openflow.actions import ETH_TYPE_VLAN
from controller.openflow.buffers import Buffer, read

ETH_TYPE_LLDP = 0x88CC
BROADCAST = 2**48 - 1

_ETHERNET = Struct("!6s6sH")
_TAG = Struct("!HH")
_VID_BITS = 0x0FFF
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
    """Return the header of ``frame``; ``eth_type`` is that behind the outer tag. ProtocolError when it is cut short."""
    view = memoryview(frame)
    eth_dst, eth_src, eth_type = read(_ETHERNET, view, 0, "Ethernet frame", "header")
    vlan_vid = None
    if eth_type == ETH_TYPE_VLAN:
        tci, eth_type = read(_TAG, view, _ETHERNET.size, "Ethernet frame", "802.1Q tag")
        vlan_vid = tci & _VID_BITS
    return FrameHeader(int.from_bytes(eth_dst), int.from_bytes(eth_src), vlan_vid, eth_type)


def format_mac(address: int) -> str:
    """Return an address as people write it: ``00:16:3e:00:00:01``."""
    return address.to_bytes(6).hex(":")


def build_frame(header: FrameHeader, payload: bytes) -> bytes:
    """Return the frame with that header and payload, unpadded."""
    tag = b"" if header.vlan_vid is None else _TAG.pack(ETH_TYPE_VLAN, header.vlan_vid)
    return header.eth_dst.to_bytes(6) + header.eth_src.to_bytes(6) + tag + header.eth_type.to_bytes(2) + payload
