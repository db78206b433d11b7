"""Ports whose numbers change hands: a tenant's frames reach no port but those that were meant for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from support.wire import EVERYBODY, WireRun, frame

from controller.forwarding.pipeline import Table
from controller.openflow.actions import Output
from experiments.switch.datapath import Datapath

TENANT_OF = {"eth1": 10, "eth2": 20, "eth3": 20, "eth4": 10}
MAC = {"eth1": 0xA1, "eth2": 0xA2, "eth3": 0xA3, "eth4": 0xA4}
SWAP = {1: 2, 2: 1}
ROTATION = {1: 2, 2: 4, 4: 1}


def ports(**more: str) -> dict[Any, Any]:
    """Return four access ports; ``more`` says what is expected of some, by the name they have at first."""
    found = {
        int(name[-1]): {"capacity": "1G", "access": vid, **({"expect": more[name]} if name in more else {})}
        for name, vid in TENANT_OF.items()
    }
    return dict(found)


def switches(edges: dict[Any, Any]) -> dict[str, Any]:
    return {"s1": {"dpid": 1, "ports": edges}}


def started(tmp_path: Path, edges: dict[Any, Any]) -> WireRun:
    store = {"file": str(tmp_path / "store")}
    return WireRun(tmp_path, {1: [1, 2, 3, 4]}, switches=switches(edges), store=store)


def number_of(run: WireRun) -> dict[str, int]:
    with run.fabric.locked():
        return {port.name: port.port_no for port in run.switch(1).ports.values()}


def hosts_speak(run: WireRun) -> None:
    """Let every host be known where its interface is."""
    for name, port_no in number_of(run).items():
        run.wait(partial(learned, run, MAC[name], port_no, TENANT_OF[name]), f"told of the host at {name}")


def learned(run: WireRun, mac: int, port_no: int, vid: int) -> bool:
    """Let the host speak there; return whether frames to it are sent there, and nowhere else."""
    run.fabric.inject(1, port_no, frame(mac, EVERYBODY, None))
    there = [
        {action.port_no for action in flow.actions if isinstance(action, Output)}
        for flow in run.flows(1, Table.FORWARD)
        if flow.match.eth_dst == mac and flow.match.vlan_vid == vid
    ]
    return bool(there) and all(ports == {port_no} for ports in there)


def reached(run: WireRun) -> set[tuple[str, str]]:
    """Return who reaches whom: by a broadcast of each host, and by what each sends to each other's address."""
    number, found = number_of(run), set()
    for sender in TENANT_OF:
        run.fabric.forget_received()
        run.fabric.inject(1, number[sender], frame(MAC[sender], EVERYBODY, None))
        for receiver in TENANT_OF:
            run.fabric.inject(1, number[sender], frame(MAC[sender], MAC[receiver], None))
        for receiver in TENANT_OF:
            sent = [octets for octets in run.fabric.received(1, number[receiver]) if octets[12:14] == b"\x88\xb5"]
            if receiver != sender and sent:
                found.add((sender, receiver))
    return found


def strangers(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(one, other) for one, other in pairs if TENANT_OF[one] != TENANT_OF[other]}


ALL = {(one, other) for one in TENANT_OF for other in TENANT_OF if one != other and TENANT_OF[one] == TENANT_OF[other]}


def fenced(run: WireRun) -> list[int]:
    return sorted(port["port_no"] for port in run.app.get("/v1/ports")["ports"] if port["fence"])


def change(run: WireRun, how: Callable[[Datapath], None]) -> None:
    with run.fabric.locked():
        how(run.switch(1))


