"""A controller starts that marks where an earlier run did not: every message leaves traffic on its way."""

from __future__ import annotations

from collections.abc import Iterator

from support.configs import fabric
from support.fabrics import Fabric, mac_of
from support.host_traffic import EDGES, restarted, talk, two_switches
from support.switches import Frame

from controller.fabric.topology import PortId
from controller.forwarding.flow_table import FlowTable
from controller.forwarding.pipeline import Table
from controller.openflow.constants import MeterModCommand
from controller.switch.adoption import split_own_flows
from controller.switch.switch_record import SwitchUpdate

MARKED = fabric(EDGES, vlans={10: {"algorithm": "hygenicc"}}, ecn={"source": "phantom+network"})
PAIRS = [((1, 1), (2, 1), 10), ((2, 1), (1, 1), 10), ((1, 1), (1, 2), 10), ((1, 1), (2, 2), 20)]


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


def test_tables_for_marks_come_in_between_without_a_frame_lost_or_doubled() -> None:
    before = two_switches()
    for source, target, vid in PAIRS:
        talk(before, source, target, vid)
    net = restarted(before, MARKED)
    there = [[PortId(*target)] for _, target, _ in PAIRS]
    assert arrived(net) == there
    messages = 0

    def send_what_is_due() -> None:
        nonlocal messages
        for dpid, update in net.central.drain_updates().items():
            assert MeterModCommand.MODIFY not in update.meter_mods()[0]
            for single in one_by_one(update):
                net.switches[dpid].apply(single, net.now_s)
                messages += 1
                assert arrived(net) == there, single

    for dpid, switch in net.switches.items():
        for _ in net.central.reconciler.bring_up(
            dpid, *split_own_flows(switch.flows.values()), switch.meter_config(), net.now_s
        ):
            send_what_is_due()
        net.up.add(dpid)
    net.hello()
    for _ in range(3):
        net.central.tick(net.now_s)
        send_what_is_due()
    assert messages > 20
    for dpid in net.switches:
        expected = net.central.reconciler.tables(dpid)
        switch = net.switches[dpid]
        flows = FlowTable(switch.flows.values())
        list(net.central.reconciler.audit(dpid, expected, flows, switch.meter_config(), net.now_s + 60))
        send_what_is_due()
        assert {flow.table_id for flow in switch.flows.values()} == set(Table)
    assert net.audit(1) == net.audit(2) == 0
