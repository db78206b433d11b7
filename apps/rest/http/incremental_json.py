"""Decodes long JSON bodies item by item, so that others run in between, with a bounded number of items."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from apps.rest.http.problems import HttpRefusedError

MAX_MEMBERS = 16
MAX_ITEMS = 25_000
MAX_ITEM_CHARACTERS = 4096
# After so many characters, or items of lists, other greenlets run.
_TURN_CHARACTERS = 16 * 1024
_TURN_ITEMS = 500
_SPACE = re.compile(r"[ \t\n\r]*")


class IncrementalJson:
    """An object whose members are lists of small items, or small values themselves.

    ``decode`` returns the first value of a text and its end, as ``json.JSONDecoder.raw_decode`` does. ``yield_control``
    lets other greenlets run.
    """

    def __init__(self, text: str, decode: Callable[[str], tuple[Any, int]], yield_control: Callable[[], None]) -> None:
        self._text, self._decode, self._yield_control = text, decode, yield_control
        self._at = self._next_turn = 0
        self._items = 0

    def members(self) -> list[tuple[str, Any]]:
        """Return the object's members.

        Raises ValueError for malformed JSON, HttpRefusedError (413) for too many items.
        """
        members: list[tuple[str, Any]] = []
        self._expect("{")
        has_more = not self._skip("}")
        while has_more:
            name = self._value()
            if not isinstance(name, str):
                raise json.JSONDecodeError("Expecting property name enclosed in double quotes", self._text, self._at)
            self._expect(":")
            members.append((name, self._list() if self._skip("[") else self._value()))
            if len(members) > MAX_MEMBERS:
                raise _too_much(f"more than {MAX_MEMBERS} keys")
            has_more = self._skip_separator("}")
        if self._find() < len(self._text):
            raise json.JSONDecodeError("Extra data", self._text, self._at)
        return members

    def _list(self) -> list[Any]:
        """Return the next list; yield control after every _TURN_ITEMS items."""
        items: list[Any] = []
        has_more = not self._skip("]")
        while has_more:
            items.append(self._value())
            self._items += 1
            if self._items % _TURN_ITEMS == 0:
                self._yield_control()
            if self._items > MAX_ITEMS:
                raise _too_much(f"more than {MAX_ITEMS} items in its lists")
            has_more = self._skip_separator("]")
        return items

    def _value(self) -> Any:
        """Return the next value; yield control after every _TURN_CHARACTERS."""
        start = self._find()
        window = self._text[start : start + MAX_ITEM_CHARACTERS]
        is_cut = start + len(window) < len(self._text)
        try:
            value, length = self._decode(window)
        except json.JSONDecodeError as error:
            reason = f"Broken, or longer than {MAX_ITEM_CHARACTERS} characters" if is_cut else error.msg
            raise json.JSONDecodeError(reason, self._text, start + error.pos) from error
        if is_cut and length == len(window):  # a number may continue behind the window
            raise _too_much(f"a value of more than {MAX_ITEM_CHARACTERS} characters")
        self._at = start + length
        if self._at >= self._next_turn:
            self._next_turn = self._at + _TURN_CHARACTERS
            self._yield_control()
        return value

    def _find(self) -> int:
        """Skip white space; return the position of the next character."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._at

    def _skip(self, character: str) -> bool:
        """Skip a character if it is next; return whether it was."""
        is_next = self._text.startswith(character, self._find())
        self._at += is_next
        return is_next

    def _expect(self, character: str) -> None:
        if not self._skip(character):
            raise json.JSONDecodeError(f"Expecting {character!r}", self._text, self._at)

    def _skip_separator(self, end: str) -> bool:
        """Skip a comma and return True, or skip the end and return False."""
        if self._skip(end):
            return False
        self._expect(",")
        return True


def _too_much(excess: str) -> HttpRefusedError:
    """Return the error (413) for a body that exceeds a limit; ``excess`` names the limit."""
    detail = f"a body of more than 64 KiB may be an object of lists, and this one has {excess}"
    return HttpRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request-entity-too-large", detail)
