"""The description of the interface as a page for people, without scripts or external resources."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from flask import Response

Json = dict[str, Any]
RESPONSE = {"description": "HTML", "content": {"text/html": {"schema": {"type": "string"}}}}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a }
code, pre { font: 13px/1.4 ui-monospace, monospace } pre { background: #f4f4f4; padding: .6rem; overflow-x: auto }
table { border-collapse: collapse; margin: .4rem 0 } td, th { text-align: left; padding: .15rem .8rem .15rem 0 }
td, th { vertical-align: top } details { margin: .3rem 0; border-top: 1px solid #ddd; padding-top: .3rem }
summary { cursor: pointer } b.method { display: inline-block; width: 5rem }
"""


def response(document: Json) -> Response:
    """Return the page for an OpenAPI document."""
    answer = Response(_page(document), mimetype="text/html")
    answer.headers["Content-Security-Policy"] = _POLICY
    return answer


def _page(document: Json) -> str:
    """Return the HTML page of an OpenAPI document."""
    info = document["info"]
    operations = [
        _operation(path, method, operation)
        for path, item in sorted(document["paths"].items())
        for method, operation in item.items()
    ]
    schemas = [
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code> {escape(schema.get("description", ""))}'
        f"</summary>{_properties(schema)}</details>"
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f"<style>{_STYLE}</style><h1>{escape(info['title'])}, REST {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])} As a file: <a href='v1/openapi.json'>/v1/openapi.json</a>.</p>"
        f"<h2>Requests</h2>{''.join(operations)}<h2>Bodies and answers</h2>{''.join(schemas)}</html>"
    )


def _operation(path: str, method: str, operation: Json) -> str:
    """Return the HTML of one operation: parameters, bodies and responses."""
    rows = "".join(
        f"<tr><td><code>{escape(given['name'])}</code><td>{escape(given['in'])}<td>{_type(given.get('schema', {}))}"
        f"<td>{escape(given.get('description') or given.get('schema', {}).get('description', ''))}"
        for given in operation.get("parameters", ())
    )
    body = operation.get("requestBody", {}).get("content", {})
    bodies = "".join(f"<p>Body, {escape(kind)}: {_type(media.get('schema', {}))}</p>" for kind, media in body.items())
    answers = "".join(
        f"<tr><td><b>{escape(status)}</b><td>{escape(answer.get('description', ''))}<td>"
        + ", ".join(_type(media.get("schema", {})) for media in answer.get("content", {}).values())
        for status, answer in sorted(operation["responses"].items())
    )
    text = operation.get("description") or operation.get("summary", "")
    return (
        f'<details><summary><b class="method">{method.upper()}</b><code>{escape(path)}</code> '
        f"{escape(operation.get('summary', ''))}</summary><p>{escape(text)}</p>"
        f"<table>{rows}</table>{bodies}<table>{answers}</table></details>"
    )


def _properties(schema: Json) -> str:
    """Return the HTML table of an object's properties; the schema itself if it has none."""
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code>{'' if name in required else ' (optional)'}<td>{_type(property_schema)}"
        f"<td>{escape(property_schema.get('description', ''))}"
        for name, property_schema in schema.get("properties", {}).items()
    )
    return f"<table>{rows}</table>" if rows else f"<pre>{escape(json.dumps(schema, indent=1))}</pre>"


def _type(schema: Json) -> str:
    """Return the HTML of a schema's type, with its bounds or a link to it."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(json.dumps(choice))}</code>" for choice in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    low, high = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    bounds = f" {low} to {high}" if low is not None and high is not None else ""
    return escape(f"{schema.get('type', 'anything')}{bounds}")
