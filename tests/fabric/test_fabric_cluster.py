"""Two real controllers on a real Open vSwitch: roles, fencing by generation ids, and a take-over that sets nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import ClusterNodes, needs_etcd
from support.ovs import flow_durations, meter_durations, meter_rates

from experiments.ovs.ovs_vsctl import find_rows, vsctl

pytestmark = [needs_etcd]
BRIDGE, DPID, PORTS = "clu1", 0xC1, (1, 2)
VN = "/v1/vns/10/s193/1"


class OvsCluster(ClusterNodes):
    """Two nodes, and one bridge that both are controllers of."""

    def connect_switches(self) -> None:
        """Make the bridge."""
        command = ["--", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"]
        command += ["protocols=OpenFlow13", "fail_mode=secure", f"other-config:datapath-id={DPID:016x}"]
        for number in PORTS:
            port = f"{BRIDGE}-p{number}"
            command += ["--", "add-port", BRIDGE, port, "--", "set", "interface", port, "type=internal"]
            command += [f"ofport_request={number}"]
        command += ["--", "set-controller", BRIDGE, *(f"tcp:{host}:{port}" for host, port in self.openflow)]
        vsctl(*command)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        try:
            super().__exit__(kind, *rest)
        finally:
            vsctl("--if-exists", "del-br", BRIDGE)

    def roles(self) -> list[str]:
        """Return the role that the switch gives each node; Open vSwitch updates that every few seconds."""
        role_of = {row["target"]: row["role"] for row in find_rows("controller", "target,role")}
        return [role_of[f"tcp:{host}:{port}"] for host, port in self.openflow]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[OvsCluster]:
    with OvsCluster(tmp_path, {DPID: list(PORTS)}) as run:
        yield run


def test_a_node_that_is_stopped_is_fenced_by_the_switch_and_the_other_adopts_what_stands(run: OvsCluster) -> None:
    run.wait(lambda: run.roles() == ["master", "slave"], "the switch has both roles")
    run.nodes[0].patch(VN, send_limit_bps=30_000_000)
    run.wait(lambda: 30_000 in meter_rates(BRIDGE).values(), "the limit is on the switch")
    rates, lived_s, flows = meter_rates(BRIDGE), meter_durations(BRIDGE), flow_durations(BRIDGE)
    run.nodes[0].signal(signal.SIGSTOP)
    run.wait_active(1, 30.0)
    run.nodes[0].signal(signal.SIGCONT)
    run.wait(lambda: run.health(0)["cluster"]["role"] == "standby", "the one that was stopped is on standby")
    run.wait(lambda: run.roles() == ["slave", "master"], "the switch has both roles")
    assert meter_rates(BRIDGE) == rates
    assert [number for number, seconds in meter_durations(BRIDGE).items() if seconds < lived_s[number]] == []
    now = flow_durations(BRIDGE)
    assert [flow for flow, seconds in flows.items() if now.get(flow, -1.0) < seconds] == []
    run.nodes[1].patch(VN, send_limit_bps=20_000_000)
    run.wait(lambda: 20_000 in meter_rates(BRIDGE).values(), "the new limit is on the switch")
    assert run.nodes[1].events("switch-refused") == []
