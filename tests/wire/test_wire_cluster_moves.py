"""Switches that are moved between live nodes: drained nodes, wishes, and owners that are cut off from a switch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import NAMES, ShardedRun, dets, needs_etcd
from support.sharded_blast import EDGES, LINKS, InstalledMeters, blast, is_shared

pytestmark = [needs_etcd]
VN = "/v1/vns/10/s1/11"
LEASE_S = 10  # nobody dies here: a lease that ends while a busy machine keeps its node waiting moves switches by itself


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ShardedRun]:
    with ShardedRun(tmp_path, EDGES, links=LINKS, ttl_s=LEASE_S) as run:
        yield run


def change(run: ShardedRun, limit_bps: int) -> int:
    """Change a limit on the active node, whichever that is; return the revision."""
    revisions: list[int] = []

    def changed() -> bool:
        active = NAMES.index(
            run.health(next(n for n, node in enumerate(run.nodes) if node.running))["cluster"]["active"]
        )
        status, _, answer = run.nodes[active].request("PATCH", VN, json.dumps({"send_limit_bps": limit_bps}).encode())
        revisions.extend([answer["revision"]] if status == 200 else [])
        return status == 200

    run.wait(changed, "a change is kept")
    return revisions[0]


def test_three_nodes_are_upgraded_by_drain_restart_and_undrain(tmp_path: Path) -> None:
    with ShardedRun(tmp_path, EDGES, links=LINKS, nodes=3, ttl_s=LEASE_S) as run:
        blast(run)
        installed, before, kept = InstalledMeters(run), run.owners(0), dict[int, int]()
        assert set(before.values()) == set(NAMES)
        for number, node in enumerate(run.nodes):
            name, config = NAMES[number], str(run.nodes[number].config_path)
            assert dets("cluster", "drain", name, "--config", config) == (0, f"{name} is drained\n")
            # Each sets the limit's meter to another rate: the same one would look like a meter that is filled again.
            during_bps, after_bps = 300_000_000 + number * 1_000_000, 310_000_000 + number * 1_000_000
            kept[change(run, during_bps)] = during_bps
            assert node.stop() == 0
            kept[change(run, after_bps)] = after_bps
            node.start()
            run.wait(lambda number=number: run.health(number)["status"] == "ready", "it is back", 30.0)
            assert name not in run.owners(number).values()
            assert dets("cluster", "undrain", name, "--config", config)[0] == 0
        run.balance(before)
        run.wait(lambda: is_shared(run, range(3)), "the limit is shared still")
        installed.check()
        shown = run.nodes[0].get("/v1/history")["changes"]
        assert [one["revision"] for one in shown] == list(range(len(shown), 0, -1))
        for revision, limit_bps in kept.items():
            items = run.nodes[0].get(f"/v1/history/{revision}")["items"]
            assert [one["after"] for one in items] == [limit_bps]


def test_a_switch_goes_where_it_is_wanted_and_to_the_other_node_when_its_owner_cannot_reach_it(run: ShardedRun) -> None:
    blast(run)
    installed, config = InstalledMeters(run), str(run.nodes[0].config_path)
    assert dets("cluster", "move", "s3", "n2", "--config", config) == (0, "s3 is with n2\n")
    run.wait(lambda: run.owners(0) == run.owners(1) == {"s1": "n2", "s2": "n1", "s3": "n2"}, "both know")
    run.wait(lambda: is_shared(run), "the limit is shared still")
    assert [event for node in run.nodes for event in node.events("switch-error")] == []
    run.fabric.set_silent(2, True, controller=0)
    run.wait(lambda: set(run.owners(1).values()) == {"n2"}, "n2 has it")
    run.wait(lambda: run.health(1)["status"] == "ready", "n2 controls it")
    run.wait(lambda: is_shared(run, [1]), "the limit is shared still")
    installed.check()
    code, said = dets("cluster", "move", "s2", "n1", "--config", config)
    assert (code, "'n1' is not connected to s2; allowed: n2" in said) == (2, True), said
