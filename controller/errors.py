"""Errors that name the key, the value and the limit, so that their reader can mend the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

_MAX_CHARACTERS, _MAX_COMPARED = 100, 200


class DetsError(Exception):
    """Base of every error this project raises on purpose."""


class InvalidValueError(DetsError, ValueError):
    """A value from outside (configuration, REST, command line, switch) is not acceptable.

    ``key`` names it the way its author wrote it (``vlans.10.receive_limit``), ``value`` is what was given and
    ``reason`` states the limit that it breaks.
    """

    def __init__(self, key: str, value: object, reason: str) -> None:
        self.key = key
        self.value = value
        self.reason = reason
        super().__init__(f"{key}: {value!r} {reason}")

    def __reduce__(self) -> tuple[Callable[..., InvalidValueError], tuple[Any, ...]]:
        """Let it pass from one process to another: its text is not what it is made of."""
        return _restored, (type(self), str(self), self.__dict__)


def _restored(kind: type[InvalidValueError], text: str, fields: dict[str, Any]) -> InvalidValueError:
    error = kind.__new__(kind, text)
    error.__dict__.update(fields)
    return error


class ColumnError(InvalidValueError):
    """A column of an array interface holds a value it must not: names column, row and value."""

    def __init__(self, column: str, row: int, value: object, reason: str) -> None:
        self.column = column
        self.row = row
        super().__init__(f"{column}[{row}]", value, reason)


class ProtocolError(DetsError):
    """A message from a switch is malformed: names the message, the field and what was expected."""


class SwitchReplyError(ProtocolError):
    """A switch answered a request with an error, whose type and code are the text."""


def near_name(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean NAME?)`` for what is not one of the ``known``, empty where none of them is near."""
    near = nearest(name, known)
    return f" (did you mean {near}?)" if near else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return which of the ``known`` a name is probably meant to be, None where none of them is near."""
    import difflib  # of which most who import this have no need

    name = name[:_MAX_CHARACTERS]
    alike = [one for one in known if abs(len(one) - len(name)) <= 3 and (one[:1] == name[:1] or one[-1:] == name[-1:])]
    close = difflib.get_close_matches(name, alike[:_MAX_COMPARED], n=1)
    return close[0] if close else None
