"""Requests to one node of a cluster that need other nodes.

A read is processed locally, and then merged with the other nodes' responses. ``unreachable_nodes`` lists nodes that did
not respond.

A change is forwarded to the active node, which checks and stores it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus

from flask import Response, request

from apps.cluster.rest.cluster_aggregation import COMPLETE, NodeResult, gather_results
from apps.cluster.rest.cluster_state import cluster_state
from apps.cluster.rest.node_client import FORWARDED_HEADER, Nodes
from apps.rest.http.problems import HttpRefusedError
from apps.rest.resources.service import Json, RemoteNodes, Service, service

_CHANGES = frozenset({"PATCH", "POST", "PUT", "DELETE"})
_OF_THIS_NODE = frozenset({"/v1/reload", "/v1/recording"})
_EXPLANATION = "/v1/pairs/<vlan_vid>/<sender_switch>/<sender_port_no>/<receiver_switch>/<receiver_port_no>/explanation"
_KEPT_HEADERS = frozenset({"content-type", "etag", "dry-run", "retry-after", "www-authenticate"})

log = logging.getLogger(__name__)


class RequestForwarder(RemoteNodes):
    """The other nodes, as this one knows them now: the result of ``nodes``."""

    def __init__(self, nodes: Callable[[], Nodes]) -> None:
        self._nodes = nodes

    def forwarded(self) -> Response | None:  # noqa: D102
        if FORWARDED_HEADER in request.headers or request.url_rule is None:
            return None
        nodes = self._nodes()
        if request.method in _CHANGES and request.path not in _OF_THIS_NODE:
            target_node = nodes.forward_changes_to
            return None if target_node is None else _ask(nodes, *target_node, changes=True)
        if request.url_rule.rule == _EXPLANATION:
            owner = nodes.owners.get(str((request.view_args or {})["sender_switch"]))
            if owner is not None and owner in nodes.urls:
                return _ask(nodes, owner, nodes.urls[owner], changes=False)
        return None

    def completed(self, response: Response) -> Response:  # noqa: D102
        rule = None if request.url_rule is None else request.url_rule.rule
        complete = COMPLETE.get(rule or "")
        if complete is None or request.method != "GET" or response.status_code != HTTPStatus.OK:
            return response
        nodes = self._nodes()
        if not nodes.urls or FORWARDED_HEADER in request.headers:
            return response
        own = NodeResult(nodes.me, json.loads(response.get_data()))
        others, partial = gather_results(nodes, _target(), _headers(), lambda: service().sleep(0.0))
        try:
            whole = complete(service(), nodes, [own, *others])
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a node of another version, or file
            log.warning("REST: responses of %s cannot be merged: %r", ", ".join(nodes.urls), error)
            whole, partial = own.body, sorted(nodes.urls)
        response.set_data(json.dumps(whole | ({"unreachable_nodes": partial} if partial else {})))
        return response

    def forwarded_headers(self) -> dict[str, str] | None:  # noqa: D102
        return None if FORWARDED_HEADER in request.headers else _headers()

    def whole(self, service: Service, local: Json, target: str, headers: Mapping[str, str]) -> Json:  # noqa: D102
        nodes = self._nodes()
        return cluster_state(nodes, local, target, headers, lambda: service.sleep(0.0)) if nodes.urls else local


def _target() -> str:
    return str(request.environ["REQUEST_URI"])


def _headers() -> dict[str, str]:
    """Return the headers of a forwarded request, which identify the client."""
    return {**dict(request.headers), "X-Forwarded-For": request.remote_addr or ""}


def _ask(nodes: Nodes, name: str, url: str, *, changes: bool) -> Response | None:
    """Return a node's response to this request; None if it refused the connection of a change."""
    body = request.get_data() if changes else None
    try:
        answer = nodes.hop.ask(url, request.method, _target(), _headers(), body)
    except OSError as error:
        if changes and isinstance(error, ConnectionRefusedError):
            return None  # no node has received it: the local store names the active node
        doubt = ": the change may have been made, see /v1/history" if changes else ""
        detail = f"node {name} at {url} does not answer ({error}){doubt}"
        raise HttpRefusedError(HTTPStatus.GATEWAY_TIMEOUT, "no-answer", detail) from error
    headers = [(key, value) for key, value in answer.headers if key.lower() in _KEPT_HEADERS]
    return Response(answer.body, answer.status, headers)
