"""Answers for the whole fabric where its switches are shared out over nodes: what all nodes' answers make.

Each node knows its own switches, and what these send to VNs of others. Lists have the same cursors on all nodes, so
that a page of one goes with the same page of the others.
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
"""of a VN, what each node knows of its own senders only"""
_NOTIFICATIONS = "notifications"
"""of a VN, what whoever decided for it has counted: its node, or one that decides for the whole network"""


class NodeResult(NamedTuple):
    """What one node answered."""

    node: str
    body: Json


def gather_results(
    nodes: Nodes, target: str, headers: AskedHeaders, yield_control: Callable[[], None]
) -> tuple[list[NodeResult], list[str]]:
    """Return what the other nodes answer to a GET, and which of them do not.

    ``yield_control`` lets others run between two answers: a long one takes some milliseconds to read.
    """
    found, partial = list[NodeResult](), list[str]()
    for name, answer in nodes.hop.gather(nodes.urls, target, headers).items():
        yield_control()
        said = None
        if answer is not None and answer.status == HTTPStatus.OK:
            said = _read(answer.body)
        if said is None:
            partial.append(name)
        else:
            found.append(NodeResult(name, said))
    return found, partial


def _read(body: bytes) -> Json | None:
    """Return what an answer says: JSON, or the last event of a stream."""
    text = body.rpartition(b"\ndata: ")[2] if body.startswith((b"event: ", b"id: ")) else body
    try:
        said = json.loads(text)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


# -- what answers make together


def missing_on_all_nodes(nodes: Nodes, answers: Mapping[str, Json]) -> list[str]:
    """Return the switches that all nodes say are missing; those of a node that is silent may be there."""
    nowhere = set.intersection(*(set(one["disconnected_switches"]) for one in answers.values()))
    silent = nodes.urls.keys() - answers.keys()
    return sorted(name for name in nowhere if nodes.owners.get(name) not in silent)


def sum_known(values: Iterable[Any]) -> Any:
    """Return the sum of what is known, None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _of_owner(nodes: Nodes, switch: str, found: Mapping[str, Json], local: Json) -> Json:
    """Return what the owner of a switch says, or this node where that is not known."""
    return found.get(nodes.owners.get(switch) or nodes.me, local)


def _vn(nodes: Nodes, found: Mapping[str, Json]) -> Json:
    """Return a VN as all together know it; some nodes may have left it out."""
    own = next(iter(found.values()))
    whole = dict(_of_owner(nodes, own["switch"], found, own))
    for name in (*_RECEIVED, _NOTIFICATIONS):
        whole[name] = sum_known(one[name] for one in found.values())
    return whole


