"""Marks on the model: made by links between switches alone, and phantom meters behind the output."""

from __future__ import annotations

import pytest

from controller.fabric.topology import PortId
from controller.openflow.actions import Output
from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow, encode_flow_mods
from controller.openflow.match import Match
from experiments.model.control.uncontrolled import install_forwarding, set_meter
from experiments.model.fabric import ModelFabric, ModelOptions, mac_of
from experiments.model.queues import QueueOptions
from experiments.model.sources import UdpSource
from topologies.builders import fabrics

PHANTOM = 7


@pytest.mark.parametrize(("core_rate_bps", "marks"), [(50_000_000, True), (None, False)])
def test_only_links_between_switches_mark(core_rate_bps: int | None, marks: bool) -> None:
    """120 Mb/s meet a core link of 50 Mb/s, or the receiver's link of 100 Mb/s behind a wide core."""
    fabric = fabrics["dets-fig7"](pns=3, link_rate_bps=100_000_000, edges=3, core_rate_bps=core_rate_bps)
    options = ModelOptions(queues=QueueOptions(), core_queues=QueueOptions(ecn_packets=20))
    model = ModelFabric(fabric, options)
    install_forwarding(model)
    sources = []
    for number in (1, 2):
        source = UdpSource(60e6, model.slot_s)
        source.ecn = True
        model.connect(source, fabric.vn(1, number), fabric.vn(1, 3))
        source.start(0)
        sources.append(source)
    model.run(2.0)
    assert sum(source.lost for source in sources) > 1000
    assert (sum(source.marked for source in sources) > 1000) == marks
    assert marks or not any(source.marked for source in sources)


def test_a_phantom_meter_counts_and_delays_and_drops_nothing() -> None:
    """30 Mb/s through a phantom meter of 10 Mb/s: all are delivered, two thirds are beyond."""
    fabric = fabrics["dets-fig1"](pns=2, link_rate_bps=100_000_000)
    model = ModelFabric(fabric, ModelOptions())
    set_meter(model, 1, PHANTOM, 10_000, 100)
    receiver = fabric.vn(1, 2)
    flows = [
        Flow(0, 1, Match(eth_dst=mac_of(receiver)), 0, actions=(Output(2),), goto_table=1),
        Flow(1, 0, Match(), 0, meter_id=PHANTOM),
    ]
    model.switches[1].receive(encode_flow_mods([(FlowModCommand.ADD, flow) for flow in flows], 0), model.now_s)
    source = UdpSource(30e6, model.slot_s)
    model.connect(source, fabric.vn(1, 1), receiver)
    source.start(0)
    model.run(2.0)
    assert source.lost == 0
    assert source.delivered == pytest.approx(source.sent, abs=5)
    bucket = model.switches[1].meters.buckets[PHANTOM]
    assert bucket.packets_in == pytest.approx(source.sent, abs=5)
    passed_bits = (bucket.packets_in - bucket.band_packets) * source.frame_bits
    assert passed_bits == pytest.approx(10e6 * 2.0 + 100_000, rel=0.01)
    assert model.ports[PortId(1, 2)].port.counters["tx_dropped"] == 0
