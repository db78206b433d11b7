"""Reading a YAML file so that every value still knows the line and column it was written at.

PyYAML reads YAML 1.1, in which ``010`` is 8, ``no`` is False, ``1:30`` is 90 and a key written twice is silently the
last one. Here a scalar becomes a number only if any reader would take it for that decimal number; whatever YAML 1.1
would turn into something else stays the text that its author wrote, and the field it belongs to then accepts or
refuses that text. Duplicate keys, aliases and tags are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import yaml

from controller.errors import DetsError

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


@dataclass(frozen=True, slots=True, order=True)
class ConfigProblem:
    """One thing wrong with a configuration. ``line`` and ``column`` count from 1; 0 means the file as a whole."""

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
            lines.append(f"{self.source_name}{place}: {path}{problem.message}")
        return lines


def show_path(path: Path) -> str:
    """Return a path the way a reader would write it: ``switches.s1.ports.2.trunk[0]``."""
    text = ".".join(path).replace(".[", "[")
    return text if text.isprintable() else repr(text)[1:-1]


def show_value(value: object) -> str:
    """Return ``value`` on one line and cut short, since a value may be a whole section."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(slots=True)
class Document:
    """A file's content as plain Python values, where each of them stood, and what was wrong with it so far.

    Mapping keys are always text (``vlans: {10: ...}`` has the key ``"10"``); the path of a list's element has ``[0]``.
    """

    data: object = None
    problems: list[ConfigProblem] = field(default_factory=list)
    _keys: dict[Path, Position] = field(default_factory=dict)
    _values: dict[Path, Position] = field(default_factory=dict)

    def locate(self, path: Path, at_key: bool = False) -> Position:
        """Return where ``path`` stands, or where the innermost of its sections that exists does."""
        places = self._keys if at_key else self._values
        if path in places:
            return places[path]
        while path and path not in self._keys:
            path = path[:-1]
        return self._keys.get(path, (1, 1))

    def has(self, path: Path) -> bool:
        """Tell whether something stands at ``path``."""
        return path in self._keys

    def report(self, path: Path, message: str, at_key: bool = False) -> None:
        """Add a problem at ``path``."""
        line, column = self.locate(path, at_key)
        self.problems.append(ConfigProblem(line, column, show_path(path), message))


def read_document(text: str) -> Document:
    """Return the content of a YAML text; syntax errors and everything else refused stand in its ``problems``."""
    document = Document()
    try:
        if _is_deep(text):
            document.problems.append(ConfigProblem(0, 0, "", f"sections are nested more than {_MAX_DEPTH} deep"))
            return document
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        document.problems.append(_syntax_problem(error))
        return document
    except yaml.YAMLError as error:
        document.problems.append(ConfigProblem(0, 0, "", " ".join(str(error).split())))
        return document
    if root is None:
        document.problems.append(ConfigProblem(0, 0, "", "the file is empty"))
        return document
    document.data = _Reader(document).value(root, ())
    return document


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

    def __init__(self, document: Document) -> None:
        self._document = document
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, path: Path) -> object:
        if id(node) in self._seen:
            # The node's own position is that of the anchor, so the key's is told.
            message = "is an alias (*name), which is not supported: write the value out"
            self._document.report(path, message, at_key=True)
            return None
        self._document._values[path] = _position(node)
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, path, frozenset({f"{_TAG}seq"}))
            return [self.value(item, (*path, f"[{index}]")) for index, item in enumerate(node.value)]
        self._check_tag(node, path, _PLAIN_TAGS)
        return _scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        self._check_tag(node, path, frozenset({f"{_TAG}map"}))
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line, column = _position(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                message = "a key must be a word or a number, not a section"
                self._document.problems.append(ConfigProblem(line, column, show_path(path), message))
                continue
            key_path = (*path, str(key_node.value))
            if key_path[-1] in values:
                first = self._document.locate(key_path, at_key=True)
                message = f"is written twice: first in line {first[0]}, again in line {line}"
                self._document.problems.append(ConfigProblem(line, column, show_path(key_path), message))
                continue
            self._document._keys[key_path] = (line, column)
            values[key_path[-1]] = self.value(value_node, key_path)
        return values

    def _check_tag(self, node: yaml.Node, path: Path, known: frozenset[str]) -> None:
        if node.tag not in known:
            self._document.report(path, f"has the tag {node.tag}, which is not supported: write the plain value")


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
