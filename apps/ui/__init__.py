"""The web UI: static files from a fixed table, which decide nothing and use ``/v1`` like every other client.

``api.js`` sends requests to the controller, ``live_state.js`` follows it, and ``views`` show the data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flask import Response, request

from apps.rest.resources.service import ANY
from apps.rest.schema.request_parameters import NoQuery

FOLDER = Path(__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
RESPONSE = {"description": "HTML", "content": {"text/html": {"schema": {"type": "string"}}}}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_NAMES = (
    "style.css",
    "icon.svg",
    *(
        f"{name}.js"
        for name in ("app", "api", "chart", "dom", "format", "limits", "map", "stream", "table", "live_state")
    ),
    *(f"views/{name}.js" for name in ("fabric", "fabric_tables", "vlan", "vn", "guarantees", "changes", "events")),
    "vendor/uPlot-1.6.32/uPlot.iife.min.js",
    "vendor/uPlot-1.6.32/uPlot.min.css",
)


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the web UI; ``kind`` is its content type."""

    content: bytes
    kind: str
    etag: str


def paths() -> list[str]:
    """Return the paths of the page and of its files."""
    return ["/ui", *(f"/ui/{name}" for name in _NAMES)]


def show_page() -> Response:
    """Return a response with the file at the request's path, or with status 304 if the client has the same file."""
    file = _files()[request.path]
    response = Response(file.content, content_type=file.kind, mimetype=None)
    response.headers["Cache-Control"] = "no-cache"
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    response.set_etag(file.etag)
    return response.make_conditional(request.environ)  # type: ignore[return-value]


@cache
def _files() -> dict[str, _File]:
    """Return the files by URL path; ``/ui`` itself is index.html."""
    return {path: _read(FOLDER / (path.removeprefix("/ui").strip("/") or "index.html")) for path in paths()}


def _read(path: Path) -> _File:
    """Read a file; its ETag is derived from the content."""
    content = path.read_bytes()
    return _File(content, _TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:32])


def show_ui(query: NoQuery) -> Response:
    """Show the web UI; it is static, and gets all its data from /v1."""
    return show_page()


def add_to(app: Any) -> None:
    """Add the routes of the web UI to an application; the files are read now, and never again."""
    _files()
    app.get("/ui", summary="Return the web UI, a page for browsers.", responses={200: RESPONSE, **ANY})(show_ui)
    for path in paths()[1:]:
        app.add_url_rule(path, f"ui:{path}", show_page, methods=["GET"])
