"""The bench of nodes that share a fabric: all pairs are granted, and three quarters of them cross."""

from __future__ import annotations

import numpy as np
import pytest

from controller.dets.send_rate_controller import Control
from experiments.bench.cluster import nodes as bench

ENTRIES = 130


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in {"SWITCHES": 1, "PORTS": 16, "SETTLE": 40, "MEASURED": 2, "TURNS": 1, "NODES": (1, 3)}.items():
        monkeypatch.setattr(bench, name, value)


def test_every_pair_is_granted_by_the_receivers_node():
    with bench._fabric(3, ENTRIES) as fabric:
        fabric.run(60)
        states = [node.central.state for node in fabric.nodes]
        vns = fabric.nodes[0].central.vns
        receiver, sender = (
            np.concatenate([getattr(one.entries, end) for one in states]) for end in ("receiver", "sender")
        )
        assert len(receiver) == 3 * 16 * 8
        assert all((one.machines.control == Control.LIMITED).all() for one in states)
        crossing = vns.dpid[sender] != vns.dpid[receiver]
        assert np.count_nonzero(crossing) == bench.CROSSING * len(crossing)
        limit_bps = np.concatenate([one.machines.limit_bps for one in states])
        np.testing.assert_allclose(np.bincount(receiver, limit_bps), bench.LIMIT_BPS, rtol=0.01)


def test_figures_are_of_each_number_of_nodes():
    told = []
    found = bench.measure_nodes(ENTRIES, told.append)
    assert list(found) == ["1", "3"]
    assert len(told) == 2
    for one in found.values():
        assert one["entries"] == 16 * 8
        assert one["loop_us"] > 0 < one["kb"]
    assert bench.efficiency(found, 1) == 1.0
