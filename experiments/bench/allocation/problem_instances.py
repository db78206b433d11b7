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
    half_k = k // 2
    hosts = k * half_k * half_k
    sender, receiver = pairs(hosts, flows, rng)
    aggregation, core = rng.integers(0, half_k, (2, flows))
    edge_from, edge_to = sender // half_k, receiver // half_k
    pod_from, pod_to = edge_from // half_k, edge_to // half_k
    # Six layers of links, each with as many links as hosts, in the order of a path. A path within a switch, or within a
    # pod, leaves out the layers above.
    hops = np.column_stack(
        [
            sender,
            edge_from * half_k + aggregation,
            (pod_from * half_k + aggregation) * half_k + core,
            (pod_to * half_k + aggregation) * half_k + core,
            edge_to * half_k + aggregation,
            receiver,
        ]
    )
    hops += np.arange(6) * hosts
    is_used = np.ones((flows, 6), dtype=np.bool_)
    is_used[:, [1, 4]] = (edge_from != edge_to)[:, None]
    is_used[:, [2, 3]] = (pod_from != pod_to)[:, None]
    offsets = np.concatenate([[0], np.cumsum(is_used.sum(axis=1))])
    return FlowPaths(offsets, hops[is_used], 6 * hosts), np.full(6 * hosts, LINK_BPS)
