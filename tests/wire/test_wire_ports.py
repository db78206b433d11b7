"""Ports whose numbers change hands: a tenant's frames reach no port but those that were meant for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.wire import EVERYBODY, OneSwitch, WireRun, frame

from controller.forwarding.pipeline import Table
from controller.openflow.actions import Output
from experiments.switch.datapath import Datapath

TENANT_OF = {"eth1": 10, "eth2": 20, "eth3": 20, "eth4": 10}
ALL = {(one, other) for one in TENANT_OF for other in TENANT_OF if one != other and TENANT_OF[one] == TENANT_OF[other]}
SWAP = {1: 2, 2: 1}
ROTATION = {1: 2, 2: 4, 4: 1}
NUMBERS = pytest.mark.parametrize("number", [SWAP, ROTATION, {1: 3, 3: 1}], ids=["swap", "rotation", "swap-of-others"])
MODIFY = pytest.mark.parametrize("modify", [False, True], ids=["gone-and-back", "modified"])
DOWN = pytest.mark.parametrize("down", [False, True], ids=["disconnected", "controller-down"])


def ports(kind: str = "number", **more: str) -> dict[Any, Any]:
    """Return four access ports, or trunks; ``more`` says what is expected of some, by the name they have at first."""
    found = dict[Any, Any]()
    for name, vid in TENANT_OF.items():
        found[name if kind == "name" else int(name[-1])] = {
            "capacity": "1G",
            **({"trunk": [vid]} if kind == "trunk" else {"access": vid}),
            **({"expect": more[name]} if name in more else {}),
        }
    return found


class PortSwitch(OneSwitch):
    """A switch of four ports, each with a host; ``store`` is where the controller's is."""

    def __init__(self, run: WireRun, dpid: int, store: Path) -> None:
        super().__init__(run, dpid)
        self.store = store
        self.macs = {name: dpid << 8 | 0xA0 | int(name[-1]) for name in TENANT_OF}

    def numbers(self) -> dict[str, int]:
        with self.run.fabric.locked():
            return {port.name: port.port_no for port in self.datapath.ports.values()}

    def hosts_speak(self) -> None:
        """Let every host be known where its interface is."""
        for name, port_no in self.numbers().items():
            self.wait(partial(self.learned, name, port_no), f"told of the host at {name}")

    def learned(self, name: str, port_no: int) -> bool:
        """Let the host speak there; return whether frames to it are sent there, and nowhere else."""
        self.run.fabric.inject(self.dpid, port_no, frame(self.macs[name], EVERYBODY, None))
        there = [
            {action.port_no for action in flow.actions if isinstance(action, Output)}
            for flow in self.flows(Table.FORWARD)
            if flow.match.eth_dst == self.macs[name] and flow.match.vlan_vid == TENANT_OF[name]
        ]
        return bool(there) and all(ports == {port_no} for ports in there)

    def reached(self) -> set[tuple[str, str]]:
        """Return who reaches whom: by a broadcast of each host, and by what each sends to each other's address."""
        number, found, fabric = self.numbers(), set(), self.run.fabric
        for sender in TENANT_OF:
            fabric.forget_received()
            for address in (EVERYBODY, *self.macs.values()):
                fabric.inject(self.dpid, number[sender], frame(self.macs[sender], address, None))
            for receiver in TENANT_OF:
                got = fabric.received(self.dpid, number[receiver])
                if receiver != sender and any(octets[12:14] == b"\x88\xb5" for octets in got):
                    found.add((sender, receiver))
        return found

    def strangers(self) -> set[tuple[str, str]]:
        """Return who reaches another tenant."""
        return {(one, other) for one, other in self.reached() if TENANT_OF[one] != TENANT_OF[other]}

    def all_is_well(self) -> bool:
        """Whether each host, once it has spoken, reaches its tenant's."""
        self.hosts_speak()
        return self.reached() == ALL

    def outputs(self) -> set[int]:
        """Return the ports that frames are let in by or sent out of."""
        admitted = {flow.match.in_port for flow in self.flows(Table.CLASSIFY) if flow.goto_table is not None}
        actions = [action for flow in self.flows(Table.FORWARD) for action in flow.actions]
        return {one for one in admitted if one is not None} | {
            one.port_no for one in actions if isinstance(one, Output)
        }

    def cut_off(self, *numbers: int) -> bool:
        return self.outputs().isdisjoint(numbers)

    def fenced(self) -> list[int]:
        listed = self.run.app.get("/v1/ports")["ports"]
        return sorted(port["port_no"] for port in listed if port["switch"] == self.name and port["fence"])

    def port(self, port: object) -> dict[str, Any]:
        return dict(self.run.app.get(f"/v1/ports/{self.name}/{port}"))

    def change(self, how: Callable[[Datapath], object]) -> None:
        with self.run.fabric.locked():
            how(self.datapath)

    def expect(self, edges: dict[Any, Any]) -> None:
        """Let an operator configure other ports."""
        config = self.run.app.config()
        config["switches"][self.name]["ports"] = edges
        self.run.app.configure(config)
        assert self.run.app.request("POST", "/v1/reload")[0] == 200

    def while_nobody_looks(self, how: Callable[[Datapath], object], down: bool) -> None:
        """Change it while it is not connected, or while the controller is ``down`` as well."""
        connections = self.run.fabric.connections(self.dpid)
        if down:
            self.wait(lambda: b"eth1" in b"".join(one.read_bytes() for one in self.store.glob("store*")), "kept")
            self.run.app.stop()
        self.run.fabric.disconnect(self.dpid, reconnect=False)
        self.change(how)
        if down:
            self.run.app.start()
        self.run.fabric.reconnect(self.dpid)
        self.wait(lambda: self.run.fabric.connections(self.dpid) > connections, "connected again")


