"""Queues that count what is sent to them, and queues that are there in name only."""

from __future__ import annotations

import numpy as np

from controller.capability.capabilities import ProbeResult
from controller.capability.queue_monitor import (
    IGNORED,
    NOT_LISTED,
    PLENTY_BYTES,
    PROBE_BACKOFF_S,
    SAMPLE_INTERVAL_S,
    WINDOW_S,
    QueueMonitor,
)
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.multipart import PORT_STATS, QUEUE_STATS

UP = range(10)


class Counters:
    """Port 1 with VLANs 10 and 20, port 2 with VLAN 10; and another port and the default queue."""

    def __init__(self) -> None:
        self.watch = QueueMonitor({2: [10], 1: [10, 20]})
        self.now_s = 0.0
        self.packets: dict[tuple[int, int], int] = {(1, 0): 0, (1, 10): 0, (1, 20): 0, (2, 10): 0, (9, 10): 5}
        self.sent = {1: 0, 2: 0, 9: 0}

    def read(self, seconds: float = SAMPLE_INTERVAL_S) -> dict[int, object]:
        self.now_s += seconds
        queues, ports = np.zeros(len(self.packets), QUEUE_STATS), np.zeros(len(self.sent), PORT_STATS)
        for row, ((port_no, queue_id), count) in enumerate(self.packets.items()):
            queues[row] = (port_no, queue_id, 0, count, 0, 0)
        ports["port_no"], ports["tx_bytes"] = list(self.sent), list(self.sent.values())
        self.watch.read(queues, ports, self.now_s)
        return self.watch.findings()

    def finding(self, port_no: int = 1) -> ProbeResult:
        return self.watch.findings()[port_no].finding


def test_a_queue_that_counts_takes_effect_and_its_neighbours_port_is_another_matter() -> None:
    counters = Counters()
    assert counters.finding() is ProbeResult.UNKNOWN
    counters.read()
    counters.packets[1, 20] += 1
    found = counters.read()
    assert found[1].works  # type: ignore[attr-defined]
    assert counters.finding(2) is ProbeResult.UNKNOWN


def test_what_stood_in_the_counters_before_proves_nothing() -> None:
    counters = Counters()
    counters.packets[1, 10] = 1000
    counters.read()
    counters.read()
    assert counters.finding() is ProbeResult.UNKNOWN


def test_a_port_without_queues_of_its_vlans_has_none() -> None:
    counters = Counters()
    del counters.packets[1, 10], counters.packets[1, 20]
    assert counters.read()[1] == NOT_LISTED
    counters.packets[1, 20] = COUNTER_UNAVAILABLE
    assert counters.read()[1] == NOT_LISTED


def test_queues_that_count_no_test_frame_have_no_effect_and_tries_end() -> None:
    counters = Counters()
    sent = 0
    for _ in range(100):
        counters.read()
        sent += counters.watch.due(UP, counters.now_s).count(1)
    assert sent == len(PROBE_BACKOFF_S)
    assert not counters.watch.pending
    assert counters.watch.findings()[1] == IGNORED
    counters.packets[1, 10] += 1  # somebody makes them real
    counters.read()
    assert counters.finding() is ProbeResult.WORKS


def test_test_frames_alone_change_no_result() -> None:
    counters = Counters()
    counters.read()
    assert counters.watch.due(UP, counters.now_s) == [1, 2]
    assert not counters.watch._moved


def test_nothing_is_sent_out_of_ports_that_are_down_nor_into_queues_that_work() -> None:
    counters = Counters()
    counters.read()
    assert counters.watch.pending
    assert counters.watch.due([], counters.now_s) == []
    assert counters.watch.due([2], counters.now_s) == [2]
    counters.packets[1, 10] += 3
    counters.read()
    assert 1 not in counters.watch.due(UP, counters.now_s + 100)


def test_queues_through_which_nothing_goes_while_their_port_sends_plenty_are_doubted() -> None:
    counters = Counters()
    counters.read()
    counters.packets[1, 10] += 1
    counters.read()
    counters.sent[1] += PLENTY_BYTES - 1
    counters.read(WINDOW_S)
    assert counters.finding() is ProbeResult.WORKS  # that may have been others' frames
    counters.sent[1] += PLENTY_BYTES
    counters.read()
    assert counters.watch.findings()[1] == IGNORED


def test_queues_made_anew_count_anew() -> None:
    counters = Counters()
    counters.packets[1, 10] = 1000
    counters.read()
    counters.packets[1, 10] = 3
    counters.read()
    assert counters.finding() is ProbeResult.WORKS


def test_a_queue_that_one_reply_leaves_out_proves_nothing_for_its_neighbour() -> None:
    counters = Counters()
    counters.packets |= {(1, 10): 1000, (1, 20): 500}
    counters.read()
    packets = counters.packets.pop((1, 20))
    counters.read()
    assert counters.finding() is ProbeResult.UNKNOWN
    counters.packets[1, 20] = packets
    counters.read()
    assert counters.finding() is ProbeResult.UNKNOWN


def test_queues_that_go_and_come_back_are_tested_again() -> None:
    counters = Counters()
    counters.read()
    counters.packets[1, 10] += 1
    counters.read()
    gone = {key: counters.packets.pop(key) for key in ((1, 10), (1, 20))}
    counters.read()
    counters.packets |= gone
    counters.read()
    assert counters.finding() is ProbeResult.UNKNOWN
    assert 1 in counters.watch.due(UP, counters.now_s)


def test_the_window_of_queues_that_appear_begins_at_the_last_look_without_any() -> None:
    counters = Counters()
    queues, counters.packets = counters.packets, {}
    counters.read()
    counters.sent[1] += PLENTY_BYTES  # before that look: it says nothing of the queues
    counters.read()
    counters.packets = queues
    counters.sent[1] += PLENTY_BYTES - 1
    counters.read(WINDOW_S)
    assert counters.finding() is ProbeResult.UNKNOWN
    counters.sent[1] += 1
    counters.read()
    assert counters.watch.findings()[1] == IGNORED
