"""Switches shared out over controllers, in virtual time: frames find their way, limits hold, a death frees nobody."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import fabric
from support.fabrics import ControlLoop, mac_of
from support.host_traffic import of_pair
from support.sharded_fabric import ShardedFabric

from controller.central import control_interval
from controller.central.fabric_state import SWITCH_WAIT_S
from controller.cluster.ownership import Owner
from controller.fabric.topology import LINK_TIMEOUT_S, PortId
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import Table
from controller.metering.fabric_readings import FabricReadings
from controller.metering.queue_readings import QueueReadings
from controller.node_protocol.rejection import RejectCause
from controller.partition.node_partition import PEER_TIMEOUT_S

MBIT, INTERVAL_S = 1e6, 0.055
LIMIT_BPS = 400 * MBIT
COMPENSATED = 1.06  # a meter makes up for what setting it gave or took
PORTS = {1: {1: [10], 2: [10]}, 2: {3: [10], 4: [10]}, 3: {5: [10]}}
LINKS = [(PortId(1, 101), PortId(2, 101)), (PortId(2, 102), PortId(3, 101))]
CLUSTER = {"node": "a", "etcd": ["http://127.0.0.1:1"], "mode": "sharded", "peer_listen": "127.0.0.1:6654"}
OWNER = {1: "a", 2: "b", 3: "b"}
RECEIVER = (3, 5)
SENDERS = [(1, 1), (1, 2), (2, 3)]
ALGORITHMS = ("fs", "sp", "fp", "level", "max-min")
SECOND = round(1 / INTERVAL_S)


def started(algorithm: str = "fs", owner: dict[int, str] = OWNER) -> ControlLoop:
    """A fabric whose nodes know of each other's links."""
    config = fabric(PORTS, limits={10: "400M"}, algorithm=algorithm, cluster=CLUSTER)
    net = ShardedFabric(config, LINKS, owner)
    net.start()
    loop = ControlLoop(net)
    loop.run(3 * SECOND)
    return loop


def blasting(algorithm: str, owner: dict[int, str] = OWNER) -> ControlLoop:
    """Three senders at switches of two nodes share a receive limit at one's."""
    loop = started(algorithm, owner)
    for place in SENDERS:
        add(loop, place, 300 * MBIT)
    loop.run(5 * SECOND)
    return loop


