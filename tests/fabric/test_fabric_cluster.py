"""Two real controllers on a real Open vSwitch: roles, fencing by generation ids, and a take-over that sets nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from support.cluster import NAMES, ClusterNodes, dets, needs_etcd
from support.ovs import flow_durations, meter_durations, meter_rates

from experiments.ovs.ovs_vsctl import find_rows, vsctl

pytestmark = [needs_etcd]
BRIDGE, DPID, PORTS = "clu1", 0xC1, (1, 2)
VN = "/v1/vns/10/s193/1"
BRIDGES = {"clu1": 0xC1, "clu2": 0xC5}
OWNERS = {"s193": 1, "s197": 0}  # by hash


class OvsCluster(ClusterNodes):
    """Two nodes, and bridges that both are controllers of."""

    bridges: ClassVar[dict[str, int]] = {BRIDGE: DPID}

    def connect_switches(self) -> None:
        """Make the bridges."""
        for bridge, dpid in self.bridges.items():
            command = ["--", "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
            command += ["protocols=OpenFlow13", "fail_mode=secure", f"other-config:datapath-id={dpid:016x}"]
            for number in PORTS:
                port = f"{bridge}-p{number}"
                command += ["--", "add-port", bridge, port, "--", "set", "interface", port, "type=internal"]
                command += [f"ofport_request={number}"]
            command += ["--", "set-controller", bridge, *(f"tcp:{host}:{port}" for host, port in self.openflow)]
            vsctl(*command)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            super().__exit__(kind, *rest)
        finally:
            for bridge in self.bridges:
                vsctl("--if-exists", "del-br", bridge)

    def roles(self) -> list[str]:
        """Return the role that the switch gives each node; Open vSwitch updates that every few seconds."""
        role_of = {row["target"]: row["role"] for row in find_rows("controller", "target,role")}
        return [role_of[f"tcp:{host}:{port}"] for host, port in self.openflow]


class OvsShared(OvsCluster):
    """Two bridges, which the nodes share out."""

    bridges = BRIDGES

    def wait_whole(self) -> None:
        """Wait until each bridge has an owner that controls it."""
        self.wait(lambda: all(self.health(n)["status"] == "ready" for n in (0, 1)), "both nodes are ready", 30.0)

    def owners(self, number: int) -> dict[str, int]:
        """Return the node of each bridge, as a node says."""
        return {name: NAMES.index(node) for name, node in self.health(number)["cluster"]["owners"].items()}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[OvsCluster]:
    with OvsCluster(tmp_path, {DPID: list(PORTS)}) as run:
        yield run


def test_a_node_that_is_stopped_is_fenced_by_the_switch_and_the_other_adopts_what_stands(run: OvsCluster) -> None:
    run.wait(lambda: run.roles() == ["master", "slave"], "the switch has both roles")
    run.nodes[0].patch(VN, send_limit_bps=30_000_000)
    run.wait(lambda: 30_000 in meter_rates(BRIDGE).values(), "the limit is on the switch")
    rates, lived_s, flows = meter_rates(BRIDGE), meter_durations(BRIDGE), flow_durations(BRIDGE)
    run.nodes[0].send_signal(signal.SIGSTOP)
    run.wait_active(1, 30.0)
    run.nodes[0].send_signal(signal.SIGCONT)
    run.wait(lambda: run.health(0)["cluster"]["role"] == "standby", "the one that was stopped is on standby")
    run.wait(lambda: run.roles() == ["slave", "master"], "the switch has both roles")
    assert meter_rates(BRIDGE) == rates
    assert [number for number, seconds in meter_durations(BRIDGE).items() if seconds < lived_s[number]] == []
    now = flow_durations(BRIDGE)
    assert [flow for flow, seconds in flows.items() if now.get(flow, -1.0) < seconds] == []
    run.nodes[1].patch(VN, send_limit_bps=20_000_000)
    run.wait(lambda: 20_000 in meter_rates(BRIDGE).values(), "the new limit is on the switch")
    assert run.nodes[1].events("switch-error") == []


def test_shared_out_bridges_go_to_the_other_node_when_theirs_is_killed_and_back_when_they_are_moved(
    tmp_path: Path,
) -> None:
    with OvsShared(tmp_path, {key: list(PORTS) for key in BRIDGES.values()}, shared=True) as run:
        assert run.owners(0) == run.owners(1) == OWNERS
        active = NAMES.index(run.health(0)["cluster"]["active"])
        for name in OWNERS:
            run.nodes[active].patch(f"/v1/vns/10/{name}/1", send_limit_bps=30_000_000)
        run.wait(lambda: all(30_000 in meter_rates(bridge).values() for bridge in BRIDGES), "the limits are there")
        standing = {bridge: (meter_rates(bridge), meter_durations(bridge)) for bridge in BRIDGES}
        run.nodes[0].send_signal(signal.SIGKILL)
        run.nodes[0].wait_ended()
        run.wait(lambda: run.owners(1) == dict.fromkeys(OWNERS, 1), "the other node has both")
        run.wait(lambda: run.health(1)["status"] == "ready", "it controls both")
        run.nodes[0].start()
        run.wait(lambda: run.health(0)["status"] == "ready", "the first one is back", 30.0)
        run.wait_connected()
        moved = dets("cluster", "move", "s197", "n1", "--config", str(run.nodes[0].config_path))
        assert moved == (0, "s197 is with n1\n")
        run.wait(lambda: run.owners(0) == run.owners(1) == OWNERS, "they are shared out as before")
        run.wait(lambda: run.health(0)["status"] == "ready", "it controls its own again")
        for bridge, (rates, lived_s) in standing.items():
            assert meter_rates(bridge) == rates
            assert [number for number, seconds in meter_durations(bridge).items() if seconds < lived_s[number]] == []
        active = NAMES.index(run.health(0)["cluster"]["active"])
        for name in OWNERS:
            run.nodes[active].patch(f"/v1/vns/10/{name}/1", send_limit_bps=20_000_000)
        run.wait(lambda: all(20_000 in meter_rates(bridge).values() for bridge in BRIDGES), "new limits are there")
