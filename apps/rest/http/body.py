"""The body of a request: JSON by RFC 8259 and RFC 7493, with bounded size."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, cast

from flask import Request
from flask.json.provider import DefaultJSONProvider
from werkzeug.exceptions import RequestEntityTooLarge

from apps.rest.http.incremental_json import MAX_MEMBERS, IncrementalJson
from apps.rest.http.problems import HttpRefusedError, invalid
from controller.errors import InvalidValueError

MAX_BODY_BYTES = 64 * 1024
# Limit for bodies of many values. A body above the other limit is decoded in batches.
MAX_LONG_BODY_BYTES = 4 * 2**20
MIME_TYPE = "application/json"


class StrictJson(DefaultJSONProvider):
    """JSON with unique keys on input, and with finite numbers on output."""

    sort_keys = False
    mimetype = MIME_TYPE

    def dumps(self, obj: Any, **kwargs: Any) -> str:
        """Return JSON text; raise ValueError for NaN and infinities."""
        return super().dumps(obj, allow_nan=False, **kwargs)

    def loads(self, s: str | bytes, **kwargs: Any) -> Any:
        """Return the value of a JSON text; raise ValueError with the problem.

        NaN and Infinity are accepted as floats here, so that the error can name the field with one.
        """
        text = s.decode("utf-8") if isinstance(s, bytes) else s
        with _speaking_plainly():
            value = json.loads(text, object_pairs_hook=_object, parse_float=_number)
            _check_characters(text, value)
        return value

    def loads_long(self, body: bytes, yield_control: Callable[[], None]) -> Any:
        """Decode a long text, an object of lists, as ``loads`` does; call ``yield_control`` between its parts."""
        with _speaking_plainly():
            return _object(IncrementalJson(body.decode("utf-8"), _decode_first, yield_control).members())


class JsonRequest(Request):
    """A request with a JSON body that was read and checked before anything else."""

    body: Any = None

    def get_json(self, *arguments: Any, **options: Any) -> Any:
        """Return the body that ``check_body`` has read."""
        return self.body


def check_body(request: JsonRequest, max_bytes: int, yield_control: Callable[[], None]) -> None:
    """Read the body of a changing request into ``request.body``; raise HttpRefusedError unless it is a JSON object.

    Reading waits, so it precedes all look-ups: nothing else runs between a look-up and the change. ``yield_control``
    lets other greenlets run while a long body is decoded.
    """
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding != "identity":
        detail = f"the body must be sent as it is; its Content-Encoding says {coding[:100]}"
        headers = {"Accept-Encoding": "identity"}
        raise HttpRefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail, headers=headers)
    if request.mimetype != MIME_TYPE:
        media_type = request.mimetype or "nothing"
        detail = f"the body must be {MIME_TYPE}; its Content-Type says {media_type[:100]}"
        raise HttpRefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", detail)
    if (request.content_length or 0) > max_bytes:
        raise RequestEntityTooLarge
    # A body of unknown length is cut off, not rejected, at Werkzeug's limit; so that limit is one byte higher.
    request.max_content_length = max_bytes + 1
    body, provider = request.get_data(), cast(StrictJson, request.json_module)
    is_long = len(body) > MAX_BODY_BYTES
    if len(body) > max_bytes:
        raise RequestEntityTooLarge
    try:
        value = provider.loads_long(body, yield_control) if is_long else provider.loads(body)
    except ValueError as error:
        reason = "is empty" if not body.strip() else str(error)
        raise HttpRefusedError(
            HTTPStatus.BAD_REQUEST, "broken-json", f"the body is not acceptable JSON: {reason}"
        ) from error
    if not isinstance(value, dict) or len(value) > MAX_MEMBERS:
        raise invalid(InvalidValueError("body", value, f"must be a JSON object of at most {MAX_MEMBERS} keys"))
    request.body = value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; ValueError for a key that is in it twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has the key {name[:100]!r} more than once")
            seen.add(name)
    return members


def _number(text: str) -> int | float:
    """Return the number of a text with a fraction or an exponent; 1000.0 and 1e3 are integers, as in JSON Schema."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number)


def _decode_first(text: str) -> tuple[Any, int]:
    """Return the first JSON value of a text, and the offset behind it."""
    value, end = _DECODER.raw_decode(text)
    _check_characters(text[:end], value)
    return value, end


def _check_characters(text: str, value: Any) -> None:
    """Raise ValueError for an unpaired surrogate, which can only come from an escape."""
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("holds half a surrogate pair, which is no character") from error


@contextmanager
def _speaking_plainly() -> Iterator[None]:
    """Raise the errors of the JSON parser with texts for users."""
    try:
        yield
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        if len(error.args) != 1 or "integer string conversion" not in error.args[0]:
            raise
        raise ValueError(f"has a number of more than {sys.get_int_max_str_digits()} digits") from error
