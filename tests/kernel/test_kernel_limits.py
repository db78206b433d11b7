"""The application on the kernel datapath, with 8021q hosts: meters and queues give what was granted, through restarts.

Rates are small: user-mode-linux has one processor, on which a system call is dear.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import tcp_ends
from support.application import Application
from support.ovs import flow_durations, meter_durations, meter_rates, wait_until
from support.vlan_hosts import BRIDGE, VlanHosts, end

from experiments.machine.controller_process import free_ports
from experiments.ovs.ovs_vsctl import ofctl, vsctl

LIMITS_BPS = {1: 1_200_000, 2: 4_000_000}
UDP_BPS = 1_100_000  # of each of two senders: less than the limit alone, more together
LINK_BPS = 10_000_000
PORT = f"{BRIDGE}-eth3"
TCP_S = 120
READY_S = 120.0
BROADCASTS = 20
BROADCAST = f"""
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
for _ in range({BROADCASTS}):
    sock.sendto(bytes(100), (sys.argv[1], 9))
"""

UDP_SEGMENT = 103  # of linux/udp.h: the kernel cuts what is sent into datagrams of so many bytes, as late as it can
SEGMENTS = 44
SEND_SEGMENTS = f"""
import socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_UDP, {UDP_SEGMENT}, 1400)
end_s = time.monotonic() + 300
while time.monotonic() < end_s:
    sock.sendto(bytes(1400 * {SEGMENTS}), (sys.argv[1], 9))
    time.sleep(0.1)
"""


@dataclass
class Place:
    """Hosts h1 to h3 at a switch under control."""

    hosts: VlanHosts
    app: Application
    target: str

    def mean_bps(self, vlan_vid: int, seconds: float, host: int = 3) -> float:
        """The wire rate at which a host receives in a VLAN, on average over some time."""
        before = self.hosts.received(vlan_vid, host)
        time.sleep(seconds)
        return self.hosts.received(vlan_vid, host).rate_bps(before)

    def wait_received(self, vlan_vid: int, wanted_bps: float, within: float = 0.03) -> None:
        """Wait until three seconds' mean of the wire rate is within a share of what is wanted."""
        latest: list[float] = []

        def close() -> bool:
            latest.append(self.mean_bps(vlan_vid, 3.0))
            return abs(latest[-1] / wanted_bps - 1) <= within

        try:
            wait_until(close, f"receiving {wanted_bps:g}", 30)
        finally:
            print([f"{bps / 1e6:.3f}" for bps in latest])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with VlanHosts(3, list(LIMITS_BPS), LINK_BPS) as hosts:
        config = hosts.configuration(LIMITS_BPS, *free_ports(2))
        target = f"tcp:{config['openflow']['listen']}"  # type: ignore[index]
        with Application(config, tmp_path_factory.mktemp("kernel")) as app:
            hosts.connect_to(target)
            app.wait_ready(READY_S)
            yield Place(hosts, app, target)


@pytest.fixture(scope="module")
def blast(place: Place) -> Iterator[Place]:
    """Two UDP senders of VLAN 1 to h3, together at nearly twice its limit."""
    processes = [place.hosts.sink(3), *(place.hosts.send(1, number, 3, UDP_BPS, 900) for number in (1, 2))]
    try:
        place.app.wait_for(lambda: place.app.get("/v1/vns/1/s1/3")["congested"], "congested", 60)
        yield place
        assert [process.poll() for process in processes] == [None] * 3
    finally:
        end(*processes)


def dropped_packets() -> int:
    """How many packets the bands of the meters have dropped."""
    return sum(map(int, re.findall(r"\b0: packet_count:(\d+)", ofctl("meter-stats", BRIDGE))))


def class_packets() -> dict[str, int]:
    """How many packets each HTB class of the port towards h3 has sent."""
    text = subprocess.run(["tc", "-s", "class", "show", "dev", PORT], capture_output=True, text=True, check=True).stdout
    return {name: int(count) for name, count in re.findall(r"class htb (\S+) .*?Sent \d+ bytes (\d+) pkt", text, re.S)}


def datapaths() -> str:
    return subprocess.run(["ovs-appctl", "dpif/show"], capture_output=True, text=True, check=False).stdout


def test_the_bridge_is_the_kernels_and_every_port_can_enforce(place: Place) -> None:
    assert "system@ovs-system" in datapaths()
    assert "netdev@" not in datapaths()
    assert place.app.get("/v1/health")["status"] == "ready"


def test_hosts_of_a_vlan_reach_each_other_and_nobody_else(place: Place) -> None:
    hosts = place.hosts
    assert hosts.can_connect(1, 2, hosts.address(1, 2))
    assert hosts.can_connect(1, 2, hosts.address(2, 2))
    before = [hosts.received(vid, 3).packets for vid in LIMITS_BPS]
    command = hosts.inside(1, sys.executable, "-c", BROADCAST, hosts.address(1, 255))
    subprocess.run(command, check=True, timeout=60)
    wait_until(lambda: hosts.received(1, 3).packets >= before[0] + BROADCASTS, "received in VLAN 1")
    assert hosts.received(2, 3).packets - before[1] < BROADCASTS  # an ARP request or so may come


