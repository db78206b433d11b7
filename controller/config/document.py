"""A YAML file as plain values, and the line and column of each of them.

Readers of a file's values know paths only: they return or yield a ``Problem`` for what is wrong. ``Document.place``
adds the positions, once, at the end.

PyYAML reads YAML 1.1: ``010`` is 8, ``no`` is False, ``1:30`` is 90, and of a key written twice the last one counts.
Here a scalar becomes a number only if every reader would take it for that decimal number. All else stays the text that
its author wrote; the field that it belongs to accepts or refuses it. Duplicate keys, aliases and tags are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import yaml

from controller.errors import DetsError
from controller.printable import printable

Path = tuple[str, ...]
Position = tuple[int, int]

# The C parser is ten times faster, which a file of thousands of ports feels; PyYAML's wheels all carry it.
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(
    f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")
)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
# Python refuses to turn longer texts into an int (sys.int_info.default_max_str_digits); no field needs as many.
_MAX_DIGITS = 40
_MAX_DEPTH = 32


class Problem(NamedTuple):
    """One thing wrong with the value at ``path``, or with its key if ``at_key``.

    With ``see``, the line of that other path follows ``message`` in parentheses, and ``rest`` follows the line.
    """

    path: Path
    message: str
    at_key: bool = False
    see: Path | None = None
    rest: str = ""


@dataclass(frozen=True, slots=True, order=True)
class ConfigProblem:
    """One thing wrong with a file, and where. ``line`` and ``column`` count from 1; 0 means the file as a whole."""

    line: int
    column: int
    path: str
    message: str


class ConfigError(DetsError):
    """A configuration is not acceptable. ``problems`` holds all that is wrong with it, in the order of the file."""

    def __init__(self, source_name: str, problems: Sequence[ConfigProblem]) -> None:
        self.source_name = source_name
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        lines = []
        for problem in self.problems:
            place = f":{problem.line}:{problem.column}" if problem.line else ""
            path = f"{problem.path}: " if problem.path else ""
            lines.append(printable(f"{self.source_name}{place}: {path}{problem.message}"))
        return lines


def show_path(path: Path) -> str:
    """Return a path the way a reader would write it: ``switches.s1.ports.2.trunk[0]``."""
    text = ".".join(path).replace(".[", "[")
    return text if text.isprintable() else repr(text)[1:-1]


def show_value(value: object) -> str:
    """Return ``value`` on one line and cut short, since a value may be a whole section."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content as plain Python values, the position of each, and what is wrong with it as YAML.

    Mapping keys are always text (``vlans: {10: ...}`` has the key ``"10"``); the path of a list's element has ``[0]``.
    """

    data: object = None
    problems: tuple[ConfigProblem, ...] = ()
    keys: Mapping[Path, Position] = field(default_factory=dict)
    values: Mapping[Path, Position] = field(default_factory=dict)

    def locate(self, path: Path, at_key: bool = False) -> Position:
        """Return the position of ``path``, or of the innermost section around it that exists."""
        places = self.keys if at_key else self.values
        if path in places:
            return places[path]
        while path and path not in self.keys:
            path = path[:-1]
        return self.keys.get(path, (1, 1))

    def place(self, problems: Iterable[Problem]) -> list[ConfigProblem]:
        """Return problems with their positions in this file."""
        return [self._placed(problem) for problem in problems]

    def _placed(self, problem: Problem) -> ConfigProblem:
        message = problem.message
        if problem.see is not None:
            message += f" (line {self.locate(problem.see)[0]}){problem.rest}"
        return ConfigProblem(*self.locate(problem.path, problem.at_key), show_path(problem.path), message)


def read_document(text: str) -> Document:
    """Return the content of a YAML text; ``problems`` names syntax errors and all else that is refused."""
    try:
        if _is_deep(text):
            return _unreadable(f"sections are nested more than {_MAX_DEPTH} deep")
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        return Document(problems=(_syntax_problem(error),))
    except yaml.YAMLError as error:
        return _unreadable(" ".join(str(error).split()))
    return _unreadable("the file is empty") if root is None else _Reader().document(root)


def _unreadable(message: str) -> Document:
    return Document(problems=(ConfigProblem(0, 0, "", message),))


def _is_deep(text: str) -> bool:
    # The parser's events come without recursion; composing them recurses in C and would overrun its stack.
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return False


def _syntax_problem(error: yaml.MarkedYAMLError) -> ConfigProblem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    words = [word for word in (error.problem, error.context) if word]
    return ConfigProblem(line, column, "", "not YAML: " + ", ".join(words))


class _Reader:
    """Turns PyYAML's nodes into values; one per document."""

    def __init__(self) -> None:
        self._keys: dict[Path, Position] = {}
        self._values: dict[Path, Position] = {}
        self._seen: set[int] = set()
        self._problems: list[Problem] = []
        self._bad_keys: list[ConfigProblem] = []  # a key that is refused is in no path, but its position is known

    def document(self, root: yaml.Node) -> Document:
        data = self._value(root, ())
        document = Document(data, (), self._keys, self._values)
        return replace(document, problems=(*self._bad_keys, *document.place(self._problems)))

    def _value(self, node: yaml.Node, path: Path) -> object:
        if id(node) in self._seen:
            # The node's own position is that of the anchor.
            message = "is an alias (*name), which is not supported: write the value out"
            self._problems.append(Problem(path, message, at_key=True))
            return None
        self._values[path] = _position(node)
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, path, frozenset({f"{_TAG}seq"}))
            return [self._value(item, (*path, f"[{index}]")) for index, item in enumerate(node.value)]
        self._check_tag(node, path, _PLAIN_TAGS)
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        self._check_tag(node, path, frozenset({f"{_TAG}map"}))
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line, column = _position(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                message = "a key must be a word or a number, not a section"
                self._bad_keys.append(ConfigProblem(line, column, show_path(path), message))
                continue
            key_path = (*path, str(key_node.value))
            if key_path[-1] in values:
                message = f"is written twice: first in line {self._keys[key_path][0]}, again in line {line}"
                self._bad_keys.append(ConfigProblem(line, column, show_path(key_path), message))
                continue
            self._keys[key_path] = (line, column)
            values[key_path[-1]] = self._value(value_node, key_path)
        return values

    def _check_tag(self, node: yaml.Node, path: Path, known: frozenset[str]) -> None:
        if node.tag not in known:
            message = f"has the tag {node.tag}, which is not supported: write the plain value"
            self._problems.append(Problem(path, message))


def _position(node: yaml.Node) -> Position:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _scalar(node: yaml.Node) -> object:
    text = str(node.value)
    kind = node.tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "int" and _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS:
        return int(text)
    if kind == "float" and _DECIMAL.fullmatch(text):
        return float(text)
    return text
