"""The real application on real Open vSwitch: a ring of three edge switches with a PN behind each."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest
from support.application import Application
from support.ovs import EVERYBODY, Wires, controlled, wait_until

from experiments.ovs.fabric import OvsFabric
from topologies.fabric import Fabric, PhysicalNode, TopoLink, TopoSwitch

LINK_BPS = 100_000_000
LIMITS_BPS = {1: 40_000_000, 2: 50_000_000}
AGEING_S = 3
P1, P2, P3 = PORTS = ("p1-eth1", "p2-eth1", "p3-eth1")
RING = Fabric(
    "dets-ring",
    tuple(TopoSwitch(f"s{n}", n) for n in (1, 2, 3)),
    tuple(PhysicalNode(n, f"s{n}", 1, (1, 2), LINK_BPS) for n in (1, 2, 3)),
    (1, 2),
    (
        TopoLink("s1", 12, "s2", 11, LINK_BPS),
        TopoLink("s2", 13, "s3", 12, LINK_BPS),
        TopoLink("s1", 13, "s3", 11, LINK_BPS),
    ),
)
# Measured: 0.12 to 0.17 s. A switch reports a lost port at once; nothing waits for a timeout.
REROUTED_WITHIN_S = 2.0


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application]]:
    folder = tmp_path_factory.mktemp("ring")
    with controlled(RING, LIMITS_BPS, folder, control={"mac_ageing_s": AGEING_S}) as (ovs, app):
        app.wait_for(lambda: len(app.events("link-up")) >= 3, "three links")
        yield ovs, app


@pytest.fixture
def app(ring: tuple[OvsFabric, Application]) -> Application:
    return ring[1]


@pytest.fixture
def wires(ring: tuple[OvsFabric, Application]) -> Iterator[Wires]:
    with Wires(PORTS) as wires:
        wait_until(lambda: floods_once(wires), "flooding over a tree")
        yield wires


def floods_once(wires: Wires) -> bool:
    """Whether a broadcast of VLAN 1 comes out of every other port, once."""
    return wires.reached(P1, 0x0A0000000001, EVERYBODY, 1) == [P2, P3]


def known_at(app: Application, switch: str, mac: int) -> bool:
    text = ":".join(f"{octet:02x}" for octet in mac.to_bytes(6))
    return text in app.get(f"/v1/vns/1/{switch}/1")["hosts"]


def test_hosts_of_a_vlan_find_and_reach_each_other_and_no_others(
    ring: tuple[OvsFabric, Application], can_connect
) -> None:
    ovs, _ = ring
    assert can_connect(ovs, "v1_1", "v1_3")
    assert can_connect(ovs, "v2_3", "v2_2")
    ovs.host("v1_1").cmd("ip route add 10.2.0.0/16 dev v1_1-eth0")  # so that only the fabric is in the way
    assert not can_connect(ovs, "v1_1", "v2_3", timeout_s=1)


def test_a_broadcast_comes_out_of_every_port_once(wires: Wires) -> None:
    for origin in PORTS:
        numbers = [wires.send(origin, 0x0A0000000010, EVERYBODY, 1) for _ in range(20)]
        counts = wires.arrived(numbers)
        others = {port for port in PORTS if port != origin}
        assert all(counts[port] == dict.fromkeys(numbers, 1) for port in others), counts
        assert not counts[origin]


def test_what_is_untagged_or_of_no_vlan_of_the_port_is_dropped(wires: Wires) -> None:
    assert wires.reached(P1, 0x0A0000000020, EVERYBODY, 2) == [P2, P3]
    for vlan_vid in (None, 0, 3, 4094):
        assert wires.reached(P1, 0x0A0000000020, EVERYBODY, vlan_vid) == [], vlan_vid


def test_a_silent_host_is_forgotten_and_frames_to_it_are_flooded(wires: Wires, app: Application) -> None:
    mac, sender = 0x0A0000000040, 0x0A0000000041
    wires.reached(P1, mac, EVERYBODY, 1)
    app.wait_for(lambda: known_at(app, "s1", mac), "learned")
    app.wait_for(lambda: not known_at(app, "s1", mac), "forgotten", AGEING_S + 10)
    wait_until(lambda: wires.reached(P2, sender, mac, 1) == [P1, P3], "flooded", 5)


def interruption_s(wires: Wires, event: list[str], sender: str, receiver: str) -> float:
    """Run a command amid a broadcast every 20 ms; return for how long none came through after it."""
    subprocess.run(event, check=True, timeout=10)
    start_s = time.monotonic()
    while time.monotonic() - start_s < 20.0:
        number = wires.send(sender, 0x0A0000000050, EVERYBODY, 1)
        if wires.arrived([number], quiet_s=0.05)[receiver][number]:
            return time.monotonic() - start_s
    raise AssertionError("nothing came through within 20 s")


@pytest.mark.parametrize(("interface", "sender", "receiver"), [("s1-eth12", P1, P2), ("s1-eth13", P1, P3)])
def test_a_link_that_goes_down_is_routed_around_and_used_again(
    wires: Wires, app: Application, interface: str, sender: str, receiver: str
) -> None:
    try:
        gap_s = interruption_s(wires, ["ip", "link", "set", interface, "down"], sender, receiver)
        print(f"{interface} down: {gap_s * 1000:.0f} ms")
        wait_until(lambda: floods_once(wires), "flooding over what is left")
        last = app.last_event()
    finally:
        subprocess.run(["ip", "link", "set", interface, "up"], check=True, timeout=10)
    app.wait_for(lambda: app.events("link-up", after=last), "linked again")
    wait_until(lambda: floods_once(wires), "flooding over a tree again")
    assert floods_once(wires)
    assert gap_s < REROUTED_WITHIN_S
