"""The bench of nodes that share a fabric: all pairs are granted, and three quarters of them cross."""

from __future__ import annotations

import numpy as np
import pytest

from controller.dets.send_rate_controller import MachineState
from experiments.bench.cluster import node_scaling as bench

ENTRIES = 130


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"SWITCHES": 1, "PORTS": 16, "SETTLE": 40, "MEASURED": 2, "TURNS": 1, "NODES": (1, 3)}.items():
        monkeypatch.setattr(bench, name, value)


def test_every_pair_is_granted_by_the_receivers_node():
    with bench._fabric((3, True), ENTRIES) as fabric:
        fabric.run(60)
        states = [node.central.state for node in fabric.nodes]
        vns = fabric.nodes[0].central.vns
        receiver, sender = (
            np.concatenate([getattr(one.entries, end) for one in states]) for end in ("receiver", "sender")
        )
        assert len(receiver) == 3 * 16 * 8
        assert all((one.machines.control == MachineState.LIMITED).all() for one in states)
        crossing = vns.dpid[sender] != vns.dpid[receiver]
        assert np.count_nonzero(crossing) == bench.CROSSING * len(crossing)
        limit_bps = np.concatenate([one.machines.limit_bps for one in states])
        np.testing.assert_allclose(np.bincount(receiver, limit_bps), bench.LIMIT_BPS, rtol=0.01)


def test_figures_are_of_each_number_of_nodes():
    told = []
    found = bench.measure_nodes(ENTRIES, told.append)
    assert {nodes: list(one) for nodes, one in found.items()} == {"1": ["alone"], "3": ["alone", "shared"]}
    assert len(told) == bench.TURNS + 3
    for one in (cost for costs in found.values() for cost in costs.values()):
        assert one["entries"] == 16 * 8
        assert min(one[name] for name in ("loop_us", "openflow_us", "kb")) > 0
    assert found["3"]["shared"]["transport_us"] > 0.0 == found["3"]["alone"]["transport_us"]
    shared = sum(found["3"]["shared"][part] for part in bench.WITH_OPENFLOW)
    alone = sum(found["3"]["alone"][part] for part in bench.WITH_OPENFLOW)
    assert bench.efficiency(found, 3, bench.WITH_OPENFLOW) == pytest.approx(alone / shared)


def test_what_a_node_reads_of_its_switches_is_what_they_say():
    with bench._fabric((2, False), ENTRIES) as fabric:
        fabric.run(2)
        node = fabric.nodes[1]
        meters = fabric._meters(1)
        for dpid, read in node.wires.poll(meters).items():
            for name in ("meter_id", "byte_in_count", "band_byte_count"):
                assert read[name].tolist() == meters[dpid][name].tolist()
