"""Errors for clients: ``application/problem+json`` (RFC 9457) with field, value and limit."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus

from flask import Flask, Response, current_app, request
from flask import json as flask_json
from pydantic import BaseModel, Field, JsonValue, ValidationError
from werkzeug.exceptions import HTTPException

from apps.settings.errors import StoreError
from controller.errors import InvalidValueError, near_name, nearest

MIME_TYPE = "application/problem+json"
_SHOWN_LENGTH = 100
_SHOWN_ERRORS = 20
_SHOWN_NAMES = 20
_MAX_KINDS = 3
_TYPE = "urn:dets:problem:"
_ENCODER = json.JSONEncoder(default=str)

log = logging.getLogger(__name__)


class FieldProblem(BaseModel):
    """One invalid value."""

    field: str = Field(description="the name of the body's field, the query's parameter or the path's part")
    value: JsonValue = Field(description="what was given; long values are cut short, NaN and infinities are text")
    reason: str = Field(description="what is wrong with it, with the limit that it breaks")


class Problem(BaseModel):
    """Why a request was rejected (RFC 9457). Nothing has changed."""

    type: str = Field(description="names the kind of problem, such as urn:dets:problem:invalid-value")
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list, description="the values that are not acceptable")


class HttpRefusedError(Exception):
    """A rejected request: ``errors`` are the problems with field, value and reason."""

    def __init__(
        self,
        status: HTTPStatus,
        kind: str,
        detail: str = "",
        errors: Iterable[InvalidValueError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.kind = kind
        self.errors = list(errors)
        self.headers = dict(headers or {})
        self.detail = detail or "; ".join(_summaries(self.errors))
        super().__init__(self.detail)

    def response(self) -> Response:
        """Return the response."""
        errors = [
            {"field": e.key, "value": shown_value(e.value), "reason": e.reason} for e in self.errors[:_SHOWN_ERRORS]
        ]
        response = _response(self.status, self.kind, self.detail, errors)
        response.headers.extend(self.headers)
        return response


def document(status: HTTPStatus, kind: str, detail: str) -> dict[str, JsonValue]:
    """Return a problem document without values."""
    return {"type": _TYPE + kind, "title": status.phrase, "status": status.value, "detail": detail}


def raw_answer(status: HTTPStatus, kind: str, detail: str, *fields: str) -> bytes:
    """Return a complete response, a problem document, after which the connection is closed.

    ``fields`` are header lines.
    """
    text = json.dumps(document(status, kind, detail)).encode()
    lines = (f"Content-Type: {MIME_TYPE}", f"Content-Length: {len(text)}", "Connection: close", *fields)
    return "\r\n".join((f"HTTP/1.1 {status.value} {status.phrase}", *lines, "", "")).encode() + text


def not_found(field: str, value: str, reason: str) -> HttpRefusedError:
    """Return the error for a path with an unknown part ``field``; ``reason`` lists the known ones."""
    return HttpRefusedError(HTTPStatus.NOT_FOUND, "not-found", errors=[InvalidValueError(field, value, reason)])


def invalid(*errors: InvalidValueError) -> HttpRefusedError:
    """Return the error for invalid values."""
    return HttpRefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-value", errors=errors)


def unknown_key(key: str, value: object, known: Iterable[str]) -> InvalidValueError:
    """Return the problem of a key whose last part is not in ``known``."""
    known = list(known)
    name = key.rpartition(".")[2]
    near = f" (did you mean {name}_bps?)" if f"{name}_bps" in known else near_name(name, known)
    return InvalidValueError(key, value, f"is not known here{near}; there are: {listed(known)}")


def listed(names: Iterable[object]) -> str:
    """Return names for a sentence, cut short when there are many."""
    all_names = [str(name) for name in names]
    more = f" and {len(all_names) - _SHOWN_NAMES} more" if len(all_names) > _SHOWN_NAMES else ""
    return ", ".join(all_names[:_SHOWN_NAMES]) + more if all_names else "none"


def shown_value(value: object) -> JsonValue:
    """Return a value from a request for the response: JSON, and short."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, int):
        return value if abs(value) < 2**63 else _cut(str(value))
    if isinstance(value, str):
        return _cut(value)
    text = ""
    for chunk in _ENCODER.iterencode(value):  # only the shown part: the value may be long
        text += chunk
        if len(text) > _SHOWN_LENGTH:
            break
    return _cut(text)


@contextmanager
def refusing_bad_values() -> Iterator[None]:
    """Turn the core's InvalidValueError into a rejection; it must enclose the change itself and nothing else."""
    try:
        yield
    except InvalidValueError as error:
        raise invalid(error) from error


