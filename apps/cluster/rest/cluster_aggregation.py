"""Merged responses for the whole fabric in sharded mode, from all nodes' responses.

Each node has data of its own switches, and of their traffic to VNs of others. Lists have the same cursors on all nodes,
so that pages of different nodes match.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from flask import request

from apps.cluster.rest.node_client import AskedHeaders, Nodes
from apps.rest.resources.pagination import make_cursor
from apps.rest.resources.service import Json, Service
from apps.rest.schema.value_types import MAX_PAGE
from controller.limits.overrides import VnName

_RECEIVED = ("measured_receive_bps", "offered_receive_bps", "dropped_receive_bps", "granted_bps")
"""columns of a VN for which each node has only the values of its own senders"""
_NOTIFICATIONS = "notifications"
"""column of a VN that the deciding node has counted: the VN's node, or the allocator of a network-wide policy"""


class NodeResult(NamedTuple):
    """The response of one node."""

    node: str
    body: Json


def gather_results(
    nodes: Nodes, target: str, headers: AskedHeaders, yield_control: Callable[[], None]
) -> tuple[list[NodeResult], list[str]]:
    """Return the other nodes' responses to a GET of ``target``, and the names of the nodes that did not respond.

    ``yield_control`` lets other greenlets run between two responses: parsing a long one takes some milliseconds.
    """
    results, unreachable = list[NodeResult](), list[str]()
    for name, response in nodes.hop.gather(nodes.urls, target, headers).items():
        yield_control()
        body = None
        if response is not None and response.status == HTTPStatus.OK:
            body = _read(response.body)
        if body is None:
            unreachable.append(name)
        else:
            results.append(NodeResult(name, body))
    return results, unreachable


def _read(body: bytes) -> Json | None:
    """Return the contents of a response: JSON, or the last event of a stream."""
    text = body.rpartition(b"\ndata: ")[2] if body.startswith((b"event: ", b"id: ")) else body
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


# -- merging responses. Each function for COMPLETE gets the responses of all nodes, this node's first.


def missing_on_all_nodes(nodes: Nodes, bodies: Mapping[str, Json]) -> list[str]:
    """Return the names of switches that all responding nodes report as disconnected; ``bodies`` are by node.

    Switches of an unreachable owner are left out: that node may be connected to them.
    """
    disconnected = set.intersection(*(set(body["disconnected_switches"]) for body in bodies.values()))
    unreachable = nodes.urls.keys() - bodies.keys()
    return sorted(name for name in disconnected if nodes.owners.get(name) not in unreachable)


def sum_known(values: Iterable[Any]) -> Any:
    """Return the sum of the known values, None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _owner_view(nodes: Nodes, switch: str, views: Mapping[str, Json], local: Json) -> Json:
    """Return the view of the switch's owner from ``views`` (by node), of this node if the switch is unowned.

    If that view is missing, return ``local``.
    """
    return views.get(nodes.owners.get(switch) or nodes.me, local)


def _vn(nodes: Nodes, views: Mapping[str, Json]) -> Json:
    """Return a VN merged from the views of nodes (by name); some nodes may have omitted the VN.

    Rates that each node has for its own senders are added; all else is the owner's.
    """
    first = next(iter(views.values()))
    merged = dict(_owner_view(nodes, first["switch"], views, first))
    for name in (*_RECEIVED, _NOTIFICATIONS):
        merged[name] = sum_known(view[name] for view in views.values())
    return merged


def _get_revision(_service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Return the progress of a change: it is confirmed once the switches of every node have confirmed it."""
    bodies = {part.node: part.body for part in parts}
    return parts[0].body | {
        "installed_revision": min(body["installed_revision"] for body in bodies.values()),
        "unconfirmed_switches": sorted({name for body in bodies.values() for name in body["unconfirmed_switches"]}),
        "disconnected_switches": missing_on_all_nodes(nodes, bodies),
    }