def switch_run(folder: Path, edges: dict[int, dict[Any, Any]], well: bool = True) -> WireRun:
    """Return a run of switches with these ports, by dpid."""
    switches = {f"s{dpid}": {"dpid": dpid, "ports": ports} for dpid, ports in edges.items()}
    store = {"file": str(folder / "store")}
    return WireRun(folder, dict.fromkeys(edges, (1, 2, 3, 4)), switches=switches, store=store, well=well)


SWITCHES = {
    "by number": ports(),
    "by name": ports("name"),
    "trunks": ports("trunk"),
    "stranger": ports(),
    "names cut": ports(),
    "slow": {**ports(), 4: {"capacity": "10G", "access": 10}},
    "a name twice": ports("name"),
    "host moves, by number": ports(),
    "host moves, by name": ports("name"),
}


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], PortSwitch]]:
    """Return one of SWITCHES. Each test leaves its own as it was."""
    folder, names = tmp_path_factory.mktemp("ports"), [*SWITCHES]
    with switch_run(folder, {names.index(name) + 1: edges for name, edges in SWITCHES.items()}) as run:
        yield lambda name: PortSwitch(run, names.index(name) + 1, folder)


Switches = Callable[[str], PortSwitch]


@MODIFY
@NUMBERS
def test_ports_that_change_numbers_reach_no_other_tenant(
    switch: Switches, number: dict[int, int], modify: bool
) -> None:
    one = switch("by number")
    assert one.all_is_well()
    last = one.run.app.last_event()
    one.change(lambda datapath: datapath.renumber_ports(number, modify=modify))
    one.wait(lambda: one.fenced() == sorted(number), "fenced")
    one.wait(lambda: one.cut_off(*number), "cut off")
    for _ in range(2):
        assert one.strangers() == set()
    assert one.run.health()["status"] == "degraded"
    assert any("is fenced" in text for text in one.faults())
    assert {event["port_no"] for event in one.run.app.events("port-fenced", last)} == set(number)
    # What stays where it was goes on, and all is as before when the numbers are.
    one.change(lambda datapath: datapath.renumber_ports({new: old for old, new in number.items()}, modify=modify))
    one.run.app.wait_ready()
    assert one.all_is_well()


