"""Where the link before a switch leaves its ports' queues nothing to drop."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import fabric

from controller.central import port_enforceability
from controller.central.controller import CentralController
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.limits.link_headroom import HeadroomShortage, headroom_shortages
from experiments.model.control.settings_operator import Operator

M = 1_000_000


def config(limit="480M", links=("1G",), port="1G", algorithm="gatekeeper"):
    """Edge switches s1 and s2 with a port each, and as many links from each to the core switch s3."""
    to_core = [
        {"between": [f"s{edge}:{100 + n}", f"s3:{10 * edge + n}"], "capacity": capacity}
        for edge in (1, 2)
        for n, capacity in enumerate(links)
    ]
    edges = {1: {1: [10, 20]}, 2: {1: [10, 20]}, 3: {}}
    return fabric(edges, port, dict.fromkeys((10, 20), limit), algorithm, links=to_core)


def crowded(*args, needing=True, **named):
    found = config(*args, **named)
    vns = VnTable.from_config(found)
    return headroom_shortages(vns, found.links, np.full(len(vns), needing))


def test_guarantees_that_fill_the_only_link_are_found():
    assert crowded() == [HeadroomShortage(PortId(dpid, 1), 960 * M, 1000 * M) for dpid in (1, 2)]


@pytest.mark.parametrize(
    "given",
    [
        {"limit": "475M"},
        {"port": "950M", "limit": "475M"},
        {"links": ("1G", "1G")},
        {"links": ("1100M",)},
        {"links": ()},
        {"needing": False},
    ],
    ids=["5 % left", "slower port", "two links", "faster link", "links not configured", "nobody acts on drops"],
)
def test_headroom(given):
    assert crowded(**given) == []


def test_it_is_an_event_once_and_again_when_it_comes_back():
    central = CentralController(config())
    operator = Operator(central)

    def told():
        port_enforceability.note_changes(central.fabric, 1.0)
        return [event.text for event in central.events.newer_than(0) if event.kind == "link-headroom-short"]

    first = told()
    assert first[0] == (
        "s1:1: receive limits of 960 of 1000 Mbit/s of the only link before its switch: "
        "drops there are invisible to policies; use at most 5% of the link"
    )
    assert told() == first
    assert len(first) == 2
    for limit_bps, count in ((400 * M, 2), (480 * M, 3)):
        operator.set_vn(0, 1.0, receive_limit_bps=limit_bps)
        assert len(told()) == count


def test_other_policies_need_none():
    central = CentralController(config(algorithm="fs"))
    port_enforceability.note_changes(central.fabric, 1.0)
    assert not [event for event in central.events.newer_than(0) if event.kind == "link-headroom-short"]
