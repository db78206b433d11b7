"""Every key of a configuration file, from the models that read it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from controller.config import cluster as config_cluster
from controller.config import sections as config_sections
from controller.config.sections import RootSection, Section
from controller.config.value_types import SyntaxHint


def reference() -> str:
    """Return a table of keys for each section, in the order of a file."""
    return "\n".join(_section(section) for section in sections())


def sections() -> list[type[Section]]:
    """Return the sections of a file, except the file as a whole, outer sections before inner ones."""
    written = {**vars(config_sections), **vars(config_cluster)}
    found = [value for value in written.values() if inspect.isclass(value) and issubclass(value, Section)]
    order = list(RootSection.model_fields)
    return sorted(
        (section for section in found if section.path and section is not RootSection),
        key=lambda section: (order.index(re.split(r"[.\[]", section.path)[0]), section.path),
    )


def _section(section: type[Section]) -> str:
    """Return a section's heading, meaning and table of keys, in Markdown."""
    meaning = inspect.getdoc(section) or ""
    lines = [f"### `{section.path}`", "", _sentence(meaning.partition(": ")[2]), ""]
    lines += ["| key | default | what it may be | meaning |", "|---|---|---|---|"]
    meanings = _meanings(section)
    for name, field in section.model_fields.items():
        cells = (
            f"`{name}`",
            _default(section, name, field),
            _bounds(section, name, field),
            _sentence(meanings.get(name, "")),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _meanings(section: type[Section]) -> dict[str, str]:
    """Return the docstring below each field of a section, inherited fields included, by field."""
    meanings: dict[str, str] = {}
    for base in reversed(section.__mro__[: section.__mro__.index(Section)]):
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                meanings[field.target.id] = str(ast.literal_eval(text.value))
    return meanings


def _sentence(text: str) -> str:
    text = " ".join(text.split()).replace("``", "`")
    return text[:1].upper() + text[1:]


def _default(section: type[Section], name: str, field: FieldInfo) -> str:
    """Return the cell with a key's default value."""
    if name in section.required:
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"`{value[0]}:{value[1]}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return f"`{value}`"


def _bounds(section: type[Section], name: str, field: FieldInfo) -> str:
    """Return the cell with the values that a key may have."""
    if any(other.path.startswith(f"{section.path}.{name}") for other in sections()):
        return "a section"
    kinds = [kind for annotation in (field.annotation, *field.metadata) for kind in _kinds(annotation)]
    words = [kind.text for kind in kinds if isinstance(kind, SyntaxHint)]
    if words:
        return f"a list, each {words[0]}" if any(get_origin(kind) is list for kind in kinds) else words[0]
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    low = next((getattr(kind, key) for kind in kinds for key in ("gt", "ge") if hasattr(kind, key)), None)
    high = next((kind.le for kind in kinds if hasattr(kind, "le")), None)
    if low is not None and high is not None:
        above = "above " if any(hasattr(kind, "gt") for kind in kinds) else ""
        return f"{above}{low:g}{',' if above else ''} to {high:.10g}"
    return "true or false" if bool in kinds else "text" if str in kinds else ""


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield a type, its components and its annotations, recursively."""
    yield annotation
    yield from getattr(annotation, "metadata", ())
    for part in get_args(annotation):
        yield from _kinds(part)
