"""Two real controllers on a real etcd and software switches: one writer at a time, whatever fails."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.application import Application
from support.cluster import ClusterRun, check_one_writer, needs_etcd
from support.sharded_blast import dets
from support.wire import configuration

from experiments.bench.cluster.testbed.switch_logs import MeterLog
from experiments.machine.cluster_process import kill_machine_of

pytestmark = [needs_etcd]
EDGES = {1: [1, 2], 2: [1, 2]}
VN = "/v1/vns/10/s1/1"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ClusterRun]:
    with ClusterRun(tmp_path, EDGES) as run:
        yield run


def test_the_standby_takes_over_from_a_node_that_is_killed(run: ClusterRun) -> None:
    run.nodes[0].patch(VN, send_limit_bps=30_000_000)
    run.nodes[0].send_signal(signal.SIGKILL)
    run.nodes[0].wait_ended()
    run.wait_active(1)
    assert run.nodes[1].get(VN)["send_limit_bps"] == 30_000_000
    run.nodes[1].patch(VN, send_limit_bps=20_000_000)
    run.wait(lambda: 20_000 in {rate for rate, _ in run.meters(1).values()}, "the new limit is on the switch")
    check_one_writer(run, EDGES)


def test_the_standby_takes_over_when_the_lease_of_a_dead_machine_ends(run: ClusterRun) -> None:
    kill_machine_of(run.nodes[0].pid)
    run.nodes[0].wait_ended()
    run.wait_active(1)
    check_one_writer(run, EDGES)


def test_a_node_that_is_stopped_and_goes_on_writes_no_more(run: ClusterRun) -> None:
    run.nodes[0].send_signal(signal.SIGSTOP)
    run.wait_active(1)
    before = {dpid: run.writers(dpid) for dpid in EDGES}
    run.nodes[0].send_signal(signal.SIGCONT)
    run.wait(lambda: run.health(0)["cluster"]["role"] == "standby", "the one that was stopped is on standby")
    assert run.health(0)["cluster"]["active"] == "n2"
    run.nodes[1].patch(VN, send_limit_bps=20_000_000)
    run.wait(lambda: 20_000 in {rate for rate, _ in run.meters(1).values()}, "the new limit is on the switch")
    for dpid in EDGES:
        assert run.writers(dpid)[: len(before[dpid])] == before[dpid]
        assert {node for node, _, _ in run.writers(dpid)[len(before[dpid]) :]} <= {1}
    check_one_writer(run, EDGES)
    run.wait(lambda: run.health(0)["status"] == "ready", "the standby is ready")


def test_changes_are_made_on_the_active_node_and_seen_on_both(run: ClusterRun) -> None:
    assert run.nodes[0].get(VN)["send_limit_bps"] == 400_000_000
    run.nodes[1].patch(VN, send_limit_bps=20_000_000)  # which passes it on
    assert run.nodes[0].get(VN)["send_limit_bps"] == 20_000_000
    run.wait(lambda: run.nodes[1].get(VN)["send_limit_bps"] == 20_000_000, "the standby knows of it")
    histories = [node.get("/v1/history") for node in run.nodes]
    assert histories[0] == histories[1]
    change = histories[0]["changes"][0]["revision"]
    assert run.nodes[0].get(f"/v1/history/{change}") == run.nodes[1].get(f"/v1/history/{change}")


def test_without_etcd_limits_stand_and_nobody_writes(run: ClusterRun) -> None:
    run.etcd.stop()
    run.wait(lambda: run.health(0)["cluster"]["role"] == "no-etcd", "the active node fences itself")
    assert set(run.health(0)["switches"].values()) == {"standby"}
    meters, writers = run.meters(1), run.writers(1)
    status, _, problem = run.nodes[0].request("PATCH", VN, json.dumps({"send_limit_bps": 20_000_000}).encode())
    assert (status, "node n1 changes nothing now" in problem["detail"]) == (503, True)
    assert run.nodes[0].get(VN)["send_limit_bps"] == 400_000_000
    assert (run.meters(1), run.writers(1)) == (meters, writers)
    run.etcd.start()
    run.wait(lambda: {run.health(n)["cluster"]["role"] for n in (0, 1)} == {"active", "standby"}, "one is active again")
    check_one_writer(run, EDGES)


def test_a_node_cut_off_from_etcd_is_replaced_and_comes_back_as_standby(run: ClusterRun) -> None:
    run.cut_from_etcd(0)
    run.wait_active(1)
    assert run.health(0)["cluster"]["role"] == "no-etcd"
    run.nodes[1].patch(VN, send_limit_bps=20_000_000)
    run.join_to_etcd(0)
    run.wait(lambda: run.health(0)["status"] == "ready" and run.health(0)["cluster"]["role"] == "standby", "it is back")
    assert run.nodes[0].get(VN)["send_limit_bps"] == 20_000_000
    check_one_writer(run, EDGES)


def test_take_overs_under_load_hold_the_grants_and_set_no_meter_that_is_right(tmp_path: Path) -> None:
    """The second one is by the node that was active before: what it knew of the meters is not what stands by then."""
    with ClusterRun(tmp_path, {1: [1, 2, 3, 4]}) as run:
        shares = pytest.approx([400e6 / 3] * 3, rel=0.05)
        flows = run.blast(1, senders=(1, 2, 3), receiver=4, rate_bps=300e6)
        run.wait(lambda: run.granted(0, flows) == shares, "the limit is shared")
        for stopped, other in ((0, 1), (1, 0)):
            run.nodes[stopped].send_signal(signal.SIGSTOP)
            with run.fabric.locked():
                standing, log = run.meters(1), MeterLog(run.fabric.switches[1])
            run.wait_active(other)
            run.wait(lambda other=other: run.granted(other, flows) == shares, "it is shared still")
            with run.fabric.locked():
                assert standing.keys() & log.deleted == set()  # it tests the switch with a meter of its own
                assert log.same == []
                most = {number: 1.2 * rate for number, (rate, _) in standing.items()}
                assert [(number, rate) for number, rate in log.set if rate > most.get(number, np.inf)] == []
            run.nodes[stopped].send_signal(signal.SIGCONT)
            run.wait(lambda stopped=stopped: run.health(stopped)["status"] == "ready", "it is on standby")
        check_one_writer(run, (1,))


def test_a_node_that_is_stopped_on_purpose_hands_over_at_once_and_leaves_the_meters(run: ClusterRun) -> None:
    meters = run.meters(1)
    assert run.nodes[0].stop() == 0
    run.wait_active(1)
    assert run.meters(1) == meters
    check_one_writer(run, EDGES)


def test_the_command_line_says_who_is_active_and_hands_over(run: ClusterRun) -> None:
    first, second = (str(node.config_path) for node in run.nodes)
    code, said = dets("cluster", "status", "--config", second, "--output", "json")
    shown = json.loads(said)[0]
    assert (code, shown["active"], shown["url"]) == (0, "n1", run.nodes[0].url)
    assert shown["generation"] == run.health(0)["cluster"]["generation"]
    said = dets("status", "--url", run.nodes[1].url)[1]
    assert f"ready\nnode n2: standby; active is n1 at {run.nodes[0].url}\n" in said
    assert dets("cluster", "release-lease", "--config", second) == (0, "n2 is not active\n")
    assert dets("cluster", "release-lease", "--config", first) == (0, "n1 has left\n")
    run.wait(lambda: {run.health(n)["cluster"]["role"] for n in (0, 1)} == {"active", "standby"}, "one is active again")
    assert dets("check", first)[0] == 0
    assert dets("token", "create", "ops", "--config", first)[0] == 0
    assert "ops" in dets("token", "list", "--config", second)[1]
    check_one_writer(run, EDGES)


def test_after_etcd_was_made_again_switches_refuse_until_the_epoch_is_raised(run: ClusterRun) -> None:
    assert dets("cluster", "release-lease", "--config", str(run.nodes[0].config_path))[0] == 0

    def later() -> bool:  # a node that becomes active again may have nothing to write
        with run.fabric.locked():
            return (run.fabric.switches[1]._generation or 0) > 2

    run.wait(later, "one has a role by a later revision of etcd", 30.0)
    run.etcd.stop()
    run.wait(lambda: {run.health(n)["cluster"]["role"] for n in (0, 1)} == {"no-etcd"}, "nobody writes")
    before = {dpid: run.writers(dpid) for dpid in EDGES}
    run.etcd.forget()
    run.etcd.start()
    run.wait(lambda: "STALE" in run.nodes[0].log() + run.nodes[1].log(), "switches refuse the lower generation ids")
    assert {dpid: run.writers(dpid) for dpid in EDGES} == before
    epoch = partial(dets, "cluster", "epoch", "--config", str(run.nodes[0].config_path))
    assert epoch("1")[0] == 0
    code, said = epoch("1")
    assert (code, "must be above 1" in said) == (2, True), said
    run.wait(lambda: any(run.controls(number) for number in (0, 1)), "one controls the switches again", 30.0)
    check_one_writer(run, EDGES)


def test_a_start_without_etcd_ends_with_a_sentence(tmp_path: Path) -> None:
    config = configuration(EDGES, cluster={"node": "n1", "etcd": ["http://127.0.0.1:1"]})
    with Application(config, tmp_path) as node:
        assert node.wait_ended(60) == 2
    assert "cluster.etcd: the settings cannot be read" in node.log()
    assert "Traceback" not in node.log()
