"""The body of a request: JSON as RFC 8259 and RFC 7493 have it, and of bounded size."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from flask import Request
from flask.json.provider import DefaultJSONProvider
from werkzeug.exceptions import RequestEntityTooLarge

from apps.rest.http.problems import HttpRefusedError, invalid
from controller.errors import InvalidValueError

MAX_BODY_BYTES = 64 * 1024
# Bodies of many values; reading one of this size takes as long as the controller can spare at once.
MAX_LONG_BODY_BYTES = 4 * 2**20
MIME_TYPE = "application/json"


class StrictJson(DefaultJSONProvider):
    """JSON in which a key stands once, on the way in; in which every number is finite, on the way out."""

    sort_keys = False
    mimetype = MIME_TYPE

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        """Return JSON text; raise ValueError for NaN and infinities."""
        return super().dumps(obj, allow_nan=False, **kwargs)

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        """Return the value of a JSON text; raise ValueError with what is wrong with it.

        NaN and Infinity are let through as floats, so that the field that holds one can be named.
        """
        text = s.decode("utf-8") if isinstance(s, bytes) else s
        try:
            value = json.loads(text, object_pairs_hook=_object)
            if "\\u" in text:  # half a pair can only have come from an escape
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("holds half a surrogate pair, which is no character") from error
        except RecursionError as error:
            raise ValueError("is nested too deeply") from error
        return value


class JsonRequest(Request):
    """A request whose JSON body has been read and checked before anything else."""

    body: Any = None

    def get_json(self, *arguments: Any, **options: Any) -> Any:
        """Return the body as ``check_body`` has read it."""
        return self.body


def check_body(request: JsonRequest, most_bytes: int, breathe: Callable[[], None]) -> None:
    """Read the body of a request that changes something; raise RefusedError unless it is a JSON object.

    The body is read before anything is looked up, so that nothing else runs between the look-up and the change.
    ``breathe`` lets others run: a long body takes long to decode, and its fields to be looked at.
    """
    if request.mimetype != MIME_TYPE:
        given = request.mimetype or "nothing"
        detail = f"the body must be {MIME_TYPE}; its Content-Type says {given[:100]}"
        raise HttpRefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
    if (request.content_length or 0) > most_bytes:
        raise RequestEntityTooLarge
    # A body of unknown length is cut off, not refused, where Werkzeug's limit is; so that lies one byte further.
    request.max_content_length = most_bytes + 1
    body = request.get_data()
    is_long = len(body) > MAX_BODY_BYTES
    if is_long:
        breathe()
    if len(body) > most_bytes:
        raise RequestEntityTooLarge
    try:
        value = request.json_module.loads(body)
    except ValueError as error:
        reason = "is empty" if not body.strip() else str(error)
        raise HttpRefusedError(
            HTTPStatus.BAD_REQUEST, "broken-json", f"the body is not acceptable JSON: {reason}"
        ) from error
    if not isinstance(value, dict):
        raise invalid(InvalidValueError("body", value, "must be a JSON object, such as {}"))
    request.body = value
    if is_long:
        breathe()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has the key {name[:100]!r} more than once")
            seen.add(name)
    return members
