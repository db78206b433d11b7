"""A YAML file as plain values, and the line and column of each of them.

Readers of values use paths only: they return or yield a ``Problem`` with its path. ``Document.with_positions`` adds the
positions, once, at the end.

PyYAML reads YAML 1.1: ``010`` is 8, ``no`` is False, ``1:30`` is 90, and the last one of two equal keys counts. Here a
scalar becomes a number only if it is a plain decimal number. All other scalars stay text; their field accepts or
rejects them. Duplicate keys, aliases and tags are rejected.

A file is read at most twice. The first reader is fast and keeps no positions, since a valid file needs none. If it
fails, the second reader finds the problems and positions.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import yaml

from controller.errors import DetsError
from controller.printable import printable

Path = tuple[str, ...]
Position = tuple[int, int]

# The C parser is ten times faster, which matters for thousands of ports; all of PyYAML's wheels have it.
_LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset(
    f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value")
)
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
# Python converts no longer texts into an int (sys.int_info.default_max_str_digits); no field needs as many digits.
_MAX_DIGITS = 40
_MAX_DEPTH = 32
KEY_RANGE = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")
"""a key of several numbers: ``1-24``"""
_UNKNOWN = object()


class Bounds(NamedTuple):
    """The maximum number of items of a section or a list, by its key; ``default`` is for all other keys."""

    by_key: Mapping[str, int]
    default: int

    def max_items(self, key: str) -> int:
        """Return the maximum number of items at a key."""
        return self.by_key.get(key, self.default)


NO_BOUNDS = Bounds({}, sys.maxsize)


class Problem(NamedTuple):
    """One problem of the value at ``path``, or of the key there if ``at_key``.

    ``see`` is another path: then the text is ``message``, the line of that path in parentheses, and ``rest``.
    """

    path: Path
    message: str
    at_key: bool = False
    see: Path | None = None
    rest: str = ""


@dataclass(frozen=True, slots=True, order=True)
class ConfigProblem:
    """One problem of a file, with its position. ``line`` and ``column`` count from 1; 0 means the file as a whole.

    ``source`` is the file, if the configuration may have several.
    """

    line: int
    column: int
    path: str
    message: str
    source: str = ""


class ConfigError(DetsError):
    """An invalid configuration. ``problems`` has all its problems, in the order of the file."""

    def __init__(self, source_name: str, problems: Sequence[ConfigProblem]) -> None:
        self.source_name = source_name
        self.problems = tuple(sorted(problems, key=lambda one: ("" if one.source == source_name else one.source, one)))
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        """Return a line for each problem; equal problems of one key share a line."""
        alike: dict[tuple[str, str], list[ConfigProblem]] = {}  # by the last key of the path, and message
        for problem in self.problems:
            key = problem.path.partition("[")[0].rpartition(".")[2]
            alike.setdefault((key, problem.message), []).append(problem)
        lines = []
        for first, *others in alike.values():
            position = f":{first.line}:{first.column}" if first.line else ""
            path = f"{first.path}: " if first.path else ""
            of_file = "" if not others or others[-1].source == first.source else f" of {others[-1].source}"
            more = f" (and {len(others)} more like this, the last in line {others[-1].line}{of_file})" if others else ""
            lines.append(printable(f"{first.source or self.source_name}{position}: {path}{first.message}{more}"))
        return lines


def show_path(path: Path) -> str:
    """Return a path in text form: ``switches.s1.ports.2.trunk[0]``."""
    text = ".".join(path).replace(".[", "[")
    return text if text.isprintable() else repr(text)[1:-1]


def show_value(value: object) -> str:
    """Return ``value`` on one line, cut short, since a value may be a whole section."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Positions(NamedTuple):
    """The positions of keys and values in a file, by path."""

    keys: Mapping[Path, Position] = {}
    values: Mapping[Path, Position] = {}


@dataclass(frozen=True)
class Document:
    """A file's content as plain Python values, and its YAML problems; ``find`` finds positions.

    Mapping keys are always text (``vlans: {10: ...}`` has the key ``"10"``); the path of a list's element has ``[0]``.
    """

    data: object = None
    problems: tuple[ConfigProblem, ...] = ()
    find: Callable[[], Positions] = field(default=Positions, repr=False, compare=False)

    @cached_property
    def positions(self) -> Positions:
        """The positions of all keys and values, found at the first access."""
        return self.find()

    def locate(self, path: Path, at_key: bool = False) -> Position:
        """Return the position of ``path``, or of the innermost section around it that exists."""
        keys, values = self.positions
        positions = keys if at_key else values
        if path not in positions:
            path = self._as_written(path)
        if path in positions:
            return positions[path]
        while path and path not in keys:
            path = path[:-1]
        return keys.get(path, (1, 1))

    @cached_property
    def _ranges(self) -> list[tuple[Path, range]]:
        """The paths whose last key is a range, such as ``1-24``, with the range's numbers."""
        matches = ((path, KEY_RANGE.fullmatch(path[-1])) for path in self.positions.keys)
        return [(path, range(int(match[1]), int(match[2]) + 1)) for path, match in matches if match is not None]

    def _as_written(self, path: Path) -> Path:
        """Return a path with the keys of the file: for ``7`` the key ``1-24``, if the file has no ``7``."""
        written: Path = ()
        for key in path:
            section, written = written, (*written, key)
            if written not in self.positions.keys and key.isdecimal():
                ranges = (found for found, numbers in self._ranges if found[:-1] == section and int(key) in numbers)
                written = next(ranges, written)
        return written

    def with_positions(self, problems: Iterable[Problem]) -> list[ConfigProblem]:
        """Return problems with their positions in this file."""
        return [position_problem(problem, lambda path: ("", self, path)) for problem in problems]


