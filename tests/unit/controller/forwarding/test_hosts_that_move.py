"""Hosts that move to VNs that have all the hosts they may learn: found there, bounded, and nobody else's cost."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from support.configs import fabric
from support.fabrics import Fabric
from support.host_traffic import nothing_to_mend, told
from support.switches import BROADCAST, Frame

from controller.central.controller import CentralController
from controller.central.learning import CALLER_BURST, FOREIGN_BURST, UNREPORTED_S
from controller.central.reconfiguration import reconfigure
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import Table
from controller.forwarding.token_buckets import MOVE_BURST

MAX_MACS = 2
OLD, PEERS, FULL = PortId(1, 1), PortId(1, 2), PortId(2, 2)
OWN = (0x02_00_00_00_00_11, 0x02_00_00_00_00_12)  # of the full VN
MOVING, PEER, STRANGER = 0x02_00_00_00_00_99, 0x02_00_00_00_00_55, 0x02_00_00_00_00_77
CONFIG = replace(fabric({1: {1: [10, 20], 2: [10, 20]}, 2: {1: [10, 20], 2: [10, 20]}}), max_macs_per_vn=MAX_MACS)
LINKS = [(PortId(1, 10), PortId(2, 10))]


@pytest.fixture
def net():
    """Two switches; the VN of VLAN 10 at s2:2 is full, MOVING is at s1:1 and PEER at s1:2."""
    made = Fabric(CONFIG, LINKS)
    made.start()
    for mac in OWN:
        made.learn(mac, FULL, 10)
    made.learn(MOVING, OLD, 10)
    made.learn(PEER, PEERS, 10)
    assert got(made, MOVING) == [OLD]
    return made


def got(net, mac, vlan_vid=10, count=1):
    """Where each of so many frames from PEER for an address goes, each place once."""
    deliveries = [net.send(Frame(mac, PEER, vlan_vid), PEERS) for _ in range(count)]
    return sorted({port for delivery in deliveries for port, _, _ in delivery.at})


def say(net, mac, port, vlan_vid=10, to=PEER):
    return net.send(Frame(to, mac, vlan_vid), port)


def at(net, mac, vlan_vid=10):
    row = net.central.network.vn_of(Host(vlan_vid, mac))
    return None if row is None else PortId(*net.central.vns.key(row)[1:])


def of(net, port, vlan_vid=10):
    return {host.mac for host in net.central.network.hosts_of_vn(net.central.vns.row_of(vlan_vid, *port))}


@pytest.mark.parametrize("to", [BROADCAST, PEER])
def test_a_known_host_that_moves_to_a_full_vn_is_found_there(net, to):
    """By what it sends to everybody, or to one host only."""
    for _ in range(6):
        say(net, MOVING, FULL, to=to)
        assert got(net, MOVING) == [FULL]
    assert of(net, FULL) == {*OWN, MOVING}
    assert told(net, EventKind.HOST_MOVED) == ["02:00:00:00:00:99 of VLAN 10 has moved from s1:1 to s2:2"]
    what = "02:00:00:00:00:99 was known before it came there, and has a place"
    assert told(net, EventKind.HOST_LIMIT_REACHED)[-1] == f"VLAN 10 at s2:2 has 3 hosts, and may learn 2; {what}"
    nothing_to_mend(net)


def test_the_same_address_in_another_vlan_has_not_moved(net):
    """VLAN 20 is full at the same port, and the host of VLAN 10 costs it nothing."""
    for mac in OWN:
        net.learn(mac, FULL, 20)
    say(net, MOVING, FULL, 20)
    assert (at(net, MOVING), at(net, MOVING, 20)) == (OLD, None)
    assert got(net, MOVING) == [OLD]
    assert told(net, EventKind.HOST_MOVED) == []


@pytest.mark.parametrize(
    ("waited_s", "port", "found", "moved"),
    [
        (CONFIG.mac_ageing_s / 2, FULL, FULL, ["02:00:00:00:00:99 of VLAN 10 has moved from s1:1 to s2:2"]),
        (CONFIG.mac_ageing_s, FULL, None, []),  # so late it is a new host
        (0.0, OLD, OLD, []),
    ],
)
def test_a_host_whose_port_went_down_has_moved_where_it_comes_elsewhere_in_time(net, waited_s, port, found, moved):
    net.central.port_down(*OLD, net.now_s)
    net.push()
    assert at(net, MOVING) is None
    net.now_s += waited_s
    say(net, MOVING, port)
    assert at(net, MOVING) == found
    assert found is None or got(net, MOVING) == [found]
    assert told(net, EventKind.HOST_MOVED) == moved


def test_a_host_whose_old_port_goes_down_after_it_came_stays(net):
    say(net, MOVING, FULL)
    net.central.port_down(*OLD, net.now_s)
    net.push()
    assert got(net, MOVING) == [FULL]


def test_a_port_that_goes_down_and_up_with_ever_new_hosts_is_remembered_with_so_many_as_it_may_have(net):
    for number in range(10 * MAX_MACS):
        net.learn(0x06_00_00_00_00_00 + number, OLD, 10)
        net.central.port_down(*OLD, net.now_s)
        net.push()
    assert len(net.central.network.known._left) == MAX_MACS
    net.now_s += CONFIG.mac_ageing_s
    net.learn(MOVING, OLD, 10)
    net.central.port_down(*OLD, net.now_s)
    assert list(net.central.network.known._left) == [Host(10, MOVING)]


def test_two_vns_that_take_hosts_from_each_other_have_twice_as_many_as_they_may_learn_and_no_more(net):
    """One learns new ones, the full one claims them: an attack on the tables by one tenant."""
    claimed = [0x06_00_00_00_00_00 + number for number in range(20)]
    for mac in claimed:
        net.now_s += 1.0
        net.learn(mac, OLD, 10)
        say(net, mac, FULL)
        assert at(net, mac) == FULL
        assert len(of(net, FULL)) <= 2 * MAX_MACS
    assert {*OWN, claimed[0], claimed[-1]} == of(net, FULL)  # the last one that came made room, nobody else did
    assert len(got(net, claimed[1])) > 1  # it is flooded,
    assert FULL in got(net, claimed[1])
    assert of(net, PEERS) == {PEER}
    assert not net.central.network.known.full(net.central.vns.row_of(10, *OLD))  # and who was robbed learns as before
    nothing_to_mend(net)


def test_whoever_was_claimed_is_where_it_speaks_next_though_its_vn_is_full_again(net):
    net.learn(0x06_00_00_00_00_00, OLD, 10)
    say(net, MOVING, FULL)
    net.learn(0x06_00_00_00_00_01, OLD, 10)
    say(net, MOVING, OLD)
    assert got(net, MOVING) == [OLD]
    assert len(of(net, OLD)) == MAX_MACS + 1


def test_a_router_address_that_moves_four_times_in_two_seconds_is_followed_each_time(net):
    """VRRP (RFC 5798): the virtual router's address speaks to a group wherever the master is."""
    virtual, group = 0x00_00_5E_00_01_01, 0x01_00_5E_00_00_12
    say(net, virtual, OLD, to=group)
    for port in (FULL, OLD, FULL, OLD):
        net.now_s += 0.5
        say(net, virtual, port, to=group)
        assert got(net, virtual) == [port]
    assert len(told(net, EventKind.HOST_MOVED)) == 4


