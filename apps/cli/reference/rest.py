"""Every request of the REST interface and what it holds, from its own description (OpenAPI)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.rest import create_app
from controller.central.controller import CentralController
from controller.config.load import parse_config

Json = Mapping[str, Any]

_METHODS = ("get", "post", "patch", "delete")
_ANYTHING = (
    "vlans: {1: {send_limit: 1M, receive_limit: 1M}}\nswitches: {s1: {dpid: 1, ports: {1: {capacity: 1M, access: 1}}}}"
)


def reference() -> str:
    """Return a table of all requests, and one for each kind of object that they hold."""
    document = description()
    lines = ["### Requests", "", "| request | query | body | answer | what it does |", "|---|---|---|---|---|"]
    requests = [
        (path, method) for path in document["paths"] for method in _METHODS if method in document["paths"][path]
    ]
    for path, method in sorted(requests, key=lambda one: (one[0], _METHODS.index(one[1]))):
        lines.append(_request(path, method, document["paths"][path][method]))
    lines += ["", "### Objects", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        if "properties" in schema:
            lines += _object(name, schema)
    return "\n".join(lines)


def description() -> Json:
    """Return the OpenAPI document, which is the same whatever the configuration."""
    central = CentralController(parse_config(_ANYTHING), lambda kind, text: None)
    app = create_app(central, lambda: 0.0, dict, lambda: None, metrics=lambda: iter(()))
    answer: Json = app.test_client().get("/v1/openapi.json").get_json()
    return answer


def _request(path: str, method: str, operation: Json) -> str:
    query = [f"`{one['name']}`" for one in operation.get("parameters", ()) if one["in"] == "query"]
    answers = [_content(one) for status, one in operation["responses"].items() if status == "200"]
    summary = _one_line(operation.get("summary", ""))
    cells = (
        f"`{method.upper()} {path}`",
        ", ".join(query),
        _content(operation.get("requestBody", {})),
        *answers,
        summary,
    )
    return _row(cells)


def _content(holder: Json) -> str:
    """Return the kind of object that a body is, or its media type where it is none."""
    for media, content in holder.get("content", {}).items():
        reference = content.get("schema", {}).get("$ref", "")
        return _link(reference.rpartition("/")[2]) if reference else f"`{media}`"
    return ""


def _link(name: str) -> str:
    return "any JSON" if name == "JsonValue" else f"[{name}](#{name.lower()})"


def _object(name: str, schema: Json) -> list[str]:
    lines = [
        f"#### {name}",
        "",
        _one_line(schema.get("description", "")),
        "",
        "| member | type | meaning |",
        "|---|---|---|",
    ]
    required = schema.get("required", ())
    for member, field in schema["properties"].items():
        optional = "" if member in required else ", may be left out"
        lines.append(_row((f"`{member}`", _kind(field) + optional, _one_line(field.get("description", "")))))
    return [*lines, ""]


def _kind(field: Json) -> str:
    if "$ref" in field:
        return _link(field["$ref"].rpartition("/")[2])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in field:
            return " or ".join(dict.fromkeys(_kind(one) for one in field[several]))
    if "enum" in field:
        return ", ".join("null" if one is None else f"`{one}`" for one in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    kind = field.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(field.get('items', {}))}"
    bounds = [f"{word} {field[key]:.13g}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in field]
    return " ".join([str(kind), *bounds])


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
