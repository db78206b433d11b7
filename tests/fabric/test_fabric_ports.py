"""Interfaces of one Open vSwitch bridge that swap their OpenFlow numbers: no tenant gets into another one's VLAN."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.application import Application
from support.ovs import Wires, wait_until

from experiments.machine.controller_process import free_ports
from experiments.ovs.ovs_vsctl import ofctl, vsctl

BRIDGE = "pt1"
DPID = "00000000000000d7"
VLANS = {"pt1-e1": 10, "pt1-e2": 20, "pt1-e3": 20, "pt1-e4": 10}
MACS = {name: 0x02_00_00_00_00_10 + number for number, name in enumerate(VLANS, 1)}


def configured(store: Path, by_name: bool) -> dict[str, Any]:
    openflow, rest = free_ports(2)
    keys = list(VLANS) if by_name else [1, 2, 3, 4]
    edges = {key: {"capacity": "100M", "access": vid} for key, vid in zip(keys, VLANS.values(), strict=True)}
    return {
        "openflow": {"listen": f"127.0.0.1:{openflow}"},
        "rest": {"listen": f"127.0.0.1:{rest}"},
        "store": {"file": str(store)},
        "vlans": {vid: {"send_limit": "50M", "receive_limit": "50M", "algorithm": "fs"} for vid in (10, 20)},
        "switches": {"s1": {"dpid": DPID, "ports": edges}},
    }


@pytest.fixture
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Application, Wires]]:
    """A bridge of four ports, its controller (``param``: it has them by name), and the hosts' ends of the wires."""
    config = configured(tmp_path / "store", request.param)
    try:
        bridge = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev", "protocols=OpenFlow13"]
        vsctl(*bridge, "fail_mode=secure", f"other-config:datapath-id={DPID}")
        for number, name in enumerate(VLANS, 1):
            host(f"ip link add {name} type veth peer name {name}h")
            host(f"ip link set {name} up")
            host(f"ip link set {name}h up")
            vsctl("add-port", BRIDGE, name, "--", "set", "interface", name, f"ofport_request={number}")
        with Application(config, tmp_path) as app, Wires([f"{name}h" for name in VLANS]) as wires:
            vsctl("set-controller", BRIDGE, f"tcp:{config['openflow']['listen']}")
            app.wait_ready()
            yield app, wires
    finally:
        vsctl("--if-exists", "del-br", BRIDGE)
        for name in VLANS:
            host(f"ip link del {name}", check=False)


def host(command: str, *, check: bool = True) -> None:
    subprocess.run(command.split(), check=check, capture_output=True, timeout=10)


def reached(wires: Wires, everybody: int = 2**48 - 1, tag: int | None = None) -> set[tuple[str, str]]:
    """Return who reaches whom, by broadcasts and by what is sent to each host's address, with this VLAN id."""
    found = set()
    for sender in VLANS:
        for target in (everybody, *MACS.values()):
            for name in wires.reached(f"{sender}h", MACS[sender], target, tag):
                found.add((sender, name.removesuffix("h")))
    return {(one, other) for one, other in found if one != other}


def reached_from(wires: Wires, sender: str, tag: int | None, tags: str = "") -> set[str]:
    """Return whom a broadcast reaches, with these tags (hex digits) before ``tag``."""
    frame = MACS[sender], 2**48 - 1, tag, bytes.fromhex(tags)
    return {name.removesuffix("h") for name in wires.reached(f"{sender}h", *frame)} - {sender}


ALL = {(one, other) for one in VLANS for other in VLANS if one != other and VLANS[one] == VLANS[other]}


def strangers(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(one, other) for one, other in pairs if VLANS[one] != VLANS[other]}


def swap() -> None:
    """Let the first two interfaces have each other's number."""
    one, other = list(VLANS)[:2]
    vsctl("set", "interface", one, "ofport_request=2", "--", "set", "interface", other, "ofport_request=1")
    wait_until(lambda: f" 2({one})" in ofctl("show", BRIDGE), "renumbered")


@pytest.mark.parametrize("run", [False], indirect=True)
def test_interfaces_that_swap_numbers_reach_no_other_tenant(run: tuple[Application, Wires]) -> None:
    app, wires = run
    wait_until(lambda: reached(wires) == ALL, "all reached", 30)
    swap()
    wait_until(lambda: [port["port_no"] for port in app.get("/v1/ports")["ports"] if port["fence"]] == [1, 2], "fenced")
    for _ in range(2):
        assert strangers(reached(wires)) == set()
    assert app.get("/v1/health")["status"] == "degraded"
    assert {event["port_no"] for event in app.events("port-fenced")} == {1, 2}


@pytest.mark.parametrize("run", [False], indirect=True)
def test_priority_tagged_frames_are_the_ports_vlans_and_other_tags_are_nobodys(run: tuple[Application, Wires]) -> None:
    app, wires = run
    wait_until(lambda: reached(wires, tag=0) == ALL, "all reached", 30)
    for tag in (10, 20, 4094):
        assert reached(wires, tag=tag) == set()
    # A trunk's native VLAN goes without a tag; its others do not.
    config = app.config()
    config["switches"]["s1"]["ports"][4] = {"capacity": "100M", "trunk": [10, 20], "native": 10}
    app.configure(config)
    assert app.request("POST", "/v1/reload")[0] == 200
    e1, e2, e3, e4 = VLANS
    wait_until(lambda: reached_from(wires, e4, 20) == {e2, e3}, "the tagged VLAN reached", 30)
    assert [reached_from(wires, e4, tag) for tag in (None, 0, 10, 30)] == [{e1}, {e1}, {e1}, set()]
    assert [reached_from(wires, one, None) for one in (e1, e2)] == [{e4}, {e3, e4}]
    # Behind a tag that is accepted a second one is payload; a service tag is a tag.
    assert reached_from(wires, e4, 99, "81000014") == {e2, e3}
    assert [reached_from(wires, e1, 20, outer) for outer in ("81000000", "88a80000", "88a8000a")] == [{e4}, {e4}, set()]


@pytest.mark.parametrize("run", [True], indirect=True)
def test_ports_by_name_keep_their_tenants_when_they_swap_numbers(run: tuple[Application, Wires]) -> None:
    app, wires = run
    wait_until(lambda: reached(wires) == ALL, "all reached", 30)
    swap()
    wait_until(lambda: app.get("/v1/health")["status"] == "ready", "ready")
    assert strangers(reached(wires)) == set()
    wait_until(lambda: reached(wires) == ALL, "all reached", 30)
    assert app.events("port-fenced") == []