def test_another_interface_under_a_number_that_was_free_gets_nothing(switch: Switches) -> None:
    one = switch("stranger")
    one.hosts_speak()
    one.change(lambda datapath: datapath.remove_port(1))
    one.wait(lambda: one.port(1)["state"] == "absent", "absent")
    one.wait(lambda: one.cut_off(1), "cut off")
    assert "has no port 1" in one.faults()
    assert one.events("port-absent")
    one.change(lambda datapath: datapath.add_port(1, 1e9, 0.0, "tap7"))
    one.wait(lambda: one.port(1)["state"] == "up", "there")
    shown = one.port(1)
    assert (shown["interface"], "'tap7' where 'eth1' is expected" in shown["fence"]) == ("tap7", True)
    assert one.cut_off(1)
    # An operator's word lets it in.
    one.expect(ports(eth1="tap7"))
    one.wait(lambda: not one.cut_off(1), "let in")
    assert one.faults() == []
    assert one.events("port-freed")


@DOWN
@pytest.mark.parametrize("name", ["by number", "trunks"])
def test_numbers_that_change_while_nobody_looks_reach_no_other_tenant(switch: Switches, down: bool, name: str) -> None:
    one = switch(name)
    if name == "by number":
        one.hosts_speak()
    one.wait(lambda: one.port(1)["interface"] == "eth1", "known")
    one.while_nobody_looks(lambda datapath: datapath.renumber_ports(SWAP), down)
    one.wait(lambda: one.fenced() == [1, 2], "fenced")
    one.wait(lambda: one.cut_off(*SWAP), "cut off")
    assert name == "trunks" or one.strangers() == set()
    one.change(lambda datapath: datapath.renumber_ports(SWAP))
    one.run.app.wait_ready()


def test_what_an_access_port_takes_is_its_vlans_with_the_priority_kept(tmp_path: Path) -> None:
    edges: dict[Any, Any] = {1: {"capacity": "1G", "access": 10}, 2: {"capacity": "1G", "trunk": [10, 20]}}
    edges |= {3: {"capacity": "1G", "access": 10}, 4: {"capacity": "1G", "access": 20}}
    with switch_run(tmp_path, {1: edges}) as run:
        plain = frame(0xA1, EVERYBODY, None)

        def came_out(*tags: str) -> dict[int, list[str]]:
            """Send a frame with these tags into port 1; return what leads the frames' payload, by port."""
            run.fabric.forget_received()
            run.fabric.inject(1, 1, plain[:12] + bytes.fromhex("".join(tags)) + plain[12:])
            got = {port: run.fabric.received(1, port) for port in (2, 3, 4)}
            return {port: [one[12:-48].hex() for one in some if one[6:12] == plain[6:12]] for port, some in got.items()}

        def refused(port_no: int) -> Any:
            return run.app.get(f"/v1/ports/s1/{port_no}")["refused_frames"] or {"untagged": None}

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
        run.app.wait_for(lambda: refused(2)["untagged"] == 1, "counted", 30)
        assert refused(1) == {"fenced": 0, "lldp": 0, "untagged": 0, "foreign-vlan": 4}
        assert run.app.metrics()["dets_port_refused_frames_total", "1", "foreign-vlan", "s1"] == 4.0


def test_a_name_that_the_file_expects_counts_from_the_first_time_on(tmp_path: Path) -> None:
    edges = {1: ports(eth1="enp5s0", eth2="any"), 2: ports(eth1="eth1", eth2="any")}
    with switch_run(tmp_path, edges, well=False) as run:
        wrong, right = (PortSwitch(run, dpid, tmp_path) for dpid in edges)
        wrong.wait(lambda: wrong.fenced() == [1], "fenced")
        assert wrong.cut_off(1)
        assert (right.fenced(), right.faults()) == ([], [])
        right.change(lambda datapath: datapath.rename_port(2, "tap9"))
        right.wait(lambda: right.port(2)["interface"] == "tap9", "renamed")
        assert (right.fenced(), right.cut_off(2)) == ([], False)


