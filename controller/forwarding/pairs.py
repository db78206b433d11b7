"""What talks: hosts, and pairs of VNs."""

from __future__ import annotations

from typing import NamedTuple


class Host(NamedTuple):
    """A host address in a VLAN."""

    vlan_vid: int
    mac: int


class Pair(NamedTuple):
    """A (sender VN, receiver VN) pair, as rows of the VN table."""

    sender: int
    receiver: int
