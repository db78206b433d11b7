"""The messages of an interval, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray

Layout: TypeAlias = tuple[tuple[str, str], ...]


def _one_table(row: str, *amounts: str) -> tuple[Layout, Layout]:
    """Return the tables of a message with only a first table: amounts by rows."""
    return (*((name, "<f8") for name in amounts), (row, "<u4")), ()


class OmittedColumns:
    """Columns of pairs that a message omits, since they have one value or the receiver does not need them.

    They are added up. Plain numbers: an enumeration's operators take a microsecond each, in every message.
    """

    NONE = 0
    UNREAD = 1
    """all ``unread_intervals`` are 0"""
    ACTIVE = 2
    """all ``active`` are true"""
    FORFEITS = 4
    """all ``forfeits`` are false"""
    AMOUNTS = 8
    """``last_bps`` and ``refused_bps``, which only the allocator uses"""


class GrantRecord(NamedTuple):
    """Grants to a peer: the ``rows`` of ``rate_bps``, for the pairs of ``sender``, an array that stays valid."""

    sender: IntArray
    rate_bps: FloatArray
    rows: IntArray


@dataclass(frozen=True)
class ReportMessage:
    """Senders' to receivers' shard: loads, and Traffic Reports of pairs under control or with traffic.

    ``loaded`` (receivers,) are rows of VNs, ascending, with the loads at the sender's meters, as in ``ReceiverLoads``.
    The others have shape (pairs,) and are sorted by receiver, then sender, rows of VNs: as in ``TrafficReport``, and
    the policies' further input (``IntervalContext``).
    """

    kind: ClassVar[int] = 1
    first: ClassVar[str] = "loaded"
    tables: ClassVar[tuple[Layout, Layout]] = (
        (("passed_bps", "<f8"), ("smoothed_bps", "<f8"), ("dropped_bps", "<f8"), ("loaded", "<u4")),
        (
            ("measured_bps", "<f8"),
            ("refused_bps", "<f8"),
            ("limit_bps", "<f8"),
            ("available_bps", "<f8"),
            ("last_bps", "<f8"),
            ("sender", "<u4"),
            ("receiver", "<u4"),
            ("unread_intervals", "<u4"),
            ("drops", "|b1"),
            ("active", "|b1"),
        ),
    )

    loaded: IntArray
    passed_bps: FloatArray
    smoothed_bps: FloatArray
    dropped_bps: FloatArray
    sender: IntArray
    receiver: IntArray
    measured_bps: FloatArray
    refused_bps: FloatArray
    """drops at the pair's meter"""
    limits: FloatArray | GrantRecord
    """``limit_bps``, or a reference to it"""
    available_bps: FloatArray
    last_bps: FloatArray
    """what passed the pair's meter in the last interval"""
    unread_intervals: IntArray
    drops: BoolArray
    """whether the pair's meter dropped frames"""
    active: BoolArray

    @property
    def limit_bps(self) -> FloatArray:
        """The effective limits."""
        limits = self.limits
        return limits if isinstance(limits, np.ndarray) else limits.rate_bps[limits.rows]


@dataclass(frozen=True)
class GrantMessage:
    """Receivers' to senders' shard: the congested receivers, and Set Rate for the reported pairs.

    ``decided`` (receivers,) are the rows of VNs with senders under control, ascending, ``congested`` the mask of the
    congested ones, ``senders`` the number of senders that share each limit. ``forfeits`` (pairs,) is the mask of
    pairs that lose their saved bursts; if the message is lost, they keep them.
    """

    kind: ClassVar[int] = 2
    first: ClassVar[str] = "decided"
    tables: ClassVar[tuple[Layout, Layout]] = (
        (("decided", "<u4"), ("senders", "<u4"), ("congested", "|b1")),
        (("rate_bps", "<f8"), ("sender", "<u4"), ("receiver", "<u4"), ("forfeits", "|b1")),
    )

    decided: IntArray
    senders: IntArray
    congested: BoolArray
    sender: IntArray
    receiver: IntArray
    rate_bps: FloatArray
    forfeits: BoolArray


@dataclass(frozen=True)
class LinkUseMessage:
    """To the allocator of network-wide policies: the cross traffic to the sender's receivers on links.

    ``link`` are rows of links, ascending; the other columns have its shape and are as in ``PolicyView``.
    """

    kind: ClassVar[int] = 4
    first: ClassVar[str] = "link"
    tables: ClassVar[tuple[Layout, Layout]] = _one_table("link", "cross_traffic_bps", "cross_guaranteed_bps")

    link: IntArray
    cross_traffic_bps: FloatArray
    cross_guaranteed_bps: FloatArray


@dataclass(frozen=True)
class QueueReadingsMessage:
    """To the allocator of network-wide policies: readings of the sender's receiving queues (``QueueReadings``).

    ``vn`` are the rows of the VNs that were read in this interval, ascending; the other columns have its shape.
    """

    kind: ClassVar[int] = 5
    first: ClassVar[str] = "vn"
    tables: ClassVar[tuple[Layout, Layout]] = _one_table(
        "vn", "served_bps", "served_packets", "dropped_bps", "dropped_packets", "elapsed_s"
    )

    vn: IntArray
    served_bps: FloatArray
    served_packets: FloatArray
    dropped_bps: FloatArray
    dropped_packets: FloatArray
    elapsed_s: FloatArray


@dataclass(frozen=True)
class PortReadingsMessage:
    """To the allocator of network-wide policies: readings of the sender's ports (``PortReadings``).

    ``link`` are the rows of the links that were read in this interval, ascending; the other columns have its shape.
    """

    kind: ClassVar[int] = 6
    first: ClassVar[str] = "link"
    tables: ClassVar[tuple[Layout, Layout]] = _one_table("link", "transmitted_bps", "elapsed_s")

    link: IntArray
    transmitted_bps: FloatArray
    elapsed_s: FloatArray


@dataclass(frozen=True)
class MarkReadingsMessage:
    """To the allocator of network-wide policies: readings of the sender's phantom meters (``MarkReadings``).

    ``vn`` are the rows of the VNs that were read in this interval, ascending; the other columns have its shape.
    """

    kind: ClassVar[int] = 7
    first: ClassVar[str] = "vn"
    tables: ClassVar[tuple[Layout, Layout]] = _one_table("vn", "arrived_bps", "beyond_bps")

    vn: IntArray
    arrived_bps: FloatArray
    beyond_bps: FloatArray


Read: TypeAlias = QueueReadingsMessage | PortReadingsMessage | MarkReadingsMessage
Frame: TypeAlias = ReportMessage | GrantMessage | LinkUseMessage | Read
FORMS: tuple[type[Frame], ...] = (
    ReportMessage,
    GrantMessage,
    LinkUseMessage,
    QueueReadingsMessage,
    PortReadingsMessage,
    MarkReadingsMessage,
)
