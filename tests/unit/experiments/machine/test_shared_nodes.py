"""When nodes that share switches are said to have all of them under control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.bench.cluster.testbed.loaded_cluster import shared_document
from experiments.machine.cluster_process import ShardedNodes

OWNERS = {"s1": "n1", "s2": "n2", "s3": "n3"}


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ShardedNodes, dict[int, dict[str, Any]]]:
    """Three nodes, none of which runs, and what they answer."""
    made = ShardedNodes(shared_document, tmp_path)
    healths = {number: health(number, OWNERS, "n1") for number in range(3)}
    for number, node in enumerate(made.nodes):
        monkeypatch.setattr(node, "health", lambda number=number: healths[number])
    return made, healths


def health(number: int, owners: dict[str, str], active: str) -> dict[str, Any]:
    """Return what a node says whose own switches are ready."""
    name = f"n{number + 1}"
    switches = {switch: "ready" if owner == name else "shared" for switch, owner in owners.items()}
    cluster = {"node": name, "active": active, "generation": 7 if active == name else None, "owners": owners}
    return {"switches": switches, "cluster": cluster}


def test_all_nodes_name_the_same_live_owners_whose_switches_are_ready(nodes: Any) -> None:
    made, healths = nodes
    assert made.check_recovered()
    assert made.in_charge == 0
    assert made.shared_by(range(3))
    assert not made.shared_by([0, 1])  # s3 is with n3
    healths[1]["switches"]["s2"] = "taking over"
    assert not made.check_recovered()
    healths[1]["switches"]["s2"] = "ready"
    assert made.check_recovered()
    healths[2]["cluster"]["owners"] = {**OWNERS, "s2": "n3"}
    assert not made.check_recovered()


def test_a_node_that_is_gone_has_to_be_replaced_as_owner_and_as_who_takes_changes(nodes: Any) -> None:
    made, healths = nodes
    healths[0] = {}
    assert not made.check_recovered()
    after = {"s1": "n2", "s2": "n2", "s3": "n3"}
    for number in (1, 2):
        healths[number] = health(number, after, "n1")
    assert made.shared_by([1, 2])
    assert not made.check_recovered()  # nobody takes changes yet
    for number in (1, 2):
        healths[number] = health(number, after, "n3")
    assert made.check_recovered()
    assert made.in_charge == 2