def test_frames_that_the_sender_has_not_cut_into_segments_pass_at_their_limit(place: Place) -> None:
    """Of 62 kB each, which is more than 300 ms of the limit: the burst that meters begin with lets none pass.

    h3 sends, whose meters have large bursts from then on; those of h1 and h2, which send in the other tests, do not.
    """
    hosts = place.hosts
    for number in (1, 3):
        offload = ("ethtool", "-K", "eth0", "tx", "on", "gso", "on", "tso", "on", "tx-udp-segmentation", "on")
        subprocess.run(hosts.inside(number, *offload), check=True, timeout=60)
    processes = [hosts.sink(1), hosts.start(3, sys.executable, "-c", SEND_SEGMENTS, hosts.address(1, 1))]
    try:
        wait_until(lambda: place.mean_bps(1, 3.0, 1) > 0.5 * LIMITS_BPS[1], "passing", 30)
        before = hosts.received(1, 1)
        time.sleep(20.0)
        after = hosts.received(1, 1)
        frame_bytes = (after.wire_bytes - before.wire_bytes) / (after.packets - before.packets)
        print(f"{after.rate_bps(before) / 1e6:.3f} Mb/s in frames of {frame_bytes:.0f} bytes")
        assert after.rate_bps(before) == pytest.approx(LIMITS_BPS[1], rel=0.1)
        assert frame_bytes > 1400 * SEGMENTS / 2
    finally:
        end(*processes)
        for number in (1, 3):
            whole = ("ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
            subprocess.run(hosts.inside(number, *whole), check=True, timeout=60)


def test_meters_drop_and_deliver_what_was_granted(blast: Place) -> None:
    before = dropped_packets()
    blast.wait_received(1, LIMITS_BPS[1])
    entries = [blast.app.entry(port, 3, 1) for port in (1, 2)]
    granted_kbps = sum(meter_rates(BRIDGE)[entry["meter_id"]] for entry in entries if entry is not None)
    assert granted_kbps == pytest.approx(LIMITS_BPS[1] / 1000, rel=0.03)
    wait_until(lambda: dropped_packets() > before + 50, "dropped by meters")


def test_set_queue_takes_each_vlan_to_its_class_and_tcp_has_its_limit(blast: Place) -> None:
    before = class_packets()
    server = blast.hosts.start(3, sys.executable, tcp_ends.__file__, "receive", "/dev/null")
    wait_until(lambda: f":{tcp_ends.PORT} " in listening(blast), "listening")
    words = ("send", blast.hosts.address(2, 3), str(TCP_S), "cubic")
    client = blast.hosts.start(1, sys.executable, tcp_ends.__file__, *words)
    try:
        blast.wait_received(2, LIMITS_BPS[2], 0.05)
        after = class_packets()
        assert after["1:2"] > before["1:2"] + 100  # VLAN 1
        assert after["1:3"] > before["1:3"] + 100  # VLAN 2
        assert after["1:1"] - before["1:1"] < 20  # queue 0 has no VN's traffic
        blast.wait_received(1, LIMITS_BPS[1])
    finally:
        end(client, server)


def listening(place: Place) -> str:
    return subprocess.run(place.hosts.inside(3, "ss", "-Hltn"), capture_output=True, text=True, check=True).stdout


def test_a_switch_that_loses_its_controller_keeps_its_tables(blast: Place) -> None:
    downs = len(blast.app.events("switch-down"))
    flows = flow_durations(BRIDGE)
    blast.hosts.connect_to("tcp:127.0.0.1:1")  # where nobody listens
    blast.app.wait_for(lambda: len(blast.app.events("switch-down")) > downs, "told")
    blast.hosts.connect_to(blast.target)
    blast.app.wait_ready(READY_S)
    later = flow_durations(BRIDGE)
    assert [flow for flow in flows if later.get(flow, 0.0) < flows[flow]] == []
    blast.wait_received(1, LIMITS_BPS[1])


def test_a_controller_that_is_killed_and_starts_disturbs_nothing(blast: Place) -> None:
    app = blast.app
    blast.wait_received(1, LIMITS_BPS[1])
    flows, meters = flow_durations(BRIDGE), meter_durations(BRIDGE)
    begin_s = time.monotonic()
    app.stop(signal.SIGKILL)
    blast.wait_received(1, LIMITS_BPS[1], 0.1)  # meters alone: at the grants of a moment
    app.start()
    app.wait_ready(READY_S)
    blast.wait_received(1, LIMITS_BPS[1])
    passed_s = time.monotonic() - begin_s
    later, lasting = flow_durations(BRIDGE), meter_durations(BRIDGE)
    assert [flow for flow in flows if later.get(flow, 0.0) < flows[flow] + 0.5 * passed_s] == []
    assert [i for i in meters if lasting.get(i, 0.0) < meters[i] + 0.5 * passed_s] == []


def test_a_switch_that_starts_anew_is_brought_to_the_desired_state(blast: Place) -> None:
    """Its process dies and its monitor starts another: entries and meters are gone, rows of queues stand."""
    wanted = set(flow_durations(BRIDGE))
    pidfile = Path("/run/openvswitch/ovs-vswitchd.pid")
    died = pidfile.read_text()
    begin_s = time.monotonic()
    subprocess.run(["kill", "-SEGV", died.strip()], check=True)
    wait_until(lambda: pidfile.exists() and pidfile.read_text() not in ("", died), "started by its monitor", 60)
    wait_until(lambda: "system@" in datapaths(), "forwarding again", 60)
    wait_until(lambda: wanted <= set(flow_durations(BRIDGE)), "all entries again", 60)
    assert max(meter_durations(BRIDGE).values()) < time.monotonic() - begin_s
    before = class_packets()
    blast.wait_received(1, LIMITS_BPS[1])
    assert class_packets()["1:2"] > before["1:2"]
    assert vsctl("get", "Port", PORT, "qos").strip() != "[]"