def position_problem(problem: Problem, owner: Callable[[Path], tuple[str, Document, Path]]) -> ConfigProblem:
    """Return a problem with its position; ``owner`` returns a path's file name, document, and path in that file."""
    name, document, path = owner(problem.path)
    message = problem.message
    if problem.see is not None:
        see_name, see_document, see_path = owner(problem.see)
        of_file = "" if see_name == name else f" of {see_name}"
        message += f" (line {see_document.locate(see_path)[0]}{of_file}){problem.rest}"
    return ConfigProblem(*document.locate(path, problem.at_key), show_path(path), message, name)


def read_document(text: str, bounds: Bounds = NO_BOUNDS) -> Document:
    """Return the content of a YAML text; ``problems`` has syntax errors and all other rejected parts.

    A text that exceeds the ``bounds`` has that one problem, and is not read further.
    """
    try:
        return Document(_PlainReader(text, bounds).data, (), lambda: _read_slowly(text, bounds).positions)
    except (_NotPlainError, yaml.YAMLError):
        return _read_slowly(text, bounds)


def _read_slowly(text: str, bounds: Bounds) -> Document:
    """Return the content of a YAML text, read by the slow reader, which finds the position of every problem."""
    try:
        excess = _excess(text, bounds)
        if excess is not None:
            return Document(problems=(excess,))
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        return Document(problems=(_syntax_problem(error, text),))
    except yaml.YAMLError as error:
        return _unreadable(" ".join(str(error).split()))
    return _unreadable("the file is empty") if root is None else _Reader().document(root)


def _unreadable(message: str) -> Document:
    return Document(problems=(ConfigProblem(0, 0, "", message),))


@dataclass(slots=True)
class _OpenCollection:
    """A section or list that the parser has not read to its end; a section has two nodes for each item."""

    key: str
    max_items: int
    is_section: bool
    node_count: int = 0


def _excess(text: str, bounds: Bounds) -> ConfigProblem | None:
    """Return the position at which a text is nested too deep, or has too many items; None if it is within bounds.

    This reads the parser's events, which takes no recursion: composing nodes recurses in C and can overflow the stack.
    """
    collections: list[_OpenCollection] = []  # from the outermost to the innermost
    key = ""  # of the next value
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            key = collections.pop().key
        if not isinstance(event, yaml.NodeEvent):
            continue
        if collections:
            inner = collections[-1]
            inner.node_count += 1
            if not inner.is_section:
                key = f"[{inner.node_count - 1}]"
            elif inner.node_count % 2:  # a key, not a value
                key = event.value if isinstance(event, yaml.ScalarEvent) else ""
            if inner.node_count > inner.max_items * (1 + inner.is_section):
                path = show_path(tuple(collection.key for collection in collections[1:]))
                return ConfigProblem(*_position(event), path, f"has more than {inner.max_items} entries, the maximum")
        if isinstance(event, yaml.CollectionStartEvent):
            if len(collections) == _MAX_DEPTH:
                return ConfigProblem(0, 0, "", f"sections are nested more than {_MAX_DEPTH} deep")
            collections.append(_OpenCollection(key, bounds.max_items(key), isinstance(event, yaml.MappingStartEvent)))
    return None


class _NotPlainError(Exception):
    """The file has a feature that only the second reader handles."""


