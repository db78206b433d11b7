"""Probes that locate silent hosts.

Frames to an unknown address are flooded, and no receiver can be controlled for them. A host that only receives, such as
the receiver of a UDP stream, might stay unknown for ever after the tables were emptied. So an unknown destination is
probed, with the sender's address as the source and the unknown address as the destination: its reply shows its
location. Other hosts' network cards drop their copies. IPv4 hosts are probed by ARP (RFC 826; to one address as in RFC
1122, section 2.3.2.1), IPv6 hosts by a unicast Neighbor Solicitation (RFC 4861, sections 4.3 and 7.3.3).

A router does not reply for addresses behind it; it is learned when it sends a frame.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import ETH_TYPE_ARP, ETH_TYPE_IPV6
from controller.openflow.ethernet import FrameHeader, build_frame

ETH_TYPE_IPV4 = 0x0800
# Waiting times: the first probe may precede the discovery of links, or be lost; it is repeated at growing intervals.
FIRST_WAIT_S = 1.0
MAX_PROBES = 6
MAX_SEARCHES = 1024
MAX_SEARCHES_PER_VN = 64

_ARP = struct.Struct("!HHBBH6s4s6s4s")  # hardware and protocol type, lengths, operation, sender, target
_IPV6 = struct.Struct("!IHBB16s16s")  # version, payload length, next header, hop limit, source, destination
_SOLICITATION = struct.Struct("!BBHI16sBB6s")  # type, code, checksum, reserved, target, link-layer address option
_ICMPV6 = 58
_MIN_PAYLOAD_BYTES = 46


class HostProbe(NamedTuple):
    """A frame to be handled as if it had arrived at an edge port."""

    port: PortId
    frame: bytes


class SendingVn(NamedTuple):
    """The VN on whose behalf a host is probed."""

    vlan_vid: int
    port: PortId


@dataclass(slots=True)
class _Search:
    """A host that is probed: the probe, the VN that sends to the host, and when the next probe is due."""

    probe: HostProbe
    vn: SendingVn
    probes_sent: int
    due_s: float


class HostProber:
    """The hosts that are probed; bounded, since hosts may send to any address.

    A VN has MAX_SEARCHES_PER_VN slots. When all MAX_SEARCHES are taken, a VN with fewer searches takes the newest slot
    of the VN with the most: so no VN can exclude another one.
    """

    def __init__(self) -> None:
        self._searches: dict[Host, _Search] = {}
        self._of_vn: dict[SendingVn, list[Host]] = {}  # oldest first
        self._due_s = math.inf  # no search is due before that

    def probe_host(self, host: Host, port: PortId, header: FrameHeader, payload: bytes, now_s: float) -> None:
        """Probe for a host to which the VN behind ``port`` has sent a frame of this header and payload.

        ``header`` has the tag that the VLAN's frames have at ``port``, or none if they are untagged there. A frame
        without IP causes no probe.
        """
        vn = SendingVn(host.vlan_vid, port)
        slots = len(self._of_vn.get(vn, ()))
        if host in self._searches or slots >= MAX_SEARCHES_PER_VN:
            return
        build_probe = {ETH_TYPE_IPV4: arp_request, ETH_TYPE_IPV6: neighbor_solicitation}.get(header.eth_type)
        frame = build_probe(header, payload) if build_probe is not None else None
        if frame is None or (len(self._searches) >= MAX_SEARCHES and not self._make_room(slots)):
            return
        self._searches[host] = _Search(HostProbe(port, frame), vn, 0, now_s)
        self._of_vn.setdefault(vn, []).append(host)
        self._due_s = min(self._due_s, now_s)

    def _make_room(self, slots: int) -> bool:
        """Free a slot for a VN that has ``slots``, and return True, if another VN has at least two more.

        The newest search of the VN with the most searches ends.
        """
        most_hosts = max(self._of_vn.values(), key=len)
        if len(most_hosts) <= slots + 1:
            return False
        self._forget(most_hosts[-1])
        return True

    def _forget(self, host: Host) -> None:
        vn = self._searches.pop(host).vn
        self._of_vn[vn].remove(host)
        if not self._of_vn[vn]:
            del self._of_vn[vn]

    def due_probes(self, knows: Callable[[Host], bool], now_s: float) -> list[HostProbe]:
        """Return the probes to send now; searches for known hosts and hosts that never reply end."""
        if now_s < self._due_s:
            return []
        due = []
        for host, search in list(self._searches.items()):
            if knows(host) or (search.probes_sent == MAX_PROBES and now_s >= search.due_s):
                self._forget(host)
            elif now_s >= search.due_s:
                due.append(search.probe)
                search.due_s = now_s + FIRST_WAIT_S * 2**search.probes_sent
                search.probes_sent += 1
        self._due_s = min((search.due_s for search in self._searches.values()), default=math.inf)
        return due


def arp_request(header: FrameHeader, payload: bytes) -> bytes | None:
    """Return an ARP request from a frame's sender for its destination; None unless the frame is IPv4."""
    if len(payload) < 20 or payload[0] >> 4 != 4:
        return None
    sender, target = payload[12:16], payload[16:20]
    if not any(sender):
        return None  # a host without an address yet: no neighbour could reply to it
    arp = _ARP.pack(1, ETH_TYPE_IPV4, 6, 4, 1, header.eth_src.to_bytes(6), sender, bytes(6), target)
    return build_frame(header._replace(eth_type=ETH_TYPE_ARP), arp.ljust(_MIN_PAYLOAD_BYTES, b"\0"))


def neighbor_solicitation(header: FrameHeader, payload: bytes) -> bytes | None:
    """Return a unicast Neighbor Solicitation from a frame's sender to its destination; None if it is not IPv6."""
    if len(payload) < 40 or payload[0] >> 4 != 6:
        return None
    source, target = payload[8:24], payload[24:40]
    if not any(source):
        return None
    option = (1, 1, header.eth_src.to_bytes(6))  # source link-layer address, one unit of 8 bytes
    unsummed = _SOLICITATION.pack(135, 0, 0, 0, target, *option)
    pseudo_header = source + target + struct.pack("!II", len(unsummed), _ICMPV6)
    checksum = _internet_checksum(pseudo_header + unsummed)
    message = _SOLICITATION.pack(135, 0, checksum, 0, target, *option)
    return build_frame(header, _IPV6.pack(6 << 28, len(message), _ICMPV6, 255, source, target) + message)


def _internet_checksum(data: bytes) -> int:
    """Return the checksum of RFC 1071 over an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