def test_hosts_that_flap_to_a_full_vn_are_followed_as_seldom_as_to_any(net):
    before = net.central.network.host_changes
    for number in range(400):
        say(net, MOVING, (FULL, OLD)[number % 2])
    moves = (net.central.network.host_changes - before) // 2
    assert moves <= 2 * MOVE_BURST
    assert len(told(net, EventKind.HOST_FLAPPING)) == 1


def strange(net, number):
    """So many new hosts of the full VN speak to one host each; how many of them were reported."""
    return sum(say(net, 0x06_00_00_00_00_00 + one, FULL).reports for one in range(number))


def test_those_that_are_too_many_are_not_reported_for_ever(net):
    say(net, OWN[0], FULL)  # that pair has its meter
    assert strange(net, 3 * FOREIGN_BURST) == FOREIGN_BURST
    assert len(told(net, EventKind.HOST_LIMIT_REACHED)) == 2
    say(net, STRANGER, FULL, 20)
    assert at(net, STRANGER, 20) == FULL  # as ever in the other VLAN of the port
    say(net, MOVING, FULL)
    assert got(net, MOVING) == [OLD]
    say(net, MOVING, FULL, to=BROADCAST)  # who says it to everybody is heard at once
    assert got(net, MOVING) == [FULL]
    nothing_to_mend(net)
    net.now_s += UNREPORTED_S
    net.settle()
    say(net, STRANGER + 1, OLD)
    say(net, STRANGER + 1, FULL)  # and who does not after a while
    assert at(net, STRANGER + 1) == FULL
    assert strange(net, 3 * FOREIGN_BURST) == FOREIGN_BURST


def test_a_storm_of_those_that_are_too_many_is_not_reported_at_all_for_a_while(net):
    def storm():
        return sum(say(net, 0x06_00_00_00_00_00 + one, FULL, to=BROADCAST).reports for one in range(300))

    net.now_s += 100.0
    assert storm() == CALLER_BURST
    say(net, MOVING, FULL, to=BROADCAST)
    assert at(net, MOVING) == OLD
    net.now_s += UNREPORTED_S
    net.settle()
    say(net, MOVING, FULL, to=BROADCAST)
    assert at(net, MOVING) == FULL
    nothing_to_mend(net)
    assert storm() == CALLER_BURST


