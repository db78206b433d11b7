"""Two real controllers that share the switches of a fabric: pairs cross, and a dead node's switches are taken over."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from support.cluster import NAMES, ShardedRun, check_one_writer, dets, needs_etcd
from support.sharded_blast import (
    EDGES,
    LIMIT_BPS,
    LINKS,
    RECEIVER,
    SENDERS,
    InstalledMeters,
    blast,
    granted_bps,
    is_shared,
)

pytestmark = [needs_etcd]
OWNERS = {"s1": "n2", "s2": "n1", "s3": "n1"}  # by hash


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShardedRun]:
    with ShardedRun(tmp_path_factory.mktemp("sharded"), EDGES, links=LINKS) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: ShardedRun) -> Iterator[ShardedRun]:
    """Both nodes run, each with its switches; no switch ever has two writers."""
    for node in cluster.nodes:
        if not node.running:
            node.start()
    cluster.wait_whole()
    cluster.balance(OWNERS)
    cluster.wait_whole()
    yield cluster
    check_one_writer(cluster, EDGES)


@pytest.fixture(scope="module")
def senders(cluster: ShardedRun) -> None:
    """Three senders share the receiver's limit, once their switches are shared out."""
    blast(cluster)


@pytest.fixture
def shared(run: ShardedRun, senders: None) -> ShardedRun:
    run.wait(lambda: is_shared(run), "the limit is shared", 30.0)
    return run


def test_every_switch_has_one_owner_and_both_nodes_are_ready(run: ShardedRun) -> None:
    assert run.owners(0) == run.owners(1) == OWNERS
    states = [run.health(number)["switches"] for number in (0, 1)]
    assert states[0] == {"s1": "standby", "s2": "ready", "s3": "ready"}
    assert states[1] == {"s1": "ready", "s2": "standby", "s3": "standby"}
    assert [{node for node, _, _ in run.writers(dpid)} for dpid in EDGES] == [{1}, {0}, {0}]


def test_what_operators_see_and_may_not_do(run: ShardedRun) -> None:
    """While n1, the first to start, is active."""
    config = str(run.nodes[0].config_path)
    code, said = dets("cluster", "status", "--config", config, "--output", "json")
    shown = json.loads(said)[0]
    assert (code, shown["active"], shown["owners"]) == (0, "n1", OWNERS)
    assert "s1      n2" in dets("cluster", "status", "--config", config)[1]
    assert "s1      n2    ready" in dets("status", "--url", run.nodes[0].url)[1]
    received = ("dets_cluster_messages_total", "n1", "received")
    run.wait(lambda: run.nodes[1].metrics()[received] > 0, "n1 has told n2 something")
    metrics = run.nodes[1].metrics()
    assert [metrics[f"dets_cluster_{what}_switches",] for what in ("owned", "unowned")] == [1.0, 0.0]

    def ready() -> list[float | None]:
        now = run.nodes[1].metrics()
        return [now.get(("dets_switch_ready", name)) for name in OWNERS]

    run.wait(lambda: ready() == [1.0, None, None], "n2 has been told who controls the others")
    refusals = [
        ("PATCH", "/v1/vlans/10", {"algorithm": "fe"}, "cannot be sharded"),
        ("PATCH", "/v1/vlans/10", {"shadow": "sp"}, "a shadow sees the whole fabric"),
        ("POST", "/v1/recording", {"action": "start"}, "sees a part of the fabric"),
    ]
    for method, path, body, reason in refusals:
        status, _, problem = run.nodes[0].request(method, path, json.dumps(body).encode())
        assert (status, reason in problem["detail"]) == (422, True), problem
    run.nodes[1].patch("/v1/vns/10/s2/21", send_limit_bps=40_000_000)  # passed on to n1, which takes changes
    assert run.nodes[0].get("/v1/vns/10/s2/21")["send_limit_bps"] == 40_000_000
    status, _, problem = run.nodes[1].request("PATCH", "/v1/vns/10/s2/21", b'{"send_limit_bps": -1}')
    assert (status, problem["errors"][0]["field"]) == (422, "send_limit_bps")
    run.nodes[0].patch("/v1/vns/10/s1/11", send_limit_bps=30_000_000)  # at a switch of the other node
    run.wait(lambda: 30_000 in {rate for rate, _ in run.meters(1).values()}, "its node has put it in force")
    for port in ("s1/11", "s2/21"):
        assert run.nodes[0].request("DELETE", f"/v1/vns/10/{port}/overrides")[0] == 200


def loads_of_links(node: Any) -> list[int | None]:
    links = node.get("/v1/links")["links"]
    return [link[way]["load_bps"] for link in links for way in ("a_to_b", "b_to_a")]


def top(node: Any) -> dict[str, Any]:
    code, shown = dets("top", "--count", "1", "--output", "json", "--url", node.url)
    assert code == 0
    return dict(json.loads(shown)[0])


