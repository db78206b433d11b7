"""The realized fabric is what its description says."""

from __future__ import annotations

import subprocess
import sys

from support.paths import ROOT

from experiments.ovs.fabric import OWNER_KEY, OvsFabric, describe_switches
from experiments.ovs.ovs_vsctl import find_rows, vsctl


def test_ports_have_their_described_numbers_and_vlans(three_pns: OvsFabric) -> None:
    for pn in three_pns.fabric.pns:
        assert vsctl("get", "Interface", pn.edge_interface, "ofport").strip() == str(pn.port_no)
        assert vsctl("port-to-br", pn.edge_interface).strip() == pn.switch


def test_vns_of_a_vlan_reach_each_other_and_nobody_else(three_pns: OvsFabric, can_connect) -> None:
    assert can_connect(three_pns, "v1_1", "v1_3")
    assert can_connect(three_pns, "v2_2", "v2_3")
    three_pns.host("v1_1").cmd("ip route add 10.2.0.0/16 dev v1_1-eth0")  # so that only the fabric is in the way
    assert not can_connect(three_pns, "v1_1", "v2_3", timeout_s=1)


def test_hosts_send_plain_frames(three_pns: OvsFabric) -> None:
    features = three_pns.host("v1_1").cmd("ethtool -k v1_1-eth0")
    states = dict(line.strip().split(": ", 1) for line in features.splitlines() if ": " in line)
    for name in ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload"):
        assert states[name].startswith("off"), name


def test_a_switch_says_what_it_is(three_pns: OvsFabric) -> None:
    said = describe_switches(three_pns.fabric)["s1"]
    assert "max_meter" in said["meter-features"]
    assert "s1-eth3" in said["dump-ports-desc"]


def test_a_fabric_in_use_is_not_taken_away(three_pns: OvsFabric) -> None:
    code = (
        "import topologies.builders as b, experiments.ovs.fabric as f\n"
        "f.OvsFabric(b.fig1(pns=2), f.OvsOptions()).__enter__()"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False, capture_output=True, text=True
    )
    assert other.returncode != 0
    assert "another fabric is running" in other.stderr
    assert all(OWNER_KEY in row["external_ids"] for row in find_rows("Bridge", "external_ids", "name=s1"))
