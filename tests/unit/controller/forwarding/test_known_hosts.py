"""The columns of known hosts against a dictionary, whatever comes, goes, moves and leaves."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.forwarding.known_hosts import NOWHERE, WITH_MOVED, KnownHosts
from controller.forwarding.pairs import Host

VNS, MAX_MACS, REMEMBERED_S = 5, 3, 10.0
hosts = st.builds(Host, st.sampled_from([1, 4094]), st.sampled_from([0, 1, 7, (1 << 48) - 1, 1 << 47]))
rows = st.integers(0, VNS - 1)
steps = st.one_of(
    st.tuples(st.just("come"), hosts, rows),
    st.tuples(st.just("go"), hosts),
    st.tuples(st.just("leave"), hosts),
    st.tuples(st.just("wait"), st.floats(0.0, 8.0)),
)


@given(st.lists(steps, max_size=60), st.integers(1, 4))
@settings(max_examples=150)
def test_the_columns_say_what_a_dictionary_would(done, page):
    known, now_s = KnownHosts(VNS, MAX_MACS, REMEMBERED_S), 100.0
    expected: dict[Host, tuple[int, float, int]] = {}
    for what, *about in done:
        if what == "come":
            host, row = about
            came_from = known.came_from(host, now_s)
            if host not in known:
                known.come(host, row, now_s, came_from)
                expected[host] = row, now_s, NOWHERE if came_from in (None, row) else came_from
        elif what == "wait":
            now_s += about[0]
        else:
            (host,) = about
            gone = known.go(host) if what == "go" else known.leave(host, now_s)
            assert gone == expected.pop(host, (None,))[0]
            if what == "leave" and gone is not None and known._left_count.sum() < MAX_MACS:
                assert known.came_from(host, now_s) == gone
    assert {host: known.vn_of(host) for host in known.all()} == {host: one[0] for host, one in expected.items()}
    for row in range(VNS):
        mine = [host for host, one in expected.items() if one[0] == row]
        assert known.hosts_of_vn(row) == mine
        assert known.count[row] == len(mine)
        assert known.full(row) == known.full_vns()[row] == (len(mine) >= MAX_MACS)
        assert known.has_room(row, moved=True) == (len(mine) < WITH_MOVED * MAX_MACS)
        if mine:
            assert known.lowest_mac[row] == min(host.mac for host in mine)
    assert known._left_count.sum() == len(known._left)
    assert known._left_count.max() <= MAX_MACS
    found: list[tuple[Host, tuple[int, float, int]]] = []
    everything, after = np.ones(VNS, dtype=np.bool_), None
    while len((shown := known.some(everything, None, after, page)).mac):
        columns = (shown.vn.tolist(), shown.since_s.tolist(), shown.moved_from.tolist())
        names = [Host(*one) for one in zip(shown.vlan_vid.tolist(), shown.mac.tolist(), strict=True)]
        found += zip(names, zip(*columns, strict=True), strict=True)
        after = names[-1]
        assert len(names) <= page
    assert found == sorted(expected.items())
    for mac in {host.mac for host in expected}:
        only = np.arange(VNS) == 2
        these = sorted(host for host, one in expected.items() if host.mac == mac and one[0] == 2)
        assert known.some(only, mac, None, 9).vlan_vid.tolist() == [host.vlan_vid for host in these]


def test_more_hosts_than_there_is_room_for_at_first_are_all_known():
    known = KnownHosts(VNS, 1000, REMEMBERED_S)
    for number in range(500):
        known.come(Host(10, number), number % VNS, float(number), None)
    for number in range(0, 500, 2):
        known.go(Host(10, number))
    shown = known.some(np.arange(VNS) == 1, None, Host(10, 100), 1000)
    assert shown.mac.tolist() == [number for number in range(101, 500, 2) if number % VNS == 1]
    assert shown.since_s.tolist() == shown.mac.tolist()


def test_what_left_at_an_unknown_time_is_not_remembered():
    known, host = KnownHosts(VNS, MAX_MACS, REMEMBERED_S), Host(10, 2)
    known.come(host, 1, float("nan"), None)
    assert known.leave(host, float("nan")) == 1
    assert known.came_from(host, 1.0) is None