def test_two_ports_of_a_name_that_was_cut_carry_nothing(switch: Switches) -> None:
    one = switch("names cut")
    names = {1: "dets-patch-to-br9-aa", 2: "dets-patch-to-br9-ab"}
    for number, name in names.items():
        one.change(lambda datapath, number=number, name=name: datapath.rename_port(number, name))
    one.wait(lambda: one.fenced() == [1, 2], "fenced")
    one.wait(lambda: one.cut_off(1, 2), "cut off")
    one.expect(ports(eth1=names[1]))
    assert 1 in one.fenced()  # the other one has the same 15 characters
    one.expect(ports())
    for number in names:
        one.change(lambda datapath, number=number: datapath.rename_port(number, f"eth{number}"))
    one.run.app.wait_ready()


def test_a_port_that_is_down_is_news_and_no_trouble(switch: Switches) -> None:
    one = switch("by number")
    one.run.fabric.set_link_up((one.dpid, 3), False)
    one.wait(lambda: one.port(3)["state"] == "down", "down")
    shown = one.port(3)
    assert (shown["interface"], shown["speed_bps"], shown["fence"]) == ("eth3", 1e9, None)
    assert shown["state_since"]
    assert one.run.health()["status"] == "ready"
    assert [(event["switch"], event["port_no"]) for event in one.run.app.events("port-down")] == [(one.name, 3)]
    metrics = one.run.app.metrics()
    shown = [
        metrics[f"dets_port_{what}", number, one.name] for what, number in (("up", "3"), ("up", "2"), ("fenced", "3"))
    ]
    assert shown == [0.0, 1.0, 0.0]
    one.run.fabric.set_link_up((one.dpid, 3), True)
    one.wait(lambda: one.events("port-up"), "up")


def test_a_link_slower_than_its_capacity_is_a_warning(switch: Switches) -> None:
    one = switch("slow")
    assert {(event["switch"], event["port_no"]) for event in one.run.app.events("port-slow")} == {(one.name, 4)}
    text = one.events("port-slow")[0]
    assert "1 Gbit/s" in text or "1G" in text
    assert one.faults() == []


@MODIFY
@NUMBERS
def test_ports_by_name_are_followed(switch: Switches, number: dict[int, int], modify: bool) -> None:
    one = switch("by name")
    last = one.run.app.last_event()
    one.run.app.patch(f"/v1/vns/10/{one.name}/eth1", send_limit_bps=123_000_000)
    back = {new: old for old, new in number.items()}
    for new_numbers in (number, back):
        assert one.all_is_well()
        assert limited_ports(one) == [one.numbers()["eth1"]]
        one.change(lambda datapath, to=new_numbers: datapath.renumber_ports(to, modify=modify))
        one.wait(lambda: one.strangers() == set(), "nobody elsewhere")
    assert one.all_is_well()
    assert one.run.health()["status"] == "ready"
    repaired = [event for event in one.run.app.events("tables-repaired", last) if event["switch"] == one.name]
    assert repaired == []


def limited_ports(one: PortSwitch) -> list[int]:
    """Return the ports whose VN's send limit has been set."""
    rates = {flow.match.in_port: one.meters()[flow.meter_id][0] for flow in one.flows(Table.SEND_LIMIT)}
    assert len(rates) == len(TENANT_OF)
    return [port_no for port_no, rate_kbps in rates.items() if rate_kbps == 123_000]


@DOWN
def test_ports_by_name_are_found_again(switch: Switches, down: bool) -> None:
    one = switch("by name")
    one.hosts_speak()
    one.while_nobody_looks(lambda datapath: datapath.renumber_ports(SWAP), down)
    one.run.app.wait_ready()
    assert one.strangers() == set()
    assert one.all_is_well()
    one.change(lambda datapath: datapath.renumber_ports(SWAP))
    one.run.app.wait_ready()