def _get_vn(_service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    return _vn(nodes, {part.node: part.body for part in parts})


def _get_port(_service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    own = parts[0].body
    return _owner_view(nodes, own["switch"], {part.node: part.body for part in parts}, own)


def _by_key(parts: list[NodeResult], name: str, key: Callable[[Json], Any]) -> dict[Any, dict[str, Json]]:
    """Return the items of the list ``name`` in all responses, by the item's key and by node."""
    views: dict[Any, dict[str, Json]] = {}
    for part in parts:
        for item in part.body[name]:
            views.setdefault(key(item), {})[part.node] = item
    return views


def _list_vns(service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Merge the nodes' pages of VNs into one page in the order of the VN table."""
    views_by_vn = _by_key(parts, "vns", lambda row: VnName(row["vlan_vid"], row["switch"], row["port_no"]))
    vns = {name: _vn(nodes, views) for name, views in views_by_vn.items()}
    if "violated" in request.args:  # each node lists its own VNs only, so that the sums are incomplete
        vns = {name: vn | dict.fromkeys(_RECEIVED) for name, vn in vns.items()}
    rows = service.settings.file.row_of
    names = sorted(vns, key=rows.__getitem__)
    shown, cursor = _page(parts, names, lambda name: name)
    return parts[0].body | {"vns": [vns[name] for name in shown], "next": cursor}


def _list_entries(service: Service, _nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Merge the nodes' pages of pairs into one page in the order of the VN table."""
    rows = service.settings.file.row_of

    def key(pair: Json) -> tuple[int, ...]:
        """Return the sort key of a pair: the rows of its receiver and its sender."""
        ends = (VnName(pair["vlan_vid"], pair[end]["switch"], pair[end]["port_no"]) for end in ("receiver", "sender"))
        return tuple(rows[end] for end in ends)

    entries = sorted((pair for part in parts for pair in part.body["pairs"]), key=key)
    shown, cursor = _page(
        parts,
        entries,
        lambda pair: (
            pair["vlan_vid"],
            *(pair[end][name] for end in ("sender", "receiver") for name in ("switch", "port_no")),
        ),
    )
    unmetered = [unmetered_pair for part in parts for unmetered_pair in part.body["unmetered_pairs"]]
    return parts[0].body | {"pairs": shown, "unmetered_pairs": unmetered, "next": cursor}


def _host(nodes: Nodes, views: Mapping[str, Json]) -> Json:
    """Return the best of the nodes' views of a host: of the node that owns its switch, then the latest one."""

    def rank(node: str) -> tuple[bool, str]:
        is_owner = nodes.owners.get(views[node]["switch"]) == node
        return is_owner, views[node]["since"] or ""

    return views[max(views, key=rank)]


def _hosts(nodes: Nodes, parts: list[NodeResult]) -> list[Json]:
    """Return the hosts of all nodes, ordered by VLAN and MAC address."""
    views_by_host = _by_key(parts, "hosts", lambda host: (host["vlan_vid"], host["mac"]))
    return [_host(nodes, views_by_host[key]) for key in sorted(views_by_host)]


def _list_hosts(_service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    shown, cursor = _page(parts, _hosts(nodes, parts), lambda host: (host["vlan_vid"], host["mac"]))
    return parts[0].body | {"hosts": shown, "next": cursor}


def _get_host(_service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    return {"hosts": _hosts(nodes, parts)}


def _page(
    parts: list[NodeResult], items: list[Any], key: Callable[[Any], Iterable[Any]]
) -> tuple[list[Any], str | None]:
    """Return the first items, up to the length of a page, and the cursor after them; None if no more follow.

    ``key`` returns the parts of an item's cursor.
    """
    limit = request.args.get("limit", default=MAX_PAGE, type=int)
    page = items[:limit]
    has_more = len(items) > limit or any(part.body["next"] is not None for part in parts)
    return page, make_cursor(*key(page[-1])) if has_more and page else None


def _owned(name: str) -> Callable[[Service, Nodes, list[NodeResult]], Json]:
    """Return a function that merges the list ``name`` of switches or ports: each item as its owner reports it."""

    def item_key(item: Json) -> tuple[Any, ...]:
        return item.get("switch"), item.get("port_no")

    def complete(_service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
        local_items = parts[0].body[name]
        views = _by_key(parts, name, item_key)
        merged = [_owner_view(nodes, item["switch"], views[item_key(item)], item) for item in local_items]
        return parts[0].body | {name: merged}

    return complete


def _list_links(_service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Merge the nodes' links.

    The load of a direction is what the owner of its sending switch reports, or else any other node.
    """
    views_by_link = _by_key(parts, "links", lambda row: tuple((row[end]["dpid"], row[end]["port_no"]) for end in "ab"))
    links = []
    for views in views_by_link.values():
        if nodes.me not in views:
            continue
        local = views[nodes.me]
        merged = dict(local)
        for direction, start in (("a_to_b", "a"), ("b_to_a", "b")):
            by_preference = [_owner_view(nodes, local[start]["switch"], views, local), *views.values()]
            loads_bps = [view[direction]["load_bps"] for view in by_preference]
            known_bps = [load_bps for load_bps in loads_bps if load_bps is not None]
            merged[direction] = local[direction] | {"load_bps": known_bps[0] if known_bps else None}
        links.append(merged)
    return parts[0].body | {"links": links}


def _explanations(_service: Service, _nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Merge the explanations of a VN's pairs: at most 100, and the number of all pairs."""
    explained = [explanation for part in parts for explanation in part.body["explanations"]]
    return {"explanations": explained[:100], "pair_count": sum(part.body["pair_count"] for part in parts)}


COMPLETE: dict[str, Callable[[Service, Nodes, list[NodeResult]], Json]] = {
    "/v1/revision": _get_revision,
    "/v1/vns": _list_vns,
    "/v1/vns/<vlan_vid>/<switch>/<port_no>": _get_vn,
    "/v1/vns/<vlan_vid>/<switch>/<port_no>/explanations": _explanations,
    "/v1/hosts": _list_hosts,
    "/v1/hosts/<mac>": _get_host,
    "/v1/ports": _owned("ports"),
    "/v1/ports/<switch>/<port_no>": _get_port,
    "/v1/switches": _owned("switches"),
    "/v1/links": _list_links,
    "/v1/pairs": _list_entries,
}
