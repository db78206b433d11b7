"""Random flows on fabrics of any size, as arrays, for timing the max-min solvers. All links have 1 Gb/s."""

from __future__ import annotations

import numpy as np

from controller.allocation.interface import FloatArray, IntArray
from controller.allocation.max_min import FlowPaths

LINK_BPS = 1e9


def pairs(hosts: int, flows: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return a random sender and a random other receiver for each flow."""
    sender = rng.integers(0, hosts, flows)
    return sender, (sender + rng.integers(1, hosts, flows)) % hosts


def star(hosts: int, flows: int, rng: np.random.Generator) -> tuple[FlowPaths, FloatArray]:
    """Return flows between hosts at one switch, and the links' capacities: first the uplinks, then the downlinks."""
    sender, receiver = pairs(hosts, flows, rng)
    uses = np.column_stack([sender, hosts + receiver]).ravel()
    return FlowPaths(np.arange(0, 2 * flows + 1, 2), uses, 2 * hosts), np.full(2 * hosts, LINK_BPS)


def fat_tree(k: int, flows: int, rng: np.random.Generator) -> tuple[FlowPaths, FloatArray]:
    """Return flows over a fat tree of k-port switches (k^3 / 4 hosts), each on a random shortest path."""
    half = k // 2
    hosts = k * half * half
    sender, receiver = pairs(hosts, flows, rng)
    aggregation, core = rng.integers(0, half, (2, flows))
    edge_from, edge_to = sender // half, receiver // half
    pod_from, pod_to = edge_from // half, edge_to // half
    # Six kinds of link, each with as many links as hosts, in the order in which a path uses them.
    hops = np.column_stack(
        [
            sender,
            edge_from * half + aggregation,
            (pod_from * half + aggregation) * half + core,
            (pod_to * half + aggregation) * half + core,
            edge_to * half + aggregation,
            receiver,
        ]
    )
    hops += np.arange(6) * hosts
    taken = np.ones((flows, 6), dtype=np.bool_)
    taken[:, [1, 4]] = (edge_from != edge_to)[:, None]
    taken[:, [2, 3]] = (pod_from != pod_to)[:, None]
    offsets = np.concatenate([[0], np.cumsum(taken.sum(axis=1))])
    return FlowPaths(offsets, hops[taken], 6 * hosts), np.full(6 * hosts, LINK_BPS)
