"""The counters of a round: whose readings count when meters are set while their switch is still being asked."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import support.framework  # noqa: F401
from support.configs import fabric, star
from support.openflow_bytes import message, meter_records, multipart_reply

from apps.runtime.connection.switch_connection import SwitchConnection
from apps.runtime.ryu_adapter import BULK_BARRIER, BULK_METER_STATS
from apps.runtime.sockets.socket_reader import SocketReader
from apps.southbound.connected_switches import POLL_TIMEOUT_S, SwitchState
from apps.southbound.polling import PORT_QUEUE_INTERVAL_S, TOGETHER, polled_before_s
from apps.southbound.southbound_driver import SouthboundDriver
from controller.central.controller import CentralController
from controller.fabric.config_model import Config
from controller.fabric.topology import LINK_TIMEOUT_S, Link, PortId
from controller.openflow.constants import MULTIPART_REPLY_MORE, VERSION, MessageType, MultipartType
from controller.switch.meters.meter_mods import modifications

DPID = 1


class Wire:
    """A switch's side of a connection: it answers what it was asked last when the test says so."""

    def __init__(self) -> None:
        self.id, self.address, self.xid = DPID, ("127.0.0.1", 1), 0
        self.cut = self.gate = None
        self.barrier_xid = -1
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self.fileno, self.has_lane = self._ours.fileno(), False
        self._inbox = SocketReader(BULK_METER_STATS, BULK_BARRIER)
        self.asked: list[tuple[int, int]] = []  # xid and type of each multipart request

    def keep(self) -> None: ...

    def close(self) -> None: ...

    def evict(self, reason: object) -> None: ...

    def enqueue(self, data: bytes) -> bool:
        while data:
            _version, kind, length, xid = struct.unpack_from("!BBHI", data)
            if kind == MessageType.BARRIER_REQUEST:
                self.barrier_xid = xid
            if kind == MessageType.MULTIPART_REQUEST:
                self.asked.append((xid, struct.unpack_from("!H", data, 8)[0]))
            data = data[length:]
        return True

    def direct_socket(self) -> int | None:
        return self.fileno if self.has_lane else None

    def direct_send_socket(self) -> None: ...

    def push_back(self, octets: bytes) -> None:
        raise AssertionError(octets)

    def answers_bulk_request(self, message: bytes, now_s: float) -> bool:
        """Say this; return whether a bulk request took all of it."""
        self._theirs.sendall(message)
        return not list(self._inbox.receive([self.fileno], now_s))

    def end(self) -> None:
        self._ours.close()
        self._theirs.close()


