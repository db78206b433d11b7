"""Counters of ports and queues of several switches, decoded as one, and what is wrong with one of them."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import support.framework  # noqa: F401

from apps.runtime.connection.switch_connection import Reply
from apps.southbound.connected_switches import Poll
from apps.southbound.port_queue_stats import read_ports_and_queues
from controller.errors import ProtocolError
from controller.fabric.config_model import FIRST_NAMED
from controller.fabric.port_numbers import PortNumbers
from controller.fabric.topology import PortId
from controller.switch.delivered_rates import DeliveredRates


def ports(*sent: int) -> bytes:
    """Return the body of a port-stats reply: ports 1, 2, ... have sent so many bytes."""
    return b"".join(
        struct.pack("!I4x12Q2I", number, 0, 0, 0, count, *[0] * 8, 1, 0) for number, count in enumerate(sent, 1)
    )


def queues(*sent: int) -> bytes:
    """Return the body of a queue-stats reply: queue 10 of ports 1, 2, ... has sent so many bytes."""
    return b"".join(struct.pack("!II3Q2I", number, 10, count, 1, 0, 1, 0) for number, count in enumerate(sent, 1))


class Looked:
    """Switches that were asked, and what they answered (None: nothing yet; an error: they refused)."""

    def __init__(self, answers: dict[int, tuple[bytes | ProtocolError | None, bytes | ProtocolError | None]]) -> None:
        self.deliveries = {dpid: DeliveredRates() for dpid in answers}
        self.complaints: list[int] = []
        self.watched: list[int] = []
        fabric = SimpleNamespace(deliveries=self.deliveries)
        switch = SimpleNamespace(capabilities=SimpleNamespace(uses_meters=True))
        self.numbers = PortNumbers()
        network = SimpleNamespace(numbers=self.numbers)
        central = SimpleNamespace(fabric=fabric, network=network, switches=dict.fromkeys(answers, switch))
        self.peers: Any = SimpleNamespace(central=central, clock=lambda: 1.0)
        self.asked = [(self._peer(dpid), Poll(0.9, Reply(), *map(self._reply, both))) for dpid, both in answers.items()]

    def _peer(self, dpid: int) -> Any:
        queue_watch = SimpleNamespace(read=lambda *_: self.watched.append(dpid))
        meter_watch = SimpleNamespace(update=lambda *_: None)
        connection = SimpleNamespace(dpid=dpid)
        return SimpleNamespace(connection=connection, counting=None, meters=meter_watch, queues=queue_watch)

    def _reply(self, answer: bytes | ProtocolError | None) -> Reply:
        reply = Reply()
        if isinstance(answer, bytes):
            reply.add(answer)
            reply.finish()
        elif answer is not None:
            reply.fail(answer)
        return reply

    def read(self, received_s: dict[int, float]) -> None:
        complain = lambda peer, _error: self.complaints.append(peer.connection.dpid)  # noqa: E731
        read_ports_and_queues(self.peers, self.asked, received_s, complain)

    def sent(self, dpid: int) -> tuple[list[int] | None, list[int] | None]:
        found = [self.deliveries[dpid].ports.latest, self.deliveries[dpid].queues.latest]
        return tuple(None if one is None else one["tx_bytes"].tolist() for one in found)  # type: ignore[return-value]


def test_each_switch_has_its_own_counters_and_keeps_no_others_alive() -> None:
    looked = Looked({1: (ports(5, 6), queues(7)), 2: (ports(), queues()), 3: (ports(8), queues(9, 10))})
    looked.read({1: 1.0, 3: 1.0})
    assert [looked.sent(dpid) for dpid in (1, 2, 3)] == [([5, 6], [7]), ([], []), ([8], [9, 10])]
    assert [looked.deliveries[dpid].ports.received_s for dpid in (1, 2, 3)] == [1.0, 0.9, 1.0]
    latest = looked.deliveries[1].ports.latest
    assert latest is not None
    assert latest.base is None
    assert looked.watched == [1, 2, 3]
    assert looked.complaints == []


@pytest.mark.parametrize("bad", [ports(1)[:-8], ports(1, 2)[:56], ProtocolError("refused")])
def test_what_is_wrong_with_the_ports_of_one_is_no_others_business(bad: bytes | ProtocolError) -> None:
    """Two halves of a record are no record, though they would make one together."""
    looked = Looked({1: (ports(5), queues(6)), 2: (bad, queues(7)), 3: (bad, queues(8))})
    looked.read(dict.fromkeys((1, 2, 3), 1.0))
    assert [looked.sent(dpid) for dpid in (1, 2, 3)] == [([5], [6]), (None, None), (None, None)]
    assert looked.complaints == [2, 3]


def test_queues_that_cannot_be_read_leave_the_ports_and_are_not_watched() -> None:
    looked = Looked({1: (ports(5), ProtocolError("refused")), 2: (ports(6), queues(7)), 3: (None, queues(8))})
    looked.read(dict.fromkeys((1, 2, 3), 1.0))
    assert [looked.sent(dpid) for dpid in (1, 2, 3)] == [([5], None), ([6], [7]), (None, [8])]
    assert looked.complaints == [1]
    assert looked.watched == [2]  # of the third the ports are not known


def test_nobody_was_asked() -> None:
    looked = Looked({1: (None, None)})
    looked.asked = [(peer, Poll(asked.requested_s, asked.meters)) for peer, asked in looked.asked]
    looked.read({1: 1.0})
    assert looked.sent(1) == (None, None)
    assert np.isinf(looked.deliveries[1].ports.received_s)


def test_counters_are_those_of_the_ports_by_name() -> None:
    looked = Looked({1: (ports(5, 6), queues(7, 8)), 2: (ports(9), queues(10))})
    looked.numbers.bind(PortId(1, FIRST_NAMED), 2)
    looked.read({1: 1.0, 2: 1.0})
    port_no = np.array([1, FIRST_NAMED])
    for dpid, sent in ((1, [5, 6]), (2, [9])):
        latest = looked.deliveries[dpid].ports.latest
        assert latest is not None
        assert latest["port_no"].tolist() == ([1, FIRST_NAMED] if dpid == 1 else [1])
        assert latest["tx_bytes"].tolist() == sent
    assert looked.numbers.ports(1, np.array([1, 2, 3])).tolist() == [1, FIRST_NAMED, 3]
    assert looked.numbers.numbers(1, port_no).tolist() == [1, 2]
    assert looked.numbers.numbers(2, port_no) is port_no
