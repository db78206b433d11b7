"""Responses of a controller, which may be malicious: bounded in size and time, and checked before use."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from controller.errors import DetsError

if TYPE_CHECKING:
    import http.client
    import urllib.error

MAX_ANSWER_BYTES = 16 * 2**20
"""of one answer, or one event of a stream; a controller sends no more"""
MAX_PAGES_BYTES = 8 * MAX_ANSWER_BYTES
"""of all pages of a collection"""
MAX_PAGES = 10_000
MAX_NODES = 1_000_000
"""lists and objects in an answer: each takes 60 bytes or more, and two in the text"""
MAX_ANSWER_S = 120.0
_MAX_PROBLEM_BYTES = 64 * 1024
_MAX_PROBLEM_CHARACTERS, _MAX_REASON = 2000, 300
_SHOWN = 60
_CHUNK_BYTES = 64 * 1024
_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}

Shape = Any
"""Description of a valid value: a type, or a tuple of types; ``[shape]`` is a list of values of a shape,
``{...: shape}`` an object with values of a shape, ``{name: shape}`` an object with at least these members; a member
whose name ends with ``?`` may be missing or null."""


class RequestError(DetsError):
    """A failed request: the controller is unreachable (``status`` is None), or returned the HTTP status ``status``."""

    def __init__(self, text: str, status: int | None = None, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.problem = problem or {}


class AnswerError(RequestError):
    """A response of the wrong form; ``whom`` is its sender."""

    def __init__(self, reason: str, whom: str = "the controller") -> None:
        super().__init__(f"what {whom} answers is not what a controller does: {reason[:_MAX_REASON]}")
        self.reason = reason


def read_all(answer: http.client.HTTPResponse, most_bytes: int) -> bytes:
    """Return the body of a response; raise AnswerError if it is too long."""
    data = bytearray()
    while chunk := answer.read1(_CHUNK_BYTES):
        data += chunk
        if len(data) > most_bytes:
            raise AnswerError(f"it is longer than {most_bytes} bytes")
    return bytes(data)


def decoded(data: bytes | bytearray) -> Any:
    """Return the value of a JSON text of finite numbers; raise AnswerError for any other."""
    if data.count(b"[") + data.count(b"{") > MAX_NODES:
        raise AnswerError(f"it has more than {MAX_NODES} lists and objects")
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise AnswerError("it is nested too deeply") from error
    except ValueError as error:
        raise AnswerError(f"it is not JSON: {error}" if data.strip() else "it is empty") from error


def check(value: Any, shape: Shape, what: str = "the answer") -> None:
    """Raise AnswerError, naming ``what``, unless a value has the given shape."""
    if isinstance(shape, list):
        _check_is(value, list, what)
        for number, item in enumerate(value):
            check(item, shape[0], f"{what}[{number}]")
    elif isinstance(shape, dict):
        _check_is(value, dict, what)
        for name, member_shape in shape.items():
            if name is ...:
                for key, item in value.items():
                    check(item, member_shape, f"{what}.{key[:_SHOWN]}")
            elif name.endswith("?"):
                if value.get(name[:-1]) is not None:
                    check(value[name[:-1]], member_shape, name[:-1])
            elif name not in value:
                raise AnswerError(f"{what} has no {name}")
            else:
                check(value[name], member_shape, name)
    else:
        _check_is(value, shape, what)


def refusal_of(error: urllib.error.HTTPError) -> RequestError:
    """Return the error of a response, with the controller's own text if it is valid."""
    try:
        document = decoded(error.read(_MAX_PROBLEM_BYTES))
        check(document, {"detail": str})
        errors = [item for item in document.get("errors") or () if _is_error(item)]
        problem, text = {**document, "errors": errors}, document["detail"]
    except Exception as other:  # any error: the status shows a rejection
        if isinstance(other, MemoryError):
            raise
        problem, text = {}, f"{error.url} answers {error.code} {error.reason}"
    return RequestError(
        text if len(text) <= _MAX_PROBLEM_CHARACTERS else f"{text[:_MAX_PROBLEM_CHARACTERS]}...", error.code, problem
    )


def _is_error(item: Any) -> bool:
    """Return whether an item of a problem document names an invalid value."""
    return (
        isinstance(item, dict)
        and isinstance(item.get("field"), str)
        and isinstance(item.get("reason"), str)
        and isinstance(item.get("value"), str | int | float | None)
    )


def _check_is(value: Any, kinds: Any, what: str) -> None:
    """Raise AnswerError, naming ``what``, unless a value is of a type, or of one of several; bool is no int here."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        shown = json.dumps(value, default=str) if not isinstance(value, dict | list) else _WORDS[type(value)]
        words = " or ".join("null" if kind is type(None) else _WORDS[kind] for kind in kinds)
        raise AnswerError(f"{what} is {shown[:_SHOWN]}, and should be {words}")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_SHOWN]} is too large a number")
    return number
