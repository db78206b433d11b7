"""The queue writer on a running Open vSwitch: rows become HTB classes, a new limit changes them in place."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from apps.ovsdb.ovsdb_client import OvsdbQueueWriter
from controller.switch.desired_queues import PortQueues, port_queues, single_queue
from experiments.ovs.ovs_vsctl import find_rows, ofctl, vsctl
from experiments.ovs.queue_classifier import QueueClassifier

ADDRESS = "unix:/run/openvswitch/db.sock"
BRIDGE = "dets-q"
DPID = 0xDE75_0001
INTERFACES = ("dets-q1", "dets-q2")
OWN = f"external_ids:dets={DPID:016x}"
# A broadcast frame of 64 bytes in VLAN 10, EtherType 0x88b5 (for experiments)
FRAME_10 = "ffffffffffff" + "020000000001" + "8100000a" + "88b5" + "00" * 46


@pytest.fixture(scope="module", autouse=True)
def bridge() -> Iterator[None]:
    """A bridge of two ports that forwards nothing by itself."""
    remove_bridge()
    try:
        ports = []
        for number, name in enumerate(INTERFACES, 1):
            run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p")
            run("ip", "link", "set", name, "up")
            run("ip", "link", "set", f"{name}p", "up")
            ports += ["--", "add-port", BRIDGE, name, "--", "set", "Interface", name, f"ofport_request={number}"]
        settings = ("datapath_type=netdev", "fail_mode=secure", f"other-config:datapath-id={DPID:016x}")
        vsctl("add-br", BRIDGE, "--", "set", "Bridge", BRIDGE, *settings, *ports)
        yield
    finally:
        remove_bridge()


@pytest.fixture
def writer() -> Iterator[OvsdbQueueWriter]:
    writer = OvsdbQueueWriter(ADDRESS)
    yield writer
    for name in INTERFACES:
        vsctl("clear", "Port", name, "qos")
    writer.remove(DPID)
    writer.close()


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


def remove_bridge() -> None:
    vsctl("--if-exists", "del-br", BRIDGE)
    for name in INTERFACES:
        subprocess.run(["ip", "link", "del", name], capture_output=True, check=False, timeout=20)


def wanted(*limits_bps: dict[int, int]) -> dict[str, PortQueues]:
    ports = zip(INTERFACES, enumerate(limits_bps, 1), strict=False)
    return {name: port_queues(number, 100_000_000, limits, False) for name, (number, limits) in ports}


def classes(interface: str) -> dict[str, str]:
    """Return what tc says of the HTB classes of queues, by class id: ``rate R ceil C burst B``."""
    lines = [line.split() for line in run("tc", "class", "show", "dev", interface).splitlines()]
    return {words[2]: " ".join(words[words.index("rate") :][:6]) for words in lines if "parent" in words}


def packets_of_queue_0() -> int:
    found = re.search(r" pkts=(\d+),", ofctl("queue-stats", BRIDGE, "1", "0"))
    assert found is not None
    return int(found[1])


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for ovs-vswitchd, which acts on a row some milliseconds after the transaction."""
    deadline_s = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline_s, "ovs-vswitchd has not acted on the rows within 10 s"
        time.sleep(0.01)


def test_rows_become_classes_with_the_rates_that_were_set(writer: OvsdbQueueWriter) -> None:
    assert writer.apply(DPID, wanted({10: 40_000_000, 20: 50_000_000})) == []
    expected = {
        "1:1": "rate 100Kbit ceil 100Mbit burst 1564b",  # queue 0; a full frame of burst is ovs-vswitchd's least
        "1:b": "rate 40Mbit ceil 40Mbit burst 150000b",
        "1:15": "rate 50Mbit ceil 50Mbit burst 187500b",
    }
    wait_until(lambda: classes(INTERFACES[0]) == expected)
    assert classes(INTERFACES[1]) == {}


def test_classes_give_way_to_one_at_the_rate_of_the_port(writer: OvsdbQueueWriter) -> None:
    writer.apply(DPID, wanted({10: 40_000_000, 20: 50_000_000}))
    wait_until(lambda: len(classes(INTERFACES[0])) == 3)
    assert writer.apply(DPID, {INTERFACES[0]: single_queue(1, 100_000_000)}) == []
    wait_until(lambda: classes(INTERFACES[0]) == {"1:1": "rate 100Mbit ceil 100Mbit burst 375000b"})
    assert len(find_rows("Queue", "_uuid", OWN)) == 1
    with QueueClassifier([INTERFACES[0]]) as classifier:
        classifier.wait_ready()
        before = packets_of_queue_0()
        for _ in range(20):
            ofctl("packet-out", BRIDGE, f"in_port=controller packet={FRAME_10} actions=output:1")
        wait_until(lambda: packets_of_queue_0() >= before + 20)


def test_a_new_limit_changes_the_class_in_place(writer: OvsdbQueueWriter) -> None:
    writer.apply(DPID, wanted({10: 40_000_000, 20: 50_000_000}))
    wait_until(lambda: len(classes(INTERFACES[0])) == 3)
    rows = {row["_uuid"] for row in find_rows("Queue", "_uuid", OWN)}
    with QueueClassifier([INTERFACES[0]]) as classifier:
        classifier.wait_ready()
        for _ in range(5):
            ofctl("packet-out", BRIDGE, f"in_port=controller packet={FRAME_10} actions=set_queue:10,output:1")
        # Only frames that went through the class are in its counters, and only the same class still has them later.
        wait_until(lambda: " pkts=5," in ofctl("queue-stats", BRIDGE, "1", "10"))
        assert writer.apply(DPID, wanted({10: 30_000_000, 20: 50_000_000})) == []
        wait_until(lambda: classes(INTERFACES[0])["1:b"] == "rate 30Mbit ceil 30Mbit burst 112500b")
        assert " pkts=5," in ofctl("queue-stats", BRIDGE, "1", "10")
    assert {row["_uuid"] for row in find_rows("Queue", "_uuid", OWN)} == rows


def test_remove_leaves_nothing_of_ours(writer: OvsdbQueueWriter) -> None:
    writer.apply(DPID, wanted({10: 40_000_000}, {20: 50_000_000}))
    wait_until(lambda: len(classes(INTERFACES[1])) == 2)
    assert writer.remove(DPID) == []
    assert find_rows("QoS", "_uuid", OWN) == find_rows("Queue", "_uuid", OWN) == []
    wait_until(lambda: not any("htb" in run("tc", "qdisc", "show", "dev", name) for name in INTERFACES))


def test_a_port_whose_name_openflow_cuts_has_queues(writer: OvsdbQueueWriter) -> None:
    long = ("dets-patch-to-br9-aa", "dets-patch-to-br9-ab")
    try:
        for number, name in enumerate(long, 8):
            of_interface = ("type=patch", "options:peer=nobody", f"ofport_request={number}")
            vsctl("add-port", BRIDGE, name, "--", "set", "Interface", name, *of_interface)
            wait_until(lambda name=name: vsctl("get", "Interface", name, "ofport").strip() != "[]")
        numbers = [int(vsctl("get", "Interface", name, "ofport")) for name in long]
        limits = {10: 40_000_000}
        queues = {f"port {number}": port_queues(number, 100_000_000, limits, False) for number in numbers}
        assert writer.apply(DPID, queues) == []
        assert all(vsctl("get", "Port", name, "qos").strip() != "[]" for name in long)
    finally:
        for name in long:
            vsctl("--if-exists", "del-port", BRIDGE, name)
