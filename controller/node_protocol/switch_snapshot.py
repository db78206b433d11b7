"""A node's snapshot of its connected switches and links, for its peers; besides an interval's messages.

| octet | field | octets | meaning |
|---|---|---|---|
| 0 | magic | 4 | ``DETS`` |
| 4 | version | 1 | 7 |
| 5 | kind | 1 | 3 |
| 6 | zero | 2 | 0 |
| 8 | fabric | 8 | as in ``header`` |
| 16 | token | 8 | the incarnation, as in ``header`` |
| 24 | number | 8 | of the sender's snapshots, from 1 |
| 32 | rows | 16 | the numbers of switches, probes, receivers and lost switches that follow |
| 48 | columns | .. | of the four tables, each as a whole |

A snapshot is sent after each change and also periodically: the next one makes up for a lost one.
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
    """The sender's incarnation, and the snapshot's number."""

    token: int
    number: int


@dataclass(frozen=True)
class SwitchSnapshot:
    """A node's state of its switches.

    ``up`` (switches,) are the dpids of switches under its control. ``sender_*`` and ``receiver_*`` (probes,) are the
    ports between which probes arrived at these switches lately, ``late`` marks those whose next probe is late.
    ``sent_to`` (receivers,) are the VNs to which its VNs send, rows of the VN table. ``lost_switches`` (switches,) were
    under its control and have disconnected; its other switches are being brought up.
    """

    up: NDArray[np.uint64]
    sender_dpid: NDArray[np.uint64]
    receiver_dpid: NDArray[np.uint64]
    sender_port: IntArray
    receiver_port: IntArray
    late: BoolArray
    sent_to: IntArray
    lost_switches: NDArray[np.uint64]


def encode_snapshot(head: SnapshotHeader, fabric: bytes, snapshot: SwitchSnapshot) -> bytes:
    """Return the bytes of a snapshot."""
    return encode_tables(KIND, fabric, _HEAD, head, _TABLES, snapshot)


def decode_places(data: Octets, fabric: bytes, vns: int) -> tuple[SnapshotHeader, SwitchSnapshot]:
    """Return the decoded snapshot; raise MessageRejectedError if it is malformed."""
    head, columns = decode_tables(data, KIND, fabric, _HEAD, _TABLES)
    if columns["sent_to"].max(initial=0) >= vns:
        raise MessageRejectedError(RejectCause.ROW, f"sent_to names rows beyond {vns} VNs")
    if columns["late"].view(np.uint8).max(initial=0) > 1:
        raise MessageRejectedError(RejectCause.VALUE, "late has values that are neither true nor false")
    return SnapshotHeader._make(head), SwitchSnapshot(**columns)
