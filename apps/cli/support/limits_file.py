"""The file of ``dets limit apply``: VNs with limits and weights, in YAML or JSON; problems name their line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apps.cli.support.common import LIMITS
from controller.config.yaml_document import ConfigError, ConfigProblem, Problem, read_document, show_value
from controller.errors import InvalidValueError
from controller.fabric.value_checks import check_weight
from controller.units import parse_rate

_VALUES = (*LIMITS, "weight")
_KEYS = ("vlan", "port", *_VALUES)


def read_limits(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file, each with ``vlan``, ``port``, limits as written and ``weight``.

    Raises ConfigError with all problems.
    """
    try:
        document = read_document(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(path), [ConfigProblem(0, 0, "", f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), [ConfigProblem(0, 0, "", "is not UTF-8 text")]) from error
    rows = document.data if isinstance(document.data, list) else []
    problems = [problem for index, row in enumerate(rows) for problem in _row_problems(f"[{index}]", row)]
    if not document.problems and not isinstance(document.data, list):
        problems.append(Problem((), "is not a list: write - {vlan: 10, port: s1:3, receive: 400M}"))
    if problems or document.problems:
        raise ConfigError(str(path), [*document.problems, *document.with_positions(problems)])
    return rows


def _row_problems(location: str, row: object) -> Iterator[Problem]:
    """Yield the problems of one row of a limits file."""
    if not isinstance(row, dict):
        yield Problem((location,), f"{show_value(row)} is not of the form {{vlan: 10, port: s1:3, receive: 400M}}")
        return
    for key, value in row.items():
        if key not in _KEYS:
            yield Problem((location, key), f"is not a known key; known are {', '.join(_KEYS)}", at_key=True)
        try:
            if key in LIMITS and not (key.endswith("_ceiling") and value == "none"):
                parse_rate(value)
            elif key == "weight":
                check_weight(value)
        except InvalidValueError as error:
            yield Problem((location, key), f"{show_value(error.value)} {error.reason}")
    for key, kinds, words in (
        ("vlan", int | str, "a VLAN's id or name, such as 10"),
        ("port", str, "SWITCH:PORT, such as s1:3, or a port's name"),
    ):
        if key not in row:
            yield Problem((location,), f"lacks {key}: {words}")
        elif not isinstance(row[key], kinds) or isinstance(row[key], bool):
            yield Problem((location, key), f"{show_value(row[key])} is not {words}")
    if not set(_VALUES) & row.keys():
        yield Problem((location,), f"sets nothing: give {', '.join(_VALUES)}")
