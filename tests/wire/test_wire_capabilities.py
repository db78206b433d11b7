"""Switches that lack or only pretend: what the running application finds out, uses, and says can be enforced."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support.ovsdb import Server, needs_ovsdb
from support.wire import WireRun, frame

from controller.capability import meter_probe
from controller.forwarding.pipeline import Table
from controller.openflow.actions import SetQueue
from controller.openflow.constants import MessageType, MultipartType
from experiments.switch.options import DatapathOptions

PORTS = (1, 2, 3)
NO_QUEUES = "receivers have no queue: the switch has no ovsdb address to set queues with"


def wire_run(folder: Path, options: DatapathOptions | None = None, **switch: object) -> WireRun:
    """Return a run of one switch, which need not be well; ``switch`` are keys of its configuration."""
    return WireRun(folder, {1: PORTS}, options=options, switch=switch, well=False)


def told(run: WireRun) -> list[str]:
    """What was told of what can be enforced, without the switch's name, once it has been."""
    run.app.wait_for(lambda: run.app.events("enforceability-changed"), "told")
    return [
        event["text"].removeprefix("switch s1 (0000000000000001), ")
        for event in run.app.events("enforceability-changed")
    ]


def talk(run: WireRun) -> None:
    """Let three hosts talk, and check that a frame of one reaches another."""
    for port in PORTS:
        run.introduce(1, port, 0xA0 + port)
    run.fabric.inject(1, 1, frame(0xA1, 0xA2, 10))
    run.wait(lambda: any(flow.match[0:3:2] == (1, 0xA2) for flow in run.flows(1, Table.RATE_CONTROL)), "a pair")
    run.fabric.forget_received()
    run.fabric.inject(1, 1, frame(0xA1, 0xA2, 10))
    assert len(run.fabric.received(1, 2)) == 1


def meters_of_flows(run: WireRun) -> set[int | None]:
    tables = (Table.SEND_LIMIT, Table.RATE_CONTROL, Table.PACKET_IN)
    return {flow.meter_id for flow in run.flows(1) if flow.table_id in tables}


# -- meters


def test_a_test_leaves_nothing_behind_and_meets_nobody(tmp_path: Path) -> None:
    run = wire_run(tmp_path)
    with run:
        assert told(run) == [f"port 1-3: enforceable: partly ({NO_QUEUES})"]
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
        talk(run)
        assert run.app.wait_for(lambda: run.app.entry(1, 2, 10), "an entry")["enforced"] is True
        assert {port["enforceable"] for port in run.app.get("/v1/ports")["ports"]} == {"partly"}
        assert run.app.events("switch-error") == []


@pytest.mark.parametrize(
    ("abilities", "why"),
    [
        ({"refuse": True}, "the switch rejects meters: METER_MOD_FAILED / OUT_OF_METERS"),
        ({"limit": False, "count": False}, "meters neither limit nor count"),
        ({"max_meters": 0}, "the switch has no meters that drop"),
    ],
)
def test_meters_of_no_use_are_not_used(tmp_path: Path, abilities: dict[str, Any], why: str) -> None:
    run = wire_run(tmp_path)
    for name, value in abilities.items():
        setattr(run.switch(1).abilities, name, value)
    with run:
        assert told(run) == [f"port 1-3: enforceable: no (senders are not limited: {why}; {NO_QUEUES})"]
        assert run.health()["status"] == "degraded"
        assert run.health()["faults"] == {"s1": [f"senders are not limited: {why}"]}
        talk(run)
        assert meters_of_flows(run) == {None}
        assert run.meters(1) == {}
        shown = run.app.wait_for(lambda: (got := run.app.get("/v1/pairs"))["unmetered_pairs"] and got, "a pair")
        assert shown["pairs"] == []
        assert [(pair["sender"]["port_no"], pair["receiver"]["port_no"]) for pair in shown["unmetered_pairs"]] == [
            (1, 2)
        ]
        assert run.app.get("/v1/pairs?vlan=20")["unmetered_pairs"] == []
        vn = run.app.get("/v1/vns/10/s1/2")
        assert vn["measured_receive_bps"] is None  # not zero: nobody counts what its sender sends
        assert (vn["enforceable"], vn["enforceable_reasons"][0]) == ("no", f"senders are not limited: {why}")


