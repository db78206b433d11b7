"""Which pairs agents are told of, and which entries their reports are about: compared with plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star

from controller.agents.addressable_pairs import AddressablePairs
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable

VNS = VnTable.from_config(star(3))
ROWS = range(len(VNS))
MACS = range(5)  # few, so that addresses are in several VLANs and behind several ports
pairs = st.tuples(st.sampled_from(ROWS), st.sampled_from(ROWS)).filter(lambda ends: ends[0] != ends[1])
hosts = st.lists(st.sets(st.sampled_from(MACS), max_size=2), min_size=len(VNS), max_size=len(VNS))


def table(ends):
    ordered = sorted(ends, key=lambda pair: pair[::-1])
    sender, receiver = np.array(ordered, dtype=np.int64).reshape(-1, 2).T
    return PairTable(sender, receiver, np.arange(1, len(ordered) + 1))


def told_of(ends, hosts_of, behind):
    count = np.array([len(macs) for macs in hosts_of])
    lowest = np.array([min(macs, default=99) for macs in hosts_of])
    return AddressablePairs.select(VNS, table(ends), np.array(behind), count, lowest)


@settings(max_examples=150)
@given(st.sets(pairs), hosts, st.lists(st.booleans(), min_size=len(VNS), max_size=len(VNS)))
def test_agents_are_told_of_the_pairs_that_they_can_tell_apart(ends, hosts_of, behind):
    told = told_of(ends, hosts_of, behind)
    found = [
        (row, sender, min(hosts_of[sender]), min(hosts_of[receiver]))
        for row, (sender, receiver) in enumerate(sorted(ends, key=lambda pair: pair[::-1]))
        if behind[sender] and hosts_of[sender] and len(hosts_of[receiver]) == 1
    ]
    columns = told.row, told.sender, told.sender_mac, told.receiver_mac
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == found


@settings(max_examples=150)
@given(st.sets(pairs), st.permutations(range(4)), st.lists(st.tuples(st.sampled_from(ROWS), st.integers(0, 4))))
def test_a_report_is_about_the_entry_from_its_sender_to_its_address(ends, mac_of, said):
    """Each port has one address, in both VLANs, and all senders are behind agents."""
    mac_of = [mac_of[VNS.key(row).port_no] for row in ROWS]
    told = told_of(ends, [{mac} for mac in mac_of], [True] * len(VNS))
    rows = {pair: row for row, pair in enumerate(sorted(ends, key=lambda pair: pair[::-1]))}
    vids = VNS.vlan_vid.tolist()
    sender, mac = np.array(said, dtype=np.int64).reshape(-1, 2).T
    of_address = {(vids[row], mac_of[row]): row for row in ROWS}
    wanted = [rows.get((one, of_address.get((vids[one], to))), -1) for one, to in said]
    assert told.find(sender, mac).tolist() == wanted
