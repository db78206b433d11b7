"""Switches that lack or only pretend: what the running application finds out, uses, and says can be enforced."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.ovsdb import Server, needs_ovsdb
from support.wire import OneSwitch, WireRun

from controller.capability import meter_probe
from controller.forwarding.pipeline import Table
from controller.openflow.actions import SetQueue
from controller.openflow.constants import MessageType, MultipartType
from experiments.switch.options import DatapathOptions

PORTS = OneSwitch.ports
NO_QUEUES = "receivers have no queue: the switch has no ovsdb address to set queues with"
OF_NO_USE = {
    "refusing": ({"refuse": True}, "the switch rejects meters: METER_MOD_FAILED / OUT_OF_METERS"),
    "pretending": ({"limit": False, "count": False}, "meters neither limit nor count"),
    "without": ({"max_meters": 0}, "the switch has no meters that drop"),
}
UNCOUNTED = {
    "not counting": ({"count": False}, "its meters count nothing"),
    "saying so": ({"reports_counting": False, "count": False}, "the switch states that its meters do not count"),
}
ABILITIES = {
    **{name: abilities for name, (abilities, _) in (OF_NO_USE | UNCOUNTED).items()},
    "refusing at first": {"refuse": True},
    "only counting": {"limit": False},
    "limiting at first": {},
    "no-meters": {"max_meters": 0},
    "no-queues": {},
    "no-meter-counters": {},
    "full": {},
}
PROFILES = ("no-meters", "no-queues", "no-meter-counters", "full")
DPIDS = {name: dpid for dpid, name in enumerate(ABILITIES, 1)}
Switches = Callable[[str], OneSwitch]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WireRun]:
    """A switch for each of ABILITIES, with which no other test has to do."""
    each = {DPIDS[profile]: {"profile": profile} for profile in PROFILES}
    folder = tmp_path_factory.mktemp("capabilities")
    run = WireRun(folder, dict.fromkeys(DPIDS.values(), PORTS), each=each, well=False)
    for name, abilities in ABILITIES.items():
        OneSwitch(run, DPIDS[name]).set_abilities(**abilities)
    run.switch(DPIDS["no-meter-counters"]).faults.lose_replies = {int(MultipartType.METER)}
    with run:
        yield run


@pytest.fixture
def switch(run: WireRun) -> Switches:
    return lambda name: OneSwitch(run, DPIDS[name])


def told(switch: OneSwitch) -> list[str]:
    """What was told of what can be enforced, once it has been: without the switch's name, and other switches' senders.

    These are in the same VLANs.
    """
    switch.wait(lambda: switch.events("enforceability-changed"), "told")
    before = f"switch {switch.name} ({switch.dpid:016x}), "
    others = re.compile(r"; senders at [s0-9, ]+ are not limited, and no queue protects the receivers")
    texts = [others.sub("", text.removeprefix(before)) for text in switch.events("enforceability-changed")]
    return list(dict.fromkeys(texts))


def talk(switch: OneSwitch) -> None:
    """Let three hosts talk, and check that a frame of one reaches another."""
    switch.introduce()
    switch.passes(1, 2)
    there = 1, switch.mac(2)
    switch.wait(lambda: any(flow.match[0:3:2] == there for flow in switch.flows(Table.RATE_CONTROL)), "a pair")
    assert switch.passes(1, 2)


def meters_of_flows(switch: OneSwitch) -> set[int | None]:
    tables = (Table.SEND_LIMIT, Table.RATE_CONTROL, Table.PACKET_IN)
    return {flow.meter_id for flow in switch.flows() if flow.table_id in tables}


# -- meters


def test_a_test_leaves_nothing_behind_and_meets_nobody(tmp_path: Path) -> None:
    run = WireRun(tmp_path, {1: PORTS}, well=False)
    with run:
        switch = OneSwitch(run, 1)
        assert told(switch) == [f"port 1-3: enforceable: partly ({NO_QUEUES})"]
        assert not any(flow.cookie & meter_probe.COOKIE_MASK == meter_probe.COOKIE for flow in run.flows(1))
        assert set(run.meters(1)) == set(range(1, 5 * 2 * len(PORTS) + 1))
        assert all(run.fabric.received(1, port) == [] for port in PORTS)
        assert run.handled(1, MessageType.PACKET_OUT) == meter_probe.MARKED_FRAMES + 2 * meter_probe.FRAMES
        assert run.health() | {"loops": 0} == {
            "status": "ready",
            "switches": {"s1": "ready"},
            "enforceable": {"yes": 0, "partly": 3, "no": 0},
            "loops": 0,
        }
        talk(switch)
        assert run.app.wait_for(lambda: run.app.entry(1, 2, 10), "an entry")["enforced"] is True
        assert {port["enforceable"] for port in run.app.get("/v1/ports")["ports"]} == {"partly"}
        assert run.app.events("switch-error") == []


@pytest.mark.parametrize("name", OF_NO_USE)
def test_meters_of_no_use_are_not_used(switch: Switches, name: str) -> None:
    useless, why = switch(name), f"senders are not limited: {OF_NO_USE[name][1]}"
    assert told(useless) == [f"port 1-3: enforceable: no ({why}; {NO_QUEUES})"]
    assert useless.run.health()["status"] == "degraded"
    assert useless.faults() == [why]
    talk(useless)
    assert meters_of_flows(useless) == {None}
    assert useless.meters() == {}
    useless.wait(lambda: useless.listed("unmetered_pairs"), "a pair")
    assert useless.listed("pairs") == []
    (pair,) = useless.listed("unmetered_pairs")
    assert [pair[end]["port_no"] for end in ("sender", "receiver")] == [1, 2]
    assert useless.run.app.get("/v1/pairs?vlan=20")["unmetered_pairs"] == []
    vn = useless.run.app.get(f"/v1/vns/10/{useless.name}/2")
    assert vn["measured_receive_bps"] is None  # not zero: nobody counts what its sender sends
    assert (vn["enforceable"], vn["enforceable_reasons"][0]) == ("no", why)


def test_meters_that_come_to_be_of_use_are_used_from_the_next_connection_on(switch: Switches) -> None:
    late = switch("refusing at first")
    talk(late)
    late.wait(lambda: late.listed("unmetered_pairs"), "a pair without a meter")
    late.set_abilities(refuse=False)
    late.run.fabric.disconnect(late.dpid)
    late.wait(lambda: len(late.listed("pairs")) == 1, "judged again")
    assert late.listed("unmetered_pairs") == []
    late.wait(lambda: meters_of_flows(late) != {None}, "metered")
    assert late.passes(1, 2)


def test_meters_that_only_count_are_used_and_not_relied_on(switch: Switches) -> None:
    counting = switch("only counting")
    assert told(counting) == [
        f"port 1-3: enforceable: no (senders are not limited: meters pass everything; {NO_QUEUES})"
    ]
    talk(counting)
    assert meters_of_flows(counting) != {None}
    with counting.offering(100e6, (1, 2)):
        counting.wait(lambda: any(pair["offered_bps"] for pair in counting.listed("pairs")), "measured")
        assert [pair["enforced"] for pair in counting.listed("pairs")] == [False]


def test_meters_that_stop_limiting_are_found_out_by_their_counters(switch: Switches) -> None:
    failing, why = switch("limiting at first"), "senders are not limited: meters count, and pass more than their rates"
    talk(failing)
    failing.set_abilities(limit=False)
    failing.run.app.patch(f"/v1/vns/10/{failing.name}/2", receive_limit_bps=50_000_000)
    with failing.offering(300e6, (1, 2)):
        failing.wait(lambda: failing.faults() == [why], "found out", 30)
        failing.wait(lambda: why in told(failing)[-1], "told")
        failing.set_abilities(limit=True)
        failing.wait(lambda: failing.faults() == [], "well again", 40)


@pytest.mark.parametrize("name", UNCOUNTED)
def test_meters_that_do_not_count_limit_by_flow_counters(switch: Switches, name: str) -> None:
    why = UNCOUNTED[name][1]
    assert told(switch(name)) == [f"port 1-3: enforceable: partly ({NO_QUEUES}; rates are up to 500 ms stale: {why})"]
    measures_and_limits(switch(name))


def measures_and_limits(switch: OneSwitch) -> None:
    """Let two senders offer twice what their receiver may get, and wait for their meters to hold it."""
    talk(switch)

    def held() -> bool:
        meters = switch.meters()
        to_it = [pair["meter_id"] for pair in switch.listed("pairs") if pair["receiver"]["port_no"] == 2]
        # An entry is told of before its meter stands on the switch.
        rates = [meters[meter_id][0] for meter_id in to_it if meter_id in meters]
        return len(rates) == 2 and 300_000 < sum(rates) <= 400_000

    with switch.offering(400e6, (1, 2), (3, 2)):
        switch.wait(held, "held to the limit", 20)
        for _ in range(3):  # and not by chance, on the way down
            time.sleep(1.0)
            switch.wait(held, "still held", 20)


# -- profiles


def test_a_profile_without_meters_sends_none_and_is_no_trouble(switch: Switches) -> None:
    without = switch("no-meters")
    assert told(without) == [
        f"port 1-3: enforceable: no (senders are not limited: its profile is no-meters; {NO_QUEUES})"
    ]
    talk(without)
    assert meters_of_flows(without) == {None}
    without.run.app.patch(f"/v1/vns/10/{without.name}/2", send_limit_bps=50_000_000)
    talk(without)
    assert without.run.handled(without.dpid, MessageType.METER_MOD) == 0
    assert without.faults() == without.events("switch-error") == without.events("out-of-meters") == []


def test_a_profile_without_queues_names_none(switch: Switches) -> None:
    without = switch("no-queues")
    assert told(without) == ["port 1-3: enforceable: partly (receivers have no queue: its profile is no-queues)"]
    measures_and_limits(without)
    actions = {action for flow in without.flows(Table.FORWARD) for action in flow.actions}
    assert not any(isinstance(action, SetQueue) for action in actions)
    assert without.faults() == []


def test_a_profile_without_meter_counters_never_asks_for_them(switch: Switches) -> None:
    without = switch("no-meter-counters")
    assert "its profile is no-meter-counters" in told(without)[0]
    measures_and_limits(without)
    assert without.faults() == []


def test_a_profile_that_vouches_for_a_switch_makes_no_tests(switch: Switches) -> None:
    full = switch("full")
    assert told(full) == [f"port 1-3: enforceable: partly (that meters limit senders has not been tested; {NO_QUEUES})"]
    assert full.run.handled(full.dpid, MessageType.PACKET_OUT) == 0
    full.run.app.patch(f"/v1/vns/10/{full.name}/2", receive_limit_bps=50_000_000)
    talk(full)
    with full.offering(300e6, (1, 2)):
        full.wait(lambda: told(full)[-1] == f"port 1-3: enforceable: partly ({NO_QUEUES})", "seen to drop", 20)


# -- queues


@needs_ovsdb
def test_queues_that_others_took_away_come_back_and_whether_they_take_effect_is_found_out(tmp_path: Path) -> None:
    """At switch 1 others take one away, at the others one port has a queue of others; switch 3 goes by no queue."""
    options = {3: DatapathOptions(ignores_set_queue=True)}
    with ExitStack() as stack:
        servers = {}
        for dpid in (1, 2, 3):
            (tmp_path / str(dpid)).mkdir()
            servers[dpid] = Server(tmp_path / str(dpid), dpid, [f"eth{port}" for port in PORTS])
            stack.callback(servers[dpid].stop)
        for dpid in (2, 3):
            servers[dpid].vsctl("set", "port", "eth3", "qos=@q", "--", "--id=@q", "create", "QoS", "type=linux-htb")
        each = {dpid: {"ovsdb": server.address} for dpid, server in servers.items()}
        run = WireRun(tmp_path, dict.fromkeys(servers, PORTS), options=options, each=each, well=False)
        for datapath in run.fabric.switches.values():
            for port in PORTS:
                for vid, rate_bps in ((10, 400e6), (20, 500e6)):
                    datapath.ports[port].set_queue(vid, rate_bps, rate_bps)
        robbed, working, ignoring = (OneSwitch(run, dpid) for dpid in servers)
        with run:
            robbed.wait(lambda: servers[1].vsctl("get", "port", "eth3", "qos").strip() != "[]", "set")
            servers[1].vsctl("clear", "port", "eth1", "qos")
            run.fabric.set_link_up((1, 2), False)  # an occasion to look; there is one every 30 s
            robbed.wait(lambda: servers[1].vsctl("get", "port", "eth1", "qos").strip() != "[]", "set again")
            robbed.wait(lambda: robbed.events("tables-repaired"), "told")
            assert robbed.events("tables-repaired") == ["switch s1: queues repaired that another program had changed"]
            left = "receivers have no queue: has a QoS row (linux-htb) of another application"
            for switch in (working, ignoring):
                switch.wait(lambda switch=switch: any(left in text for text in told(switch)), "told of port 3", 20)
            working.wait(lambda: "port 1-2: enforceable: yes" in told(working), "told", 20)
            ignored = "frames do not reach the queues that they are sent to (set_queue has no effect)"
            ignoring.wait(ignoring.faults, "found out", 30)
            assert ignoring.faults() == [f"receivers at port 1-2 have no queue: {ignored}"]
            assert working.faults() == []
            why = f"port 1-2: enforceable: partly (receivers have no queue: {ignored})"
            ignoring.wait(lambda: why in told(ignoring), "told")
            states = {
                name: [port["enforceable"] for port in run.app.get("/v1/ports")["ports"] if port["switch"] == name]
                for name in ("s2", "s3")
            }
            assert states == {"s2": ["yes", "yes", "partly"], "s3": ["partly"] * 3}
            # Few, short, and to an address that no bridge forwards and no host takes.
            for switch in (working, ignoring):
                got = run.fabric.received(switch.dpid, 1)
                assert 0 < len(got) <= 4 * meter_probe.QUEUE_FRAMES
                assert all(len(one) == 60 and one[:6].hex() == "0180c200000e" for one in got)
