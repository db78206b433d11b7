"""The frames of an interval, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from controller.columns import BoolArray, FloatArray, IntArray

Layout: TypeAlias = tuple[tuple[str, str], ...]


class OmittedColumns:
    """Columns of entries that are left out of a frame, since they have one value or are of no use to the hearer.

    They are added up. Numbers, not an enumeration, whose operators take a microsecond each: a frame is asked for all.
    """

    NONE = 0
    UNREAD = 1
    """``unread_intervals`` are 0"""
    ACTIVE = 2
    """``active`` are true"""
    FORFEITS = 4
    """``forfeits`` are false"""
    AMOUNTS = 8
    """``last_bps`` and ``refused_bps``, which the allocator alone looks at"""


class GrantRecord(NamedTuple):
    """What a peer was granted: the ``rows`` of ``rate_bps``, for the pairs of ``sender``, an array that stays."""

    sender: IntArray
    rate_bps: FloatArray
    rows: IntArray


@dataclass(frozen=True)
class ReportMessage:
    """Senders' to receivers' shard: Loads, and Traffic Reports of entries under control or with traffic.

    ``loaded`` (receivers,) are rows of VNs, ascending, with what the speaker's meters bring there, as in ``Loads``. The
    others have shape (entries,) and are sorted by receiver, then sender, rows of VNs: as in ``TrafficReport``, and
    what policies see of an entry besides (``Surroundings``).
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
    """what the entry's meter dropped"""
    limits: FloatArray | GrantRecord
    """``limit_bps``, or where it is to be found"""
    available_bps: FloatArray
    last_bps: FloatArray
    """what passed the entry's meter in the last interval"""
    unread_intervals: IntArray
    drops: BoolArray
    """whether the entry's meter dropped something"""
    active: BoolArray

    @property
    def limit_bps(self) -> FloatArray:
        """The limits in force."""
        limits = self.limits
        return limits if isinstance(limits, np.ndarray) else limits.rate_bps[limits.rows]


@dataclass(frozen=True)
class GrantMessage:
    """Receivers' to senders' shard: which receivers are congested, and Set Rate for the entries that were reported.

    ``decided`` (receivers,) are the rows of VNs whose senders are under control, ascending, ``congested`` those of them
    that are congested, ``senders`` how many each shares its limit among. ``forfeits`` (entries,) are those whose
    senders lose the bursts that they have saved; where such a frame is lost they keep them.
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
    """To who decides for the whole network: what other VLANs' senders to the speaker's receivers use of links.

    ``link`` are rows of links, ascending; the others have its shape and are as in ``PolicyView``.
    """

    kind: ClassVar[int] = 4
    first: ClassVar[str] = "link"
    tables: ClassVar[tuple[Layout, Layout]] = (
        (("cross_traffic_bps", "<f8"), ("cross_guaranteed_bps", "<f8"), ("link", "<u4")),
        (),
    )

    link: IntArray
    cross_traffic_bps: FloatArray
    cross_guaranteed_bps: FloatArray


@dataclass(frozen=True)
class QueueReadingsMessage:
    """To the same: what the receiving queues of the speaker's VNs did since they were read before (``QueueReadings``).

    ``vn`` are the rows of those that were read now, ascending; the others have its shape.
    """

    kind: ClassVar[int] = 5
    first: ClassVar[str] = "vn"
    tables: ClassVar[tuple[Layout, Layout]] = (
        (
            ("served_bps", "<f8"),
            ("served_packets", "<f8"),
            ("dropped_bps", "<f8"),
            ("dropped_packets", "<f8"),
            ("elapsed_s", "<f8"),
            ("vn", "<u4"),
        ),
        (),
    )

    vn: IntArray
    served_bps: FloatArray
    served_packets: FloatArray
    dropped_bps: FloatArray
    dropped_packets: FloatArray
    elapsed_s: FloatArray


@dataclass(frozen=True)
class PortReadingsMessage:
    """To the same: what the ports of the speaker's switches sent since they were read before (``PortReadings``).

    ``link`` are the rows of the links whose ports were read now, ascending; the others have its shape.
    """

    kind: ClassVar[int] = 6
    first: ClassVar[str] = "link"
    tables: ClassVar[tuple[Layout, Layout]] = (
        (("transmitted_bps", "<f8"), ("elapsed_s", "<f8"), ("link", "<u4")),
        (),
    )

    link: IntArray
    transmitted_bps: FloatArray
    elapsed_s: FloatArray


@dataclass(frozen=True)
class MarkReadingsMessage:
    """To the same: what the phantom meters of the speaker's VNs counted since they were read before (``MarkReadings``).

    ``vn`` are the rows of those that were read now, ascending; the others have its shape.
    """

    kind: ClassVar[int] = 7
    first: ClassVar[str] = "vn"
    tables: ClassVar[tuple[Layout, Layout]] = ((("arrived_bps", "<f8"), ("beyond_bps", "<f8"), ("vn", "<u4")), ())

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
