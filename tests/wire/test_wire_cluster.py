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
from support.cluster import NAMES, ClusterRun, check_one_writer, dets, needs_etcd
from support.wire import configuration

from experiments.bench.cluster.testbed.switch_logs import MeterLog
from experiments.machine.cluster_process import kill_machine_of

pytestmark = [needs_etcd]
EDGES = {1: [1, 2, 3, 4], 2: [1, 2]}
VN = "/v1/vns/10/s1/1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRun]:
    with ClusterRun(tmp_path_factory.mktemp("cluster"), EDGES) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: ClusterRun) -> Iterator[ClusterRun]:
    """Both nodes run, that of ``in_charge`` is active, and no limit has been set; no switch ever has two writers."""
    for node in cluster.nodes:
        if node.running:
            node.send_signal(signal.SIGCONT)
        else:
            node.start()
    cluster.wait_ready()
    assert cluster.nodes[cluster.in_charge].request("DELETE", f"{VN}/overrides")[0] in (200, 404)
    yield cluster
    check_one_writer(cluster, EDGES)


@pytest.fixture
def active(run: ClusterRun) -> int:
    return run.in_charge


@pytest.fixture
def standby(run: ClusterRun) -> int:
    return 1 - run.in_charge


def roles(run: ClusterRun) -> list[str]:
    return sorted(run.health(number)["cluster"]["role"] for number in (0, 1))