@pytest.mark.parametrize("modify", [False, True], ids=["gone-and-back", "modified"])
@pytest.mark.parametrize("number", [SWAP, ROTATION, {1: 3, 3: 1}], ids=["swap", "rotation", "swap-of-others"])
def test_ports_that_change_numbers_reach_no_other_tenant(tmp_path: Path, number: dict[int, int], modify: bool) -> None:
    with started(tmp_path, ports()) as run:
        hosts_speak(run)
        assert reached(run) == ALL
        run.app.wait_for(lambda: (tmp_path / "store").exists(), "kept")
        change(run, lambda switch: switch.renumber_ports(number, modify=modify))
        run.app.wait_for(lambda: fenced(run) == sorted(number), "fenced")
        run.wait(lambda: outputs(run).isdisjoint(number), "cut off")
        for _ in range(2):
            assert strangers(reached(run)) == set()
        health = run.app.get("/v1/health")
        assert health["status"] == "degraded"
        assert any("is fenced" in text for text in health["faults"]["s1"])
        assert {event["port_no"] for event in run.app.events("port-fenced")} == set(number)
        # What stays where it was goes on, and all is as before when the numbers are.
        back = {new: old for old, new in number.items()}
        change(run, lambda switch: switch.renumber_ports(back, modify=modify))
        run.app.wait_ready()
        hosts_speak(run)
        assert reached(run) == ALL


def outputs(run: WireRun) -> set[int]:
    """Return the ports that frames are let in by or sent out of."""
    admitted = {flow.match.in_port for flow in run.flows(1, Table.CLASSIFY) if flow.goto_table is not None}
    actions = [action for flow in run.flows(1, Table.FORWARD) for action in flow.actions]
    return {one for one in admitted if one is not None} | {one.port_no for one in actions if isinstance(one, Output)}


def test_another_interface_under_a_number_that_was_free_gets_nothing(tmp_path: Path) -> None:
    with started(tmp_path, ports()) as run:
        hosts_speak(run)
        change(run, lambda switch: switch.remove_port(1))
        run.app.wait_for(lambda: run.app.get("/v1/ports/s1/1")["state"] == "absent", "absent")
        run.wait(lambda: 1 not in outputs(run), "cut off")
        assert "has no port 1" in run.app.get("/v1/health")["faults"]["s1"]
        assert run.app.events("port-absent")
        with run.fabric.locked():
            run.switch(1).add_port(1, 1e9, 0.0, "tap7")
        run.app.wait_for(lambda: run.app.get("/v1/ports/s1/1")["state"] == "up", "there")
        shown = run.app.get("/v1/ports/s1/1")
        assert (shown["interface"], "'tap7' where 'eth1' is expected" in shown["fence"]) == ("tap7", True)
        assert 1 not in outputs(run)
        # An operator's word lets it in.
        run.app.configure({**run.config, "switches": switches(ports(eth1="tap7"))})
        assert run.app.request("POST", "/v1/reload")[0] == 200
        run.wait(lambda: 1 in outputs(run), "let in")
        assert run.app.get("/v1/health")["status"] == "ready"
        assert run.app.events("port-freed")


@pytest.mark.parametrize("down", [False, True], ids=["disconnected", "controller-down"])
@pytest.mark.parametrize("trunks", [False, True])
def test_numbers_that_change_while_nobody_looks_reach_no_other_tenant(tmp_path: Path, down: bool, trunks: bool) -> None:
    edges = ports()
    if trunks:
        edges = {no: {"capacity": "1G", "trunk": [one["access"]]} for no, one in edges.items()}
    with started(tmp_path, edges) as run:
        if not trunks:
            hosts_speak(run)
        run.app.wait_for(lambda: run.app.get("/v1/ports/s1/1")["interface"] == "eth1", "known")
        if down:
            run.app.wait_for(lambda: b"eth1" in b"".join(one.read_bytes() for one in tmp_path.glob("store*")), "kept")
            run.app.stop()
        run.fabric.disconnect(1, reconnect=False)
        change(run, lambda switch: switch.renumber_ports(SWAP))
        if down:
            run.app.start()
        run.fabric.reconnect(1)
        run.app.wait_for(lambda: fenced(run) == [1, 2], "fenced")
        run.wait(lambda: outputs(run).isdisjoint(SWAP), "cut off")
        if not trunks:
            assert strangers(reached(run)) == set()


