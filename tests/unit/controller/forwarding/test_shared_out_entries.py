"""Where other nodes have some of the switches: entries of the own ones are those that one process makes, to the bit."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.configs import fabric

from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding.forwarding_state import ForwardingState
from controller.forwarding.host_entries import ForwardingSettings
from controller.forwarding.pairs import Host, Pair
from controller.switch.switch_record import SwitchRecord

SWITCHES, PORTS, VLANS = (1, 2, 3, 4), (1, 2), (10, 20)
CONFIG = fabric({dpid: {port: list(VLANS) for port in PORTS} for dpid in SWITCHES})
VNS = VnTable.from_config(CONFIG)
METERS = {s.dpid: SwitchRecord.from_config(s, VNS, CONFIG).meters_in_use() for s in CONFIG.switches.values()}
HOSTS = [Host(vid, mac) for vid in VLANS for mac in (2, 4, 6, 8)]

dpids, hosts = st.sampled_from(SWITCHES), st.sampled_from(HOSTS)
places = st.builds(PortId, dpids, st.sampled_from(PORTS))
ends = st.tuples(dpids, dpids).filter(lambda both: both[0] != both[1])
steps = st.one_of(
    st.tuples(st.just("take"), dpids),
    st.tuples(st.just("let go"), dpids),
    st.tuples(st.just("down"), dpids),
    st.tuples(st.just("link"), ends),
    st.tuples(st.just("link down"), ends),
    st.tuples(st.just("learn"), hosts, places),
    st.tuples(st.just("forget"), hosts),
    st.tuples(st.just("talk"), places, hosts, st.integers(1, 9)),
    st.tuples(st.just("tick"), st.floats(0.0, 5.0)),
)


def network():
    return ForwardingState(CONFIG.switches.values(), VNS, ForwardingSettings(max_macs_per_vn=2))


def take(net, dpid, pairs):
    for _ in net.put_switch(dpid, METERS[dpid], set_queue=dpid != 2):
        pass
    net.paths.switch_up(dpid)
    net.update_paths()
    net.pairs.add({pair: meter for pair, meter in pairs.items() if VNS.key(pair.sender).dpid == dpid})


class Both:
    """One process that has all switches, and a node that has some: both hear of the same."""

    def __init__(self):
        self.whole, self.part = network(), network()
        self.part.enable_sharding()
        self.mine: set[int] = set()
        self.pairs: dict[Pair, int] = {}
        self.now_s = 0.0
        for dpid in SWITCHES:
            take(self.whole, dpid, {})
            self.part.paths.switch_up(dpid)

    def both(self):
        return self.whole, self.part

    def do(self, what, *about):
        getattr(self, what.replace(" ", "_"))(*about)
        for net in self.both():
            net.update_paths()

    def take(self, dpid):
        if dpid not in self.mine:
            self.mine.add(dpid)
            self.whole.paths.switch_up(dpid)
            self.whole.pairs.add({pair: meter for pair, meter in self.pairs.items() if self.sends_at(pair, dpid)})
            take(self.part, dpid, self.pairs)

    def sends_at(self, pair, dpid):
        return VNS.key(pair.sender).dpid == dpid

    def let_go(self, dpid):
        if dpid in self.mine:
            self.mine.discard(dpid)
            for pair in [pair for pair in self.pairs if self.sends_at(pair, dpid)]:
                self.part.pairs.remove(pair)
            self.part.release_switch(dpid)

    def down(self, dpid):
        for net in self.both():
            net.paths.switch_down(dpid)

    def link(self, ends):
        one, other = (PortId(dpid, 10 + peer) for dpid, peer in (ends, ends[::-1]))
        for net in self.both():
            net.paths.on_discovery_frame(one, other, self.now_s)
            net.paths.on_discovery_frame(other, one, self.now_s)

    def link_down(self, ends):
        for net in self.both():
            net.port_down(PortId(ends[0], 10 + ends[1]), self.now_s)

    def learn(self, host, place):
        self.forget_unused([net.learn_host(host, place) for net in self.both()])

    def forget(self, host):
        self.forget_unused([net.forget_host(host) for net in self.both()])

    def forget_unused(self, _):
        for pair in self.whole.pairs.drain_unused():
            self.pairs.pop(pair)
            for net in self.both():
                net.pairs.remove(pair)
        self.part.pairs.drain_unused()

    def talk(self, place, host, meter_id):
        pair = self.whole.pair_seen(host, place)
        if pair is not None:
            self.pairs[pair] = meter_id
            self.whole.pairs.add({pair: meter_id})
        if place.dpid in self.mine and self.part.pair_seen(host, place) is not None:
            self.part.pairs.add({self.whole.pair_of(host, place): meter_id})

    def tick(self, elapsed_s):
        self.now_s += elapsed_s
        for net in self.both():
            net.paths.tick(self.now_s)


@settings(max_examples=80)
@given(st.lists(steps, max_size=40))
@example([("link", (1, 2)), ("learn", HOSTS[0], PortId(2, 1)), *[("take", 1), ("let go", 1)] * 2, ("take", 1)])
@example([("learn", HOSTS[0], PortId(2, 1)), ("take", 2)])
@example([("take", 1), ("learn", HOSTS[1], PortId(2, 1)), *[("talk", PortId(1, 1), HOSTS[1], 3)] * 2])
def test_entries_of_own_switches_are_those_of_one_process_and_there_are_no_others(done):
    fabrics = Both()
    for one in done:
        fabrics.do(*one)
        for dpid in SWITCHES:
            wanted, made = fabrics.whole.desired.flows_at(dpid), fabrics.part.desired.flows_at(dpid)
            if dpid in fabrics.mine:
                assert not wanted.differing(made)
                assert dict(made) == dict(wanted)
            else:
                assert not len(made)
    for net in fabrics.both():  # and columns of VNs say what their hosts and senders are
        macs = [[host.mac for host in net.hosts_of_vn(row)] for row in range(len(VNS))]
        assert net.known.count.tolist() == [len(some) for some in macs]
        assert all(min(some) == net.known.lowest_mac[row] for row, some in enumerate(macs) if some)
        assert net.pairs.receivers().tolist() == [row for row in range(len(VNS)) if net.pairs.to(row)]


def test_what_is_kept_of_others_hosts_does_not_grow_with_the_switches():
    both = Both()
    both.do("take", 1)
    for at, host in enumerate(HOSTS[:4]):
        both.do("learn", host, PortId(2 + at % 3, 1))
    groups = [group for group in both.part.desired._groups if isinstance(group, tuple) and group[-1] in HOSTS]
    assert {group[0] for group in groups} == {"discover"}  # others' hosts are learned, and go out, elsewhere
    both.do("let go", 1)
    assert not any(len(both.part.desired.flows_at(dpid)) for dpid in SWITCHES)
