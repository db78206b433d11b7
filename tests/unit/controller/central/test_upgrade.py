"""A switch full of an earlier version's entries, with other table numbers: every message leaves traffic on its way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.configs import fabric
from support.fabrics import Fabric, mac_of
from support.switches import Frame
from support.talking import EDGES, LEFT, RIGHT, restarted, talk, two_switches

from controller.fabric.topology import PortId
from controller.forwarding.flow_table import FlowTable, flow_key
from controller.forwarding.pipeline import OWN_COOKIE, Table
from controller.openflow.constants import MeterModCommand
from controller.switch.adoption import sort_installed
from controller.switch.record import SwitchUpdate

EARLIER = {Table.FORWARD: 4, Table.REPORT: 5}  # versions before this one
MARKED = fabric(EDGES, vlans={10: {"algorithm": "hygenicc"}}, ecn={"marks": "both"})
PAIRS = [((1, 1), (2, 1), 10), ((2, 1), (1, 1), 10), ((1, 1), (1, 2), 10), ((1, 1), (2, 2), 20)]


def renumbered(switch) -> None:
    """Let a switch's entries be those of an earlier version."""
    flows = [
        flow._replace(
            table_id=EARLIER.get(flow.table_id, flow.table_id),
            goto_table=EARLIER.get(flow.goto_table, flow.goto_table),
            cookie=OWN_COOKIE | EARLIER.get(flow.table_id, flow.table_id),
        )
        for flow in switch.flows.values()
        if flow.table_id not in (Table.MARKS, Table.COUNT)  # which they had not
    ]
    switch.flows = {flow_key(flow): flow for flow in flows}


def one_by_one(update: SwitchUpdate) -> Iterator[SwitchUpdate]:
    """Yield the messages of an update, in order, each as an update."""
    for flow in update.flow_deletes:
        yield SwitchUpdate(flow_deletes=[flow])
    for number in range(len(update.meter_id)):
        single = SwitchUpdate()
        single._meter_mods.append(update.meter_mods()[:, number : number + 1])
        yield single
    for flow in update.flow_adds:
        yield SwitchUpdate(flow_adds=[flow])
    for meter_id in update.meter_deletes:
        yield SwitchUpdate(meter_deletes=[meter_id])


def arrived(net: Fabric) -> list[list[PortId]]:
    """Return where one frame of each pair comes out, without the controller hearing of it."""
    places = []
    for source, target, vid in PAIRS:
        ends = [mac_of(PortId(*end), vid) for end in (target, source)]
        delivery = net.send(Frame(*ends, net.tag(PortId(*source), vid)), PortId(*source), report=False)
        places.append([port for port, _, _ in delivery.at])
    return places


@pytest.mark.parametrize("marks", [False, True])
def test_an_upgrade_loses_and_doubles_nothing_and_leaves_nothing(marks: bool) -> None:
    before = two_switches()
    for source, target, vid in PAIRS:
        talk(before, source, target, vid)
    for switch in before.switches.values():
        renumbered(switch)
    net = restarted(before, MARKED if marks else before.config)
    net.peers = {LEFT: RIGHT, RIGHT: LEFT}
    there = [[PortId(*target)] for _, target, _ in PAIRS]
    assert arrived(net) == there
    messages = 0

    def send_what_is_due() -> None:
        nonlocal messages
        for dpid, update in net.central.take_updates().items():
            assert MeterModCommand.MODIFY not in update.meter_mods()[0]
            for single in one_by_one(update):
                net.switches[dpid].apply(single, net.now_s)
                messages += 1
                assert arrived(net) == there, single

    for dpid, switch in net.switches.items():
        for _ in net.central.reconciler.bring_up(
            dpid, *sort_installed(switch.flows.values()), switch.meter_config(), net.now_s
        ):
            send_what_is_due()
        net.up.add(dpid)
    net.hello()
    for _ in range(3):
        net.central.tick(net.now_s)
        send_what_is_due()
    assert messages > 50
    old = [flow for switch in net.switches.values() for flow in switch.flows.values() if flow.table_id in (4, 5)]
    assert len(old) > 10  # until all are there
    for dpid in net.switches:
        expected = net.central.reconciler.tables(dpid)
        switch = net.switches[dpid]
        flows = FlowTable(switch.flows.values())
        list(net.central.reconciler.audit(dpid, expected, flows, switch.meter_config(), net.now_s + 60))
        send_what_is_due()
        assert {flow.table_id for flow in switch.flows.values()} <= set(Table)
    assert net.audit(1) == net.audit(2) == 0
