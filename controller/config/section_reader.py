"""Reads one section of a configuration file, and reports its problems in the words of the file.

The path of a key is the keys from the top of the file down to it: ``("vlans", "10", "weight")``.
"""

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

MAX_RANGE = 4096  # numbers of one range
MAX_NUMBERS = 2**16  # numbers of all ranges of one section
# By key: the keys that exclude it. An entry with the key does not inherit them from a range.
_EXCLUDED = {
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
    """Return the section at ``path`` with the values of ``data``, and its problems; a bad value becomes the default."""
    if not isinstance(data, Mapping):
        return model().with_bad(frozenset(model.model_fields)), [Problem(path, _not_a_section(model, data))]
    try:
        return _good_section(model, *chain.from_iterable(data.items())), []
    except (TypeError, ValueError):  # a value is a section, which is not hashable, or is bad
        return _read_section(model, path, data)


@lru_cache(_SECTIONS_KEPT, typed=True)
def _good_section(model: type[AnySection], *items: object) -> AnySection:
    """Return the section with these alternating keys and values; cached, since many sections are equal.

    Raises ValueError for a missing, empty, unknown or bad value, TypeError for one that is not hashable.
    """
    values = dict(zip(items[::2], items[1::2], strict=True))
    if None in items or not values.keys() >= set(model.required):
        raise ValueError
    return model.model_validate(values)


def _read_section(model: type[AnySection], path: Path, data: Mapping[str, Any]) -> tuple[AnySection, list[Problem]]:
    """Return the section without its bad keys, and one problem for each mistake.

    An unknown key that resembles a known one counts as its misspelling: the known key then causes no further problem.
    """
    known_keys = model.model_fields
    empty = {key for key, value in data.items() if value is None} & known_keys.keys()
    misspelt = {nearest(key, known_keys) for key in data.keys() - known_keys.keys()} - data.keys()
    missing = [key for key in model.required if key not in data and key not in misspelt]
    problems = [Problem((*path, key), "is empty: give it a value or leave the key out") for key in empty]
    problems += [Problem((*path, key), "is missing") for key in missing]
    values = {key: value for key, value in data.items() if key not in empty}
    bad = {*empty, *missing, *(key for key in misspelt if key is not None)}
    try:
        section = model.model_validate(values)
    except ValidationError as validation:
        for error in validation.errors(include_url=False):
            location = tuple(f"[{part}]" if isinstance(part, int) else part for part in error["loc"])
            is_unknown_key = error["type"] == "extra_forbidden"
            problems.append(Problem((*path, *location), _message(model, error), at_key=is_unknown_key))
            bad.add(str(error["loc"][0]))
        section = model.model_validate({key: value for key, value in values.items() if key not in bad})
    return section.with_bad(frozenset(bad)) if bad else section, problems


def is_numeric(key: str) -> bool:
    """Return whether a key is a number or a range of numbers, valid or not."""
    return key.isdecimal() or KEY_RANGE.fullmatch(key) is not None


def expand_key(path: Path, noun: str, minimum: int, maximum: int) -> tuple[range, list[Problem]]:
    """Return the numbers in the key at the end of ``path``: 24 numbers for ``1-24``, none, with a problem, if invalid.

    ``noun`` names such a number in the problem.
    """
    match = KEY_RANGE.fullmatch(path[-1])
    if match is None:
        number, problems = read_number(path, noun, minimum, maximum)
        return range(0) if number is None else range(number, number + 1), problems
    first, last = int(match[1]), int(match[2])
    if minimum <= first <= last <= maximum and last - first < MAX_RANGE:
        return range(first, last + 1), []
    message = f"is no range: write FIRST-LAST within {minimum} to {maximum}, of {MAX_RANGE} at most"
    return range(0), [Problem(path, message, at_key=True)]


class Ranges:
    """The keys of a section that are ranges, such as ``1-24``; the entry at such a key is for each number of the range.

    A number of a range may also have its own entry, which inherits from the range's entry the keys that it does not
    set. ``count`` is the sum of the ranges' numbers; above MAX_NUMBERS no entry inherits.
    """

    def __init__(self, entries: Mapping[str, object]) -> None:
        matches = [(key, match) for key in entries if (match := KEY_RANGE.fullmatch(key)) is not None]
        numbers_by_key = {key: range(int(match[1]), int(match[2]) + 1) for key, match in matches}
        self._entries, self.count = entries, sum(len(numbers) for numbers in numbers_by_key.values())
        self._range_keys: dict[int, str] = {}  # by number with its own entry: the key of the range that contains it
        if numbers_by_key and self.count <= MAX_NUMBERS:
            single_numbers = {int(key) for key in entries if _KEY_NUMBER.fullmatch(key)}
            for key, numbers in numbers_by_key.items():
                if isinstance(entries[key], Mapping):
                    self._range_keys |= dict.fromkeys(single_numbers.intersection(numbers), key)

    def complete(self, key: str) -> tuple[object, str | None]:
        """Return the entry at a key with the inherited keys, and the key of the range; None if nothing is inherited."""
        entry = self._entries[key]
        range_key = self._range_keys.get(int(key)) if self._range_keys and _KEY_NUMBER.fullmatch(key) else None
        if range_key is None or not isinstance(entry, Mapping):
            return entry, None
        excluded = {other for own_key in entry for other in _EXCLUDED.get(own_key, ())}
        range_entry = cast("Mapping[str, object]", self._entries[range_key])
        return {**{name: value for name, value in range_entry.items() if name not in excluded}, **entry}, range_key

    def without_own_entries(self, key: str, numbers: Sequence[Any]) -> Sequence[Any]:
        """Return the ``numbers`` of a key; those of a range without the numbers that have an entry of their own."""
        return [number for number in numbers if self._range_keys.get(number) != key] if self._range_keys else numbers

    def check_count(self, path: Path) -> Problem | None:
        """Return the problem of the section at ``path`` if its ranges have more than MAX_NUMBERS numbers."""
        message = f"has ranges of {self.count} numbers in all, {MAX_NUMBERS} at most"
        return Problem(path, message) if self.count > MAX_NUMBERS else None

    def relocate(self, problems: Iterable[Problem], path: Path, range_key: str | None) -> list[Problem]:
        """Return the problems of the entry at ``path``, those of inherited keys at the range's entry.

        ``range_key`` is the key of the range from which the entry inherits; None if it does not.
        """
        if range_key is None:
            return list(problems)
        own_keys, range_path = cast("Mapping[str, object]", self._entries[path[-1]]), (*path[:-1], range_key)
        depth = len(path)
        return [
            problem
            if len(problem.path) == depth or problem.path[depth] in own_keys
            else problem._replace(path=(*range_path, *problem.path[depth:]))
            for problem in problems
        ]


def read_number(path: Path, noun: str, minimum: int, maximum: int) -> tuple[int | None, list[Problem]]:
    """Return the number in the key at the end of ``path``; None, with a problem, if it is invalid.

    ``noun`` names such a number in the problem.
    """
    key = path[-1]
    if _KEY_NUMBER.fullmatch(key) and minimum <= int(key) <= maximum:
        return int(key), []
    message = f"{key!r} is not a {noun}: it must be a decimal number, {minimum} to {maximum}"
    return None, [Problem(path, message, at_key=True)]


def _not_a_section(model: type[Section], data: object) -> str:
    keys = ", ".join(model.model_fields)
    return f"{show_value(data)} is not a section: write KEY: VALUE with the keys {keys}"


def _message(model: type[Section], error: Any) -> str:
    """Return one of pydantic's errors as text: the value, and what is wrong with it; for an unknown key only that."""
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
    is_list_for_number = kind == "int_type" and isinstance(value, list)
    reason = "is a list: write one whole number" if is_list_for_number else reasons.get(kind)
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
    """Return a hint at the sections that have an unknown key of ``model``, "" if there are none.

    For example `` (it is a key of control)``. In a dotted key, ``SECTION.INNER``, ``INNER`` is what is looked up.
    """
    section_name, _, inner_key = key.partition(".")
    sections, subject = list(_subclasses(Section)), "it"
    if inner_key and section_name in model.model_fields:
        if all(section.path != section_name or inner_key in section.model_fields for section in sections):
            return f" (write {section_name}: and below it {inner_key}:)"
        key = subject = inner_key
    paths = sorted({section.path or "the top level" for section in sections if key in section.model_fields})
    return f" ({subject} is a key of {', '.join(paths)})" if paths else ""


def _subclasses(model: type[Section]) -> Iterator[type[Section]]:
    """Yield the subclasses without subclasses of their own, which are the sections of a file."""
    for subclass in model.__subclasses__():
        if subclass.__subclasses__():
            yield from _subclasses(subclass)
        else:
            yield subclass
