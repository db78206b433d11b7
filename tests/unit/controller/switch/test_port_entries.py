"""Entries that would join an edge port to a VLAN that is not its own."""

from __future__ import annotations

import pytest

from controller.fabric.config_model import EdgePort, Vn
from controller.forwarding import pipeline
from controller.forwarding.flow_table import FlowTable
from controller.openflow.flows import Flow
from controller.switch.port_entries import misplaced


def port(port_no: int, *vids: int, tagged: bool = False) -> EdgePort:
    vns = tuple(Vn(vid, "s1", 1, port_no, 1, 1) for vid in vids)
    return EdgePort(port_no, f"s1-{port_no}", 10**9, None if tagged else vids[0], vns)


PORTS = {1: port(1, 10), 2: port(2, 20), 3: port(3, 10, 20, tagged=True)}


@pytest.mark.parametrize(
    ("flow", "fenced", "wrong"),
    [
        (pipeline.admit(port(1, 10), 10)[-1], (), False),
        (pipeline.admit(port(1, 10), 10)[-1], (1,), True),
        (pipeline.admit(port(1, 20), 20)[-1], (), True),  # it was VLAN 20's
        (pipeline.admit(port(1, 10, tagged=True), 10)[-1], (), False),
        (pipeline.admit(port(1, 20, tagged=True), 20)[-1], (), True),
        (pipeline.admit_from_fabric(2, 10), (), True),  # it led to another switch
        (pipeline.admit_from_fabric(9, 10), (1,), False),
        (pipeline.forward_to_edge(port(1, 10), 10, 0xA), (), False),
        (pipeline.forward_to_edge(port(2, 20), 10, 0xA), (), True),
        (pipeline.forward_to_edge(port(2, 20), 20, 0xA, phantom=True), (), False),
        (pipeline.forward_to_switch(2, 10, 0xA), (), True),
        (pipeline.forward_to_switch(9, 10, 0xA), (2,), False),
        (pipeline.flood(10, [9], [PORTS[1], PORTS[3]]), (), False),
        (pipeline.flood(10, [9], [PORTS[1], PORTS[3]]), (3,), True),
        (pipeline.flood(20, [9], [PORTS[1], PORTS[3]]), (), True),
        (pipeline.admit_from_fabric(9, 10), (9,), True),  # a link that is another port now
        (pipeline.forward_to_switch(9, 10, 0xA), (9,), True),
        (pipeline.flood(10, [9], [PORTS[1]]), (9,), True),
        (pipeline.drop_hosts_lldp(1), (1,), False),
        (pipeline.limit_sender(1, 20, None), (1,), False),  # nothing comes there
    ],
)
def test_what_joins_a_port_to_another_vlan_is_found(flow: Flow, fenced: tuple[int, ...], wrong: bool) -> None:
    assert list(misplaced(FlowTable([flow]), PORTS, fenced)) == [flow] * wrong
