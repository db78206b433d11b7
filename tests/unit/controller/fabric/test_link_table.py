"""Links as rows: which entries share which."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.configs import fabric

from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.topology import PortId, Topology
from controller.fabric.vn_table import VnTable

# Switches 1 and 2 are edges, 3 and 4 lie between them in a row: 1 - 3 - 4 - 2.
VNS = VnTable.from_config(fabric({1: {1: [10, 20], 2: [10]}, 2: {1: [10, 20]}, 3: {}, 4: {}}))
CORE = {PortId(1, 101): 60, PortId(3, 101): 60, PortId(4, 102): 70}


def topology(*broken):
    found = Topology()
    for dpid in (1, 2, 3, 4):
        found.add_switch(dpid)
    for a, b in ((PortId(1, 101), PortId(3, 101)), (PortId(3, 102), PortId(4, 101)), (PortId(4, 102), PortId(2, 101))):
        if a not in broken:
            found.record_probe(a, b, 0.0)
            found.record_probe(b, a, 0.0)
    return found


def links_of(found):
    names = {1: "s1", 2: "s2", 3: "c3", 4: "c4"}
    return LinkTable.build(VNS, names, CORE, found.paths(), found.links())


def used(links, *pairs):
    """The names of the links of some entries, given as ((VLAN, dpid, port), (VLAN, dpid, port))."""
    sender = np.array([VNS.row_of(*pair[0]) for pair in pairs], dtype=np.int64)
    receiver = np.array([VNS.row_of(*pair[1]) for pair in pairs], dtype=np.int64)
    entries = PairTable(sender, receiver, np.arange(len(pairs)))
    offsets, link = links.pair_links(entries, np.arange(len(pairs)))
    return [[links.names[one] for one in link[a:b]] for a, b in itertools.pairwise(offsets)]


def test_vlans_share_access_links_and_entries_share_the_core_links_of_their_paths():
    links = links_of(topology())
    assert used(
        links,
        ((10, 1, 1), (10, 2, 1)),
        ((20, 1, 1), (20, 2, 1)),
        ((10, 1, 1), (10, 1, 2)),
        ((10, 2, 1), (10, 1, 2)),
    ) == [
        ["s1:1 (sending)", "s2:1 (receiving)", "out of s1:101", "out of c4:102"],
        ["s1:1 (sending)", "s2:1 (receiving)", "out of s1:101", "out of c4:102"],
        ["s1:1 (sending)", "s1:2 (receiving)"],
        ["s2:1 (sending)", "s1:2 (receiving)", "out of c3:101"],
    ]


def test_capacities_and_locations_are_those_of_ports_and_of_the_configuration():
    links = links_of(topology())
    capacity_bps = dict(zip(links.names, links.capacity_bps.tolist(), strict=True))
    assert capacity_bps["s1:1 (sending)"] == capacity_bps["s1:1 (receiving)"] == 1e9
    assert (capacity_bps["out of s1:101"], capacity_bps["out of c4:102"]) == (60, 70)
    assert len(capacity_bps) == 2 * 3 + 3
    assert [links.location(VNS.row_of(*key)) for key in ((10, 1, 2), (20, 2, 1))] == ["s1:2", "s2:1"]


@pytest.mark.parametrize("broken", [PortId(1, 101), PortId(3, 102)])
def test_without_a_path_only_the_access_links_count(broken):
    links = links_of(topology(broken))
    assert used(links, ((10, 1, 1), (10, 2, 1))) == [["s1:1 (sending)", "s2:1 (receiving)"]]


def test_access_links_alone():
    links = LinkTable.access_links(VNS)
    assert len(links.names) == 6
    assert [len(one) for one in used(links, ((10, 1, 1), (10, 2, 1)))] == [2]