class Round:
    """A controller of one switch, which answers once the round waits for it."""

    def __init__(self, config: Config | None = None) -> None:
        self.now_s = 0.0
        self.wire = Wire()
        self.shell = SouthboundDriver(config or star(), lambda: self.now_s, lambda dpid: None, waiting=self._waiting)
        self.connection = SwitchConnection(self.wire, lambda: self.now_s)  # type: ignore[arg-type]
        self.peer = self.shell.peers[DPID] = self.shell._new_peer(self.connection)
        self.peer.state = SwitchState.READY
        self.shell.central.switches[DPID].connected = True
        self.read: list[set[int]] = []
        self.order: list[int] = []  # of the switches in the last round
        self.set_meanwhile: list[int] = []
        self.begins_with_one = False
        self.deaf = False  # whether it does not answer for its ports and queues
        self.stopped_s = 0.0  # how long the process is stopped while the next round waits
        decide: Any = self.shell.central.interval

        def interval(stats: Any, *rest: Any) -> Any:
            self.order = list(stats)
            self.read.append({one for dpid in stats for one in stats[dpid]["meter_id"].tolist()})
            return decide(stats, *rest)

        self.shell.central.interval = interval  # type: ignore[method-assign]

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self.now_s += self.stopped_s
        if self.set_meanwhile:
            self.push(*self.set_meanwhile)
        for xid, kind in self.wire.asked:
            if kind == MultipartType.METER and self.begins_with_one:
                self._answer_in_parts(xid)
                continue
            if self.deaf and kind != MultipartType.METER:
                continue
            data = multipart_reply(xid, meter_records(1, 2, 3) if kind == MultipartType.METER else b"", kind)
            if not self.wire.answers_bulk_request(data, self.now_s):
                self.connection.accept_reply(MessageType.MULTIPART_REPLY, xid, data)
        self.wire.asked.clear()
        yield

    def _answer_in_parts(self, xid: int) -> None:
        """Answer a bulk request with one meter, and with the others after something else has come."""
        one = multipart_reply(xid, meter_records(1), flags=MULTIPART_REPLY_MORE)
        assert self.wire.answers_bulk_request(one, self.now_s)
        self.connection.fall_back_all()
        others = multipart_reply(xid, meter_records(2, 3))
        assert self.connection.accept_reply(MessageType.MULTIPART_REPLY, xid, others)

    def run(self, *set_meanwhile: int) -> set[int]:
        """Run a round in which those meters are set while it waits; return the meters that it has read."""
        self.now_s += 0.055
        self.set_meanwhile = list(set_meanwhile)
        self.shell.run_interval()
        return self.read[-1]

    def push(self, *meter_ids: int, restarts_counts: bool = True) -> int:
        """Set these meters; return the id of the barrier behind them."""
        ids = np.array(meter_ids)
        update = self.shell.central.switches[DPID].update
        update.modify_meters(modifications(ids, ids, ids), restarts_counts=restarts_counts)
        self.shell.push()
        return self.wire.barrier_xid

    def confirm(self, xid: int, at_s: float) -> bool:
        """Let the switch answer a barrier; return whether a bulk request took the answer."""
        in_bulk = self.wire.has_lane and self.wire.answers_bulk_request(
            message(MessageType.BARRIER_REPLY, xid=xid), at_s
        )
        if not in_bulk:
            self.now_s = at_s
            assert self.connection.accept_reply(MessageType.BARRIER_REPLY, xid, b"")
        self.shell.peers.collect_confirmations()
        return in_bulk


@pytest.fixture
def one() -> Iterator[Round]:
    made = Round()
    yield made
    made.wire.end()


@pytest.mark.parametrize("has_lane", [True, False])
def test_a_meter_that_is_set_while_the_round_waits_loses_its_reading_of_that_round(one: Round, has_lane: bool) -> None:
    """The switch may have counted before it set the meter: those bytes would be taken for bytes since then."""
    one.wire.has_lane = has_lane
    assert one.run() == {1, 2, 3}
    assert one.run(2) == {1, 3}
    assert one.run(1, 3) == {2}
    assert one.peer.stale_meter_ids != []
    if has_lane:  # a bulk request, once it is known how many meters there are
        assert BULK_METER_STATS.stats["meter_id"].tolist() == [1, 2, 3]
    assert one.run() == {1, 2, 3}
    assert (one.peer.stale_meter_ids, one.peer.counted_s, one.peer.poll) == ([], one.now_s, None)


def looked_s(one: Round) -> float:
    """Return as of when the ports of the switch have been read last."""
    return one.shell.central.fabric.deliveries[DPID].ports.received_s


def test_ports_that_are_asked_for_behind_a_bulk_request_are_read_in_the_next_round(one: Round) -> None:
    """Meters that were read before their ports may lack what the ports count already."""
    peer = one.peer
    one.wire.has_lane = True
    one.run()
    assert looked_s(one) == peer.port_queue_polled_s == one.now_s
    while peer.port_queue_poll is None:
        assert one.run() == {1, 2, 3}
    asked_s = one.now_s
    assert asked_s == peer.port_queue_polled_s >= 0.055 + PORT_QUEUE_INTERVAL_S
    assert looked_s(one) < asked_s, "the ports have answered"
    assert one.run() == {1, 2, 3}
    assert peer.port_queue_poll is None
    assert looked_s(one) == asked_s, "when they did"
    assert one.connection._held_octets == 0


