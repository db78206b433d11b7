"""What becomes of edge ports that are others than are meant, in the core: what is sent, and what is told."""

from __future__ import annotations

from typing import Any

import pytest
from support.configs import star
from support.fabrics import mac_of
from support.host_traffic import started
from support.switches import Frame

from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.flow_table import flow_key
from controller.forwarding.pipeline import Table
from controller.openflow.actions import Output
from controller.openflow.constants import FlowModCommand
from controller.switch.port_entries import flows_of_ports
from controller.switch.port_states import ABSENT, PortState

HOSTS = 300
STRANGER = PortState("up", "eth4", 10**9, "it is 'eth4' where 'eth3' is expected")
GONE = PortState("absent", fence=ABSENT)
THERE = PortState("up", "eth3", 10**9)


def crowded() -> Any:
    """A switch with more hosts behind port 3 than entries follow in an interval."""
    net = started(star(4, control={"max_macs_per_vn": HOSTS}))
    for number in range(HOSTS):
        net.learn(0x0200_0000_0000 + number, PortId(1, 3), 10)
        if number % 50 == 0:
            net.wait(1)
    net.wait(5)
    assert len(net.central.network.hosts()) > HOSTS // 2
    return net


@pytest.mark.parametrize("state", [STRANGER, GONE], ids=["another", "gone"])
def test_a_port_is_cut_off_in_the_very_next_update_however_much_follows(state: PortState) -> None:
    net = crowded()
    central, record = net.central, net.central.switches[1]
    assert len(flows_of_ports(record.installed, {3})) > 100
    central.ports_known(1, {3: state}, 10.0)
    update = central.drain_updates()[1]
    kept = update.flow_adds
    assert not [
        flow for flow in kept if flow.table_id == Table.CLASSIFY and flow.match.in_port == 3 and flow.goto_table
    ]
    assert not [flow for flow in kept if Output(3) in flow.actions]
    assert flows_of_ports(record.installed, {3}) == []
    assert central.network.desired.pending == {1}  # the rest, which no frame comes to any more, takes its time
    kind = EventKind.PORT_ABSENT if state is GONE else EventKind.PORT_FENCED
    assert [event.port_no for event in central.events.newer_than(0) if event.kind == kind] == [3]


def test_a_port_that_is_fenced_and_freed_before_anything_was_sent_is_as_before() -> None:
    net = started()
    net.learn(mac_of(PortId(1, 3), 10), PortId(1, 3), 10)
    net.push()
    before = set(net.central.switches[1].installed.packed())
    net.central.ports_known(1, {3: STRANGER}, 10.0)
    net.central.ports_known(1, {3: THERE}, 10.0)
    net.settle()
    net.learn(mac_of(PortId(1, 3), 10), PortId(1, 3), 10)
    net.push()
    assert set(net.central.switches[1].installed.packed()) == before


def test_nothing_of_a_port_that_is_fenced_before_it_was_sent_is_left_on_the_switch() -> None:
    """All that ``started`` asks for waits again, as after a reload, in the update that the fence comes into."""
    net = started()
    record = net.central.switches[1]
    port = [
        flow for flow in net.switches[1].flows.values() if flow.table_id == Table.CLASSIFY and flow.match.in_port == 3
    ]
    record.set_flows([(FlowModCommand.ADD, flow) for flow in port])
    net.central.ports_known(1, {3: GONE}, 10.0)
    net.settle()
    installed = {key for key, flow in record.installed.items() if flow.match.in_port == 3}
    there = {flow_key(flow) for flow in net.switches[1].flows.values() if flow.match.in_port == 3}
    assert there == installed
    assert not [key for key in there if key.table_id == Table.CLASSIFY and key.match.vlan_vid is not None]


def test_what_comes_from_a_port_that_is_fenced_teaches_nothing() -> None:
    net = started()
    net.central.ports_known(1, {3: STRANGER}, 10.0)
    net.push()
    mac = mac_of(PortId(1, 3), 10)
    delivery = net.send(Frame(2**48 - 1, mac, net.tag(PortId(1, 3), 10)), PortId(1, 3))
    assert delivery.at == []
    assert net.central.network.hosts() == {}
    reached = [port for port, _, _ in net.learn(0xA1, PortId(1, 1), 10).at]
    assert reached
    assert PortId(1, 3) not in reached
