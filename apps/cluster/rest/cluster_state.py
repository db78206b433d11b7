"""The live state of the whole fabric in sharded mode, merged from all nodes' states.

Each node's state has the rates of its own switches: a send rate is known to one node, receive rates add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from apps.cluster.rest.cluster_aggregation import gather_results, missing_on_all_nodes, sum_known
from apps.cluster.rest.node_client import Nodes
from apps.rest.resources.service import Json

_PAIRS = 250  # in a merged state at most, as in a node's (``column_state.MAX_PAIRS``)


def cluster_state(
    nodes: Nodes, local: Json, target: str, headers: Mapping[str, str], yield_control: Callable[[], None]
) -> Json:
    """Return the merged state of this node and of the others, which are requested with ``target``.

    ``unreachable_nodes`` lists the nodes whose data is missing.
    """
    others, partial = gather_results(nodes, target, headers, yield_control)
    try:
        states = {nodes.me: local} | {part.node: part.body for part in others}
        whole = merge_states(list(states.values())) | {"disconnected_switches": missing_on_all_nodes(nodes, states)}
    except (KeyError, TypeError, ValueError, IndexError):  # a node of another version, or file
        whole, partial = local, sorted(nodes.urls)
    if not partial:
        return whole
    return whole | {"unreachable_nodes": partial, "status": "degraded"}


def merge_states(states: list[Json]) -> Json:
    """Return the merged state of the nodes' states (``column_state.state_of``), the first of which is this node's.

    The states have the same rows. Numbers that nodes know in part are added; of values that one node knows, the first
    known one counts. A state with links is that of the fabric: ``congested`` and ``violated`` are counts by VLAN.
    Otherwise it is that of a VLAN or a switch, and they are lists of rows.
    """
    own = dict(states[0])
    own["rows"], own["violated_vns"] = (_added([state[name] for state in states]) for name in ("rows", "violated_vns"))
    own["status"] = "ready" if all(state["status"] == "ready" for state in states) else "degraded"
    own["unconfirmed_switches"] = sorted({switch for state in states for switch in state["unconfirmed_switches"]})
    if "links" in own:
        own["congested"], own["violated"] = (
            _added([state[name] for state in states]) for name in ("congested", "violated")
        )
        own["ports"] = [_first(column) for column in zip(*(state["ports"] for state in states), strict=True)]
        links = zip(*(state["links"] for state in states), strict=True)
        # Of each link: whether it is up, as this node sees it, and the loads of both directions.
        own["links"] = [[link[0][0], *_first([state[1:] for state in link])] for link in links]
        return own
    for name in ("congested", "violated"):
        own[name] = sorted({row for state in states for row in state[name]})
    own["bottlenecks"] = _first([state["bottlenecks"] for state in states])
    if "pairs" in own:
        own["pairs"] = [pair for state in states for pair in state["pairs"]][:_PAIRS]
    return own


def _added(columns: list[Any]) -> Any:
    """Return the sum of lists of numbers, at any nesting; None where no value is known."""
    if isinstance(columns[0], list):
        return [_added(list(each)) for each in zip(*columns, strict=True)]
    return sum_known(columns)


def _first(columns: Any) -> list[Any]:
    """Return the first known value at each position."""
    return [next((value for value in each if value is not None), None) for each in zip(*columns, strict=True)]