def test_meters_that_come_to_be_of_use_are_used_from_the_next_connection_on(tmp_path: Path) -> None:
    run = wire_run(tmp_path)
    run.switch(1).abilities.refuse = True
    with run:
        talk(run)
        run.app.wait_for(lambda: run.app.get("/v1/pairs")["unmetered_pairs"], "a pair without a meter")
        with run.fabric.locked():
            run.switch(1).abilities.refuse = False
        run.fabric.disconnect(1)
        run.app.wait_for(lambda: len(run.app.get("/v1/pairs")["pairs"]) == 1, "judged again")
        assert run.app.get("/v1/pairs")["unmetered_pairs"] == []
        run.wait(lambda: meters_of_flows(run) != {None}, "metered")
        run.fabric.forget_received()
        run.fabric.inject(1, 1, frame(0xA1, 0xA2, 10))
        assert len(run.fabric.received(1, 2)) == 1


def test_meters_that_only_count_are_used_and_not_relied_on(tmp_path: Path) -> None:
    run = wire_run(tmp_path)
    run.switch(1).abilities.limit = False
    with run:
        why = "senders are not limited: meters pass everything"
        assert told(run) == [f"port 1-3: enforceable: no ({why}; {NO_QUEUES})"]
        talk(run)
        assert meters_of_flows(run) != {None}
        run.offer((1, 1), 0xA1, 0xA2, 100e6)
        run.app.wait_for(lambda: (run.app.entry(1, 2, 10) or {}).get("offered_bps"), "measured")
        assert (run.app.entry(1, 2, 10) or {})["enforced"] is False


def test_meters_that_stop_limiting_are_found_out_by_their_counters(tmp_path: Path) -> None:
    run = wire_run(tmp_path)
    with run:
        talk(run)
        with run.fabric.locked():
            run.switch(1).abilities.limit = False
        run.app.patch("/v1/vns/10/s1/2", receive_limit_bps=50_000_000)
        run.offer((1, 1), 0xA1, 0xA2, 300e6)
        why = "senders are not limited: meters count, and pass more than their rates"
        run.app.wait_for(lambda: run.health().get("faults") == {"s1": [why]}, "found out", 30)
        run.app.wait_for(lambda: why in told(run)[-1], "told")
        with run.fabric.locked():
            run.switch(1).abilities.limit = True
        run.app.wait_ready()


@pytest.mark.parametrize(
    ("abilities", "why"),
    [
        ({"count": False}, "its meters count nothing"),
        ({"reports_counting": False, "count": False}, "the switch states that its meters do not count"),
    ],
)
def test_meters_that_do_not_count_limit_by_flow_counters(tmp_path: Path, abilities: dict[str, Any], why: str) -> None:
    run = wire_run(tmp_path)
    for name, value in abilities.items():
        setattr(run.switch(1).abilities, name, value)
    with run:
        assert told(run) == [f"port 1-3: enforceable: partly ({NO_QUEUES}; rates are up to 500 ms stale: {why})"]
        measures_and_limits(run)


def measures_and_limits(run: WireRun) -> None:
    """Let two senders offer twice what their receiver may get, and wait for their meters to hold it."""
    talk(run)
    for port in (1, 3):
        run.offer((1, port), 0xA0 + port, 0xA2, 400e6)

    def held() -> bool:
        views = [run.app.entry(port, 2, 10) for port in (1, 3)]
        meters = run.meters(1)
        # An entry is told of before its meter stands on the switch.
        rates = [meters[view["meter_id"]][0] for view in views if view is not None and view["meter_id"] in meters]
        return len(rates) == 2 and 300_000 < sum(rates) <= 400_000

    run.wait(held, "held to the limit", 20)
    for _ in range(3):  # and not by chance, on the way down
        time.sleep(1.0)
        run.wait(held, "still held", 20)


# -- profiles


def test_a_profile_without_meters_sends_none_and_is_no_trouble(tmp_path: Path) -> None:
    run = wire_run(tmp_path, DatapathOptions(max_meters=0), profile="no-meters")
    with run:
        why = "senders are not limited: its profile is no-meters"
        assert told(run) == [f"port 1-3: enforceable: no ({why}; {NO_QUEUES})"]
        talk(run)
        assert meters_of_flows(run) == {None}
        assert run.handled(1, MessageType.METER_MOD) == 0
        assert run.health()["status"] == "ready"
        run.app.patch("/v1/vns/10/s1/2", send_limit_bps=50_000_000)
        talk(run)
        assert run.handled(1, MessageType.METER_MOD) == 0
        assert run.app.events("switch-error") + run.app.events("out-of-meters") == []