def test_ports_that_never_answer_hold_up_nobody_and_are_asked_for_again(one: Round) -> None:
    peer = one.peer
    one.wire.has_lane = True
    one.run()
    one.deaf = True
    while peer.port_queue_poll is None:
        one.run()
    asked = peer.port_queue_poll
    while peer.port_queue_poll is asked:
        assert one.run() == {1, 2, 3}
        assert one.now_s - asked.requested_s < POLL_TIMEOUT_S + 0.1
    assert not {reply.xid for reply in asked[1:] if reply is not None} & set(one.connection._awaited)
    assert looked_s(one) < asked.requested_s
    while peer.port_queue_poll is None:
        one.run()


def test_ports_are_read_with_the_meters_where_somebody_decides_by_them(
    one: Round, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CentralController, "reads_ports_or_queues", True)
    one.wire.has_lane = True
    for _ in range(2):
        assert one.run() == {1, 2, 3}
        assert (looked_s(one), one.peer.port_queue_poll) == (one.now_s, None)


def test_switches_stay_in_their_order_whichever_way_they_reply() -> None:
    """In another order, the owners of all meters would be searched for again."""
    two, single = Round(fabric({1: {1: [10]}, 2: {1: [10]}})), Wire()
    single.id = 2
    connection = SwitchConnection(single, lambda: two.now_s)  # type: ignore[arg-type]

    def reply_at_once(data: bytes) -> bool:
        Wire.enqueue(single, data)
        for xid, kind in single.asked:
            body = meter_records(1) if kind == MultipartType.METER else b""
            connection.accept_reply(MessageType.MULTIPART_REPLY, xid, multipart_reply(xid, body, kind))
        single.asked.clear()
        return True

    single.enqueue = reply_at_once  # type: ignore[method-assign]
    two.wire.has_lane = True
    two.run()  # from now on, the first switch takes part in bulk requests
    peers = two.shell.peers
    peers[2] = two.shell._new_peer(connection)
    peers[2].state, two.shell.central.switches[2].connected = SwitchState.READY, True
    peers[DPID] = peers.pop(DPID)
    two.run()
    assert len(BULK_METER_STATS.ends) == 1
    assert two.order == [2, DPID]
    for wire in (two.wire, single):
        wire.end()


def test_a_bulk_request_that_ends_in_the_middle_is_read_whole(one: Round) -> None:
    one.wire.has_lane = True
    one.run()
    one.begins_with_one = True
    assert one.run() == {1, 2, 3}
    assert one.run(1, 2) == {3}, "of the meters that a bulk request took, too"
    assert (one.peer.meters_listed, one.connection._held_octets) == (3, 0)


def test_a_switch_whose_reply_is_too_long_is_not_called(one: Round, monkeypatch: pytest.MonkeyPatch) -> None:
    one.run()
    assert one.peer.meters_listed == 3
    monkeypatch.setattr("apps.southbound.polling.MAX_QUEUED_BYTES", 100)
    monkeypatch.setattr("apps.southbound.polling._METER_BYTES", 0)
    assert one.run() == set()
    assert one.peer.meters_listed == 0


def test_what_a_bulk_request_hears_is_when_meters_were_set(one: Round) -> None:
    peer = one.peer
    one.wire.has_lane = True
    one.run(1)
    assert peer.meters_set_s() is None
    one.shell.peers.collect_confirmations()
    (sent_s, reply), *_ = peer.unfinished
    assert (sent_s, reply.done) == (one.now_s, False), "it has not answered: it is awaited as any reply"
    assert one.connection.accept_reply(MessageType.BARRIER_REPLY, reply.xid, b"")
    assert peer.meters_set_s() == one.now_s
    assert one.confirm(one.push(2), 7.0)
    assert peer.meters_set_s() == 7.0
    assert all(reply.done for _, reply in peer.unfinished)