def test_what_an_access_port_takes_is_its_vlans_with_the_priority_kept(tmp_path: Path) -> None:
    edges: dict[Any, Any] = {1: {"capacity": "1G", "access": 10}, 2: {"capacity": "1G", "trunk": [10, 20]}}
    edges |= {3: {"capacity": "1G", "access": 10}, 4: {"capacity": "1G", "access": 20}}
    with started(tmp_path, edges) as run:
        plain = frame(0xA1, EVERYBODY, None)

        def came_out(*tags: str) -> dict[int, list[str]]:
            """Send a frame with these tags into port 1; return what leads the frames' payload, by port."""
            run.fabric.forget_received()
            run.fabric.inject(1, 1, plain[:12] + bytes.fromhex("".join(tags)) + plain[12:])
            got = {port: run.fabric.received(1, port) for port in (2, 3, 4)}
            return {port: [one[12:-48].hex() for one in some if one[6:12] == plain[6:12]] for port, some in got.items()}

        run.wait(lambda: came_out()[3], "forwarded")
        for tags, trunk, access in (
            ((), "8100000a", ""),
            (("81000000",), "8100000a", ""),
            (("8100a000",), "8100a00a", ""),  # priority 5
            (("81006000", "81000014"), "8100600a81000014", "81000014"),  # what is behind the tag is payload
        ):
            assert came_out(*tags) == {2: [trunk], 3: [access], 4: []}, tags
        for tag in ("8100000a", "81000014", "8100a00a", "81000fff"):
            assert came_out(tag) == {2: [], 3: [], 4: []}, tag
        run.fabric.inject(1, 2, plain)
        run.app.wait_for(lambda: refused(run, 2)["untagged"] == 1, "counted", 30)
        assert refused(run, 1) == {"fenced": 0, "lldp": 0, "untagged": 0, "foreign-vlan": 4}
        assert run.app.metrics()["dets_port_refused_frames_total", "1", "foreign-vlan", "s1"] == 4.0


def refused(run: WireRun, port_no: int) -> Any:
    return run.app.get(f"/v1/ports/s1/{port_no}")["refused_frames"] or {"untagged": None}


def test_a_name_that_the_file_expects_counts_from_the_first_time_on(tmp_path: Path) -> None:
    run = started(tmp_path, ports(eth1="enp5s0", eth2="any"))
    with pytest.raises(AssertionError), run:  # it is not ready: port 1 is another one
        pass
    run = started(tmp_path, ports(eth1="eth1", eth2="any"))
    with run:
        change(run, lambda switch: switch.rename_port(2, "tap9"))
        run.app.wait_for(lambda: run.app.get("/v1/ports/s1/2")["interface"] == "tap9", "renamed")
        assert (fenced(run), 2 in outputs(run)) == ([], True)


def test_two_ports_of_a_name_that_was_cut_carry_nothing(tmp_path: Path) -> None:
    with started(tmp_path, ports()) as run:
        for number, name in ((1, "dets-patch-to-br9-aa"), (2, "dets-patch-to-br9-ab")):
            change(run, methodcaller("rename_port", number, name))
        run.app.wait_for(lambda: fenced(run) == [1, 2], "fenced")
        run.wait(lambda: outputs(run).isdisjoint({1, 2}), "cut off")
        run.app.configure({**run.config, "switches": switches(ports(eth1="dets-patch-to-br9-aa"))})
        assert run.app.request("POST", "/v1/reload")[0] == 200
        assert 1 in fenced(run)  # the other one has the same 15 characters


def test_a_port_that_is_down_is_news_and_no_trouble(tmp_path: Path) -> None:
    with started(tmp_path, ports()) as run:
        run.fabric.set_link_up((1, 3), False)
        run.app.wait_for(lambda: run.app.get("/v1/ports/s1/3")["state"] == "down", "down")
        shown = run.app.get("/v1/ports/s1/3")
        assert (shown["interface"], shown["speed_bps"], shown["fence"]) == ("eth3", 1e9, None)
        assert shown["state_since"]
        assert run.app.get("/v1/health")["status"] == "ready"
        assert [event["port_no"] for event in run.app.events("port-down")] == [3]
        metrics = run.app.metrics()
        assert metrics["dets_port_up", "3", "s1"] == 0.0
        assert metrics["dets_port_up", "2", "s1"] == 1.0
        assert metrics["dets_port_fenced", "3", "s1"] == 0.0
        run.fabric.set_link_up((1, 3), True)
        run.app.wait_for(lambda: run.app.events("port-up"), "up")


