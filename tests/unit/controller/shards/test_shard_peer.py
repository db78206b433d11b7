"""What a shard takes from another one: in order, in time, from the owner, about what is its own."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from controller.node_protocol.encoder import encode
from controller.node_protocol.header import Header
from controller.node_protocol.message_types import (
    GrantMessage,
    LinkUseMessage,
    MarkReadingsMessage,
    OmittedColumns,
    PortReadingsMessage,
    QueueReadingsMessage,
    ReportMessage,
)
from controller.node_protocol.rejection import RejectCause
from controller.shards.peer import LATE_INTERVALS, SILENT_INTERVALS, Peer, ShardScope

FABRIC, INTERVAL_S, LINKS = b"12345678", 0.05, 3
_THEIRS = np.array([True, True, False, False, False, False])
_MINE = np.array([False, False, True, True, False, False])
THEIRS, MINE = ShardScope(_THEIRS, _THEIRS), ShardScope(_MINE, _MINE)


def ints(*values):
    return np.array(values, dtype=np.int64)


def report(sender=0, receiver=2, loaded=(2,)):
    loads = [np.full(len(loaded), 1e6)] * 3
    rates = [np.array([1e6])] * 5
    return ReportMessage(
        ints(*loaded), *loads, ints(sender), ints(receiver), *rates, ints(0), np.array([False]), np.array([True])
    )


def grants(sender=2, receiver=0, congested=(0,)):
    told = ints(*congested), ints(*[1] * len(congested)), np.full(len(congested), True)
    return GrantMessage(*told, ints(sender), ints(receiver), np.array([1e6]), np.array([False]))


def link_use():
    return LinkUseMessage(ints(2), np.array([2e6]), np.array([1e6]))


def queues_read(vn=0, served_bps=1e6):
    return QueueReadingsMessage(ints(vn), *(np.array([value]) for value in (served_bps, 80.0, 0.0, 0.0, 0.05)))


def marks_read(vn=0):
    return MarkReadingsMessage(ints(vn), np.array([1e6]), np.array([0.0]))


def ports_read():
    return PortReadingsMessage(ints(2), np.array([1e6]), np.array([0.05]))


class Desk:
    """A peer that is told frames, by the hand of a clock."""

    def __init__(self, theirs=THEIRS, mine=MINE):
        self.peer, self.now_s, self.number = Peer(theirs, mine, FABRIC, INTERVAL_S, LINKS), 100.0, 0

    def say(self):
        """This shard speaks, a new number each interval."""
        self.now_s += INTERVAL_S
        self.number += 1
        return self.peer.head(1, self.number, self.now_s)

    def hear(self, frame, *, token=1, number=1, heard=None, asked=False, left=OmittedColumns.NONE):
        head = Header(token, number, self.number if heard is None else heard, asked, omitted=left)
        error = self.peer.receive(encode(head, FABRIC, frame), self.now_s)
        return error.cause if error else None


@pytest.fixture
def desk():
    made = Desk()
    made.say()
    return made


def test_a_frame_in_time_counts(desk):
    assert desk.hear(report()) is None
    assert desk.hear(grants()) is None  # the same number, of another kind
    assert desk.peer.report.measured_bps.tolist() == [1e6]
    assert desk.peer.drain_grants().rate_bps.tolist() == [1e6]
    assert desk.peer.drain_grants() is None
    assert desk.say().ack == 1


@pytest.mark.parametrize("number", [3, 2, 1])
def test_what_comes_twice_or_was_overtaken_does_not(desk, number):
    assert desk.hear(report(), number=3) is None
    assert desk.hear(report(sender=1), number=number) is RejectCause.ORDER
    assert desk.peer.report.sender.tolist() == [0]


@pytest.mark.parametrize(
    ("number", "heard", "paused_s", "cause"),
    [
        (0, None, 0.0, RejectCause.ORDER),  # below the first one
        (1, 0, 0.0, RejectCause.LATE),  # who has heard nothing lately
        (1, 99, 0.0, RejectCause.LATE),  # an answer to what was never said
        (1, None, 2.0, RejectCause.LATE),  # what waited for a shard that was paused
    ],
)
def test_who_answers_nothing_recent_is_refused_and_is_in_time_after_an_answer(desk, number, heard, paused_s, cause):
    desk.now_s += paused_s
    assert desk.hear(report(), number=number, heard=heard) is cause
    assert desk.say().ack == number  # which it hears, and answers
    assert desk.hear(report(), number=2) is None


def test_an_answer_to_what_was_said_long_ago_is_late(desk):
    for _ in range(LATE_INTERVALS):
        desk.say()
    assert desk.hear(report(), heard=1) is None
    desk.say()
    assert desk.hear(report(), heard=1, number=2) is RejectCause.LATE


def test_an_owner_that_was_replaced_is_not_heard_and_the_new_one_begins_again(desk):
    assert desk.hear(report(), token=4, number=50) is None
    assert desk.hear(grants(), token=4, number=50) is None
    assert desk.hear(report(sender=1), token=5, number=1) is None
    assert desk.peer.drain_grants() is None  # the old owner's
    assert desk.hear(report(), token=4, number=51) is RejectCause.TOKEN
    assert desk.peer.report.sender.tolist() == [1]


def test_what_a_replaced_owner_reported_stands_until_the_new_one_reports(desk):
    desk.hear(report(), token=4)
    assert desk.hear(grants(), token=5, heard=0) is RejectCause.LATE
    assert desk.peer.report is not None


@pytest.mark.parametrize(
    "frame",
    [
        report(sender=4),
        report(sender=2),
        report(receiver=0),
        report(receiver=5),
        report(loaded=(2, 5)),
        grants(sender=0),
        grants(receiver=3),
        grants(congested=(0, 4)),
        queues_read(vn=2),
        queues_read(vn=4),
        marks_read(vn=2),
    ],
)
def test_nobody_speaks_of_vns_that_are_not_its_own(desk, frame):
    assert desk.hear(frame) is RejectCause.NOT_OWNED
    assert desk.peer.report is None
    assert desk.peer.drain_grants() is None
    assert desk.peer.drain_readings() == []


def test_who_decides_for_all_is_reported_what_is_sent_to_others_and_grants_it():
    decides_all, nothing = THEIRS.owns | MINE.owns, np.zeros(6, dtype=np.bool_)
    here = Desk(theirs=ShardScope(THEIRS.owns, nothing), mine=ShardScope(MINE.owns, decides_all, allocates=True))
    here.say()
    assert here.hear(report(receiver=1, loaded=(0, 1)), asked=True) is None
    assert here.hear(grants()) is RejectCause.NOT_OWNED
    there = Desk(theirs=ShardScope(THEIRS.owns, decides_all, allocates=True), mine=ShardScope(MINE.owns, nothing))
    assert there.say().to_allocator
    assert there.hear(grants(receiver=3, congested=(3,))) is None
    assert there.hear(report(loaded=(2,))) is RejectCause.NOT_OWNED
    no_entries = {field.name: getattr(report(), field.name)[:0] for field in fields(ReportMessage)}
    loads = {name: getattr(report(), name) for name, _ in ReportMessage.tables[0]}
    assert there.hear(ReportMessage(**no_entries | loads), number=2) is None  # what its VNs receive, it knows


@pytest.mark.parametrize("frame", [report(), link_use(), queues_read(), ports_read()])
def test_who_takes_another_one_for_the_allocator_is_not_heard(frame):
    desk = Desk(mine=MINE._replace(allocates=True))
    desk.say()
    assert desk.hear(frame, asked=False) is RejectCause.NOT_OWNED
    assert (desk.peer.report, desk.peer.link_use) == (None, None)
    assert desk.hear(frame, asked=True, number=2) is None
    assert desk.hear(grants(), asked=False) is None  # who receives at its own switches it decides for


def test_what_the_allocator_looks_at_is_not_left_out():
    desk = Desk(mine=MINE._replace(allocates=True))
    desk.say()
    assert desk.hear(report(), asked=True, left=OmittedColumns.AMOUNTS) is RejectCause.NOT_OWNED
    assert desk.hear(report(), asked=True, left=OmittedColumns.UNREAD, number=2) is None
    there = Desk(theirs=THEIRS._replace(allocates=True)).peer
    assert (
        there.head(1, 1, 100.0, ReportMessage, ints(0), OmittedColumns.AMOUNTS | OmittedColumns.UNREAD).omitted
        == OmittedColumns.UNREAD
    )
    assert (
        Desk().peer.head(1, 1, 100.0, ReportMessage, ints(0), OmittedColumns.AMOUNTS).omitted == OmittedColumns.AMOUNTS
    )


def test_what_was_read_counts_once_and_the_latest_of_it(desk):
    assert desk.hear(queues_read()) is None
    assert desk.hear(ports_read()) is None
    assert desk.hear(queues_read(served_bps=2e6), number=2) is None
    queues, ports = desk.peer.drain_readings()
    assert (queues.served_bps.tolist(), ports.transmitted_bps.tolist()) == ([2e6], [1e6])
    assert desk.peer.drain_readings() == []
    desk.hear(queues_read(), number=3)
    desk.peer.repartition(THEIRS, MINE, FABRIC)
    assert desk.peer.drain_readings() == []


def test_noise_is_rejected(desk):
    assert desk.peer.receive(b"noise", desk.now_s).cause is RejectCause.LENGTH


def test_reports_and_grants_fall_silent_apart(desk):
    assert desk.peer.report_age_s(desk.now_s) == np.inf
    desk.hear(report())
    desk.now_s += SILENT_INTERVALS * INTERVAL_S * 0.99
    assert desk.peer.report_age_s(desk.now_s) == 0.0
    desk.now_s += INTERVAL_S
    assert desk.peer.report_age_s(desk.now_s) > SILENT_INTERVALS * INTERVAL_S
    assert desk.peer.grant_age_s(desk.now_s) == np.inf


def test_what_is_remembered_of_what_was_said_has_a_bound(desk):
    for _ in range(1000):
        desk.say()
    assert len(desk.peer._sent_s) < 100


def test_when_owners_change_what_was_said_is_void_and_who_was_replaced_stays_so(desk):
    assert desk.hear(report(), token=2) is None
    assert desk.hear(grants(), token=2) is None
    desk.peer.repartition(MINE, THEIRS, FABRIC)
    assert (desk.peer.report, desk.peer.drain_grants()) == (None, None)
    assert desk.hear(report(), token=2, number=2) is RejectCause.NOT_OWNED
    assert desk.hear(report(sender=2, receiver=0, loaded=(0,)), token=1, number=3) is RejectCause.TOKEN
    assert desk.hear(report(sender=2, receiver=0, loaded=(0,)), token=2, number=3) is None


def test_pairs_that_were_right_are_looked_at_again_when_vns_change_hands(desk):
    assert desk.hear(report()) is None
    desk.say()
    assert desk.hear(report(), number=2) is None  # the same pairs
    assert desk.hear(report(sender=2), number=3) is RejectCause.NOT_OWNED
    first = np.arange(len(_MINE)) == 0
    desk.peer.repartition(
        ShardScope(_THEIRS & ~first, _THEIRS & ~first), ShardScope(_MINE | first, _MINE | first), FABRIC
    )
    assert desk.hear(report(), number=4) is RejectCause.NOT_OWNED
    assert desk.hear(report(sender=1), number=5) is None


class Both:
    """Two peers that say each other Reports of the same pairs, which one frame after the other may lose.

    ``there`` grants what it was reported, and ``here`` obeys.
    """

    def __init__(self):
        self.now_s, self.number, self.token = 100.0, 0, 1
        self.here, self.there = Peer(THEIRS, MINE, FABRIC, INTERVAL_S), Peer(MINE, THEIRS, FABRIC, INTERVAL_S)
        self.rows, self.frame, self.limited = ints(0), report(sender=2, receiver=0, loaded=(0,)), False

    def interval(self, *, lost=False, unanswered=False):
        """Return whether the pairs were said, and why the frame was refused."""
        self.now_s += INTERVAL_S
        self.number += 1
        answer = self.there.head(1, self.number, self.now_s)
        if not unanswered:
            self.here.receive(encode(answer, FABRIC, report()), self.now_s)
            self.there.record_grant(self.number, np.array([self.number * 1e6]), ints(0))
            self.here.receive(encode(answer, FABRIC, grants(2, 0)), self.now_s)
        head = self.here.head(
            self.token,
            self.number,
            self.now_s,
            ReportMessage,
            self.rows,
            OmittedColumns.NONE,
            self.here.granted if self.limited else 0,
        )
        error = None if lost else self.there.receive(encode(head, FABRIC, self.frame), self.now_s)
        return not head.pairs_ref, error.cause if error else None

    def settle(self):
        return [self.interval() for _ in range(5)][-1]


def test_pairs_are_said_until_the_peer_knows_them():
    both = Both()
    said = [both.interval(lost=number < 3)[0] for number in range(8)]
    assert said[:4] == [True] * 4
    assert not any(said[-3:])
    assert both.there.report.sender.tolist() == [2]


@pytest.mark.parametrize(("pair", "lost"), [((3, 1), True), ((2, 0), False)], ids=["others", "in another table"])
def test_other_pairs_are_said_and_lost_frames_between_do_no_harm(pair, lost):
    both = Both()
    assert both.settle() == (False, None)
    both.rows, both.frame = ints(pair[1]), report(sender=pair[0], receiver=pair[1], loaded=(pair[1],))
    if lost:
        assert both.interval(lost=True)[0]
    assert both.interval() == (True, None)
    assert both.settle() == (False, None)
    assert (both.there.report.sender.tolist(), both.there.report.receiver.tolist()) == ([pair[0]], [pair[1]])


def test_who_began_again_says_pairs_anew_and_its_old_numbers_mean_nothing():
    both = Both()
    both.settle()
    both.here, both.token = Peer(THEIRS, MINE, FABRIC, INTERVAL_S), 2
    assert [both.interval() for _ in range(6)][-1] == (False, None)
    assert both.there.report.sender.tolist() == [2]


def test_who_says_that_it_knows_what_was_never_said_is_believed_at_its_own_cost():
    both = Both()
    both.number += 1
    both.here.head(1, both.number, both.now_s, ReportMessage, both.rows)
    answer = Header(1, 1, both.number, False, (2**64 - 1, 0))
    assert both.here.receive(encode(answer, FABRIC, report()), both.now_s) is None
    assert not both.here.head(1, 2, both.now_s, ReportMessage, both.rows).pairs_ref


@pytest.mark.parametrize("limited", [False, True])
def test_pairs_and_limits_are_said_until_they_are_known_and_again_when_they_are_not(limited):
    both = Both()

    def known_limits():
        return [both.number * 1e6] if limited else [1e6]

    both.limited = limited
    assert both.settle() == (False, None)
    assert both.there.report.limit_bps.tolist() == known_limits()
    both.there.repartition(MINE, THEIRS, FABRIC)  # which forgets what it has granted, and whose pairs they were
    assert both.interval(unanswered=True) == (False, RejectCause.PAIRS)
    assert both.interval() == (True, None)
    assert both.there.report.limit_bps.tolist() == [1e6]
    assert both.settle() == (False, None)
    assert both.there.report.limit_bps.tolist() == known_limits()
    assert both.there.report.sender.tolist() == [2]


def test_limits_that_were_granted_long_ago_are_not_known_any_more():
    both = Both()
    both.limited = True
    both.settle()
    for _ in range(4):
        both.there.record_grant(99, np.array([1.0]), ints(0))
        both.number += 1
        both.there.record_grant(both.number, np.array([1.0]), ints(0))
    assert both.interval(unanswered=True) == (False, RejectCause.PAIRS)


def test_grants_of_an_earlier_life_are_no_limits():
    both = Both()
    both.settle()
    assert both.here.granted == both.number
    answer = Header(2, 1, both.number)
    assert both.here.receive(encode(answer, FABRIC, report()), both.now_s) is None
    assert both.here.granted == 0
