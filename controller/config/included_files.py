"""A configuration in several files: the main one, and those that it includes, which hold VLANs, switches and links."""

from __future__ import annotations

import glob
import os
import pathlib
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import BinaryIO

from controller.config.yaml_document import (
    Bounds,
    ConfigError,
    ConfigProblem,
    Document,
    Path,
    Problem,
    position_problem,
    read_document,
)

MAX_FILE_BYTES = 64 * 2**20  # of all files together
MAX_FILES = 1024
SECTIONS = ("vlans", "switches", "links")


def read_file(path: pathlib.Path, name: str) -> str:
    """Return the text of the file called ``name`` in errors; raise ConfigError for one that cannot be read."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigError(name, [ConfigProblem(0, 0, "", "is not a regular file")])
            return read_text(stream, name)
    except OSError as error:
        raise ConfigError(name, [ConfigProblem(0, 0, "", f"cannot be read: {error.strerror}")]) from error


def read_text(stream: BinaryIO, name: str) -> str:
    """Return the text that a stream holds; raise ConfigError as ``read_file`` does, OSError from reading."""
    content = stream.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(name, [ConfigProblem(0, 0, "", f"is larger than {MAX_FILE_BYTES} bytes")])
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        raise ConfigError(name, [ConfigProblem(line, column, "", "is not UTF-8 text")]) from error


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file; a FIFO would be waited for until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


class JoinedFiles:
    """The main file and the included files, joined to one content, ``data``.

    ``problems`` are the problems of reading them as YAML and of joining them. ``folder`` is that of the included files;
    None: files cannot be included.
    """

    def __init__(self, text: str, name: str, folder: pathlib.Path | None, bounds: Bounds) -> None:
        self._bounds, self._bytes = bounds, len(text)
        self._main = (name, read_document(text, bounds))
        self._owners: dict[Path, tuple[str, Document, Path]] = {}  # by the first two keys of paths in ``data``
        self.data = self._main[1].data
        self.problems = list(self._main[1].problems)
        if isinstance(self.data, dict) and isinstance(names := self.data.get("include"), list):
            self.data = {**self.data, "include": []}
            self.problems += self.with_positions(self._include(self.data, names, folder))

    def with_positions(self, problems: Iterable[Problem]) -> list[ConfigProblem]:
        """Return problems with the files that they are in, and their positions there."""
        return [position_problem(problem, self._owner) for problem in problems]

    def _owner(self, path: Path) -> tuple[str, Document, Path]:
        """Return the name and document of the file that has ``path``, a path in ``data``, and the path in that file."""
        name, document, start = self._owners.get(path[:2], (*self._main, path[:2]))
        return name, document, (*start, *path[2:])

    def _include(
        self, data: dict[str, object], entries: list[object], folder: pathlib.Path | None
    ) -> Iterator[Problem]:
        """Join the files that the ``entries`` of ``include`` name to ``data``; yield the problems."""
        for section in SECTIONS:
            if isinstance(content := data.get(section), dict | list):
                data[section] = content.copy()
        read_paths = {os.path.realpath(self._main[0])}
        for index, entry in enumerate(entries):
            path: Path = ("include", f"[{index}]")
            if folder is None or not isinstance(entry, str) or not entry.isprintable():
                yield Problem(path, f"{entry!r} is not the name of a file that can be included here")
                continue
            pattern = os.path.join(glob.escape(str(folder)), entry)
            found = sorted(glob.glob(pattern)) if glob.has_magic(entry) else [folder / entry]
            if not found:
                yield Problem(path, f"no file is called {entry}")
            for file in map(pathlib.Path, found):
                if (real_path := os.path.realpath(file)) in read_paths:
                    yield Problem(path, f"{file} is read already")
                elif len(read_paths) > MAX_FILES:
                    yield Problem(path, f"{file} is one file too many: there can be {MAX_FILES} at most")
                    return
                else:
                    read_paths.add(real_path)
                    yield from self._add(data, file, path)
            if self._bytes > MAX_FILE_BYTES:
                yield Problem(path, f"makes the files larger than {MAX_FILE_BYTES} bytes in all")
                return

    def _add(self, data: dict[str, object], file: pathlib.Path, path: Path) -> Iterator[Problem]:
        """Read an included file and join its sections to ``data``; yield its problems."""
        name = str(file)
        try:
            text = read_file(file, name)
        except ConfigError as error:
            yield Problem(path, f"{name}: {error.problems[0].message}")
            return
        self._bytes += len(text)
        document = read_document(text, self._bounds)
        self.problems += [replace(problem, source=name) for problem in document.problems]
        if document.problems:
            return
        if not isinstance(document.data, dict):
            yield Problem(path, f"{name} holds no sections: write vlans:, switches: or links:")
            return
        for section, entries in document.data.items():
            # Problems of a section as a whole have the path (file, section), which ``data`` does not have.
            self._owners.setdefault((name, section), (name, document, (section,)))
            yield from self._join(data, (name, document), section, entries)

    def _join(
        self, data: dict[str, object], file: tuple[str, Document], section: str, entries: object
    ) -> Iterator[Problem]:
        """Join one section of an included file to ``data``; yield a problem for a key that is in two files."""
        file_path = (file[0], section)  # the path of the section in this file, not in the joined ones
        if section not in SECTIONS:
            yield Problem(file_path, f"is not for an included file: these hold {', '.join(SECTIONS)}", at_key=True)
            return
        joined = data.setdefault(section, type(entries)()) if isinstance(entries, dict | list) else None
        if isinstance(entries, dict) and isinstance(joined, dict):
            for key, value in entries.items():
                if key in joined:
                    yield Problem((*file_path, key), "is in two files", at_key=True, see=(section, key))
                else:
                    joined[key] = value
                    self._owners[section, key] = (*file, (section, key))
        elif isinstance(entries, list) and isinstance(joined, list):
            for index, value in enumerate(entries):
                self._owners[section, f"[{len(joined)}]"] = (*file, (section, f"[{index}]"))
                joined.append(value)
        else:
            yield Problem(file_path, f"is no {'list' if section == 'links' else 'section'}")