def test_a_link_slower_than_its_capacity_is_a_warning(tmp_path: Path) -> None:
    edges = ports()
    edges[4]["capacity"] = "10G"
    with started(tmp_path, edges) as run:
        (event,) = run.app.events("port-slow")
        assert event["port_no"] == 4
        assert "1 Gbit/s" in event["text"] or "1G" in event["text"]
        assert run.app.get("/v1/health")["status"] == "ready"


def by_name() -> dict[Any, Any]:
    return {name: {"capacity": "1G", "access": vid} for name, vid in TENANT_OF.items()}


@pytest.mark.parametrize("modify", [False, True], ids=["gone-and-back", "modified"])
@pytest.mark.parametrize("number", [SWAP, ROTATION, {1: 3, 3: 1}], ids=["swap", "rotation", "swap-of-others"])
def test_ports_by_name_are_followed(tmp_path: Path, number: dict[int, int], modify: bool) -> None:
    with started(tmp_path, by_name()) as run:
        run.app.patch("/v1/vns/10/s1/eth1", send_limit_bps=123_000_000)
        for _ in range(2):
            hosts_speak(run)
            assert reached(run) == ALL
            limited = {meters(run, flow.match.in_port) for flow in run.flows(1, Table.SEND_LIMIT)}
            assert limited == {
                (number_of(run)["eth1"], 123_000),
                *((number_of(run)[f"eth{no}"], None) for no in (2, 3, 4)),
            }
            change(run, lambda switch: switch.renumber_ports(number, modify=modify))
            run.app.wait_for(lambda: strangers(reached(run)) == set(), "nobody elsewhere")
        hosts_speak(run)
        assert reached(run) == ALL
        assert run.app.get("/v1/health")["status"] == "ready"
        assert run.app.events("tables-repaired") == []


def meters(run: WireRun, in_port: int | None) -> tuple[int | None, int | None]:
    """Return a port, and the rate of its VN's send limit in kb/s if that was set."""
    (flow,) = [flow for flow in run.flows(1, Table.SEND_LIMIT) if flow.match.in_port == in_port]
    rate_kbps = run.meters(1)[flow.meter_id or 0][0]
    return in_port, rate_kbps if rate_kbps == 123_000 else None


@pytest.mark.parametrize("down", [False, True], ids=["disconnected", "controller-down"])
def test_ports_by_name_are_found_again(tmp_path: Path, down: bool) -> None:
    with started(tmp_path, by_name()) as run:
        hosts_speak(run)
        if down:
            run.app.stop()
        run.fabric.disconnect(1, reconnect=False)
        change(run, lambda switch: switch.renumber_ports(SWAP))
        if down:
            run.app.start()
        run.fabric.reconnect(1)
        run.wait(lambda: run.fabric.connections(1) >= 2, "connected again")
        run.app.wait_ready()
        assert strangers(reached(run)) == set()
        hosts_speak(run)
        assert reached(run) == ALL


def test_a_port_by_name_that_is_gone_and_one_that_is_anothers_number(tmp_path: Path) -> None:
    edges = by_name()
    edges[2] = edges.pop("eth2")  # by its number
    with started(tmp_path, edges) as run:
        hosts_speak(run)
        change(run, lambda switch: switch.remove_port(1))
        run.app.wait_for(lambda: run.app.get("/v1/ports/s1/eth1")["state"] == "absent", "absent")
        run.wait(lambda: 1 not in outputs(run), "cut off")
        assert "has no port eth1" in run.app.get("/v1/health")["faults"]["s1"]
        metrics = run.app.metrics()
        assert metrics["dets_port_fenced", "eth1", "s1"] == 1.0
        assert metrics["dets_vn_flood_limit_bits_per_second", "2", "s1", "20"] > 0
        assert metrics["dets_vn_flood_limit_bits_per_second", "eth1", "s1", "10"] > 0
        # The number comes back with a stranger, and the name with another number.
        with run.fabric.locked():
            run.switch(1).add_port(1, 1e9, 0.0, "tap7")
            run.switch(1).add_port(9, 1e9, 0.0, "eth1")
        run.wait(lambda: 9 in outputs(run), "found")
        assert 1 not in outputs(run)
        run.app.wait_ready()
        # Number 2 is configured as such, and now has the name of another one.
        change(run, lambda switch: (switch.remove_port(9), switch.rename_port(2, "eth1")))
        run.wait(lambda: 2 not in outputs(run), "cut off")
        assert "are port 2 of the switch" in str(run.app.get("/v1/health")["faults"])