def _get_revision(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    """Return how far all switches are: a change is in force once it is so on each node's."""
    said = {part.node: part.body for part in parts}
    return parts[0].body | {
        "installed_revision": min(one["installed_revision"] for one in said.values()),
        "unconfirmed_switches": sorted({name for one in said.values() for name in one["unconfirmed_switches"]}),
        "disconnected_switches": missing_on_all_nodes(nodes, said),
    }


def _get_vn(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    return _vn(nodes, {part.node: part.body for part in parts})


def _get_port(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    own = parts[0].body
    return _of_owner(nodes, own["switch"], {part.node: part.body for part in parts}, own)


def _by_key(parts: list[NodeResult], name: str, key: Callable[[Json], Any]) -> dict[Any, dict[str, Json]]:
    """Return the items of all parts by key and node."""
    found: dict[Any, dict[str, Json]] = {}
    for part in parts:
        for item in part.body[name]:
            found.setdefault(key(item), {})[part.node] = item
    return found


def _list_vns(service: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    found = _by_key(parts, "vns", lambda one: VnName(one["vlan_vid"], one["switch"], one["port_no"]))
    vns = {name: _vn(nodes, views) for name, views in found.items()}
    if "violated" in request.args:  # each node lists its own ones: what it does not know stays open
        vns = {name: one | dict.fromkeys(_RECEIVED) for name, one in vns.items()}
    rows = service.settings.file.row_of
    names = sorted(vns, key=rows.__getitem__)
    shown, cursor = _page(parts, names, lambda name: name)
    return parts[0].body | {"vns": [vns[name] for name in shown], "next": cursor}


def _list_entries(service: Service, _nodes: Nodes, parts: list[NodeResult]) -> Json:
    rows = service.settings.file.row_of

    def key(one: Json) -> tuple[int, ...]:
        ends = (VnName(one["vlan_vid"], one[end]["switch"], one[end]["port_no"]) for end in ("receiver", "sender"))
        return tuple(rows[end] for end in ends)

    entries = sorted((one for part in parts for one in part.body["pairs"]), key=key)
    shown, cursor = _page(
        parts,
        entries,
        lambda one: (
            one["vlan_vid"],
            *(one[end][name] for end in ("sender", "receiver") for name in ("switch", "port_no")),
        ),
    )
    unmetered = [one for part in parts for one in part.body["unmetered_pairs"]]
    return parts[0].body | {"pairs": shown, "unmetered_pairs": unmetered, "next": cursor}


def _host(nodes: Nodes, views: Mapping[str, Json]) -> Json:
    """Return a host as the node says that has it behind a switch of its own, the last one to which it came."""

    def last(node: str) -> tuple[bool, str]:
        return nodes.owners.get(views[node]["switch"]) == node, views[node]["since"] or ""

    return views[max(views, key=last)]


def _hosts(nodes: Nodes, parts: list[NodeResult]) -> list[Json]:
    found = _by_key(parts, "hosts", lambda one: (one["vlan_vid"], one["mac"]))
    return [_host(nodes, found[key]) for key in sorted(found)]


def _list_hosts(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    shown, cursor = _page(parts, _hosts(nodes, parts), lambda one: (one["vlan_vid"], one["mac"]))
    return parts[0].body | {"hosts": shown, "next": cursor}


def _get_host(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    return {"hosts": _hosts(nodes, parts)}


def _page(
    parts: list[NodeResult], items: list[Any], key: Callable[[Any], Iterable[Any]]
) -> tuple[list[Any], str | None]:
    """Return the first items, as many as a page may have, and the cursor behind them, None if these are the last."""
    limit = request.args.get("limit", default=MAX_PAGE, type=int)
    shown = items[:limit]
    more = len(items) > limit or any(part.body["next"] is not None for part in parts)
    return shown, make_cursor(*key(shown[-1])) if more and shown else None


def _owned(name: str) -> Callable[[Service, Nodes, list[NodeResult]], Json]:
    """Return what completes a list of things of switches, which is the same on all nodes but for their state."""

    def complete(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
        keys = ("switch", "port_no")
        found = _by_key(parts, name, lambda one: tuple(one.get(key) for key in keys))
        own = [found[tuple(one.get(key) for key in keys)] for one in parts[0].body[name]]
        views = [_of_owner(nodes, one[nodes.me]["switch"], one, one[nodes.me]) for one in own]
        return parts[0].body | {name: views}

    return complete


def _list_links(_here: Service, nodes: Nodes, parts: list[NodeResult]) -> Json:
    found = _by_key(parts, "links", lambda one: tuple((one[end]["dpid"], one[end]["port_no"]) for end in "ab"))
    views = []
    for one in found.values():
        if nodes.me not in one:
            continue
        own = one[nodes.me]
        whole = dict(own)
        for way, start in (("a_to_b", "a"), ("b_to_a", "b")):
            said = [_of_owner(nodes, own[start]["switch"], one, own), *one.values()]
            loads = [view[way]["load_bps"] for view in said if view[way]["load_bps"] is not None]
            whole[way] = own[way] | {"load_bps": loads[0] if loads else None}
        views.append(whole)
    return parts[0].body | {"links": views}


def _explanations(_here: Service, _nodes: Nodes, parts: list[NodeResult]) -> Json:
    explained = [one for part in parts for one in part.body["explanations"]]
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
