"""A fabric goes without a trace, whatever happens to its run, and takes nothing along that is not its own."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from support.paths import ROOT

from experiments.ovs.fabric import OvsFabric, OvsOptions
from experiments.ovs.ovs_vsctl import OvsError, find_rows, vsctl
from topologies import ebpf_vlan_switch
from topologies.builders import fabrics, fig1, fig7


def traces() -> dict[str, object]:
    """What a fabric could leave behind."""
    return {
        "bridges": sorted(vsctl("list-br").split()),
        "qos": sorted(row["_uuid"] for row in find_rows("QoS", "_uuid")),
        "queues": sorted(row["_uuid"] for row in find_rows("Queue", "_uuid")),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
    }


def test_nothing_passes_a_switch_whose_controller_is_away(can_connect) -> None:
    with OvsFabric(fig1(pns=2), OvsOptions(controller="tcp:127.0.0.1:1")) as fabric:
        assert not can_connect(fabric, "v1_1", "v1_2", timeout_s=1)


def test_traffic_crosses_the_core_and_nothing_is_left_afterwards(can_connect) -> None:
    before = traces()
    with OvsFabric(fig7(pns=3, edges=3), OvsOptions(edge_queues=True)) as fabric:
        assert can_connect(fabric, "v1_1", "v1_3")
        assert len(traces()["bridges"]) == len(before["bridges"]) + 4  # type: ignore[arg-type]
    assert traces() == before


@pytest.mark.parametrize("name", sorted(fabrics))
def test_every_topology_carries_traffic(name: str, can_connect) -> None:
    with OvsFabric(fabrics[name](pns=3), OvsOptions(edge_queues=True)) as fabric:
        assert can_connect(fabric, "v1_1", "v1_3")
        assert can_connect(fabric, "v2_2", "v2_3")


def test_links_that_are_never_full_need_no_interfaces(can_connect) -> None:
    before = traces()
    with OvsFabric(fig7(pns=3, edges=3), OvsOptions(edge_queues=True, patch_links=True)) as fabric:
        links = {interface for link in fabric.fabric.core_links for interface in link.interfaces}
        types = {row["name"]: row["type"] for row in find_rows("Interface", "name,type") if row["name"] in links}
        assert types == dict.fromkeys(links, "patch")
        assert not links & set(traces()["interfaces"])  # type: ignore[call-overload]
        assert can_connect(fabric, "v1_1", "v1_3")
        assert not can_connect(fabric, "v1_1", "v2_3", timeout_s=1)
    assert traces() == before


def test_where_the_kernel_takes_no_programs_pns_have_bridges(monkeypatch: pytest.MonkeyPatch, can_connect) -> None:
    monkeypatch.setattr(ebpf_vlan_switch, "unsupported_reason", lambda: "Operation not permitted")
    before = traces()
    with OvsFabric(fig1(pns=2), OvsOptions(edge_queues=True)) as fabric:
        assert any("Operation not permitted" in text for text in fabric.warnings)
        assert {"p1", "p2"} < set(traces()["bridges"])  # type: ignore[call-overload]
        assert can_connect(fabric, "v1_1", "v1_2")
        assert not can_connect(fabric, "v1_1", "v2_2", timeout_s=1)
    assert traces() == before


def test_leftovers_of_a_killed_run_are_removed_and_others_are_not() -> None:
    before = traces()
    vsctl("add-br", "foreign0", "--", "set", "Bridge", "foreign0", "datapath_type=netdev")
    foreign = vsctl("create", "QoS", "type=linux-htb").strip()
    try:
        code = (
            "import os, topologies.builders as b, experiments.ovs.fabric as f\n"
            "f.OvsFabric(b.fig1(pns=2), f.OvsOptions(edge_queues=True)).__enter__()\n"
            "os._exit(9)"
        )
        killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False)
        assert killed.returncode == 9
        assert "s1" in traces()["bridges"]  # type: ignore[operator]
        with OvsFabric(fig1(pns=3), OvsOptions()):
            pass
        assert "foreign0" in traces()["bridges"]  # type: ignore[operator]
        assert foreign in traces()["qos"]  # type: ignore[operator]
    finally:
        vsctl("--if-exists", "del-br", "foreign0", "--", "--if-exists", "destroy", "QoS", foreign)
    assert traces() == before


def test_a_failed_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = traces()

    def refuse(_self: OvsFabric) -> None:
        raise OvsError("refused")

    monkeypatch.setattr(OvsFabric, "_shape_links", refuse)
    with pytest.raises(OvsError, match="refused"), OvsFabric(fig1(pns=2), OvsOptions()):
        pass
    assert traces() == before


def test_mn_takes_the_custom_file_and_makes_queues_real() -> None:
    before = traces()
    script = "\n".join(
        [
            'py __import__("time").sleep(1)',
            "sh ovs-vsctl -- set Port s1-eth2 qos=@q -- --id=@q create QoS type=linux-htb queues:1=@q1"
            " -- --id=@q1 create Queue other_config:max-rate=40000000",
            'py __import__("time").sleep(1)',
            "sh tc qdisc show dev s1-eth2",
            "sh tc filter show dev s1-eth2",
            "sh ovs-vsctl clear Port s1-eth2 qos",
        ]
    )
    command = ["mn", "--custom", "topologies/dets.py", "--topo", "dets-fig1,pns=2", "--controller", "none"]
    done = subprocess.run(command, cwd=ROOT, input=script, capture_output=True, text=True, timeout=60, check=True)
    said = done.stdout + done.stderr
    for table, key in (("QoS", "qos"), ("Queue", "queues")):
        for uuid in set(traces()[key]) - set(before[key]):  # type: ignore[call-overload]
            vsctl("destroy", table, uuid)
    assert "(p1, s1) (p2, s1)" in said
    assert "parent 1:2 limit 99p" in said
    assert "bpf" in said
    assert traces() == before
