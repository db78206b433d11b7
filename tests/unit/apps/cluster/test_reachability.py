"""Which switches a node says that it reaches: those that answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from apps.cluster.reachability import ANSWER_S, PROBE_INTERVAL_S, SwitchReachability
from apps.southbound.edge_ports import EdgePorts
from controller.capability.capabilities import Ability, Capabilities, ProbeResult
from controller.cluster.ownership import Owner
from controller.errors import InvalidValueError
from controller.openflow.constants import MeterFlags
from controller.openflow.meters import MeterFeatures
from controller.openflow.multipart import SwitchDesc


class FakeConnection:
    """A connection that counts what it is asked, and answers when told."""

    def __init__(self) -> None:
        self.replies: list[Any] = []

    def ask(self, encode: Any) -> Any:
        encode(1)
        self.replies.append(SimpleNamespace(done=False))
        return self.replies[-1]


class Run:
    """Switches 1 and 2; 1 is under control."""

    def __init__(self) -> None:
        self.now_s, self.peers = 100.0, {1: SimpleNamespace(counted_s=100.0)}
        self.connections = {1: FakeConnection(), 2: FakeConnection()}
        roles: Any = SimpleNamespace(reached=lambda: set(self.connections), connection=self.connections.get)
        self.shared: Any = SimpleNamespace(me="n1", owners={})
        switches = {
            dpid: SimpleNamespace(
                capabilities=Capabilities(), switch=SimpleNamespace(name=f"s{dpid}", ports={1: None, 2: None})
            )
            for dpid in (1, 2)
        }
        share = SimpleNamespace(remote_switches=frozenset({3}))
        self.central: Any = SimpleNamespace(fabric=SimpleNamespace(share=share), switches=switches)
        peers: Any = SimpleNamespace(central=self.central)
        self.edge_ports = EdgePorts(peers)
        self.reach = SwitchReachability(
            self.shared, roles, self.central, self.peers, lambda: self.peers, lambda: self.now_s, self.edge_ports
        )

    def round(self, seconds: float = 0.0) -> set[int]:
        self.now_s += seconds
        self.reach.round()
        return self.reach.reached()


@pytest.fixture
def run() -> Run:
    return Run()


def test_a_switch_of_another_node_is_asked_each_second_one_question_at_a_time(run: Run) -> None:
    asked = run.connections[2].replies
    assert run.round() == {1}
    asked[0].done = True
    assert run.round(PROBE_INTERVAL_S) == {1, 2}
    assert len(asked) == 2
    for _ in range(3):
        run.peers[1].counted_s = run.now_s
        run.round(PROBE_INTERVAL_S)
    assert len(asked) == 2
    assert run.reach.reached() == {1}
    asked[1].done = True
    assert run.round() == {1, 2}
    assert len(asked) == 3
    run.round(PROBE_INTERVAL_S / 2)
    assert len(asked) == 3
    assert run.connections[1].replies == []


def test_one_under_control_is_reached_while_its_counters_come(run: Run) -> None:
    assert 1 in run.round(ANSWER_S)
    assert 1 not in run.round(0.1)
    run.peers[1].counted_s = run.now_s
    assert 1 in run.round()


def test_a_new_connection_is_not_reached_before_it_answers_nor_one_that_has_gone(run: Run) -> None:
    run.round()
    run.connections[2].replies[0].done = True
    assert 2 in run.round()
    run.connections[2] = FakeConnection()
    assert 2 not in run.round()
    run.connections[2].replies[0].done = True
    assert 2 in run.round()
    del run.connections[2]
    assert 2 not in run.round()


def test_a_switch_that_was_taken_over_as_it_was_silent_is_not_reached_before_it_answers(run: Run) -> None:
    assert 1 not in run.round(ANSWER_S + 0.1)
    del run.peers[1]
    assert 1 not in run.round()
    run.connections[1].replies[0].done = True
    assert 1 in run.round()


def test_switches_are_controlled_by_their_owners_or_not_at_all(run: Run) -> None:
    owner_of = {1: "n1", 2: "n1", 3: "n2", 4: "n2"}
    run.shared.owners = {dpid: Owner(node, 5, 6) for dpid, node in owner_of.items()}
    assert run.shared.controlled() == {1, 3}
    run.shared.owners = {1: Owner("n2", 5, 6), 3: Owner("n1", 5, 6)}
    assert run.shared.controlled() == set()


@pytest.mark.parametrize("tested", [False, True])
def test_the_next_owner_of_a_switch_knows_the_names_of_its_ports(run: Run, tested: bool) -> None:
    assert run.shared.handover_state(1) is None
    run.edge_ports.names["s1", 2] = "eth2"
    if tested:
        can = run.central.switches[1].capabilities
        can.features, can.description = MeterFeatures(9, 2, MeterFlags(1), 1, 0), SwitchDesc("a", "b", "c", "d", "e")
        can.meters = can.counters = Ability(ProbeResult.WORKS)
    said, other = run.shared.handover_state(1), Run()
    other.shared.import_handover_state(1, said)
    assert other.edge_ports.names == {("s1", 2): "eth2"}
    assert other.central.switches[1].capabilities.meters.works == tested


@pytest.mark.parametrize("data", [b"", b"[]", b'{"ports": 3}', b"\xff"])
def test_what_is_not_said_of_a_switch_is_refused(run: Run, data: bytes) -> None:
    with pytest.raises(InvalidValueError):
        run.shared.import_handover_state(1, data)
