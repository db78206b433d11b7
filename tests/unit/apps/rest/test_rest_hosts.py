"""The hosts as a resource: where each address is, since when, where it was before."""

from __future__ import annotations

from typing import Any

import pytest
from support.rest_in_process import Desk, problem_of

from controller.fabric.topology import PortId
from controller.forwarding.known_hosts import KnownHosts
from controller.forwarding.pairs import Host
from controller.openflow.ethernet import format_mac, parse_mac

S1, S2 = 0xA1, 0xA2
MOVED = 0x02_00_00_00_00_0A


@pytest.fixture
def desk() -> Desk:
    """Three hosts of VLAN 10, of which one has moved, and the same address in VLAN 20."""
    made = Desk()
    for vid, mac, place in (
        (10, 2, PortId(S1, 1)),
        (10, MOVED, PortId(S1, 2)),
        (20, MOVED, PortId(S1, 1)),
        (10, 0xFE_FF_FF_FF_FF_FF, PortId(S2, 7)),
    ):
        made.central.fabric.learn(Host(vid, mac), place, made.now_s)
    made.now_s += 50.0
    made.central.fabric.learn(Host(10, MOVED), PortId(S2, 7), made.now_s)
    return made


def places(answer: Any) -> list[tuple[str, int, str]]:
    return [(one["mac"], one["vlan_vid"], f"{one['switch']}:{one['port_no']}") for one in answer["hosts"]]


ALL = [
    ("00:00:00:00:00:02", 10, "s1:1"),
    ("02:00:00:00:00:0a", 10, "s2:7"),
    ("fe:ff:ff:ff:ff:ff", 10, "s2:7"),
    ("02:00:00:00:00:0a", 20, "s1:1"),
]


def test_an_address_is_found_in_each_of_its_vlans_with_where_it_was(desk: Desk) -> None:
    desk.service.epoch_s = 0.0
    assert desk.get("/v1/hosts/02:00:00:00:00:0A") == desk.get("/v1/hosts/02-00-00-00-00-0a")
    moved = {
        "mac": "02:00:00:00:00:0a",
        "vlan_vid": 10,
        "switch": "s2",
        "dpid": "00000000000000a2",
        "port_no": 7,
        "port": "7",
        "since": "1970-01-01T00:02:30.000Z",
        "moved_from": {"switch": "s1", "dpid": "00000000000000a1", "port_no": 2, "port": "2"},
    }
    place = {"switch": "s1", "dpid": "00000000000000a1", "port_no": 1, "port": "1"}
    still = {
        "mac": "02:00:00:00:00:0a",
        "vlan_vid": 20,
        **place,
        "since": "1970-01-01T00:01:40.000Z",
        "moved_from": None,
    }
    assert desk.get("/v1/hosts/02:00:00:00:00:0a")["hosts"] == [moved, still]


def test_what_is_nowhere_or_no_address_is_refused(desk: Desk) -> None:
    nobody = problem_of(desk.client.get("/v1/hosts/02:00:00:00:00:ff"), 404)
    assert "is not the address of a known host" in nobody["detail"]
    for bad in ("02:00:00:00:00", "02:00:00-00:00:ff", "020000000000", "02:00:00:00:00:fg", "٠2:00:00:00:00:00"):
        problem = problem_of(desk.client.get(f"/v1/hosts/{bad}"), 422)
        assert problem["errors"][0]["field"] == "mac"
        assert problem_of(desk.client.get(f"/v1/hosts?mac={bad}"), 422)["errors"][0]["field"] == "mac"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ALL),
        ("?vlan=10", ALL[:3]),
        ("?vlan=tenant-a&switch=s1", ALL[:1]),
        ("?switch=s2", ALL[1:3]),
        ("?switch=s1&port=1", [ALL[0], ALL[3]]),
        ("?switch=s1&port=3", []),
        ("?mac=02:00:00:00:00:0a", [ALL[1], ALL[3]]),
        ("?mac=02:00:00:00:00:0a&vlan=20&switch=s1&port=1", [ALL[3]]),
        ("?mac=02:00:00:00:00:ff", []),
    ],
)
def test_hosts_are_listed_by_vlan_and_address(desk: Desk, query: str, shown: Any) -> None:
    answer = desk.get(f"/v1/hosts{query}")
    assert (places(answer), answer["next"]) == (shown, None)


def test_pages_go_on_behind_a_host_that_has_gone(desk: Desk) -> None:
    first = desk.get("/v1/hosts?limit=2")
    assert places(first) == ALL[:2]
    desk.central.network.forget_host(Host(10, MOVED))
    second = desk.get(f"/v1/hosts?limit=2&cursor={first['next']}")
    assert (places(second), second["next"]) == (ALL[2:], None)


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("vlan=30", 404, "vlan"),
        ("switch=s9", 404, "switch"),
        ("switch=s1&port=9", 404, "port"),
        ("port=1", 422, "port"),
        ("mac=", 422, "mac"),
        ("cursor=WzEwLCAyXQ==", 422, "cursor"),  # [10, 2]
        ("cursor=Wzk5OTk5OTk5OTk5OTk5OTk5OTk5LCAiMDI6MDA6MDA6MDA6MDA6MDAiXQ==", 422, "cursor"),  # a VLAN beyond 64 bits
        ("cursor=WzEwLCAieCJd", 422, "cursor"),  # [10, "x"]
    ],
)
def test_filters_that_name_nothing_are_refused(desk: Desk, query: str, status: int, field: str) -> None:
    assert problem_of(desk.client.get(f"/v1/hosts?{query}"), status)["errors"][0]["field"] == field


def test_no_list_looks_at_hosts_one_by_one(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page costs its own hosts and columns."""
    for number in range(2000):
        desk.central.network.place_remote_host(Host(10, 0x06_00_00_00_00_00 + number), 0)
    for name in ("all", "hosts_of_vn", "vn_of", "moved_from"):
        monkeypatch.setattr(KnownHosts, name, None)
    assert len(desk.get("/v1/hosts?limit=250")["hosts"]) == 250
    assert len(desk.get("/v1/hosts/06:00:00:00:07:00")["hosts"]) == 1


def test_addresses_are_read_as_they_are_shown() -> None:
    for address in (0, 1, 0xFFFF_FFFF_FFFF, 0x0016_3E00_0001):
        assert parse_mac("mac", format_mac(address)) == address
        assert parse_mac("mac", format_mac(address).replace(":", "-").upper()) == address
