"""Every request of the REST interface in one table, from its own description (OpenAPI)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.rest import Service, create_app
from controller.central.controller import CentralController
from controller.config.loader import parse_config

Json = Mapping[str, Any]

_METHODS = ("get", "post", "patch", "delete")
_ANYTHING = (
    "vlans: {1: {send_limit: 1M, receive_limit: 1M}}\nswitches: {s1: {dpid: 1, ports: {1: {capacity: 1M, access: 1}}}}"
)


def reference() -> str:
    """Return a table of all requests; their contents are in the OpenAPI document."""
    document = description()
    requests = [
        (path, method) for path in document["paths"] for method in _METHODS if method in document["paths"][path]
    ]
    rows = [
        f"| `{method.upper()} {path}` | {_one_line(document['paths'][path][method].get('summary', ''))} |"
        for path, method in sorted(requests, key=lambda request: (request[0], _METHODS.index(request[1])))
    ]
    return "\n".join(["| request | what it does |", "|---|---|", *rows])


def description() -> Json:
    """Return the OpenAPI document, which does not depend on the configuration."""
    central = CentralController(parse_config(_ANYTHING), lambda kind, text: None)
    app = create_app(Service(central, lambda: 0.0))
    answer: Json = app.test_client().get("/v1/openapi.json").get_json()
    return answer


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
