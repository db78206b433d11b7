"""A node's message to a peer about the hosts behind its switches, for VNs whose hosts have changed.

| octet | field | octets | meaning |
|---|---|---|---|
| 0 | magic | 4 | ``DETS`` |
| 4 | version | 1 | 7 |
| 5 | kind | 1 | 8 |
| 6 | zero | 2 | 0 |
| 8 | fabric | 8 | as in ``header`` |
| 16 | token | 8 | the incarnation, as in ``header`` |
| 24 | number | 8 | of the sender's messages of this kind, from 1 |
| 32 | since, until | 16 | the message has all VNs whose last change has a number above ``since``, up to ``until`` |
| 48 | known token | 8 | the receiver's incarnation whose hosts the sender has |
| 56 | known | 8 | the last number that the sender has |
| 64 | rows | 8 | the numbers of hosts and VNs that follow |
| 72 | columns | .. | ``mac``, ``learned``, each as a whole, then ``vn``, ``hosts`` |

A message has all present hosts of each VN that it names. A receiver can use it if it has everything up to ``since``.
Changes are retransmitted until the receiver acknowledges them, so that nothing is lost with a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import IntArray
from controller.node_protocol.header import Octets
from controller.node_protocol.rejection import MessageRejectedError, RejectCause
from controller.node_protocol.table_codec import Tables, decode_tables, encode_tables

KIND = 8
_HEAD = Struct("<6Q")
_MULTICAST = 1 << 40
_TABLES: Tables = (
    (("mac", "<u8"), ("learned", "<u8")),
    (("vn", "<u4"), ("hosts", "<u4")),
)


class HostUpdateHeader(NamedTuple):
    """The sender's incarnation and the message's numbers, and the acknowledgement of the receiver's hosts."""

    token: int
    number: int
    since: int
    until: int
    known_token: int
    known: int


@dataclass(frozen=True)
class VnHosts:
    """All hosts of some VNs.

    ``vn`` (vns,) are rows of the VN table, ``hosts`` the number of hosts of each. ``mac`` (hosts,) are their addresses,
    those of the first VN first, ``learned`` (hosts,) the numbers of the changes that placed them there.
    """

    mac: NDArray[np.uint64]
    learned: NDArray[np.uint64]
    vn: IntArray
    hosts: IntArray


def encode_host_update(head: HostUpdateHeader, fabric: bytes, hosts: VnHosts) -> bytes:
    """Return the bytes of a message."""
    return encode_tables(KIND, fabric, _HEAD, head, _TABLES, hosts)


def decode_host_update(data: Octets, fabric: bytes, vns: int) -> tuple[HostUpdateHeader, VnHosts]:
    """Return the decoded message; raise MessageRejectedError if it is malformed."""
    values, columns = decode_tables(data, KIND, fabric, _HEAD, _TABLES)
    head, found = HostUpdateHeader._make(values), VnHosts(**columns)
    _check(head, found, vns)
    return head, found


def _check(head: HostUpdateHeader, found: VnHosts, vns: int) -> None:
    """Raise MessageRejectedError for a host update with values that no node can send."""
    if head.since > head.until:
        raise MessageRejectedError(RejectCause.VALUE, f"since, {head.since}, is above until, {head.until}")
    if found.vn.max(initial=0) >= vns:
        raise MessageRejectedError(RejectCause.ROW, f"vn names rows beyond {vns} VNs")
    if found.hosts.sum() != len(found.mac):
        raise MessageRejectedError(
            RejectCause.LENGTH, f"{len(found.mac)} hosts are not the {found.hosts.sum()} of its VNs"
        )
    if (found.mac >> np.uint64(48)).any() or (found.mac & np.uint64(_MULTICAST)).any():
        raise MessageRejectedError(RejectCause.VALUE, "mac has values that are no host's address")
    if found.learned.max(initial=0) > head.until:
        raise MessageRejectedError(RejectCause.VALUE, f"learned has numbers above {head.until}")