def problem_from_validation(error: ValidationError, fields: Mapping[str, Iterable[str]]) -> HttpRefusedError:
    """Return the rejection for pydantic's errors; ``fields`` has the field names of each model by its title."""
    return invalid(*(_of_pydantic(detail, fields.get(error.title, ())) for detail in error.errors(include_url=False)))


def install(app: Flask) -> None:
    """Let every error of an application leave it as a problem; an unexpected one is logged and returns 500."""
    app.register_error_handler(HttpRefusedError, lambda refusal: refusal.response())
    app.register_error_handler(StoreError, _of_store)
    app.register_error_handler(HTTPException, _of_http)
    app.register_error_handler(Exception, _of_anything)


def _of_pydantic(error: Mapping[str, object], fields: Iterable[str]) -> InvalidValueError:
    """Return one of pydantic's errors as the error of a key."""
    context, location = error.get("ctx"), error.get("loc")
    cause = context.get("error") if isinstance(context, dict) else None
    if isinstance(cause, InvalidValueError):
        return cause
    key = ".".join(map(str, location)) if isinstance(location, tuple) and location else "body"
    if error.get("type") == "extra_forbidden":
        return unknown_key(key, error.get("input"), fields)
    if error.get("type") == "missing":
        return InvalidValueError(key, None, "is missing")
    return InvalidValueError(key, error.get("input"), f"is not acceptable: {error.get('msg')}")


def _summaries(errors: Iterable[InvalidValueError]) -> Iterator[str]:
    """Yield a sentence for each kind of errors, at most _MAX_KINDS; errors of a kind have the same field and reason."""
    kinds: dict[tuple[str, str], list[InvalidValueError]] = {}
    for error in errors:
        kinds.setdefault((error.key.rpartition(".")[2], error.reason), []).append(error)
    for first, *others in list(kinds.values())[:_MAX_KINDS]:
        more = f" (and {len(others)} more like this)" if others else ""
        yield f"{first.key}: {_quoted(first.value)} {first.reason}{more}"


def _of_http(error: HTTPException) -> Response:
    """Return the response to an HTTP error, as problem JSON."""
    status = HTTPStatus(error.code or HTTPStatus.INTERNAL_SERVER_ERROR)
    page = "the web UI is at /ui (unless rest.ui is false); " if request.path in ("/", "/ui/") else ""
    possible = ", ".join(sorted(getattr(error, "valid_methods", None) or ()))
    detail = {
        HTTPStatus.BAD_REQUEST: "the request broke off, or its body is not what its headers say",
        HTTPStatus.NOT_FOUND: f"there is nothing at {_cut(request.path)}; {page}{_paths_like(request.path)}",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{_cut(request.method)} is not possible here; possible are {possible}",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "the body is too long; 64 KiB are allowed, 4 MiB for many values at once",
    }.get(status, error.description or status.phrase)
    response = _response(status, status.phrase.lower().replace(" ", "-"), detail)
    response.headers.extend([(name, value) for name, value in error.get_headers() if name in ("Allow", "Retry-After")])
    return response


def _paths_like(path: str) -> str:
    """Return a hint for an unknown path: where all are listed, and those of the resource with the nearest name."""
    rules = (rule.rule for rule in current_app.url_map.iter_rules() if rule.rule.startswith("/v1/"))
    resource_of = {re.sub("<(.*?)>", r"{\1}", rule): rule.split("/")[2] for rule in rules}
    nearest_resource = nearest(path.removeprefix("/v1/").partition("/")[0], set(resource_of.values()))
    similar = sorted(known for known, resource in resource_of.items() if resource == nearest_resource)
    return f"/v1/openapi.json lists what there is{f', such as {listed(similar)}' if similar else ''}"


def _of_store(error: StoreError) -> Response:
    log.error("REST: %s", error)
    return _response(HTTPStatus.SERVICE_UNAVAILABLE, "store", f"{error}; nothing has changed")


def _of_anything(error: Exception) -> Response:
    log.error("REST: a request failed", exc_info=error)
    detail = "the controller failed at this request; see its log"
    return _response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", detail)


def _response(status: HTTPStatus, kind: str, detail: str, errors: list[dict[str, JsonValue]] | None = None) -> Response:
    problem = document(status, kind, detail)
    if errors:
        problem["errors"] = [*errors]
    return Response(flask_json.dumps(problem), status, mimetype=MIME_TYPE)


def _quoted(value: object) -> str:
    """Return a value as short JSON text."""
    return json.dumps(shown_value(value), ensure_ascii=False)


def _cut(text: str) -> str:
    """Return a text, cut short with dots if it is long."""
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."
