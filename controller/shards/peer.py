"""A shard's view of another shard: its last messages, their age, and the rejected ones.

1. A message that is malformed, or of another configuration, is rejected.
2. A lower incarnation than before is that of a replaced owner: it is rejected. A higher one voids the grants; the last
   report stays valid until the new owner's, because the senders go on.
3. A number that is not above the last of its kind is late or a duplicate: it is rejected.
4. The number in ``ack`` must have been sent recently, by this shard's clock. A late message is rejected, but its number
   is acknowledged, so that the peer's next message is in time.
5. A message about VNs that its sender does not own is rejected.
6. A message to the wrong allocator lacks data that the allocator needs: it is rejected.
7. A message without pairs has those of an earlier accepted one, a message without limits those of Grants that this
   shard remembers. If these are unknown, it is rejected, and the next messages to the peer acknowledge no pairs.
"""

from __future__ import annotations

import math
from collections import OrderedDict
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
"""maximum age of an acknowledged message: two intervals there, two back"""
SILENT_INTERVALS = 4
"""after this many intervals without a message the last report is void"""
_REMEMBERED = 16  # the times of the last numbers that were sent
_GIVEN = 4  # remembered grants


class ShardScope(NamedTuple):
    """A shard's VNs, (vns,) each: those behind its switches, and those for which it decides.

    ``allocates``: it is the allocator of network-wide policies, if there are any.
    """

    owns: BoolArray
    decides: BoolArray
    allocates: bool = False


