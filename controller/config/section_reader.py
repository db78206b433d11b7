"""Reads one section of a configuration file, and reports its problems in the words of the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from controller.config.sections import Section
from controller.config.yaml_document import KEY_RANGE, Path, Problem, show_value
from controller.errors import InvalidValueError, near_name, nearest

MAX_RANGE = 4096
MAX_NUMBERS = 2**16  # of all ranges of one section
# An entry of its own that has the key takes none of these from the range around it.
_REPLACED = {
    "access": ("trunk", "native", "vns"),
    "trunk": ("access", "native", "vns"),
    "algorithm": ("parameters",),
    "shadow": ("shadow_parameters",),
}
_KEY_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
# Sections with the same values, of which a large file has thousands, are built once.
_SECTIONS_KEPT = 4096

AnySection = TypeVar("AnySection", bound=Section)


def read_section(model: type[AnySection], path: Path, data: object) -> tuple[AnySection, list[Problem]]:
    """Return the section in ``data``, and its problems; a bad value is left at its default."""
    if not isinstance(data, Mapping):
        return model().with_bad(frozenset(model.model_fields)), [Problem(path, _not_a_section(model, data))]
    try:
        return _good_section(model, *chain.from_iterable(data.items())), []
    except (TypeError, ValueError):  # it contains sections, or has a problem
        return _read_section(model, path, data)


@lru_cache(_SECTIONS_KEPT, typed=True)
def _good_section(model: type[AnySection], *items: object) -> AnySection:
    """Return the section with these alternating keys and values; cached, since many sections are equal.

    Raises ValueError.
    """
    values = dict(zip(items[::2], items[1::2], strict=True))
    if None in items or not values.keys() >= set(model.required):
        raise ValueError
    return model.model_validate(values)


def _read_section(model: type[AnySection], path: Path, data: Mapping[str, Any]) -> tuple[AnySection, list[Problem]]:
    """Return a section without its bad keys, and one problem for each mistake."""
    empty = {key for key, value in data.items() if value is None} & model.model_fields.keys()
    misspelt = {nearest(key, model.model_fields) for key in data.keys() - model.model_fields.keys()} - data.keys()
    missing = [key for key in model.required if key not in data and key not in misspelt]
    problems = [Problem((*path, key), "is empty: give it a value or leave the key out") for key in empty]
    problems += [Problem((*path, key), "is missing") for key in missing]
    values = {key: value for key, value in data.items() if key not in empty}
    bad = {*empty, *missing, *(key for key in misspelt if key is not None)}  # one mistake gives one problem
    try:
        section = model.model_validate(values)
    except ValidationError as refusal:
        for error in refusal.errors(include_url=False):
            location = tuple(f"[{part}]" if isinstance(part, int) else part for part in error["loc"])
            unknown = error["type"] == "extra_forbidden"
            problems.append(Problem((*path, *location), _message(model, error), at_key=unknown))
            bad.add(str(error["loc"][0]))
        section = model.model_validate({key: value for key, value in values.items() if key not in bad})
    return section.with_bad(frozenset(bad)) if bad else section, problems


def is_numeric(key: str) -> bool:
    """Return whether a key is a number or a range of numbers, valid or not."""
    return key.isdecimal() or KEY_RANGE.fullmatch(key) is not None


def expand_key(path: Path, what: str, minimum: int, maximum: int) -> tuple[range, list[Problem]]:
    """Return the numbers in the key at the end of ``path``, 24 for ``1-24``; none, with a problem, if it is invalid."""
    match = KEY_RANGE.fullmatch(path[-1])
    if match is None:
        number, problems = read_number(path, what, minimum, maximum)
        return range(0) if number is None else range(number, number + 1), problems
    first, last = int(match[1]), int(match[2])
    if minimum <= first <= last <= maximum and last - first < MAX_RANGE:
        return range(first, last + 1), []
    message = f"is no range: write FIRST-LAST within {minimum} to {maximum}, of {MAX_RANGE} at most"
    return range(0), [Problem(path, message, at_key=True)]


class Ranges:
    """The ranges among the keys of a section, such as ``1-24``.

    A number within one of them that has an entry of its own takes from it what it leaves out. ``count`` is how many
    numbers all of them hold; beyond MAX_NUMBERS nothing is taken.
    """

    def __init__(self, entries: Mapping[str, object]) -> None:
        ranges = [(match, key) for key in entries if (match := KEY_RANGE.fullmatch(key)) is not None]
        held = [(range(int(match[1]), int(match[2]) + 1), key) for match, key in ranges]
        self._entries, self.count = entries, sum(len(numbers) for numbers, _ in held)
        self._around: dict[int, str] = {}
        if held and self.count <= MAX_NUMBERS:
            own = {int(key) for key in entries if _KEY_NUMBER.fullmatch(key)}
            for numbers, key in held:
                if isinstance(entries[key], Mapping):
                    self._around |= dict.fromkeys(own.intersection(numbers), key)

    def complete(self, key: str) -> tuple[object, str | None]:
        """Return the entry at a key with what it takes from a range, and the key of that; None: it stands alone."""
        own = self._entries[key]
        around = self._around.get(int(key)) if self._around and _KEY_NUMBER.fullmatch(key) else None
        if around is None or not isinstance(own, Mapping):
            return own, None
        replaced = {other for one in own for other in _REPLACED.get(one, ())}
        taken = cast("Mapping[str, object]", self._entries[around])
        return {**{one: value for one, value in taken.items() if one not in replaced}, **own}, around

    def without_own(self, key: str, numbers: Sequence[Any]) -> Sequence[Any]:
        """Return which of the numbers that a key stands for have no other entry, which is their own."""
        return [one for one in numbers if self._around.get(one) != key] if self._around else numbers

    def check_count(self, path: Path) -> Problem | None:
        """Return what is wrong with the section at ``path`` if its ranges hold more numbers than they may."""
        too_many = f"has ranges of {self.count} numbers in all, {MAX_NUMBERS} at most"
        return Problem(path, too_many) if self.count > MAX_NUMBERS else None

    def placed(self, problems: Iterable[Problem], path: Path, around: str | None) -> list[Problem]:
        """Return problems of the entry at ``path``; those of a key that it takes from a range are where that is."""
        if around is None:
            return list(problems)
        own, place = cast("Mapping[str, object]", self._entries[path[-1]]), (*path[:-1], around)
        at = len(path)
        return [
            one if len(one.path) == at or one.path[at] in own else one._replace(path=(*place, *one.path[at:]))
            for one in problems
        ]


def read_number(path: Path, what: str, minimum: int, maximum: int) -> tuple[int | None, list[Problem]]:
    """Return the number in the key at the end of ``path``; None, with a problem, if it is invalid."""
    key = path[-1]
    if _KEY_NUMBER.fullmatch(key) and minimum <= int(key) <= maximum:
        return int(key), []
    message = f"{key!r} is not a {what}: it must be a decimal number, {minimum} to {maximum}"
    return None, [Problem(path, message, at_key=True)]


def _not_a_section(model: type[Section], data: object) -> str:
    keys = ", ".join(model.model_fields)
    return f"{show_value(data)} is not a section: write KEY: VALUE with the keys {keys}"


def _message(model: type[Section], error: Any) -> str:
    """Return the problem of one of pydantic's errors, as a predicate of the key."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(str(error["loc"][-1]), model)
    cause = context.get("error")
    if isinstance(cause, InvalidValueError):
        return f"{show_value(cause.value)} {cause.reason}"
    reasons = {
        "greater_than": "must be above {gt:g}",
        "greater_than_equal": "is below {ge:g}, the minimum",
        "less_than_equal": "is above {le:.10g}, the maximum",
        "int_type": "is not a whole number in decimal digits (without quotes, leading zeros, '_' or a point)",
        "float_type": "is not a number (without quotes, and with a point if it has an exponent: 1.0e+3)",
        "finite_number": "is not a finite number",
        "literal_error": "must be {expected}",
        "bool_type": "must be true or false",
        "list_type": "is not a list: write [{example}]",
        "too_short": "has fewer items than {min_length}, the minimum",
        "too_long": "has {actual_length} items, {max_length} at most",
        "dict_type": "is not a section: write KEY: VALUE",
        "string_type": "is not text: put it in quotes",
        "string_too_short": "is empty",
        "string_too_long": "is longer than {max_length} characters",
    }
    is_list = kind == "int_type" and isinstance(value, list)
    reason = "is a list: write one whole number" if is_list else reasons.get(kind)
    example = value if isinstance(value, str | int) else "..."
    return f"{show_value(value)} {reason.format(**context, example=example) if reason else error['msg']}"


def _unknown_key(key: str, model: type[Section]) -> str:
    known = list(model.model_fields)
    if key in model.renamed:
        hint = f" (it is called {model.renamed[key]} now)"
    else:
        hint = near_name(key, known) or _misplaced_key_hint(key, model)
    return f"is not a known key{hint}; known are {', '.join(known)}"


def _misplaced_key_hint(key: str, model: type[Section]) -> str:
    """Return where a key belongs that is none of this section, such as `` (it is a key of control)``; "" if nowhere."""
    section, _, inner = key.partition(".")
    sections, name = list(_subclasses(Section)), "it"
    if inner and section in model.model_fields:
        if all(one.path != section or inner in one.model_fields for one in sections):
            return f" (write {section}: and below it {inner}:)"
        key = name = inner
    paths = sorted({one.path or "the top level" for one in sections if key in one.model_fields})
    return f" ({name} is a key of {', '.join(paths)})" if paths else ""


def _subclasses(model: type[Section]) -> Iterator[type[Section]]:
    """Yield the innermost subclasses, which are the sections of a file."""
    for one in model.__subclasses__():
        if one.__subclasses__():
            yield from _subclasses(one)
        else:
            yield one