def test_a_profile_without_queues_names_none(tmp_path: Path) -> None:
    run = wire_run(tmp_path, profile="no-queues")
    with run:
        why = "receivers have no queue: its profile is no-queues"
        assert told(run) == [f"port 1-3: enforceable: partly ({why})"]
        measures_and_limits(run)
        actions = {action for flow in run.flows(1, Table.FORWARD) for action in flow.actions}
        assert not any(isinstance(action, SetQueue) for action in actions)
        assert run.health()["status"] == "ready"


def test_a_profile_without_meter_counters_never_asks_for_them(tmp_path: Path) -> None:
    run = wire_run(tmp_path, profile="no-meter-counters")
    run.switch(1).faults.lose_replies = {int(MultipartType.METER)}
    with run:
        assert "its profile is no-meter-counters" in told(run)[0]
        measures_and_limits(run)
        assert run.health()["status"] == "ready"


def test_a_profile_that_vouches_for_a_switch_makes_no_tests(tmp_path: Path) -> None:
    run = wire_run(tmp_path, profile="full")
    with run:
        assert told(run) == [
            f"port 1-3: enforceable: partly (that meters limit senders has not been tested; {NO_QUEUES})"
        ]
        assert run.handled(1, MessageType.PACKET_OUT) == 0
        run.app.patch("/v1/vns/10/s1/2", receive_limit_bps=50_000_000)
        talk(run)
        run.offer((1, 1), 0xA1, 0xA2, 300e6)
        run.app.wait_for(lambda: told(run)[-1] == f"port 1-3: enforceable: partly ({NO_QUEUES})", "seen to drop", 20)


# -- queues


@needs_ovsdb
def test_queues_that_others_took_away_come_back(tmp_path: Path) -> None:
    server = Server(tmp_path, 1, [f"eth{port}" for port in PORTS])
    try:
        run = wire_run(tmp_path, ovsdb=server.address)
        with run:
            run.app.wait_for(lambda: server.vsctl("get", "port", "eth3", "qos").strip() != "[]", "set")
            server.vsctl("clear", "port", "eth1", "qos")
            run.fabric.set_link_up((1, 2), False)  # an occasion to look; there is one every 30 s
            run.app.wait_for(lambda: server.vsctl("get", "port", "eth1", "qos").strip() != "[]", "set again")
            run.app.wait_for(lambda: run.app.events("tables-repaired"), "told")
            text = run.app.events("tables-repaired")[0]["text"]
            assert text == "switch s1: queues repaired that another program had changed"
    finally:
        server.stop()


@needs_ovsdb
@pytest.mark.parametrize("ignores", [False, True])
def test_whether_queues_take_effect_is_found_out(tmp_path: Path, ignores: bool) -> None:
    server = Server(tmp_path, 1, [f"eth{port}" for port in PORTS])
    try:
        foreign = ["set", "port", "eth3", "qos=@q", "--", "--id=@q", "create", "QoS", "type=linux-htb"]
        server.vsctl(*foreign)
        run = wire_run(tmp_path, DatapathOptions(ignores_set_queue=ignores), ovsdb=server.address)
        for port in PORTS:
            for vid, rate_bps in ((10, 400e6), (20, 500e6)):
                run.switch(1).ports[port].set_queue(vid, rate_bps, rate_bps)
        with run:
            left = "receivers have no queue: has a QoS row (linux-htb) of another application"
            run.app.wait_for(lambda: any(left in text for text in told(run)), "told of the third port", 20)
            ignored = "frames do not reach the queues that they are sent to (set_queue has no effect)"
            if ignores:
                run.app.wait_for(lambda: run.health().get("faults"), "found out", 30)
                assert run.health()["faults"] == {"s1": [f"receivers at port 1-2 have no queue: {ignored}"]}
                run.app.wait_for(
                    lambda: f"port 1-2: enforceable: partly (receivers have no queue: {ignored})" in told(run), "told"
                )
            else:
                run.app.wait_for(lambda: "port 1-2: enforceable: yes" in told(run), "told", 20)
                assert run.health()["enforceable"] == {"yes": 2, "partly": 1, "no": 0}
            # Few, short, and to an address that no bridge forwards and no host takes.
            got = run.fabric.received(1, 1)
            assert 0 < len(got) <= 4 * meter_probe.QUEUE_FRAMES
            assert all(len(one) == 60 and one[:6].hex() == "0180c200000e" for one in got)
    finally:
        server.stop()
