"""What a shard knows of another one: what that said last, how fresh it is, and why frames were refused.

1. A frame that is damaged, or of another configuration, is refused.
2. A lower token than before is that of an owner who has been replaced. A higher one voids what was granted; the report
   stands until the new owner's: the senders go on meanwhile.
3. A number that is not above the last of its kind came late or twice.
4. What the peer had heard when it spoke must have been said not long ago, by this shard's clock. A frame that is late
   is refused, but its number is what this shard has heard: the peer's next one is in time.
5. Nobody speaks for VNs that are not its own.
6. Who takes another shard for the allocator has not reported all that the allocator has to know, nor has who leaves
   that out.
7. A frame without pairs has those of an earlier one that was accepted, one without limits those of Grants that this
   shard remembers. Who refuses it knows no pairs from then on, and the next frames that it says tell the peer so.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from typing import NamedTuple

from controller.columns import BoolArray, FloatArray, IntArray
from controller.node_protocol.decoder import PreviousMessage, decode
from controller.node_protocol.header import Header, Octets
from controller.node_protocol.message_types import (
    Frame,
    GrantMessage,
    GrantRecord,
    LinkUseMessage,
    MarkReadingsMessage,
    OmittedColumns,
    PortReadingsMessage,
    QueueReadingsMessage,
    Read,
    ReportMessage,
)
from controller.node_protocol.rejection import MessageRejectedError, RejectCause

_WITH_PAIRS = (ReportMessage, GrantMessage)
LATE_INTERVALS = 4
"""the oldest that a frame's answer may be: two intervals there, two back"""
SILENT_INTERVALS = 4
"""after so long without a frame the last report counts no longer"""
_REMEMBERED = 16  # of the numbers that were said last, when
_GIVEN = 4  # Grants whose rates are remembered


class ShardScope(NamedTuple):
    """A shard's VNs, (vns,) each: those behind its switches, and those whose senders it grants rates.

    ``allocates`` tells whether it does so in VLANs whose policy sees the whole network, where there are such.
    """

    owns: BoolArray
    decides: BoolArray
    allocates: bool = False


