"""Frames for a host are sent on as the paths say that were put last, whatever came and went in which order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.forwarding import pipeline
from controller.forwarding.desired_flows import DesiredFlows
from controller.forwarding.flow_table import flow_key
from controller.forwarding.pairs import Host
from controller.forwarding.transit_flows import TransitFlows

SWITCHES, VLAN = (1, 2, 3), 10
HOSTS = [Host(VLAN, 0x02_00_00_00_00_00 | number) for number in range(40)]  # more than go into columns one by one
switches, ports = st.sampled_from(SWITCHES), st.integers(1, 3)
paths = st.dictionaries(st.tuples(switches, switches).filter(lambda ends: ends[0] != ends[1]), ports)
moves = st.one_of(
    st.tuples(st.just("place"), st.sets(st.sampled_from(HOSTS)), switches),
    st.tuples(st.just("forget"), st.sets(st.sampled_from(HOSTS))),
    st.tuples(st.just("paths"), paths),
    st.tuples(st.just("take"), switches),
    st.tuples(st.just("let go"), switches),
)


@settings(max_examples=100)
@given(st.lists(moves, max_size=12), st.booleans())
def test_entries_are_those_of_the_paths_and_hosts_that_there_are(steps, shared):
    desired, behind, now = DesiredFlows(), {}, {}
    desired.only = set() if shared else None
    transit = TransitFlows(desired)
    for what, *of in steps:
        before = {dpid: desired.flows_at(dpid).copy() for dpid in SWITCHES}
        if what == "place":
            for host in sorted(of[0] - behind.keys()):
                behind[host] = of[1]
                transit.place(host, of[1], SWITCHES)
        elif what == "forget":
            for host in sorted(of[0] & behind.keys()):
                transit.forget(host, behind.pop(host), SWITCHES)
        elif what == "paths":
            now = of[0]
            transit.put_paths(now, desired.tracks)
        elif desired.only is not None and what == "take" and of[0] not in desired.only:
            desired.only.add(of[0])
            for _ in transit.begin(of[0]):
                pass
        elif desired.only is not None and what == "let go":
            desired.forget(of[0])
        differing = {dpid: before[dpid].differing(desired.flows_at(dpid)) for dpid in SWITCHES if desired.tracks(dpid)}
        changed = {dpid: keys for dpid, keys in differing.items() if keys}
        assert desired.pending == changed.keys()
        assert desired.pop_changed(1_000, before) == changed
        for dpid in SWITCHES:
            ports_to = {host: now.get((dpid, own)) for host, own in behind.items()} if desired.tracks(dpid) else {}
            flows = [
                pipeline.forward_to_switch(port_no, *host) for host, port_no in ports_to.items() if port_no is not None
            ]
            assert dict(desired.flows_at(dpid)) == {flow_key(flow): flow for flow in flows}
