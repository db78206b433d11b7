"""What a node tells its peers of its switches, besides the interval's frames and hosts: links, and which are there.

| octet | field | octets | meaning |
|---|---|---|---|
| 0 | magic | 4 | ``DETS`` |
| 4 | version | 1 | 7 |
| 5 | kind | 1 | 3 |
| 6 | zero | 2 | 0 |
| 8 | fabric | 8 | as in ``header`` |
| 16 | token | 8 | as in ``header`` |
| 24 | number | 8 | of the speaker's snapshots, from 1 |
| 32 | rows | 16 | how many switches, hellos, receivers and lost switches follow |
| 48 | columns | .. | of the four tables, each as a whole |

It is a snapshot, sent when something has changed and again now and then: a lost one is made good by the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, IntArray
from controller.node_protocol.header import Octets
from controller.node_protocol.rejection import MessageRejectedError, RejectCause
from controller.node_protocol.table_codec import Tables, decode_tables, encode_tables

KIND = 3
_HEAD = Struct("<2Q")
_TABLES: Tables = (
    (("up", "<u8"),),
    (
        ("sender_dpid", "<u8"),
        ("receiver_dpid", "<u8"),
        ("sender_port", "<u4"),
        ("receiver_port", "<u4"),
        ("late", "|b1"),
    ),
    (("sent_to", "<u4"),),
    (("lost_switches", "<u8"),),
)


class SnapshotHeader(NamedTuple):
    """Who speaks, and when."""

    token: int
    number: int


@dataclass(frozen=True)
class SwitchSnapshot:
    """What a node knows of its own switches.

    ``up`` (switches,) are the dpids of those under its control. ``sender_*`` and ``receiver_*`` (hellos,) are the ports
    between which hellos were heard at these switches lately, ``late`` those whose next one is missing. ``sent_to``
    (receivers,) are the VNs that they send to, rows of the VN table. ``lost`` (switches,) are those that it had under
    control and that have gone; others are about to be taken over.
    """

    up: NDArray[np.uint64]
    sender_dpid: NDArray[np.uint64]
    receiver_dpid: NDArray[np.uint64]
    sender_port: IntArray
    receiver_port: IntArray
    late: BoolArray
    sent_to: IntArray
    lost_switches: NDArray[np.uint64]


def encode_snapshot(head: SnapshotHeader, fabric: bytes, places: SwitchSnapshot) -> bytes:
    """Return the bytes of a snapshot."""
    return encode_tables(KIND, fabric, _HEAD, head, _TABLES, places)


def decode_places(data: Octets, fabric: bytes, vns: int) -> tuple[SnapshotHeader, SwitchSnapshot]:
    """Return what the bytes of a snapshot say; raise FrameError for any that say nothing."""
    head, columns = decode_tables(data, KIND, fabric, _HEAD, _TABLES)
    if columns["sent_to"].max(initial=0) >= vns:
        raise MessageRejectedError(RejectCause.ROW, f"sent_to names rows beyond {vns} VNs")
    if columns["late"].view(np.uint8).max(initial=0) > 1:
        raise MessageRejectedError(RejectCause.VALUE, "late has values that are neither true nor false")
    return SnapshotHeader._make(head), SwitchSnapshot(**columns)