def set_limit(run: ClusterRun, number: int, limit_bps: int) -> None:
    """Set a limit at a node, and wait until it is on the switch."""
    run.nodes[number].patch(VN, send_limit_bps=limit_bps)
    run.wait(lambda: limit_bps // 1000 in {rate for rate, _ in run.meters(1).values()}, "the limit is on the switch")


def test_the_standby_takes_over_from_a_node_that_is_killed(run: ClusterRun, active: int, standby: int) -> None:
    run.nodes[active].patch(VN, send_limit_bps=30_000_000)
    run.nodes[active].send_signal(signal.SIGKILL)
    run.nodes[active].wait_ended()
    run.wait_active(standby)
    assert run.nodes[standby].get(VN)["send_limit_bps"] == 30_000_000
    set_limit(run, standby, 20_000_000)


def test_the_standby_takes_over_when_the_lease_of_a_dead_machine_ends(
    run: ClusterRun, active: int, standby: int
) -> None:
    kill_machine_of(run.nodes[active].pid)
    run.nodes[active].wait_ended()
    run.wait_active(standby)


def test_a_node_that_is_stopped_and_goes_on_writes_no_more(run: ClusterRun, active: int, standby: int) -> None:
    run.nodes[active].send_signal(signal.SIGSTOP)
    run.wait_active(standby)
    before = {dpid: run.writers(dpid) for dpid in EDGES}
    run.nodes[active].send_signal(signal.SIGCONT)
    run.wait(lambda: run.health(active)["cluster"]["role"] == "standby", "the one that was stopped is on standby")
    assert run.health(active)["cluster"]["active"] == NAMES[standby]
    set_limit(run, standby, 20_000_000)
    for dpid in EDGES:
        assert run.writers(dpid)[: len(before[dpid])] == before[dpid]
        assert {node for node, _, _ in run.writers(dpid)[len(before[dpid]) :]} <= {standby}
    run.wait(lambda: run.health(active)["status"] == "ready", "the standby is ready")


def test_changes_are_made_on_the_active_node_and_seen_on_both(run: ClusterRun, active: int, standby: int) -> None:
    assert run.nodes[active].get(VN)["send_limit_bps"] == 400_000_000
    run.nodes[standby].patch(VN, send_limit_bps=20_000_000)  # which passes it on
    assert run.nodes[active].get(VN)["send_limit_bps"] == 20_000_000
    run.wait(lambda: run.nodes[standby].get(VN)["send_limit_bps"] == 20_000_000, "the standby knows of it")
    histories = [node.get("/v1/history") for node in run.nodes]
    assert histories[0] == histories[1]
    change = histories[0]["changes"][0]["revision"]
    assert run.nodes[0].get(f"/v1/history/{change}") == run.nodes[1].get(f"/v1/history/{change}")


def test_without_etcd_limits_stand_and_nobody_writes(run: ClusterRun, active: int) -> None:
    run.etcd.stop()
    run.wait(lambda: run.health(active)["cluster"]["role"] == "no-etcd", "the active node fences itself")
    assert set(run.health(active)["switches"].values()) == {"standby"}
    meters, writers = run.meters(1), run.writers(1)
    status, _, problem = run.nodes[active].request("PATCH", VN, json.dumps({"send_limit_bps": 20_000_000}).encode())
    assert (status, f"node {NAMES[active]} changes nothing now" in problem["detail"]) == (503, True)
    assert run.nodes[active].get(VN)["send_limit_bps"] == 400_000_000
    assert (run.meters(1), run.writers(1)) == (meters, writers)
    run.etcd.start()
    run.wait(lambda: roles(run) == ["active", "standby"], "one is active again")


def test_a_node_cut_off_from_etcd_is_replaced_and_comes_back_as_standby(
    run: ClusterRun, active: int, standby: int
) -> None:
    run.cut_from_etcd(active)
    run.wait_active(standby)
    assert run.health(active)["cluster"]["role"] == "no-etcd"
    run.nodes[standby].patch(VN, send_limit_bps=20_000_000)
    run.join_to_etcd(active)

    def is_back() -> bool:
        health = run.health(active)
        return bool(health["status"] == "ready" and health["cluster"]["role"] == "standby")

    run.wait(is_back, "it is back")
    assert run.nodes[active].get(VN)["send_limit_bps"] == 20_000_000


def test_take_overs_under_load_hold_the_grants_and_set_no_meter_that_is_right(
    run: ClusterRun, active: int, standby: int
) -> None:
    """The second one is by the node that was active before: what it knew of the meters is not what stands by then."""
    shares = pytest.approx([400e6 / 3] * 3, rel=0.05)
    flows = run.blast(1, senders=(1, 2, 3), receiver=4, rate_bps=300e6)
    run.wait(lambda: run.granted(active, flows) == shares, "the limit is shared")
    for stopped, other in ((active, standby), (standby, active)):
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
    with run.fabric.locked():
        run.fabric.rates.set_rates([*range(len(flows))], 0.0)


def test_a_node_that_is_stopped_on_purpose_hands_over_at_once_and_leaves_the_meters(
    run: ClusterRun, active: int, standby: int
) -> None:
    meters = run.meters(2)  # nobody sends there
    assert run.nodes[active].stop() == 0
    run.wait_active(standby)
    assert run.meters(2) == meters


def test_the_command_line_says_who_is_active_and_hands_over(run: ClusterRun, active: int, standby: int) -> None:
    first, second = (str(run.nodes[number].config_path) for number in (active, standby))
    code, said = dets("cluster", "status", "--config", second, "--output", "json")
    shown = json.loads(said)[0]
    assert (code, shown["active"], shown["url"]) == (0, NAMES[active], run.nodes[active].url)
    assert shown["generation"] == run.health(active)["cluster"]["generation"]
    said = dets("status", "--url", run.nodes[standby].url)[1]
    assert f"ready\nnode {NAMES[standby]}: standby; active is {NAMES[active]} at {run.nodes[active].url}\n" in said
    assert dets("cluster", "release-lease", "--config", second) == (0, f"{NAMES[standby]} is not active\n")
    assert dets("cluster", "release-lease", "--config", first) == (0, f"{NAMES[active]} has left\n")

    def active_again() -> bool:  # not as before: the node that has left may not know of it yet
        generations = [run.health(number)["cluster"]["generation"] or 0 for number in (0, 1)]
        return max(generations) > shown["generation"] and roles(run) == ["active", "standby"]

    run.wait(active_again, "one is active again")
    assert dets("check", first)[0] == 0
    assert dets("token", "create", "ops", "--config", first)[0] == 0
    assert "ops" in dets("token", "list", "--config", second)[1]


def test_after_etcd_was_made_again_switches_refuse_until_the_epoch_is_raised(run: ClusterRun, active: int) -> None:
    """The last test on this etcd."""
    assert dets("cluster", "release-lease", "--config", str(run.nodes[active].config_path))[0] == 0

    def later() -> bool:  # a node that becomes active again may have nothing to write
        with run.fabric.locked():
            return (run.fabric.switches[1]._generation or 0) > 2

    run.wait(later, "one has a role by a later revision of etcd", 30.0)
    run.etcd.stop()
    run.wait(lambda: set(roles(run)) == {"no-etcd"}, "nobody writes")
    before = {dpid: run.writers(dpid) for dpid in EDGES}
    logs = [len(node.log()) for node in run.nodes]
    run.etcd.forget()
    run.etcd.start()

    def refused() -> bool:
        return any("STALE" in node.log()[begin:] for node, begin in zip(run.nodes, logs, strict=True))

    run.wait(refused, "switches refuse the lower generation ids")
    assert {dpid: run.writers(dpid) for dpid in EDGES} == before
    epoch = partial(dets, "cluster", "epoch", "--config", str(run.nodes[0].config_path))
    assert epoch("1")[0] == 0
    code, said = epoch("1")
    assert (code, "must be above 1" in said) == (2, True), said
    run.wait(lambda: any(run.controls(number) for number in (0, 1)), "one controls the switches again", 30.0)


def test_a_start_without_etcd_ends_with_a_sentence(tmp_path: Path) -> None:
    config = configuration(EDGES, cluster={"node": "n1", "etcd": ["http://127.0.0.1:1"]})
    with Application(config, tmp_path) as node:
        assert node.wait_ended(60) == 2
    assert "cluster.etcd: the settings cannot be read" in node.log()
    assert "Traceback" not in node.log()