def test_a_port_by_name_that_is_gone_and_one_that_is_anothers_number(tmp_path: Path) -> None:
    edges = ports("name")
    edges[2] = edges.pop("eth2")  # by its number
    with switch_run(tmp_path, {1: edges}) as run:
        one = PortSwitch(run, 1, tmp_path)
        one.hosts_speak()
        one.change(lambda datapath: datapath.remove_port(1))
        one.wait(lambda: one.port("eth1")["state"] == "absent", "absent")
        one.wait(lambda: one.cut_off(1), "cut off")
        assert "has no port eth1" in one.faults()
        metrics = run.app.metrics()
        assert metrics["dets_port_fenced", "eth1", "s1"] == 1.0
        assert metrics["dets_vn_flood_limit_bits_per_second", "2", "s1", "20"] > 0
        assert metrics["dets_vn_flood_limit_bits_per_second", "eth1", "s1", "10"] > 0
        # The number comes back with a stranger, and the name with another number.
        one.change(lambda datapath: (datapath.add_port(1, 1e9, 0.0, "tap7"), datapath.add_port(9, 1e9, 0.0, "eth1")))
        one.wait(lambda: not one.cut_off(9), "found")
        assert one.cut_off(1)
        run.app.wait_ready()
        # Number 2 is configured as such, and now has the name of another one.
        one.change(lambda datapath: (datapath.remove_port(9), datapath.rename_port(2, "eth1")))
        one.wait(lambda: one.cut_off(2), "cut off")
        assert "are port 2 of the switch" in str(one.faults())


@DOWN
def test_a_host_that_gets_the_number_of_a_link_gets_no_frames_of_it(tmp_path: Path, down: bool) -> None:
    """The ports of a link are trusted: what comes by them is admitted to any VLAN."""
    store, link = {"file": str(tmp_path / "store")}, ((1, 9), (2, 9))
    with WireRun(tmp_path, {1: [1, 2], 2: [1]}, [link], store=store) as run:
        one = PortSwitch(run, 1, tmp_path)
        run.introduce(2, 1, 0xB1)
        one.wait(lambda: not one.cut_off(9), "linked")
        one.wait(lambda: b"eth9" in b"".join(file.read_bytes() for file in tmp_path.glob("store*")), "kept")
        last = 0 if down else run.app.last_event()

        def become_a_host(datapath: Datapath) -> None:
            datapath.rename_port(9, "tap7")
            run.fabric._links.clear()

        one.while_nobody_looks(become_a_host, down)
        one.wait(lambda: "s1 " in str(run.app.events("switch-up", last)), "up again")
        one.wait(lambda: one.cut_off(9), "cut off", 3.0)
        assert any("led to other VLANs" in event["text"] for event in run.app.events("tables-repaired"))


def test_a_name_that_a_switch_announces_twice_is_nobodys(switch: Switches) -> None:
    one = switch("a name twice")
    one.hosts_speak()
    one.change(lambda datapath: datapath.add_port(9, 1e9, 0.0, "eth1"))
    one.wait(lambda: one.port("eth1")["fence"], "fenced")
    assert "2 ports have the name 'eth1'" in one.port("eth1")["fence"]
    one.wait(lambda: one.cut_off(1, 9), "cut off")
    assert one.reached() == {("eth2", "eth3"), ("eth3", "eth2")}
    one.change(lambda datapath: datapath.remove_port(9))
    one.run.app.wait_ready()
    assert one.all_is_well()


@pytest.mark.parametrize("name", ["host moves, by number", "host moves, by name"])
def test_a_host_that_moves_while_numbers_change_stays_in_its_vlan(switch: Switches, name: str) -> None:
    """The host behind eth1 appears at eth4, which at this moment swaps its number with another tenant's eth2."""
    one, swapped = switch(name), {2: 4, 4: 2}
    one.hosts_speak()
    moved = frame(one.macs["eth1"], EVERYBODY, None)

    def swap(datapath: Datapath) -> None:
        one.run.fabric.inject(one.dpid, 4, moved)
        datapath.renumber_ports(swapped)
        for number in swapped:
            one.run.fabric.inject(one.dpid, number, moved)

    one.change(swap)
    if name == "host moves, by number":
        one.wait(lambda: one.fenced() == [2, 4], "fenced")
        one.wait(lambda: one.cut_off(*swapped), "cut off")
        assert one.strangers() == set()
        one.change(lambda datapath: datapath.renumber_ports(swapped))
    one.run.app.wait_ready()
    one.wait(lambda: one.learned("eth1", one.numbers()["eth4"]), "found at eth4")
    leading = [flow for flow in one.flows(Table.FORWARD) if flow.match.eth_dst == one.macs["eth1"]]
    assert {flow.match.vlan_vid for flow in leading} == {10}
    assert one.all_is_well()