def check_reads_are_of_the_whole_fabric(run: ShardedRun, number: int) -> None:
    node = run.nodes[number]
    vn = f"/v1/vns/10/s{RECEIVER[0]}/{RECEIVER[1]}"
    run.wait(lambda: node.get(vn)["measured_receive_bps"] == pytest.approx(LIMIT_BPS, rel=0.1), "all that is received")
    listed = node.get("/v1/vns?vlan=10&limit=2"), node.get("/v1/pairs?limit=2")
    assert [item["port_no"] for item in listed[0]["vns"]] == [11, 12]
    assert [item["sender"]["port_no"] for item in listed[1]["pairs"]] == [11, 12]  # s1's, which n2 owns
    more = node.get(f"/v1/pairs?limit=2&cursor={listed[1]['next']}")
    assert ([item["sender"]["port_no"] for item in more["pairs"]], more["next"]) == ([21], None)
    whole = {one["port_no"]: one for one in node.get("/v1/vns?vlan=10")["vns"]}
    assert whole[RECEIVER[1]]["congested"]
    assert all(whole[port_no]["measured_send_bps"] > 0.2 * LIMIT_BPS for _, port_no in SENDERS)
    assert {one["switch"]: one["state"] for one in node.get("/v1/switches")["switches"]} == dict.fromkeys(
        OWNERS, "ready"
    )
    assert all(one["received_bps"] is not None for one in node.get("/v1/ports")["ports"])
    run.wait(lambda: None not in loads_of_links(node), "two looks at all links, a second apart")
    said = "/".join(("/v1/pairs/10/s1/11", f"s{RECEIVER[0]}", str(RECEIVER[1]), "explanation"))
    assert node.get(said)["sender"]["switch"] == "s1"
    assert not any("unreachable_nodes" in answer for answer in listed)
    received = pytest.approx(LIMIT_BPS, rel=0.1)
    run.wait(lambda: top(node)["measured_receive_bps"] == received, "a second's mean without what came at first")
    assert top(node)["congested_vns"] == 1


def test_senders_of_both_nodes_share_the_receive_limit_of_one(shared: ShardedRun) -> None:
    run = shared
    for number in (0, 1):
        check_reads_are_of_the_whole_fabric(run, number)
    run.nodes[0].patch("/v1/vlans/10", algorithm="max-min")  # n2 decides for all: it owns s1
    with run.fabric.locked():
        run.fabric.rates.set_rates([0], [30e6])
    rest_bps = (LIMIT_BPS - 30e6) / 2
    run.wait(lambda: granted_bps(run, (0, 1))[21] > 0.9 * rest_bps, "a sender at n1 gets what one at n2 leaves", 30.0)
    run.nodes[0].patch("/v1/vlans/10", algorithm="fs")
    with run.fabric.locked():
        run.fabric.rates.set_rates([0], [300e6])


@pytest.mark.parametrize(("dies", "lives"), [(1, 0), (0, 1)])
def test_a_node_that_is_killed_loses_its_switches_to_the_other_and_nobody_is_freed(
    shared: ShardedRun, dies: int, lives: int
) -> None:
    run = shared
    installed = InstalledMeters(run)
    run.nodes[dies].send_signal(signal.SIGKILL)
    run.nodes[dies].wait_ended()
    run.wait(lambda: set(run.owners(lives).values()) == {NAMES[lives]}, "the other one has all", 20.0)
    run.wait(lambda: run.health(lives)["status"] == "ready", "it controls all", 20.0)
    run.wait(lambda: is_shared(run, [lives]), "it is shared still")
    installed.check()


def test_a_node_that_was_paused_finds_its_switches_taken_and_shares_again_when_it_is_asked(shared: ShardedRun) -> None:
    run = shared
    run.nodes[0].send_signal(signal.SIGSTOP)
    assert run.nodes[1].get("/v1/pairs")["unreachable_nodes"] == ["n1"]
    assert run.nodes[1].get("/v1/vns")["unreachable_nodes"] == ["n1"]  # it is not asked again so soon
    run.wait(lambda: set(run.owners(1).values()) == {"n2"}, "n2 has all", 20.0)
    run.wait(lambda: run.health(1)["status"] == "ready", "n2 controls all", 20.0)
    before = {dpid: len(run.writers(dpid)) for dpid in EDGES}
    run.nodes[0].send_signal(signal.SIGCONT)
    run.wait(lambda: run.owners(0) == dict.fromkeys(OWNERS, "n2"), "n1 knows", 20.0)
    run.wait(lambda: run.health(0)["status"] == "ready", "n1 is ready to take over")
    assert all({node for node, _, _ in run.writers(dpid)[before[dpid] :]} <= {1} for dpid in EDGES)
    run.wait_connected()
    config = str(run.nodes[0].config_path)
    assert dets("cluster", "balance", "--config", config) == (0, "2 switches have changed hands\n")
    run.wait(lambda: run.owners(0) == run.owners(1) == OWNERS, "they are shared out again", 20.0)
    run.wait(lambda: all(run.health(number)["status"] == "ready" for number in (0, 1)), "both are ready", 20.0)
    run.wait(lambda: is_shared(run), "the limit is shared as before", 20.0)
    assert dets("cluster", "balance", "--config", config) == (0, "0 switches have changed hands\n")