@pytest.mark.parametrize("down", [False, True], ids=["disconnected", "controller-down"])
def test_a_host_that_gets_the_number_of_a_link_gets_no_frames_of_it(tmp_path: Path, down: bool) -> None:
    """The ports of a link are trusted: what comes by them is admitted to any VLAN."""
    store, link = {"file": str(tmp_path / "store")}, ((1, 9), (2, 9))
    with WireRun(tmp_path, {1: [1, 2], 2: [1]}, [link], store=store) as run:
        run.introduce(2, 1, 0xB1)
        run.wait(lambda: 9 in outputs(run), "linked")
        run.app.wait_for(lambda: b"eth9" in b"".join(one.read_bytes() for one in tmp_path.glob("store*")), "kept")
        last = run.app.last_event()
        if down:
            run.app.stop()
            last = 0
        run.fabric.disconnect(1, reconnect=False)
        change(run, lambda switch: switch.rename_port(9, "tap7"))
        with run.fabric.locked():
            run.fabric._links.clear()
        if down:
            run.app.start()
        run.fabric.reconnect(1)
        run.app.wait_for(lambda: "s1 " in str(run.app.events("switch-up", last)), "up again")
        run.wait(lambda: 9 not in outputs(run), "cut off", 3.0)
        assert any("led to other VLANs" in event["text"] for event in run.app.events("tables-repaired"))


def test_a_name_that_a_switch_announces_twice_is_nobodys(tmp_path: Path) -> None:
    with started(tmp_path, by_name()) as run:
        hosts_speak(run)
        with run.fabric.locked():
            run.switch(1).add_port(9, 1e9, 0.0, "eth1")
        run.app.wait_for(lambda: run.app.get("/v1/ports/s1/eth1")["fence"], "fenced")
        assert "2 ports have the name 'eth1'" in run.app.get("/v1/ports/s1/eth1")["fence"]
        run.wait(lambda: outputs(run).isdisjoint({1, 9}), "cut off")
        assert reached(run) == {("eth2", "eth3"), ("eth3", "eth2")}
        change(run, lambda switch: switch.remove_port(9))
        run.app.wait_ready()
        hosts_speak(run)
        assert reached(run) == ALL


@pytest.mark.parametrize("named", [False, True], ids=["by number", "by name"])
def test_a_host_that_moves_while_numbers_change_stays_in_its_vlan(tmp_path: Path, named: bool) -> None:
    """The host behind eth1 appears at eth4, which at this moment swaps its number with another tenant's eth2."""
    with started(tmp_path, by_name() if named else ports()) as run:
        hosts_speak(run)
        moved = frame(MAC["eth1"], EVERYBODY, None)

        def swap(switch: Datapath) -> None:
            run.fabric.inject(1, 4, moved)
            switch.renumber_ports({2: 4, 4: 2})
            for number in (2, 4):
                run.fabric.inject(1, number, moved)

        change(run, swap)
        if not named:
            run.app.wait_for(lambda: fenced(run) == [2, 4], "fenced")
            run.wait(lambda: outputs(run).isdisjoint({2, 4}), "cut off")
            assert strangers(reached(run)) == set()
            change(run, lambda switch: switch.renumber_ports({2: 4, 4: 2}))
        run.app.wait_ready()
        run.wait(lambda: learned(run, MAC["eth1"], number_of(run)["eth4"], 10), "found at eth4")
        assert {flow.match.vlan_vid for flow in run.flows(1, Table.FORWARD) if flow.match.eth_dst == MAC["eth1"]} == {
            10
        }
        hosts_speak(run)
        assert reached(run) == ALL
