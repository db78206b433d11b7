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
    """Return the other nodes' responses to a GET, and the nodes that did not respond.

    ``yield_control`` lets others run between two responses: a long one takes some milliseconds to parse.
    """
    found, partial = list[NodeResult](), list[str]()
    for name, answer in nodes.hop.gather(nodes.urls, target, headers).items():
        yield_control()
        body = None
        if answer is not None and answer.status == HTTPStatus.OK:
            body = _read(answer.body)
        if body is None:
            partial.append(name)
        else:
            found.append(NodeResult(name, body))
    return found, partial


def _read(body: bytes) -> Json | None:
    """Return the contents of a response: JSON, or the last event of a stream."""
    text = body.rpartition(b"\ndata: ")[2] if body.startswith((b"event: ", b"id: ")) else body
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


# -- what answers make together


def missing_on_all_nodes(nodes: Nodes, answers: Mapping[str, Json]) -> list[str]:
    """Return the switches that all nodes report as disconnected; an unreachable node may have them."""
    nowhere = set.intersection(*(set(answer["disconnected_switches"]) for answer in answers.values()))
    silent = nodes.urls.keys() - answers.keys()
    return sorted(name for name in nowhere if nodes.owners.get(name) not in silent)


def sum_known(values: Iterable[Any]) -> Any:
    """Return the sum of the known values, None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _of_owner(nodes: Nodes, switch: str, found: Mapping[str, Json], local: Json) -> Json:
    """Return the data of a switch's owner, or this node's if the owner is unknown."""
    return found.get(nodes.owners.get(switch) or nodes.me, local)


def _vn(nodes: Nodes, found: Mapping[str, Json]) -> Json:
    """Return a VN merged from all nodes; some nodes may have omitted it."""
    own = next(iter(found.values()))
    whole = dict(_of_owner(nodes, own["switch"], found, own))
    for name in (*_RECEIVED, _NOTIFICATIONS):
        whole[name] = sum_known(body[name] for body in found.values())
    return whole


def _get_revision(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Return the progress of a change at all switches: it is confirmed once it is on each node's."""
    bodies = {part.node: part.body for part in parts}
    return parts[0].body | {
        "installed_revision": min(body["installed_revision"] for body in bodies.values()),
        "unconfirmed_switches": sorted({name for body in bodies.values() for name in body["unconfirmed_switches"]}),
        "disconnected_switches": missing_on_all_nodes(nodes, bodies),
    }


def _get_vn(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    return _vn(nodes, {part.node: part.body for part in parts})


def _get_port(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    own = parts[0].body
    return _of_owner(nodes, own["switch"], {part.node: part.body for part in parts}, own)


def _by_key(parts: list[NodeResult], name: str, key: Callable[[Json], Any]) -> dict[Any, dict[str, Json]]:
    """Return the items of all responses by key and node."""
    found: dict[Any, dict[str, Json]] = {}
    for part in parts:
        for item in part.body[name]:
            found.setdefault(key(item), {})[part.node] = item
    return found


def _list_vns(service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Merge the nodes' pages of VNs into one page in the order of the VN table."""
    found = _by_key(parts, "vns", lambda row: VnName(row["vlan_vid"], row["switch"], row["port_no"]))
    vns = {name: _vn(nodes, views) for name, views in found.items()}
    if "violated" in request.args:  # each node lists its own VNs: the others' values stay open
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
    """Return a host as seen by the node that has it behind a local switch; of several, where it moved last."""

    def last(node: str) -> tuple[bool, str]:
        return nodes.owners.get(views[node]["switch"]) == node, views[node]["since"] or ""

    return views[max(views, key=last)]


def _hosts(nodes: Nodes, parts: list[NodeResult]) -> list[Json]:
    found = _by_key(parts, "hosts", lambda host: (host["vlan_vid"], host["mac"]))
    return [_host(nodes, found[key]) for key in sorted(found)]


def _list_hosts(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    shown, cursor = _page(parts, _hosts(nodes, parts), lambda host: (host["vlan_vid"], host["mac"]))
    return parts[0].body | {"hosts": shown, "next": cursor}


def _get_host(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    return {"hosts": _hosts(nodes, parts)}


def _page(
    parts: list[NodeResult], items: list[Any], key: Callable[[Any], Iterable[Any]]
) -> tuple[list[Any], str | None]:
    """Return the first items, up to the length of a page, and the cursor after them, None if these are the last."""
    limit = request.args.get("limit", default=MAX_PAGE, type=int)
    shown = items[:limit]
    more = len(items) > limit or any(part.body["next"] is not None for part in parts)
    return shown, make_cursor(*key(shown[-1])) if more and shown else None


def _owned(name: str) -> Callable[[Service, Nodes, list[NodeResult]], Json]:
    """Return a function that merges a list about switches, which differs between nodes by their state only."""

    def complete(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
        keys = ("switch", "port_no")
        found = _by_key(parts, name, lambda row: tuple(row.get(key) for key in keys))
        own = [found[tuple(row.get(key) for key in keys)] for row in parts[0].body[name]]
        views = [_of_owner(nodes, rows[nodes.me]["switch"], rows, rows[nodes.me]) for rows in own]
        return parts[0].body | {name: views}

    return complete


def _list_links(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Merge the nodes' links: the load of a direction is that of the node that owns its sending switch."""
    found = _by_key(parts, "links", lambda row: tuple((row[end]["dpid"], row[end]["port_no"]) for end in "ab"))
    views = []
    for link in found.values():
        if nodes.me not in link:
            continue
        own = link[nodes.me]
        whole = dict(own)
        for way, start in (("a_to_b", "a"), ("b_to_a", "b")):
            reported = [_of_owner(nodes, own[start]["switch"], link, own), *link.values()]
            loads = [view[way]["load_bps"] for view in reported if view[way]["load_bps"] is not None]
            whole[way] = own[way] | {"load_bps": loads[0] if loads else None}
        views.append(whole)
    return parts[0].body | {"links": views}


def _explanations(_here: Service, _nodes: Nodes, parts: list[NodeResult]) -> Json:
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