def test_a_vn_that_is_full_no_more_hears_of_new_hosts_at_once(net):
    say(net, OWN[0], FULL)
    strange(net, FOREIGN_BURST)
    net.central.network.forget_host(Host(10, OWN[1]))
    net.push()
    say(net, STRANGER, FULL)
    assert at(net, STRANGER) == FULL


def age(net, mac, port):
    """Let the host's entry in LEARN age, as it does when nothing came from it."""
    switch = net.switches[port.dpid]
    (key,) = [key for key in switch.flows if key.table_id == Table.LEARN and key.match.eth_src == mac]
    net.central.on_flow_removed(port.dpid, switch.age(key), net.now_s)
    net.push()


def test_hosts_that_age_free_their_places_once_the_vn_has_less_than_it_may_learn(net):
    say(net, MOVING, FULL)
    for mac, learned in ((OWN[0], None), (OWN[1], FULL)):
        age(net, mac, FULL)
        say(net, STRANGER, FULL)
        assert at(net, STRANGER) == learned
    assert of(net, FULL) == {MOVING, STRANGER}


def test_a_host_that_moves_while_its_old_switch_is_away_is_where_it_is_when_that_is_back(net):
    net.disconnect(1)
    say(net, MOVING, FULL, to=BROADCAST)
    assert at(net, MOVING) == FULL
    net.connect(1)
    net.hello()
    net.settle()
    assert got(net, MOVING) == [FULL]
    assert net.audit(1) == 2  # what only its own switch had for it
    assert net.audit(1) == 0


def test_a_controller_that_starts_again_knows_all_that_stand_in_the_tables_of_a_full_vn(net):
    say(net, MOVING, FULL)
    again = Fabric(CONFIG, LINKS, CentralController(CONFIG))
    again.switches = net.switches
    again.start()
    assert of(again, FULL) == {*OWN, MOVING}
    assert got(again, MOVING) == [FULL]
    say(again, STRANGER, FULL)
    assert at(again, STRANGER) is None


def test_another_configuration_leaves_hosts_where_they_are_and_since_when(net):
    net.now_s += 7.0
    moved_s = net.now_s
    say(net, MOVING, FULL)
    net.now_s += 9.0
    config = replace(CONFIG, switches={name: CONFIG.switches[name] for name in ("s2", "s1")})
    reconfigure(net.central, config, net.now_s).finish(net.central)
    vns, known = net.central.vns, net.central.network.known
    assert of(net, FULL) == {*OWN, MOVING}
    shown = known.some(vns.vlan_vid == 10, MOVING, None, 9)
    assert (shown.vn.tolist(), shown.since_s.tolist()) == ([vns.row_of(10, *FULL)], [moved_s])
    assert shown.moved_from.tolist() == [vns.row_of(10, *OLD)]
    assert got(net, MOVING) == [FULL]


@pytest.mark.parametrize("seed", range(8))
def test_frames_reach_every_host_where_it_spoke_last_and_no_vn_has_more_than_it_may(seed):
    random, places = Random(seed), [OLD, PEERS, PortId(2, 1), FULL, FULL, FULL]
    done = [
        random.choices(
            [
                ("say", random.randrange(9), random.choice(places)),
                ("down", random.choice(places[:3])),
                ("age", random.randrange(9)),
                ("wait", random.choice([1.0, UNREPORTED_S, float(CONFIG.mac_ageing_s)])),
            ],
            [40, 2, 1, 1],
        )[0]
        for _ in range(80)
    ]
    most = 0
    net = Fabric(CONFIG, LINKS)
    net.start()
    spoke: dict[int, PortId] = {}
    for what, *about in done:
        if what == "say":
            mac = 0x06_00_00_00_00_00 + about[0]
            say(net, mac, about[1], to=BROADCAST)
            spoke[mac] = about[1]
        elif what == "down":
            net.central.port_down(*about[0], net.now_s)
            net.push()
        elif what == "age":
            host = 0x06_00_00_00_00_00 + about[0]
            if (place := at(net, host)) is not None:
                age(net, host, place)
        else:
            net.now_s += about[0]
            net.hello()
            net.settle()
        for mac, place in spoke.items():
            sender = PEERS if place != PEERS else OLD
            delivery = net.send(Frame(mac, PEER, 10), sender, report=False)
            assert place in [port for port, _, _ in delivery.at]
        most = max(most, int(net.central.network.known.count.max()))
    assert most == 2 * MAX_MACS