def add(loop: ControlLoop, place: tuple[int, int], rate_bps: float) -> None:
    """Add a sender to the receiver; both nodes have heard of both hosts before it begins."""
    sender = loop.add(place, RECEIVER, 10, 0.0)
    loop.run(SECOND // 2)
    sender.rate_bps = rate_bps


def nodes(loop: ControlLoop):
    return loop.fabric.central


def highest_rise(loop: ControlLoop, standing_bps: dict, intervals: int, of=None) -> float:
    """Let intervals pass; return how far a meter rose above the rate that stood before."""
    highest = 0.0
    for _ in range(intervals):
        loop.run(1)
        highest = max([highest, *(rate / standing_bps[key] for key, rate in (of or meters)(loop).items())])
    return highest


def limits(loop: ControlLoop) -> dict[int, float]:
    """What the senders' meters stand at, as their nodes know, by port."""
    found = {}
    for central in nodes(loop).centrals.values():
        entries = central.state.entries
        for row in range(len(entries)):
            sender = central.vns.key(entries.sender[row])
            meter = loop.fabric.switches[sender.dpid].meters[int(entries.meter_id[row])]
            found[sender.port_no] = meter.setting.rate_kbps * 1e3
    return found


def meters(loop: ControlLoop) -> dict[tuple[int, int], float]:
    """What the pairs' meters stand at, by switch and meter."""
    found = {}
    for dpid, switch in loop.fabric.switches.items():
        for flow in filter(of_pair, switch.flows.values()):
            found[dpid, flow.meter_id] = switch.meters[flow.meter_id].setting.rate_kbps * 1e3
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_senders_of_all_nodes_together_keep_the_receivers_limit(algorithm):
    loop = blasting(algorithm)
    assert loop.rate(RECEIVER, 10, -2 * SECOND) == pytest.approx(LIMIT_BPS, rel=0.01)
    assert set(limits(loop)) == {1, 2, 3}
    if algorithm in ("fs", "level", "max-min"):
        assert limits(loop) == pytest.approx(dict.fromkeys((1, 2, 3), LIMIT_BPS / 3), rel=0.01)
    first = {"a": 2, "b": 2}  # said before anything was heard
    if algorithm == "max-min":
        first["a"] += 1  # it decides for all, and is told of links
    assert {name: dict(one.refused) for name, one in nodes(loop).sharing.items()} == {
        name: {RejectCause.LATE: late} for name, late in first.items()
    }


@pytest.mark.parametrize(("first", "late"), [([(2, 3), (2, 4)], (1, 1)), ([(1, 1), (1, 2)], (2, 3))])
def test_a_new_pairs_first_rate_counts_the_senders_of_other_nodes(first, late):
    loop = started()
    for place in first:
        add(loop, place, 300 * MBIT)
    loop.run(SECOND)
    loop.add(late, RECEIVER, 10, 300 * MBIT)
    while late[1] not in limits(loop):
        loop.run(1)
    assert limits(loop)[late[1]] <= COMPENSATED * LIMIT_BPS / 3


def test_hosts_and_links_of_others_are_known_and_floods_reach_all():
    loop = started()
    loop.fabric.learn(mac_of(PortId(1, 1), 10), PortId(1, 1), 10)
    loop.run(SECOND)
    host = Host(10, mac_of(PortId(1, 1), 10))
    assert all(central.network.knows(host) for central in nodes(loop).centrals.values())
    delivery = loop.fabric.learn(mac_of(PortId(3, 5), 10), PortId(3, 5), 10)
    assert sorted(port for port, _, _ in delivery.at) == [(1, 1), (1, 2), (2, 3), (2, 4)]
    links = [central.network.topology.links() for central in nodes(loop).centrals.values()]
    assert links[0] == links[1]
    assert len(links[0]) == 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_dead_node_frees_nobody_and_paths_stay_until_its_switches_are_taken_over(algorithm):
    loop = blasting(algorithm)
    standing_bps = limits(loop)
    loop.fabric.kill("a")
    timeout = round((LINK_TIMEOUT_S + PEER_TIMEOUT_S) / INTERVAL_S)
    assert highest_rise(loop, standing_bps, timeout, limits) <= COMPENSATED  # the frames still find their way
    nodes(loop).set_owner(1, "b", loop.fabric.now_s)
    assert highest_rise(loop, standing_bps, SECOND, limits) <= COMPENSATED  # it takes a while to read the switch
    before = loop.fabric.switches[1].meter_mods
    loop.fabric.connect(1)
    assert loop.fabric.switches[1].meter_mods == before  # the meters are right
    assert (
        highest_rise(loop, standing_bps, 2 * SECOND, limits) <= 1.1
    )  # FP offers a sender a tenth more, to see whether it takes it
    assert set(limits(loop)) == {1, 2, 3}
    assert loop.rate(RECEIVER, 10, -SECOND) <= 1.03 * LIMIT_BPS
    assert loop.rate(RECEIVER, 10, -SECOND) >= 0.9 * LIMIT_BPS


@pytest.mark.parametrize("again", ["a", "b"])
def test_a_node_that_starts_again_unseen_frees_nobody(again):
    loop = blasting("fs")
    standing_bps = meters(loop)
    nodes(loop).restart(again, loop.fabric.now_s)
    assert highest_rise(loop, standing_bps, 2 * SECOND) <= COMPENSATED
    for dpid in [dpid for dpid, owner in OWNER.items() if owner == again]:
        loop.fabric.connect(dpid)
    loop.run(4 * SECOND)
    assert loop.rate(RECEIVER, 10, -SECOND) == pytest.approx(LIMIT_BPS, rel=0.01)
    assert limits(loop) == pytest.approx(dict.fromkeys((1, 2, 3), LIMIT_BPS / 3), rel=0.01)


def test_the_receivers_node_dies_and_grants_are_held_by_the_other():
    loop = blasting("fs")
    standing_bps = {port: rate for port, rate in limits(loop).items() if port in (1, 2)}
    loop.fabric.kill("b")
    loop.run(4 * SECOND)
    assert {port: limits(loop)[port] for port in standing_bps} == pytest.approx(standing_bps, rel=0.01)
    for dpid in (2, 3):
        loop.fabric.take_over(dpid, "a")
        loop.run(5)
    loop.run(2 * SECOND)
    assert limits(loop) == pytest.approx(dict.fromkeys((1, 2, 3), LIMIT_BPS / 3), rel=0.01)


def test_who_owns_the_first_owned_switch_decides_for_all_and_nobody_is_freed_while_that_has_no_owner():
    loop = blasting("max-min")
    assert [one._shard.decided_mask.all() for one in nodes(loop).sharing.values()] == [True, False]
    standing_bps = meters(loop)
    loop.fabric.kill("a")
    nodes(loop).announce_owners(loop.fabric.now_s)  # nobody has s1: b decides, and knows not what s1's hosts send
    assert nodes(loop).sharing["b"]._shard.decided_mask.all()
    loop.senders[0].rate_bps = 0.0
    assert highest_rise(loop, standing_bps, 12 * SECOND) <= COMPENSATED
    loop.fabric.take_over(1, "b")
    loop.run(3 * SECOND)
    assert limits(loop)[3] == pytest.approx(LIMIT_BPS / 2, rel=0.01)


def test_what_a_receivers_node_reads_of_its_queue_reaches_who_decides_and_through_it_the_senders(monkeypatch):
    dropped_bps = 0.0

    def observe(fabric, wanted, received_s, now_s, marks=None):
        vns = fabric.vns
        known = np.isin(vns.dpid, list(received_s))
        at_receiver = (vns.dpid == RECEIVER[0]) & (vns.port_no == RECEIVER[1])
        served, dropped = np.where(at_receiver, LIMIT_BPS, 0.0), np.where(at_receiver, dropped_bps, 0.0)
        columns = [np.where(known, one, np.nan) for one in (served, served, dropped, dropped, served)]
        return FabricReadings(QueueReadings(*columns, known, ~known))

    monkeypatch.setattr(control_interval, "collect_readings", observe)
    loop = blasting("gatekeeper")  # a decides, b has the receiver's switch
    assert min(limits(loop).values()) > 200 * MBIT
    dropped_bps = 200 * MBIT
    loop.run(2 * SECOND)
    floor_bps = LIMIT_BPS / len(SENDERS)
    assert all(floor_bps / 1.1 < rate < 1.5 * floor_bps for rate in limits(loop).values())  # a meter gave more before
    a, b = nodes(loop).centrals.values()
    assert a.fabric.notifications.sum() == a.fabric.notifications.max() > 3
    assert b.fabric.notifications.sum() == 0
    row = int(a.fabric.notifications.argmax())
    assert [central.fabric.congestion.congested[row] for central in (a, b)] == [True, True]
    dropped_bps = 0.0
    loop.run(3 * SECOND)
    assert min(limits(loop).values()) > 200 * MBIT
    assert [central.fabric.congestion.congested[row] for central in (a, b)] == [False, False]


def phantoms(loop: ControlLoop) -> list[tuple[int, int]]:
    """The switches and the ids of the phantom meters there, as flow entries name them."""
    return [
        (dpid, flow.meter_id)
        for dpid, switch in loop.fabric.switches.items()
        for flow in switch.flows.values()
        if flow.table_id == Table.PHANTOM and flow.meter_id is not None
    ]


def test_what_a_receivers_phantom_meter_counts_reaches_who_decides_and_a_new_owner_finds_the_meter_there():
    loop = blasting("hygenicc")  # a decides, b has the receiver's switch, and a phantom meter there
    (phantom,) = phantoms(loop)
    assert phantom[0] == RECEIVER[0]
    assert loop.rate(RECEIVER, 10, -2 * SECOND) == pytest.approx(LIMIT_BPS, rel=0.06)
    assert max(limits(loop).values()) < 0.5 * LIMIT_BPS
    nodes(loop).owner[2] = "a"
    nodes(loop).set_owner(3, "a", loop.fabric.now_s)
    assert not nodes(loop).centrals["b"].fabric.phantoms
    loop.fabric.connect(3)
    loop.run(4 * SECOND)
    assert phantoms(loop) == [phantom]
    assert loop.rate(RECEIVER, 10, -2 * SECOND) == pytest.approx(LIMIT_BPS, rel=0.03)


@pytest.mark.parametrize("dpid", [2, 3])
@pytest.mark.parametrize("late", [0, 3])
def test_a_planned_move_to_a_node_that_knew_nothing_frees_nobody_though_the_last_owner_hears_late(dpid, late):
    loop = blasting("fs", {1: "a", 2: "b", 3: "c"})
    both, highest = nodes(loop), 0.0
    last, new = both.owner[dpid], "a" if dpid == 2 else "b"
    for step in range(2 * SECOND):  # the new owner has just started, and has nothing
        if step == SECOND:
            both.restart(new, loop.fabric.now_s)
        if step == 0:
            both.set_owner(2 if dpid == 3 else 1, "c", loop.fabric.now_s)
            loop.fabric.connect(2 if dpid == 3 else 1)
        loop.run(1)
    standing_bps = meters(loop)
    for step in range(3 * SECOND):
        if step < SECOND // 2:
            for sharing in both.sharing.values():
                sharing.freeze_grants(loop.fabric.now_s)
        if step == SECOND // 2:
            both.set_owner(dpid, new, loop.fabric.now_s, [new])
            loop.fabric.connect(dpid)
        if step == SECOND // 2 + late:
            both.announce_owners(loop.fabric.now_s)
        highest = max(highest, highest_rise(loop, standing_bps, 1))
    assert last != new
    assert highest <= COMPENSATED
    assert limits(loop) == pytest.approx(dict.fromkeys((1, 2, 3), LIMIT_BPS / 3), rel=0.01)
    assert loop.rate(RECEIVER, 10, -SECOND) == pytest.approx(LIMIT_BPS, rel=0.01)


def test_grants_rise_again_once_all_switches_are_taken_over():
    loop = blasting("fs")
    for sender in loop.senders[1:]:
        sender.rate_bps = 0.0
    loop.fabric.kill("a")
    loop.run(SECOND)
    assert max(limits(loop).values()) <= 1.06 * LIMIT_BPS / 3
    loop.fabric.take_over(1, "b")
    loop.run(3 * SECOND)
    assert limits(loop)[1] >= 0.6 * LIMIT_BPS


def test_a_node_that_hears_of_a_new_owner_first_is_not_heard_until_the_others_know():
    loop = blasting("fp")
    standing_bps = limits(loop)
    sharing = nodes(loop).sharing
    moved = {**sharing["a"].owners, 2: Owner("a", 1, 2)}
    sharing["a"].update_owners(moved, 1, loop.fabric.now_s)
    assert highest_rise(loop, standing_bps, SECOND, limits) <= COMPENSATED
    assert min(one.refused[RejectCause.FABRIC] for one in sharing.values()) > SECOND
    nodes(loop).set_owner(2, "a", loop.fabric.now_s)
    loop.fabric.connect(2)
    refused = {name: one.refused[RejectCause.FABRIC] for name, one in sharing.items()}
    loop.run(4 * SECOND)
    under_way = {"a": 2, "b": 0}  # what b said before it knew
    assert {name: one.refused[RejectCause.FABRIC] - refused[name] for name, one in sharing.items()} == under_way
    assert loop.rate(RECEIVER, 10, -SECOND) == pytest.approx(LIMIT_BPS, rel=0.05)


def test_leftovers_are_removed_only_while_every_switch_is_under_control():
    loop = started()
    central = nodes(loop).centrals["b"]
    assert not central.fabric.awaits_switches(loop.fabric.now_s)
    loop.fabric.kill("a")
    loop.run(4 * SECOND)
    assert central.fabric.awaits_switches(loop.fabric.now_s + SWITCH_WAIT_S)
    loop.fabric.take_over(1, "b")
    assert not central.fabric.awaits_switches(loop.fabric.now_s)


def test_an_owner_that_loses_a_switch_takes_it_off_the_others_paths():
    loop = started()
    loop.fabric.disconnect(2)
    loop.run(SECOND)
    assert all(not central.network.topology.links() for central in nodes(loop).centrals.values())
    loop.fabric.connect(2)
    loop.run(3 * SECOND)
    assert all(len(central.network.topology.links()) == 2 for central in nodes(loop).centrals.values())


def test_who_speaks_of_others_switches_or_is_nobody_is_refused():
    loop = started()
    here = nodes(loop).sharing["a"]
    loop.run(1)
    said = [data for speaker, hearer, data in nodes(loop)._messages if (speaker, hearer) == ("b", "a")]
    here.receive("nobody", said[0], loop.fabric.now_s)
    assert here.refused.pop(RejectCause.NOT_OWNED) == 2
    here.receive("b", b"\x01", loop.fabric.now_s)
    assert here.refused.pop(RejectCause.LENGTH) == 1
    nodes(loop).owner[3] = "a"
    nodes(loop).set_owner(2, "a", loop.fabric.now_s)  # b owns nothing now, as far as a knows
    loop.run(2 * SECOND)
    assert here.refused[RejectCause.NOT_OWNED] > 0
