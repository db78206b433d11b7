"""Queues on the userspace datapath: frames go to their VLAN's class, and keep going there when rows change."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator

import pytest
from support.ovs import wait_until
from support.udp_blast import udp_blast

from experiments.ovs.fabric import OvsFabric
from experiments.ovs.ovs_vsctl import vsctl
from experiments.ovs.queue_classifier import leaf_packets, read_state
from topologies import ebpf_vlan_switch

PORT = "s1-eth3"
ENOUGH_BYTES = 1_000_000  # buckets of both classes are empty by then
SEND = (
    "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    "for _ in range({}): s.sendto(bytes(1000), ('{}', 9)); time.sleep(0.001)"
)


@pytest.fixture
def qos(three_pns: OvsFabric) -> Iterator[dict[str, str]]:
    """A QoS row with queues 1 and 2 on the receiver's port, as the controller makes one; uuids by name."""
    names = ["qos", "q0", "q1", "q2"]
    rows = vsctl(
        *("--id=@q0", "create", "Queue", "other_config:min-rate=1000000"),
        *("--", "--id=@q1", "create", "Queue", "other_config:min-rate=40000000", "other_config:max-rate=40000000"),
        *("--", "--id=@q2", "create", "Queue", "other_config:min-rate=50000000", "other_config:max-rate=50000000"),
        *("--", "--id=@qos", "create", "QoS", "type=linux-htb", "other_config:max-rate=100000000"),
        *("queues:0=@q0", "queues:1=@q1", "queues:2=@q2", "--", "set", "Port", PORT, "qos=@qos"),
    ).split()
    uuids = dict(zip(["q0", "q1", "q2", "qos"], rows, strict=True))
    settle(three_pns)
    yield uuids
    vsctl("clear", "Port", PORT, "qos")
    vsctl("destroy", "QoS", uuids["qos"])
    for name in names[1:]:
        vsctl("--if-exists", "destroy", "Queue", uuids[name])


def settle(fabric: OvsFabric) -> None:
    assert fabric.classifier is not None
    fabric.classifier.wait_ready()


def packets_of_classes(interface: str = PORT) -> dict[str, int]:
    text = subprocess.run(["tc", "-s", "-j", "qdisc", "show", "dev", interface], capture_output=True, check=True).stdout
    return {row["parent"]: row["packets"] for row in json.loads(text) if "parent" in row}


def send(fabric: OvsFabric, vlan_vid: int, count: int) -> None:
    receiver = fabric.fabric.vn(vlan_vid, 3)
    sender = fabric.host(f"v{vlan_vid}_1")
    process = sender.popen(["python3", "-c", SEND.format(count, receiver.ip)])
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors


def sent_to_classes(fabric: OvsFabric, vlan_vid: int, count: int = 200) -> dict[str, int]:
    before = packets_of_classes()
    send(fabric, vlan_vid, count)
    return {name: packets - before.get(name, 0) for name, packets in packets_of_classes().items()}


@pytest.mark.parametrize(("vlan_vid", "class_id"), [(1, "1:2"), (2, "1:3")])
def test_frames_go_to_the_class_of_their_vlan(three_pns, qos, vlan_vid: int, class_id: str) -> None:
    got = sent_to_classes(three_pns, vlan_vid)
    assert got[class_id] >= 190  # some may still be on their way; ARP may add some
    assert sum(got.values()) - got[class_id] < 20


def test_a_changed_limit_changes_the_leaf(three_pns, qos) -> None:
    vsctl("set", "Queue", qos["q1"], "other_config:max-rate=90000000")
    settle(three_pns)
    leaves = {c.minor: c.leaf for c in read_state(PORT).classes}
    assert leaves[2] == f"pfifo_head_drop {leaf_packets(90e6)}"
    assert sent_to_classes(three_pns, 1)["1:2"] >= 190


def test_a_queue_can_be_deleted_and_its_vlan_falls_to_the_default(three_pns, qos) -> None:
    vsctl("remove", "QoS", qos["qos"], "queues", "2")
    settle(three_pns)
    assert {c.minor for c in read_state(PORT).classes} == {1, 2}
    assert sent_to_classes(three_pns, 2)["1:1"] >= 190


def test_a_new_qos_row_is_followed(three_pns, qos) -> None:
    vsctl("clear", "Port", PORT, "qos")
    assert not read_state(PORT).has_root
    vsctl("set", "Port", PORT, f"qos={qos['qos']}")
    settle(three_pns)
    assert sent_to_classes(three_pns, 2)["1:3"] >= 190


def test_the_follower_rests_when_nothing_changes(three_pns, qos) -> None:
    changes = three_pns.classifier.counters.changes
    send(three_pns, 1, 100)
    assert three_pns.classifier.counters.changes == changes
    assert three_pns.classifier.error is None


