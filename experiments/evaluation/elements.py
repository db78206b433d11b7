"""The elements of a paper: every figure, table and number, with what judges it or the reason why nothing does.

They are in ``experiments/papers/PAPER.toml``, a list ``elements``. Each has ``where`` it is in the paper, what it
``says``, and exactly one of these: ``judged``, the keys of claims or aims (``PAPER/KEY`` for those of another paper);
``tested``, a test of what no run shows; ``not_testable``, the reason.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.errors import InvalidValueError

JUDGES = ("judged", "tested", "not_testable")


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a paper, with the fields of the module's docstring; exactly one of the last three is set."""

    where: str
    says: str
    judged: tuple[str, ...] = ()
    tested: str = ""
    not_testable: str = ""


def read_elements(path: Path) -> list[Element]:
    """Return the elements of a file; InvalidValueError for an element with other keys, or without exactly one judge."""
    return [_element(f"{path.name} elements[{n}]", row) for n, row in enumerate(_rows(path))]


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the items of the list ``elements`` of a file; InvalidValueError if it has other keys."""
    found = tomllib.loads(path.read_text())
    if list(found) != ["elements"] or not isinstance(found["elements"], list):
        raise InvalidValueError(path.name, ", ".join(found), "must have one key, elements, a list")
    return found["elements"]


def _element(key: str, row: dict[str, Any]) -> Element:
    """Return an item of the list as an element; ``key`` names the item in errors."""
    judges = [name for name in row if name in JUDGES and row[name]]
    if set(row) - {"where", "says", *JUDGES} or not (row.get("where") and row.get("says")):
        raise InvalidValueError(key, ", ".join(row), f"must have where, says and one of {', '.join(JUDGES)}")
    if len(judges) != 1:
        raise InvalidValueError(key, ", ".join(judges), f"must be exactly one of {', '.join(JUDGES)}")
    return Element(**{**row, "judged": tuple(row.get("judged", ()))})
