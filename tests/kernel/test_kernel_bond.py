"""A kernel bond as one edge port: its VNs have their limits over both links, and over the one that is left."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from support.application import Application
from support.ovs import wait_until
from support.vlan_hosts import BRIDGE, VlanHosts, end

from experiments.machine.controller_process import free_ports
from experiments.ovs.ovs_vsctl import vsctl

LIMIT_BPS = 1_200_000
UDP_BPS = 1_100_000  # of each of two senders
LINK_BPS = 10_000_000
BOND, HOST = "bond9", 3
# At the switch and at the host: two links, a bond over them.
BUILD = f"""
link add {BOND} type bond mode balance-xor xmit_hash_policy layer2 miimon 100
link add {BOND}-1 type veth peer name eth1 netns h{HOST}
link add {BOND}-2 type veth peer name eth2 netns h{HOST}
link set {BOND}-1 master {BOND}
link set {BOND}-2 master {BOND}
link set {BOND} up
"""
BUILD_HOST = f"""
link set lo up
link add eth0 type bond mode balance-xor xmit_hash_policy layer2 miimon 100
link set eth1 master eth0
link set eth2 master eth0
link set eth0 up
link add link eth0 name eth0.1 type vlan id 1
link set eth0.1 up
address add 10.1.0.{HOST}/24 dev eth0.1
"""


def ip(*words: str, text: str | None = None) -> str:
    done = subprocess.run(["ip", *words], input=text, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def hosts() -> Iterator[VlanHosts]:
    with VlanHosts(2, [1], LINK_BPS) as two:
        ip("netns", "add", f"h{HOST}")
        try:
            if subprocess.run(["ip", "link", "add", BOND, "type", "bond"], capture_output=True, check=False).returncode:
                pytest.skip("NO BONDS: this kernel has not the module bonding")
            ip("link", "del", BOND)
            ip("-batch", "-", text=BUILD)
            ip("-netns", f"h{HOST}", "-batch", "-", text=BUILD_HOST)
            vsctl("add-port", BRIDGE, BOND)
            yield two
        finally:
            ip("netns", "del", f"h{HOST}")
            subprocess.run(["ip", "link", "del", BOND], capture_output=True, check=False)


def received_bps(hosts: VlanHosts, seconds: float = 3.0) -> float:
    before = hosts.received(1, HOST)
    time.sleep(seconds)
    return hosts.received(1, HOST).rate_bps(before)


def test_a_bond_is_one_port_with_its_queues_and_loses_a_link_without_losing_its_limit(
    hosts: VlanHosts, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = hosts.configuration({1: LIMIT_BPS}, *free_ports(2))
    config["switches"][BRIDGE]["ports"][BOND] = {"capacity": 2 * LINK_BPS, "trunk": [1]}  # type: ignore[index]
    with Application(config, tmp_path_factory.mktemp("bond")) as app:
        hosts.connect_to(f"tcp:{config['openflow']['listen']}")  # type: ignore[index]
        app.wait_ready(120.0)
        port = f"/v1/ports/{BRIDGE}/{BOND}"
        app.wait_for(lambda: app.get(port)["enforceable"] == "yes", str(app.get(port)), 60.0)
        processes = [hosts.sink(HOST), *(hosts.send(1, number, HOST, UDP_BPS, 300) for number in (1, 2))]
        try:
            wait_until(lambda: received_bps(hosts) == pytest.approx(LIMIT_BPS, rel=0.05), "held to the limit", 60)
            shown = subprocess.run(
                ["tc", "-s", "class", "show", "dev", BOND], capture_output=True, text=True, check=True
            )
            sent = re.search(r"class htb 1:2 .*?Sent \d+ bytes (\d+) pkt", shown.stdout, re.S)
            assert sent is not None
            assert int(sent[1]) > 100
            ip("link", "set", f"{BOND}-1", "down")
            wait_until(lambda: received_bps(hosts) == pytest.approx(LIMIT_BPS, rel=0.05), "held over one link", 60)
            assert app.get(port)["state"] == "up"
            ip("link", "set", f"{BOND}-2", "down")
            app.wait_for(lambda: app.get(port)["state"] == "down", "down without links", 30.0)
        finally:
            end(*processes)