def drops_of_queues() -> dict[int, int]:
    """Return what OpenFlow's queue-stats say that each queue of the port has dropped (``tx_errors``)."""
    command = ["ovs-ofctl", "-O", "OpenFlow13", "queue-stats", "s1"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    port = subprocess.run(
        ["ovs-vsctl", "get", "Interface", PORT, "ofport"], capture_output=True, text=True, check=True
    ).stdout.strip()
    rows = re.findall(r"port \"?([\w-]+)\"? queue (\d+): .*?errors=(\d+)", text, re.DOTALL)
    return {int(queue): int(errors) for name, queue, errors in rows if name in (PORT, port)}


def test_what_a_queue_drops_moves_its_counter_and_no_other(three_pns, qos) -> None:
    """Policies that read drops need them: 100 Mb/s of one VLAN through its queue of 10 Mb/s."""
    vsctl("set", "Queue", qos["q1"], "other_config:min-rate=10000000", "other_config:max-rate=10000000")
    settle(three_pns)
    before = drops_of_queues()
    receiver = three_pns.fabric.vn(1, 3)
    blast = (
        "import socket, time; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        f"for _ in range(200): [s.sendto(bytes(1400), ('{receiver.ip}', 9)) for _ in range(9)]; time.sleep(0.001)"
    )
    process = three_pns.host("v1_1").popen(["python3", "-c", blast])
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    after = drops_of_queues()
    assert after[1] - before[1] > 100
    assert after[2] == before[2]


def test_a_pns_way_out_has_classes_on_demand(three_pns) -> None:
    if ebpf_vlan_switch.unsupported_reason():
        pytest.skip("PNs' vswitches are bridges here: their trunks are Open vSwitch's to shape")
    trunk = three_pns.fabric.pn(1).trunk_interface
    three_pns.set_uplink_queues(1, {1: (40_000_000, 100_000_000), 2: (50_000_000, 100_000_000)})
    try:
        for vlan_vid, class_id in ((1, "1:2"), (2, "1:3")):
            before = packets_of_classes(trunk)
            send(three_pns, vlan_vid, 200)
            got = {name: packets - before[name] for name, packets in packets_of_classes(trunk).items()}
            assert got[class_id] >= 190
            assert sum(got.values()) - got[class_id] < 20
    finally:
        three_pns.set_uplink_queues(1, {})
    assert {name for name in packets_of_classes(trunk) if name.startswith("1:")} == {"1:1"}  # no queue of the way in
    send(three_pns, 1, 200)
    assert packets_of_classes(trunk)["1:1"] >= 190
    with pytest.raises(ValueError, match="vlan_vid: 9 is not a VLAN of PN 1"):
        three_pns.set_uplink_queues(1, {9: (1_000_000, 1_000_000)})


@pytest.mark.rates
@pytest.mark.parametrize(
    ("least_bps", "first_part"),
    [((2_000_000, 8_000_000), 0.2), ((18_000_000, 36_000_000), 0.5)],
    ids=["by min rate", "equally"],
)
def test_how_htb_shares_what_is_above_the_min_rates(three_pns, qos, least_bps, first_part) -> None:
    """Open vSwitch leaves the quantum to the kernel: a tenth of the rate's bytes, at most 200,000, which is 16 Mb/s."""
    for name, rate_bps in zip(("q1", "q2"), least_bps, strict=True):
        vsctl("set", "Queue", qos[name], f"other_config:min-rate={rate_bps}", "other_config:max-rate=60000000")
    vsctl("set", "QoS", qos["qos"], "other_config:max-rate=60000000")
    settle(three_pns)
    vns = {"1:2": three_pns.fabric.vn(1, 3), "1:3": three_pns.fabric.vn(2, 3)}
    begun = bytes_of_classes()
    with contextlib.ExitStack() as stack:
        for vn in vns.values():
            stack.enter_context(udp_blast(three_pns, f"v{vn.vlan_vid}_{vn.vlan_vid}", vn.ip, 60_000_000))
        wait_until(lambda: all(bytes_of_classes()[name] > begun[name] + ENOUGH_BYTES for name in vns), "both send")
        before = bytes_of_classes()
        time.sleep(3.0)
        sent_bits = [8 * (bytes_of_classes()[name] - before[name]) for name in vns]
    total_bps = 60e6  # both want all of it
    excess_bps = total_bps - sum(least_bps)
    first_bps = total_bps * sent_bits[0] / sum(sent_bits) - least_bps[0]
    assert first_bps / excess_bps == pytest.approx(first_part, abs=0.1)


def bytes_of_classes(interface: str = PORT) -> dict[str, int]:
    text = subprocess.run(["tc", "-s", "-j", "qdisc", "show", "dev", interface], capture_output=True, check=True).stdout
    return {row["parent"]: row["bytes"] for row in json.loads(text) if "parent" in row}
