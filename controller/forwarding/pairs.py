"""Value types of forwarding: a host, a host's move, and a pair of VNs."""

from __future__ import annotations

from typing import NamedTuple


class Host(NamedTuple):
    """A host address in a VLAN."""

    vlan_vid: int
    mac: int


class HostChange(NamedTuple):
    """A host moved from the VN ``before`` to the VN ``after``, rows; None: unknown."""

    host: Host
    before: int | None
    after: int | None


class Pair(NamedTuple):
    """A (sender VN, receiver VN) pair, as rows of the VN table."""

    sender: int
    receiver: int