class Peer:
    """Another shard, whose VNs are ``theirs``; ``mine`` are those of this shard. The fabric has so many ``links``."""

    def __init__(
        self, peer_scope: ShardScope, local_scope: ShardScope, fabric: bytes, interval_s: float, links: int = 0
    ) -> None:
        self.owns, self.decides, self._asked = peer_scope
        self._mine, self._fabric, self._interval_s, self._links = local_scope, fabric, interval_s, links
        self.report: ReportMessage | None = None
        self.link_use: LinkUseMessage | None = None
        self._reported_s = self._granted_s = -math.inf
        self.refused: Counter[RejectCause] = Counter()
        self._grants: GrantMessage | None = None
        self.granted = 0
        """the number of what it granted last"""
        self._given = OrderedDict[int, GrantRecord]()  # what it was granted lately, by number
        self._read: dict[type[Frame], Read] = {}
        self._known: dict[type[Frame], PreviousMessage] = {}  # whose pairs have been found to be right
        self._knows = 0, 0  # what the peer knows of this shard's Reports and Grants
        self._pairs: dict[type[Frame], tuple[IntArray, int]] = {}  # that were said last, and since which number
        self.token, self._number = 0, 0  # of its last life that was heard
        self._last: dict[type[Frame], int] = {}
        self._said_s: OrderedDict[int, float] = OrderedDict()

    def repartition(self, peer_scope: ShardScope, local_scope: ShardScope, fabric: bytes) -> None:
        """It has the VNs of ``peer_scope`` from now on, this shard those of ``local_scope``; what it said is void."""
        self.owns, self.decides, self._asked = peer_scope
        self._mine, self._fabric = local_scope, fabric
        self.report, self.link_use, self._grants, self._read, self._known = None, None, None, {}, {}
        self._knows, self._pairs, self.granted = (0, 0), {}, 0
        self._given.clear()

    def head(
        self,
        token: int,
        number: int,
        now_s: float,
        kind: type[Frame] = LinkUseMessage,
        rows: IntArray | None = None,
        left: int = OmittedColumns.NONE,
        limits: int = 0,
    ) -> Header:
        """Return the header of a frame that goes to this peer now.

        Of Reports and Grants ``rows`` are the rows of the pairs: the same array means the same pairs. ``left`` is what
        need not be said of them, ``limits`` which of its Grants are in force for all of them.
        """
        self._said_s[number] = now_s
        while len(self._said_s) > _REMEMBERED:
            self._said_s.popitem(last=False)
        knows = [self._known[one].latest if one in self._known else 0 for one in _WITH_PAIRS]
        pairs = 0 if rows is None else self._known_by_peer(number, kind, rows)
        left &= ~OmittedColumns.AMOUNTS if self._asked else -1
        limits = limits if pairs and limits == self.granted else 0
        return Header(token, number, self._number, self._asked, (knows[0], knows[1]), pairs, left, limits)

    def record_grant(self, number: int, rate_bps: FloatArray, rows: IntArray) -> None:
        """Remember what this peer is granted for what it has reported; None of what it has forgotten."""
        if self.report is not None and len(rows) == len(self.report.sender):
            self._given[number] = GrantRecord(self.report.sender, rate_bps, rows)
        while len(self._given) > _GIVEN:
            self._given.popitem(last=False)

    def _known_by_peer(self, number: int, kind: type[Frame], rows: IntArray) -> int:
        """Return by which frame the peer knows these pairs, 0 if it has to be told them."""
        before, since = self._pairs.get(kind, (None, 0))
        if before is not rows:
            self._pairs[kind] = rows, number
            return 0
        known = self._knows[_WITH_PAIRS.index(kind)]
        return known if since <= known < number else 0

    def receive(self, data: Octets, now_s: float) -> MessageRejectedError | None:
        """Take a frame of this peer; return why it was refused, None if it was not."""
        try:
            head, frame = decode(data, self._fabric, len(self.owns), self._links, self._known, self._given)  # 1
            self._accept(head, frame, now_s)
        except MessageRejectedError as error:
            self.refused[error.cause] += 1
            if error.cause is RejectCause.PAIRS:  # 7
                self._known = {}
            return error
        return None

    def _accept(self, head: Header, frame: Frame, now_s: float) -> None:
        if head.incarnation < self.token:  # 2
            raise MessageRejectedError(
                RejectCause.TOKEN, f"token {head.incarnation} is below {self.token}: its owner was replaced"
            )
        if head.incarnation > self.token:
            self.token, self._number, self._last, self._grants = head.incarnation, 0, {}, None
            self._knows, self.granted = (0, 0), 0
        kind = type(frame)
        if head.number <= (last := self._last.get(kind, 0)):  # 3
            raise MessageRejectedError(RejectCause.ORDER, f"number {head.number} is not above {last}")
        self._last[kind] = head.number
        self._number = max(self._number, head.number)
        said_s = self._said_s.get(head.ack, -math.inf)
        if now_s - said_s > LATE_INTERVALS * self._interval_s:  # 4
            raise MessageRejectedError(RejectCause.LATE, f"knows nothing newer than number {head.ack}")
        if not self._may_say(frame):  # 5
            raise MessageRejectedError(RejectCause.NOT_OWNED, "speaks of VNs that are not its own, or not this shard's")
        if not isinstance(frame, GrantMessage) and head.to_allocator != self._mine.allocates:  # 6
            raise MessageRejectedError(RejectCause.NOT_OWNED, "takes another one for the allocator")
        if head.to_allocator and head.omitted & OmittedColumns.AMOUNTS:
            raise MessageRejectedError(RejectCause.NOT_OWNED, "leaves out what the allocator has to know")
        self._knows = head.acked_pairs
        self._know(head, frame)
        if isinstance(frame, ReportMessage):
            self.report, self._reported_s = frame, now_s
        elif isinstance(frame, GrantMessage):
            self._grants, self._granted_s, self.granted = frame, now_s, head.number
        elif isinstance(frame, LinkUseMessage):
            self.link_use = frame
        else:
            self._read[kind] = frame

    def _know(self, head: Header, frame: Frame) -> None:
        """Remember the pairs of a frame."""
        if not isinstance(frame, ReportMessage | GrantMessage) or head.pairs_ref:
            return
        known, first = self._known.get(type(frame)), head.number
        if known is not None and known.token == head.incarnation and _has_pairs_of(frame, known.frame):
            first = known.first
        self._known[type(frame)] = PreviousMessage(head.incarnation, first, head.number, frame)

    def _may_say(self, frame: Frame) -> bool:
        if isinstance(frame, LinkUseMessage | PortReadingsMessage):
            return True  # of links everybody may use some, and whose a link's port is the core does not know
        if isinstance(frame, QueueReadingsMessage | MarkReadingsMessage):
            return bool(self.owns[frame.vn].all())
        if isinstance(frame, ReportMessage):
            loaded, receives, sends = self._mine.owns | self._mine.decides, self._mine.decides, self.owns
            first = frame.loaded
        else:
            loaded, receives, sends = self.decides, self.decides, self._mine.owns
            first = frame.decided
        known = self._known.get(type(frame))
        right = (known is not None and first is getattr(known.frame, frame.first)) or bool(loaded[first].all())
        if known is None or not _has_pairs_of(frame, known.frame):
            right = right and bool(receives[frame.receiver].all() and sends[frame.sender].all())
        return right

    def drain_readings(self) -> list[Read]:
        """Return what it read last, once, one of a kind: what is not said again is not known any more."""
        read, self._read = list(self._read.values()), {}
        return read

    def drain_grants(self) -> GrantMessage | None:
        """Return what it granted last, once."""
        grants, self._grants = self._grants, None
        return grants

    def report_age_s(self, now_s: float) -> float:
        """Return for how long it has reported nothing, 0 until SILENT_INTERVALS are over; infinite if it never did."""
        return self._silent_s(now_s - self._reported_s)

    def grant_age_s(self, now_s: float) -> float:
        """Return for how long it has granted nothing, as ``report_age_s``."""
        return self._silent_s(now_s - self._granted_s)

    def _silent_s(self, elapsed_s: float) -> float:
        return elapsed_s if elapsed_s > SILENT_INTERVALS * self._interval_s else 0.0


def _has_pairs_of(frame: ReportMessage | GrantMessage, other: ReportMessage | GrantMessage) -> bool:
    """Whether it was read as having them: then they are the same arrays."""
    return frame.sender is other.sender and frame.receiver is other.receiver
