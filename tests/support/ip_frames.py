"""Whole IP packets in frames, and their checksums by the book (RFC 1071)."""

from __future__ import annotations

import struct

from controller.openflow.ethernet import FrameHeader, build_frame

IPV4, IPV6 = 0x0800, 0x86DD


def checksum(header: bytes) -> int:
    """The checksum over an IPv4 header whose own field is zero; 0 over a header that is right."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ip_frame(
    eth_type: int, traffic_class: int, source: int, destination: int, vlan_vid: int | None = None, size: int = 60
) -> bytes:
    """Return a UDP packet, as far as its IP header goes, whose DSCP and ECN are ``traffic_class``."""
    if eth_type == IPV4:
        fixed = (0x45, traffic_class, 20 + size, 1, 0, 64, 17)
        bare = struct.pack("!BBHHHBBH4s4s", *fixed, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
        packet = bare[:10] + checksum(bare).to_bytes(2) + bare[12:]
    else:
        packet = struct.pack("!IHBB16s16s", 6 << 28 | traffic_class << 20, size, 17, 64, b"\xfd" * 16, b"\xfe" * 16)
    return build_frame(FrameHeader(destination, source, vlan_vid, eth_type), packet + bytes(size))


def traffic_class(frame: bytes) -> int:
    """The DSCP and the ECN of a packet, tagged or not."""
    at = 18 if frame[12:14] == b"\x81\x00" else 14
    if frame[at - 2 : at] == IPV4.to_bytes(2):
        assert checksum(frame[at : at + 20]) == 0
        return frame[at + 1]
    return int.from_bytes(frame[at : at + 2]) >> 4 & 0xFF
