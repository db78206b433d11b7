"""The real application on real Open vSwitch: what one tenant floods, and neighbours that are found meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.application import Application
from support.ovs import controlled
from support.udp_blast import udp_blast

from controller.forwarding.pipeline import Table
from experiments.measure.rate_series import rates_of, read_samples
from experiments.measure.sampler import Sampler
from experiments.ovs.fabric import OvsFabric
from experiments.ovs.ovs_vsctl import ofctl
from topologies.builders import fig1

LIMITS_BPS = {1: 20_000_000, 2: 30_000_000}
BLAST_BPS = 40_000_000
NOBODY, NOBODYS_MAC = "10.1.0.99", "02:00:00:00:de:ad"


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OvsFabric, Application, Path]]:
    folder = tmp_path_factory.mktemp("floods")
    with controlled(fig1(pns=3), LIMITS_BPS, folder) as (ovs, app):
        yield ovs, app, folder


@pytest.fixture(scope="module")
def flooding(fabric: tuple[OvsFabric, Application, Path]) -> Iterator[None]:
    """The VN of VLAN 1 at PN 1 sends twice its send limit to an address that nobody has."""
    ovs, app, _ = fabric
    ovs.host("v1_1").cmd(f"ip neigh replace {NOBODY} lladdr {NOBODYS_MAC} dev v1_1-eth0")
    with udp_blast(ovs, "v1_1", NOBODY, BLAST_BPS):
        app.wait_for(lambda: vn(app, 1)["flood_dropped_bps"], "floods are dropped")
        yield


def vn(app: Application, number: int) -> dict[str, Any]:
    return dict(app.get(f"/v1/vns/1/s1/{number}"))


def received_bps(ovs: OvsFabric, folder: Path, number: int, seconds: float) -> float:
    """The wire rate at which VLAN 1 reaches a PN, on average."""
    interface = ovs.fabric.vn(1, number).switch_interface
    samples = folder / f"samples{number}.csv"
    with Sampler([interface], 0.1, seconds + 30, samples):
        time.sleep(seconds)
    return float(np.average(rates_of(read_samples(samples, interface)).wire_bps))


def test_a_flood_takes_its_share_of_the_receive_limit_and_no_more(
    fabric: tuple[OvsFabric, Application, Path], flooding: None
) -> None:
    ovs, app, folder = fabric
    got_bps = received_bps(ovs, folder, 3, 3.0)
    shown = vn(app, 1)
    limit_bps = shown["flood_limit_bps"]
    assert limit_bps == LIMITS_BPS[1] // 10 // 2
    assert 0.4 * limit_bps < got_bps <= limit_bps  # half of it is kept for ARP and Neighbor Solicitations
    assert shown["flood_dropped_bps"] > 0.5 * (LIMITS_BPS[1] - limit_bps)
    assert [event for event in app.events("flood-began") if "s1:1" in event["text"]]


@pytest.mark.parametrize("asker", [1, 2])
@pytest.mark.parametrize("version", [4, 6])
def test_neighbours_are_found_under_a_blast(
    fabric: tuple[OvsFabric, Application, Path], flooding: None, asker: int, version: int
) -> None:
    """By the VN that floods itself, and by another; ten times, as if never found before.

    The one that floods is above its send limit: now and then its own meter takes a ping of it, and it asks again.
    """
    ovs, _, _ = fabric
    target = "10.1.0.3" if version == 4 else "fd00:1::3"
    for number in (1, 2, 3):
        ovs.host(f"v1_{number}").cmd("sysctl -qw net.ipv6.conf.all.disable_ipv6=0")
        ovs.host(f"v1_{number}").cmd(f"ip -6 address add fd00:1::{number}/64 dev v1_{number}-eth0 nodad")
    host = ovs.host(f"v1_{asker}")
    until = "-i 0.2 -w 3" if asker == 1 else "-W 3"
    for _ in range(10):
        host.cmd(f"ip -{version} neigh del {target} dev v1_{asker}-eth0")
        answer = host.cmd(f"ping -{version} -c 1 {until} {target}")
        assert re.search(", [1-9][0-9]* received" if asker == 1 else " 0% packet loss", answer), answer


def test_frames_reach_the_controller_through_a_meter_and_are_forwarded_all_the_same(
    fabric: tuple[OvsFabric, Application, Path],
) -> None:
    entries = re.findall(rf"table={Table.PACKET_IN:d},.*", ofctl("dump-flows", "s1"))
    assert len(entries) == 6
    assert all("meter:" in entry and "CONTROLLER:128" in entry for entry in entries)