class Peer:
    """Another shard, with the VNs of ``peer_scope``. ``local_scope`` are this shard's VNs.

    The fabric has ``links`` links.
    """

    def __init__(
        self, peer_scope: ShardScope, local_scope: ShardScope, fabric: bytes, interval_s: float, links: int = 0
    ) -> None:
        self.owns, self.decides, self._asked = peer_scope  # ``_asked``: it is the allocator
        self._local_scope, self._fabric, self._interval_s, self._links = local_scope, fabric, interval_s, links
        self.report: ReportMessage | None = None
        self.link_use: LinkUseMessage | None = None
        self._reported_s = self._granted_s = -math.inf
        self._grants: GrantMessage | None = None
        self.granted = 0
        """the number of its last grant"""
        self._sent_grants = OrderedDict[int, GrantRecord]()  # the recent grants to it, by number
        self._read: dict[type[Frame], Read] = {}
        self._known: dict[type[Frame], PreviousMessage] = {}  # with validated pairs
        self._acked_by_peer = 0, 0  # the peer's acknowledgement of this shard's Reports and Grants
        # The pairs that were sent last, and since which number.
        self._pairs: dict[type[Frame], tuple[IntArray, int]] = {}
        self.token, self._number = 0, 0  # its last known incarnation, and the highest number received from that
        self._last: dict[type[Frame], int] = {}  # the number of the last message of each kind
        self._sent_s: OrderedDict[int, float] = OrderedDict()  # when this shard's last numbers were sent

    def repartition(self, peer_scope: ShardScope, local_scope: ShardScope, fabric: bytes) -> None:
        """Set the VNs of the peer, ``peer_scope``, and of this shard, ``local_scope``; earlier messages become void."""
        self.owns, self.decides, self._asked = peer_scope
        self._local_scope, self._fabric = local_scope, fabric
        self.report, self.link_use, self._grants, self._read, self._known = None, None, None, {}, {}
        self._acked_by_peer, self._pairs, self.granted = (0, 0), {}, 0
        self._sent_grants.clear()

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
        """Return the header of a message that goes to this peer now.

        For Reports and Grants ``rows`` are the rows of the pairs: the same array means the same pairs. ``left`` are the
        omitted columns, ``limits`` the number of its Grant that equals all their limits.
        """
        self._sent_s[number] = now_s
        while len(self._sent_s) > _REMEMBERED:
            self._sent_s.popitem(last=False)
        acked_pairs = [self._known[one].latest if one in self._known else 0 for one in _WITH_PAIRS]
        pairs = 0 if rows is None else self._known_by_peer(number, kind, rows)
        left &= ~OmittedColumns.AMOUNTS if self._asked else -1  # the allocator needs the amounts
        limits = limits if pairs and limits == self.granted else 0  # not if a later Grant has arrived since
        return Header(token, number, self._number, self._asked, (acked_pairs[0], acked_pairs[1]), pairs, left, limits)

    def record_grant(self, number: int, rate_bps: FloatArray, rows: IntArray) -> None:
        """Store the grants to this peer if they are for all pairs of its last report, in the report's order."""
        if self.report is not None and len(rows) == len(self.report.sender):
            self._sent_grants[number] = GrantRecord(self.report.sender, rate_bps, rows)
        while len(self._sent_grants) > _GIVEN:
            self._sent_grants.popitem(last=False)

    def _known_by_peer(self, number: int, kind: type[Frame], rows: IntArray) -> int:
        """Return the number of the message by which the peer has these pairs, 0 if they must be included."""
        last_rows, first_number = self._pairs.get(kind, (None, 0))
        if last_rows is not rows:
            self._pairs[kind] = rows, number
            return 0
        acked = self._acked_by_peer[_WITH_PAIRS.index(kind)]
        return acked if first_number <= acked < number else 0

    def receive(self, data: Octets, now_s: float) -> MessageRejectedError | None:
        """Receive a message of this peer; return why it was rejected, None if it was accepted."""
        try:
            head, frame = decode(data, self._fabric, len(self.owns), self._links, self._known, self._sent_grants)  # 1
            self._accept(head, frame, now_s)
        except MessageRejectedError as error:
            if error.cause is RejectCause.PAIRS:  # 7
                self._known = {}
            return error
        return None

    def _accept(self, head: Header, frame: Frame, now_s: float) -> None:
        """Check a message by the rules above and keep it; MessageRejectedError otherwise."""
        if head.incarnation < self.token:  # 2
            raise MessageRejectedError(
                RejectCause.TOKEN, f"token {head.incarnation} is below {self.token}: its owner was replaced"
            )
        if head.incarnation > self.token:
            self.token, self._number, self._last, self._grants = head.incarnation, 0, {}, None
            self._acked_by_peer, self.granted = (0, 0), 0
        kind = type(frame)
        if head.number <= (last := self._last.get(kind, 0)):  # 3
            raise MessageRejectedError(RejectCause.ORDER, f"number {head.number} is not above {last}")
        self._last[kind] = head.number
        self._number = max(self._number, head.number)
        sent_s = self._sent_s.get(head.ack, -math.inf)
        if now_s - sent_s > LATE_INTERVALS * self._interval_s:  # 4
            raise MessageRejectedError(RejectCause.LATE, f"knows nothing newer than number {head.ack}")
        if not self._is_entitled(frame):  # 5
            raise MessageRejectedError(RejectCause.NOT_OWNED, "names VNs that are not its own, or not this shard's")
        if not isinstance(frame, GrantMessage) and head.to_allocator != self._local_scope.allocates:  # 6
            raise MessageRejectedError(RejectCause.NOT_OWNED, "names another allocator")
        if head.to_allocator and head.omitted & OmittedColumns.AMOUNTS:
            raise MessageRejectedError(RejectCause.NOT_OWNED, "omits data that the allocator needs")
        self._acked_by_peer = head.acked_pairs
        self._store_pairs(head, frame)
        if isinstance(frame, ReportMessage):
            self.report, self._reported_s = frame, now_s
        elif isinstance(frame, GrantMessage):
            self._grants, self._granted_s, self.granted = frame, now_s, head.number
        elif isinstance(frame, LinkUseMessage):
            self.link_use = frame
        else:
            self._read[kind] = frame

    def _store_pairs(self, head: Header, frame: Frame) -> None:
        """Store the pairs of a message that includes them; ``first`` stays while the pairs are equal."""
        if not isinstance(frame, ReportMessage | GrantMessage) or head.pairs_ref:
            return
        known, first = self._known.get(type(frame)), head.number
        if known is not None and known.token == head.incarnation and _has_pairs_of(frame, known.frame):
            first = known.first
        self._known[type(frame)] = PreviousMessage(head.incarnation, first, head.number, frame)

    def _is_entitled(self, frame: Frame) -> bool:
        """Return whether the peer may send this message: it names only VNs and pairs of the two shards."""
        if isinstance(frame, LinkUseMessage | PortReadingsMessage):
            return True  # any shard may use some links, and the core does not know which links a port's traffic uses
        if isinstance(frame, QueueReadingsMessage | MarkReadingsMessage):
            return bool(self.owns[frame.vn].all())
        # The VNs that a message may name: first with loads or as decided, then as receivers and as senders of pairs.
        if isinstance(frame, ReportMessage):
            local = self._local_scope
            loaded, receives, sends = local.owns | local.decides, local.decides, self.owns
            first = frame.loaded
        else:
            loaded, receives, sends = self.decides, self.decides, self._local_scope.owns
            first = frame.decided
        accepted = self._known.get(type(frame))  # the same arrays need no second check
        entitled = (accepted is not None and first is getattr(accepted.frame, frame.first)) or bool(loaded[first].all())
        if accepted is None or not _has_pairs_of(frame, accepted.frame):
            entitled = entitled and bool(receives[frame.receiver].all() and sends[frame.sender].all())
        return entitled

    def drain_readings(self) -> list[Read]:
        """Return the peer's last readings, one message of each kind, and clear them: readings count once."""
        readings, self._read = list(self._read.values()), {}
        return readings

    def drain_grants(self) -> GrantMessage | None:
        """Return the peer's last grants, and clear them."""
        grants, self._grants = self._grants, None
        return grants

    @property
    def has_local_report(self) -> bool:
        """Whether the peer has accepted a Report of this shard since owners changed, by its last message."""
        return self._acked_by_peer[_WITH_PAIRS.index(ReportMessage)] > 0

    def report_age_s(self, now_s: float) -> float:
        """Return the time since the last report, 0 within SILENT_INTERVALS; infinite if there was none."""
        return self._silent_s(now_s - self._reported_s)

    def grant_age_s(self, now_s: float) -> float:
        """Return the time since the last grants, as ``report_age_s``."""
        return self._silent_s(now_s - self._granted_s)

    def _silent_s(self, elapsed_s: float) -> float:
        return elapsed_s if elapsed_s > SILENT_INTERVALS * self._interval_s else 0.0


def _has_pairs_of(frame: ReportMessage | GrantMessage, other: ReportMessage | GrantMessage) -> bool:
    """Return whether a message has the pairs of another one: then they are the same arrays."""
    return frame.sender is other.sender and frame.receiver is other.receiver