@pytest.mark.parametrize("has_lane", [True, False])
def test_what_is_confirmed_of_other_messages_says_nothing_of_the_meters_of_pairs(one: Round, has_lane: bool) -> None:
    """A changed limit sets meters of VNs between two rounds: those of pairs have counted since the round before."""
    peer = one.peer
    one.wire.has_lane = has_lane
    assert one.confirm(one.push(2), 7.0) == has_lane
    assert one.confirm(one.push(2, restarts_counts=False), 7.03) == has_lane
    assert peer.meters_set_s() == 7.0
    assert one.confirm(one.push(2), 7.055) == has_lane
    assert peer.meters_set_s() == 7.055


@pytest.mark.parametrize("has_lane", [True, False])
def test_a_reply_that_comes_late_confirms_nothing_that_was_sent_after_its_request(one: Round, has_lane: bool) -> None:
    peer = one.peer
    one.wire.has_lane = has_lane
    first, second = one.push(2), one.push(2)
    one.confirm(first, 7.0)
    assert peer.meters_set_s() is None
    assert [reply.done for _, reply in peer.unfinished] == [True, False]
    one.confirm(second, 7.05)
    assert peer.meters_set_s() == 7.05
    assert all(reply.done for _, reply in peer.unfinished)


@pytest.mark.parametrize("has_lane", [True, False])
def test_a_refused_barrier_confirms_nothing_and_the_next_one_both(one: Round, has_lane: bool) -> None:
    peer = one.peer
    one.wire.has_lane, one.now_s = has_lane, 7.0
    xid = one.push(2)
    error = struct.pack("!BBHIHH", VERSION, MessageType.ERROR, 20, xid, 1, 1)
    assert one.shell._async_messages.handle(
        peer, MessageType.ERROR, error + message(MessageType.BARRIER_REQUEST, xid=xid)
    )
    one.shell.peers.collect_confirmations()
    assert [sent_s for sent_s, _ in peer.unconfirmed()] == [7.0]
    assert peer.meters_set_s() is None
    assert "refused BARRIER_REQUEST" in one.shell.central.events.newer_than(0)[-1].text
    one.now_s = 7.055
    one.confirm(one.push(2, restarts_counts=False), 7.06)
    assert peer.unconfirmed() == []
    assert peer.meters_set_s() == 7.06


def looked_at(ago_s: list[float]) -> list[bool]:
    """Return which of switches that were looked at so long ago are looked at again."""
    last_s = [100.0 - one for one in ago_s]
    before_s = polled_before_s(last_s, 100.0)
    return [one <= before_s for one in last_s]


def test_ports_are_looked_at_together_with_one_that_is_due() -> None:
    assert looked_at([0.45, 0.3, 0.0]) == [False, False, False]
    assert looked_at([PORT_QUEUE_INTERVAL_S, 0.3, 0.25, 0.2]) == [True, True, True, False]
    assert looked_at([]) == []


def test_of_many_only_some_are_looked_at_before_they_are_due() -> None:
    early = [0.4 - number / 1000 for number in range(2 * TOGETHER)]
    assert sum(looked_at([0.6, *early])) == TOGETHER
    assert sum(looked_at([0.6] * 100 + early)) == 100
    assert looked_at([float("inf"), 0.1]) == [True, False]


@pytest.mark.parametrize("stopped_s", [0.0, 6.0])
@pytest.mark.parametrize("amid_a_round", [False, True])
def test_a_link_outlives_a_stop_of_the_process_and_no_other_silence(
    one: Round, stopped_s: float, amid_a_round: bool
) -> None:
    """Probes that came while nobody read them are read afterwards."""
    ends = PortId(DPID, 101), PortId(2, 101)
    topology = one.shell.central.network.topology
    for port in ends:
        topology.add_switch(port.dpid)
    one.run()
    for sender, receiver in (ends, ends[::-1]):
        topology.record_probe(sender, receiver, one.now_s)
    if amid_a_round:
        one.stopped_s = stopped_s
    else:
        one.now_s += stopped_s
    one.run()
    one.stopped_s = 0.0
    assert topology.links() == {Link(*ends)}
    for _ in range(int((LINK_TIMEOUT_S - 0.2) / 0.055)):
        one.run()
    assert topology.links() == {Link(*ends)}
    for _ in range(10):
        one.run()
    assert topology.links() == set()
