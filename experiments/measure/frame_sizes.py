"""Sizes of the frames that experiments send, as an edge switch counts them: Ethernet with its 802.1Q tag."""

from __future__ import annotations

VLAN_TAG_BYTES = 4
ETHERNET_BYTES = 14
TCP_HEADERS_BYTES = ETHERNET_BYTES + 20 + 32  # Ethernet, IPv4, TCP with timestamps
TCP_PAYLOAD_BYTES = 1448  # in a full segment of a 1500-byte MTU
TCP_WIRE_BYTES = ETHERNET_BYTES + 1500 + VLAN_TAG_BYTES
UDP_PAYLOAD_BYTES = 1448  # the same as TCP's
UDP_FRAME_BYTES = UDP_PAYLOAD_BYTES + 8 + 20 + 14 + 4  # UDP, IPv4, Ethernet, 802.1Q