class _PlainReader:
    """Turns PyYAML's events into values, in one pass, for files without YAML problems.

    ``data`` is the content. Raises _NotPlainError or YAMLError for all others, and for anchors, tags or an empty
    document, which may be valid.
    """

    def __init__(self, text: str, bounds: Bounds) -> None:
        loader: Any = _LOADER(text)
        self._next, self._resolve, self._bounds = loader.get_event, loader.resolve, bounds
        self._value_of_text: dict[str, object] = {}  # most scalars appear in a file many times
        try:
            self._expect(yaml.StreamStartEvent)
            self._expect(yaml.DocumentStartEvent)
            self.data = self._value(self._next(), "", 0)
            self._expect(yaml.DocumentEndEvent)
            self._expect(yaml.StreamEndEvent)
        finally:
            loader.dispose()

    def _expect(self, kind: type) -> None:
        if type(self._next()) is not kind:
            raise _NotPlainError

    def _value(self, event: Any, key: str, depth: int) -> object:
        """Return the value of an event; _NotPlainError for what only the slow reader handles."""
        kind = type(event)
        if kind is yaml.AliasEvent or event.anchor is not None or event.tag is not None:
            raise _NotPlainError
        if kind is yaml.ScalarEvent:
            return self._scalar(event)
        if depth == _MAX_DEPTH:
            raise _NotPlainError
        read = self._section if kind is yaml.MappingStartEvent else self._list
        return read(self._bounds.max_items(key), depth + 1)

    def _section(self, max_items: int, depth: int) -> dict[str, object]:
        """Return the section of the current event; _NotPlainError for what only the slow reader handles."""
        values: dict[str, object] = {}
        next_event, scalar = self._next, yaml.ScalarEvent  # local names, since this loop reads most of a file
        while type(event := next_event()) is scalar:
            key = event.value
            if key in values or len(values) == max_items or event.anchor is not None:
                raise _NotPlainError
            event = next_event()
            if type(event) is scalar and event.tag is None and event.anchor is None:
                values[key] = self._scalar(event)
            else:
                values[key] = self._value(event, key, depth)
        if type(event) is not yaml.MappingEndEvent:
            raise _NotPlainError
        return values

    def _list(self, max_items: int, depth: int) -> list[object]:
        values: list[object] = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            if len(values) == max_items:
                raise _NotPlainError
            values.append(self._value(event, f"[{len(values)}]", depth))
        return values

    def _scalar(self, event: Any) -> object:
        """Return the value of a scalar; equal texts are resolved once."""
        text = event.value
        if not event.implicit[0]:  # in quotes
            return text
        value = self._value_of_text.get(text, _UNKNOWN)
        if value is _UNKNOWN:
            value = self._value_of_text[text] = _scalar(self._resolve(yaml.ScalarNode, text, event.implicit), text)
        return value


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> ConfigProblem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    words = [word for word in (error.problem, error.context) if word]
    if mark and "".join(text.split("\n")[mark.line : mark.line + 1])[mark.column :].startswith("\t"):
        words = ["a tab stands where only spaces can indent"]
    return ConfigProblem(line, column, "", "not YAML: " + ", ".join(words))


class _Reader:
    """Turns PyYAML's nodes into values; one per document."""

    def __init__(self) -> None:
        self._keys: dict[Path, Position] = {}
        self._values: dict[Path, Position] = {}
        self._seen: set[int] = set()  # the ids of the nodes read so far: PyYAML composes an alias as the same node
        self._problems: list[Problem] = []
        self._bad_keys: list[ConfigProblem] = []  # a rejected key is in no path, but its position is known

    def document(self, root: yaml.Node) -> Document:
        """Return the document of a root node, with its problems and positions."""
        data = self._value(root, ())
        positions = Positions(self._keys, self._values)
        problems = Document(data, (), lambda: positions).with_positions(self._problems)
        return Document(data, (*self._bad_keys, *problems), lambda: positions)

    def _value(self, node: yaml.Node, path: Path) -> object:
        """Return a node's value and record its position; None for an alias, which is a problem."""
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
        return _scalar(node.tag, str(node.value))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, object]:
        """Return a section; record keys that are no scalar, an alias, or written twice as problems."""
        self._check_tag(node, path, frozenset({f"{_TAG}map"}))
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            line, column = _position(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                message = "a key must be a word or a number, not a section"
                self._bad_keys.append(ConfigProblem(line, column, show_path(path), message))
                continue
            if id(key_node) in self._seen:  # its own position is that of the anchor: the value is nearer
                message = "has a key that is an alias (*name), which is not supported: write the key out"
                self._bad_keys.append(ConfigProblem(*_position(value_node), show_path(path), message))
                continue
            self._seen.add(id(key_node))
            key_path = (*path, str(key_node.value))
            if key_path[-1] in values:
                message = f"is written twice: first in line {self._keys[key_path][0]}, again in line {line}"
                self._bad_keys.append(ConfigProblem(line, column, show_path(key_path), message))
                continue
            self._keys[key_path] = (line, column)
            values[key_path[-1]] = self._value(value_node, key_path)
        return values

    def _check_tag(self, node: yaml.Node, path: Path, supported: frozenset[str]) -> None:
        if node.tag not in supported:
            message = f"has the tag {node.tag}, which is not supported: write the plain value"
            self._problems.append(Problem(path, message))


def _position(node: yaml.Node | yaml.Event) -> Position:
    mark: Any = node.start_mark
    return mark.line + 1, mark.column + 1


def _scalar(tag: str, text: str) -> object:
    """Return the value of a scalar by its tag; the text if it does not fit the tag."""
    kind = tag.removeprefix(_TAG)
    if kind == "null":
        return None
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "int" and _INTEGER.fullmatch(text) and len(text) <= _MAX_DIGITS:
        return int(text)
    if kind == "float" and _DECIMAL.fullmatch(text):
        return float(text)
    return text
