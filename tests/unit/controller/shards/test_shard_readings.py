"""What shards say of their queues and ports, put together by the one that decides; and bursts that are lost."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from controller.dets.messages import SetRate, TrafficReport
from controller.metering.fabric_readings import FabricReadings
from controller.metering.mark_readings import MarkReadings
from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings
from controller.shards.grant_replies import GrantReplies, ReceiverStatus
from controller.shards.readings_exchange import local_readings, merge_readings
from controller.shards.receiver_table import ReceiverTable

MINE = np.array([True, True, False, False])


def ints(*values):
    return np.array(values, dtype=np.int64)


def queues(*served_bps):
    """Readings of four queues; NaN: not read."""
    served_bps = np.array(served_bps)
    known = ~np.isnan(served_bps)
    return QueueReadings(*(served_bps * factor for factor in (1, 2, 3, 4, 5)), known, ~known)


def ports(*transmitted_bps):
    transmitted_bps = np.array(transmitted_bps)
    known = ~np.isnan(transmitted_bps)
    return PortReadings(transmitted_bps, transmitted_bps, transmitted_bps * 2, known, ~known)


def marks(*beyond_bps):
    """Readings of four phantom meters; NaN: not read."""
    beyond_bps = np.array(beyond_bps)
    return MarkReadings(np.empty(0), 10 * beyond_bps, beyond_bps)


def peer(*read):
    """A peer that has said this."""
    return SimpleNamespace(drain_readings=lambda: list(read))


def test_what_was_read_at_own_switches_is_said_and_what_was_not_is_left_out():
    of_queues, of_ports = local_readings(FabricReadings(queues(1.0, np.nan, 7.0, np.nan), ports(np.nan, 5.0)), MINE)
    assert of_queues.vn.tolist() == [0]  # 2 is somebody else's
    assert [of_queues.served_bps, of_queues.dropped_bps, of_queues.elapsed_s] == [1.0, 3.0, 5.0]
    assert (of_ports.link.tolist(), of_ports.transmitted_bps.tolist()) == ([1], [5.0])
    assert local_readings(FabricReadings(None, None), MINE) == []


def test_all_that_was_read_is_one_table_and_nobody_speaks_for_others_queues():
    said = local_readings(FabricReadings(queues(8.0, 9.0, 3.0, np.nan), ports(6.0, 7.0)), ~MINE)
    seen = merge_readings(
        FabricReadings(queues(1.0, np.nan, 7.0, 7.0), ports(np.nan, 5.0)), MINE, [peer(*said), peer()], 9
    )
    np.testing.assert_array_equal(seen.queues.served_bps, [1.0, np.nan, 3.0, np.nan])
    np.testing.assert_array_equal(seen.queues.dropped_packets, [4.0, np.nan, 12.0, np.nan])
    assert seen.queues.known.tolist() == [True, False, True, False]
    assert seen.ports.transmitted_bps.tolist() == [6.0, 5.0]  # of a link that both read its own word counts
    assert seen.ports.known.all()


def test_marks_are_known_of_the_receivers_that_somebody_read_and_of_no_pair():
    (said,) = local_readings(FabricReadings(marks=marks(1.0, 9.0, np.nan, 4.0)), ~MINE)
    assert said.vn.tolist() == [3]
    seen = merge_readings(FabricReadings(marks=marks(2.0, np.nan, 7.0, 7.0)), MINE, [peer(said), peer()], 3).marks
    np.testing.assert_array_equal(seen.beyond_bps, [2.0, np.nan, np.nan, 4.0])
    np.testing.assert_array_equal(seen.arrived_bps, [20.0, np.nan, np.nan, 40.0])
    np.testing.assert_array_equal(seen.marked_bps, [np.nan] * 3)


def test_what_nobody_asked_for_stays_so():
    seen = merge_readings(FabricReadings(queues=queues(1.0, 2.0, 3.0, 4.0)), MINE, [peer()], 9)
    assert seen.ports is None
    assert seen.queues.known.tolist() == MINE.tolist()


def test_who_loses_its_burst_is_told_wherever_it_sends():
    table = ReceiverTable.from_parts([(ints(0, 1), ints(5, 5)), (ints(2, 3), ints(5, 5))])
    limits = np.full(4, 4e6)
    reports = TrafficReport(np.arange(4), limits, limits, limits > 0, limits, limits, limits > 0)
    forfeits = np.array([False, True, True, False])
    decision = SimpleNamespace(forfeits=forfeits, view=SimpleNamespace(rows=np.arange(4)))
    others = SimpleNamespace(forfeits=None)
    answers = GrantReplies.build(table, reports, SetRate(ints(1), np.array([1e6])), [others, decision])
    about = ReceiverStatus(ints(5), ints(4), np.array([True]))
    assert answers.local_forfeits(ints(10, 11)).tolist() == [11]
    grants = answers.for_peers(about, [1])[1].materialize()
    assert (grants.sender.tolist(), grants.receiver.tolist()) == ([2, 3], [5, 5])
    assert grants.forfeits.tolist() == [True, False]
    assert grants.rate_bps.tolist() == [4e6, 4e6]
    set_rate, keep_alive = answers.for_local_senders(ints(10, 11))
    assert (set_rate.entry.tolist(), keep_alive.entry.tolist()) == ([11], [10])
