"""Two real controllers on an etcd of three members, and on one that speaks TLS only."""

from __future__ import annotations

import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from support.application import Application
from support.cluster import ClusterRun, check_one_writer, needs_etcd
from support.wire import configuration

from apps.cli.support.certificates import create_authority, issue
from apps.cluster.etcd_client import EtcdClient, EtcdError, delete, get, put
from experiments.machine.etcd_process import EtcdProcesses, EtcdTls

pytestmark = [needs_etcd]
EDGES = {1: [1, 2]}
LEASE_S = 4
VN = "/v1/vns/10/s1/1"


def certificates(folder: Path) -> EtcdTls:
    """Make a CA, the certificate of etcd's members, and that of the nodes."""
    create_authority(folder, "etcd's CA", 30)
    issue(folder, "etcd", 30, ["127.0.0.1"], client=True)
    issue(folder, "nodes", 30, None)
    files = "ca.pem", "etcd.pem", "etcd.key", "nodes.pem", "nodes.key"
    return EtcdTls(*(folder / file for file in files))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRun]:
    """Two nodes, of which each test leaves one active, on an etcd of three members."""
    options = {"members": 3, "ttl_s": LEASE_S, "quota_bytes": 4 << 20}
    with ClusterRun(tmp_path_factory.mktemp("members"), EDGES, **options) as run:
        yield run
        check_one_writer(run, EDGES)


def changes(node: Application, limit_bps: int) -> bool:
    """Whether a node keeps a limit; it does not while etcd chooses a leader."""
    body = f'{{"send_limit_bps": {limit_bps}}}'.encode()
    status, _, answer = node.request("PATCH", VN, body)
    assert status in (200, 503), answer
    return status == 200


def test_a_member_that_is_stopped_costs_no_lease(run: ClusterRun) -> None:
    active = run.wait_controls()
    generation = run.health(active)["cluster"]["generation"]
    for member in run.etcd.members:
        member.send_signal(signal.SIGSTOP)
        run.wait(lambda: changes(run.nodes[active], 20_000_000), "a change is kept", 30.0)
        member.send_signal(signal.SIGCONT)
        member.wait_answers()
    assert run.health(active)["cluster"]["generation"] == generation, run.nodes[active].log()


def test_one_of_three_members_after_the_other_dies_and_the_pair_goes_on(run: ClusterRun) -> None:
    active = run.wait_controls()
    node, other = run.nodes[active], run.nodes[1 - active]
    generation = run.health(active)["cluster"]["generation"]
    for number, member in enumerate(run.etcd.members):  # the leader is one of them
        member.end(signal.SIGKILL)
        limit_bps = 20_000_000 + number * 1_000_000
        run.wait(lambda limit_bps=limit_bps: changes(node, limit_bps), "a change is kept", 30.0)
        run.wait(lambda limit_bps=limit_bps: other.get(VN)["send_limit_bps"] == limit_bps, "both know")
        member.launch()
        member.wait_answers()
    assert run.health(active)["cluster"]["generation"] == generation, node.log()
    for member in run.etcd.members[:2]:
        member.end(signal.SIGKILL)
    run.wait(lambda: run.health(active)["cluster"]["role"] == "no-etcd", "without most members nobody writes")
    for member in run.etcd.members[:2]:
        member.launch()
    run.wait(lambda: any(run.controls(number) for number in (0, 1)), "one is active again", 30.0)


def test_a_full_etcd_refuses_changes_and_the_active_node_goes_on(run: ClusterRun) -> None:
    """The last test on this etcd, whose active node is killed."""
    run.wait_ready()
    active, standby = run.in_charge, 1 - run.in_charge
    generation = run.health(active)["cluster"]["generation"]
    with closing(EtcdClient(run.etcd.urls)) as etcd:
        fill(etcd)
        status, _, answer = run.nodes[active].request("PATCH", VN, b'{"send_limit_bps": 20000000}')
        assert (status, "space exceeded" in answer["detail"]) == (503, True)
        time.sleep(2 * LEASE_S)  # in which a lease that is not refreshed would have ended
        assert run.health(active)["cluster"]["generation"] == generation, run.nodes[active].log()
        assert run.health(active)["cluster"]["role"] == "active"
        assert run.controls(active)
        run.nodes[active].send_signal(signal.SIGKILL)  # nobody can take over by a key that cannot be written
        run.nodes[active].wait_ended()
        run.wait(lambda: "space exceeded" in (run.health(standby)["cluster"]["etcd"] or ""), "the standby says why")
        etcd.transact([], [delete("/others/", prefix=True)], [])
    free(run.etcd.urls)
    run.wait_active(standby)
    assert changes(run.nodes[standby], 20_000_000)


def fill(etcd: EtcdClient) -> None:
    """Let somebody else write until there is no space."""
    with suppress(EtcdError):
        for number in range(100):
            etcd.transact([], [put(f"/others/{number}", bytes(200_000))], [])
        raise AssertionError("etcd has no end")


def free(urls: list[str]) -> None:
    """Do what an operator does by etcdctl, once something has been deleted."""

    def ask(url: str, method: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(f"{url}/v3/{method}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    revision = ask(urls[0], "kv/range", {"key": "AA=="})["header"]["revision"]
    ask(urls[0], "kv/compaction", {"revision": revision, "physical": True})
    for url in urls:
        ask(url, "maintenance/defragment", {})
    for alarm in ask(urls[0], "maintenance/alarm", {"action": "GET"})["alarms"]:
        ask(urls[0], "maintenance/alarm", {"action": "DEACTIVATE", **alarm})


def test_the_pair_speaks_tls_to_etcd_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    with ClusterRun(tmp_path, EDGES, members=2, tls=certificates(tmp_path / "pki")) as run:
        run.nodes[0].patch(VN, send_limit_bps=30_000_000)
        run.nodes[0].send_signal(signal.SIGKILL)
        run.nodes[0].wait_ended()
        run.wait_active(1)
        assert run.nodes[1].get(VN)["send_limit_bps"] == 30_000_000
        check_one_writer(run, EDGES)


def test_no_other_certificate_will_do(tmp_path: Path) -> None:
    tls, other = certificates(tmp_path / "pki"), certificates(tmp_path / "other")
    with EtcdProcesses(tmp_path, tls=tls) as etcd:
        shown = (
            (tls.ca, None, None),
            (tls.ca, other.client_certificate, other.client_key),
            (other.ca, tls.client_certificate, tls.client_key),
        )
        for files in shown:
            names = [None if file is None else str(file) for file in files]
            with closing(EtcdClient(etcd.urls, *names)) as client, pytest.raises(EtcdError):
                client.read(get("/"))
        with closing(EtcdClient([etcd.urls[0].replace("https", "http")])) as plain, pytest.raises(EtcdError):
            plain.read(get("/"))
        config = configuration(EDGES, cluster={"node": "n1", "etcd": etcd.urls, "ca": str(other.ca)})
        with Application(config, tmp_path) as node:
            assert node.wait_ended(60) == 2
        assert "certificate verify failed" in node.log()
        assert "Traceback" not in node.log()
