"""Errors that name the key, the value and the limit, so that the reader can correct the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

_MAX_CHARACTERS, _MAX_COMPARED = 100, 200


class DetsError(Exception):
    """Base of every error this project raises on purpose."""

    def __reduce__(self) -> tuple[Callable[..., DetsError], tuple[Any, ...]]:
        """Support pickling: an error's own arguments may differ from those of its base."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[DetsError], arguments: tuple[Any, ...], fields: dict[str, Any]) -> DetsError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(fields)
    return error


class InvalidValueError(DetsError, ValueError):
    """A value from outside (configuration, REST, command line, switch) is not acceptable.

    ``key`` is the name in the input (``vlans.10.receive_limit``), ``value`` is the rejected value and ``reason`` states
    the limit that it violates.
    """

    def __init__(self, key: str, value: object, reason: str) -> None:
        self.key = key
        self.value = value
        self.reason = reason
        super().__init__(f"{key}: {value!r} {reason}")


class ColumnError(InvalidValueError):
    """A column of an array interface holds an invalid value; the error names column, row and value."""

    def __init__(self, column: str, row: int, value: object, reason: str) -> None:
        self.column = column
        self.row = row
        super().__init__(f"{column}[{row}]", value, reason)


class ProtocolError(DetsError):
    """A malformed message from a switch; the error names the message, the field and what was expected."""


class SwitchReplyError(ProtocolError):
    """A switch's error reply to a request; the text has type and code."""


def near_name(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean NAME?)`` for an unknown name, "" if no name in ``known`` is similar."""
    near = nearest(name, known)
    return f" (did you mean {near}?)" if near else ""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the name in ``known`` that is most similar to ``name``, None if none is similar."""
    import difflib  # deferred: most importers of this module do not need it

    name = name[:_MAX_CHARACTERS]
    alike = [one for one in known if abs(len(one) - len(name)) <= 3 and (one[:1] == name[:1] or one[-1:] == name[-1:])]
    close = difflib.get_close_matches(name, alike[:_MAX_COMPARED], n=1)
    return close[0] if close else None
