"""Plugins: algorithms, policies, topologies and scenarios of other packages, declared by entry points.

A plugin is an entry point of one of ``GROUPS``. An installed package declares it, or the ``pyproject.toml`` in the
folder that the environment variable ``DETS_PLUGINS`` names. A plugin that fails is in ``faults``; the others
work. Standard library only: ``mn --custom`` loads topologies with the system's Python.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from controller.errors import InvalidValueError
from controller.rooms import load

GROUPS = {
    "dets.algorithms": "algorithm",
    "dets.policies": "policy",
    "dets.topologies": "topology",
    "dets.scenarios": "scenario",
}
"""The kinds of objects of each group."""
ALGORITHMS, POLICIES, TOPOLOGIES, SCENARIOS = GROUPS
VARIABLE = "DETS_PLUGINS"
MAX_PYPROJECT_BYTES = 1_000_000
_T = TypeVar("_T")


class Plugin(NamedTuple):
    """An entry point: its group and name, ``MODULE:NAME``, and the distribution or file that declares it."""

    group: str
    name: str
    target: str
    origin: str

    def __str__(self) -> str:
        return f"{GROUPS[self.group]} {self.name!r} of {self.origin}"


faults: dict[Plugin, str] = {}
"""The plugins and scenario files that could not be loaded, with the reasons."""


def fault_of(name: str, *groups: str) -> str | None:
    """Return why the plugin of this name could not be loaded; None: there is no such fault."""
    return next((f"{one}: {why}" for one, why in faults.items() if one.name == name and one.group in groups), None)


def reason_of(error: BaseException) -> str:
    """Return an error as text: the project's own errors unchanged, others with their type."""
    return str(error) if isinstance(error, InvalidValueError) else f"{type(error).__name__}: {error}"


def declared(group: str) -> list[Plugin]:
    """Return the plugins of a group: those of the folder first, then those of distributions by name."""
    from importlib.metadata import entry_points  # deferred: naming a group or setting a folder does not need it

    found = []
    for point in entry_points(group=group):
        origin = "an installed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        found.append(Plugin(group, point.name, point.value, origin))
    found = [*_of_folder(group), *sorted(found, key=lambda one: (one.origin, one.name))]
    once: dict[tuple[str, str], Plugin] = {}
    for one in found:  # a folder may be installed as well
        once.setdefault((one.name, one.target), one)
    return [*once.values()]


def loaded(group: str, known: Mapping[str, Any], check: Callable[[str, Any], None]) -> dict[str, Any]:
    """Return the loaded plugins of a group, by name. One that fails, or is in ``known``, becomes a fault.

    ``check`` raises an error for an object of the wrong type.
    """
    made: dict[str, Any] = {}
    for plugin in declared(group):
        try:
            if plugin.name in known or plugin.name in made:
                raise InvalidValueError("name", plugin.name, "is taken")
            value = load(plugin.target)
            check(plugin.name, value)
        except (Exception, SystemExit) as error:
            faults[plugin] = reason_of(error)
        else:
            made[plugin.name] = value
    return made


def use_folder(folder: Path) -> None:
    """Use the plugins of a folder in this process and its children; InvalidValueError if it has none."""
    _entries(folder)
    os.environ[VARIABLE] = str(folder.resolve())


def _of_folder(group: str) -> Iterator[Plugin]:
    """Yield the plugins of a group in the folder that the environment names; its errors become ``faults``."""
    if not (named := os.environ.get(VARIABLE)):
        return
    folder = Path(named)
    try:
        entries = _entries(folder).get(group, {})
    except InvalidValueError as error:
        faults[Plugin(group, "*", "", named)] = error.reason
        return
    source = str(folder / "src" if (folder / "src").is_dir() else folder)
    if source not in sys.path:
        sys.path.append(source)  # at the end: it hides no module of the project or of Python
    yield from (Plugin(group, name, target, named) for name, target in sorted(entries.items()))


def _entries(folder: Path) -> dict[str, dict[str, str]]:
    """Return the entry points that a folder's ``pyproject.toml`` declares, by group and name."""
    path = folder / "pyproject.toml"
    try:
        with path.open("rb") as file:
            text = file.read(MAX_PYPROJECT_BYTES + 1)
    except OSError as error:
        raise InvalidValueError("plugins", str(folder), f"has no pyproject.toml to read: {error.strerror}") from error
    if len(text) > MAX_PYPROJECT_BYTES:
        raise InvalidValueError("plugins", str(folder), f"pyproject.toml is above {MAX_PYPROJECT_BYTES} bytes")
    try:
        found = tomllib.loads(text.decode()).get("project", {}).get("entry-points", {})
    except (ValueError, AttributeError) as error:
        raise InvalidValueError("plugins", str(folder), f"pyproject.toml is not valid: {error}") from error
    of_dets = {group: found.get(group, {}) for group in GROUPS} if isinstance(found, dict) else {}
    for group, entries in of_dets.items():
        if not isinstance(entries, dict) or not all(isinstance(target, str) for target in entries.values()):
            raise InvalidValueError("plugins", str(folder), f"pyproject.toml: {group} is not a table of NAME = TEXT")
    if not any(of_dets.values()):
        raise InvalidValueError("plugins", str(folder), f"pyproject.toml declares none of {', '.join(GROUPS)}")
    return of_dets


class Extended(Mapping[str, _T], Generic[_T]):
    """The project's own objects of a kind by name, and those of plugins, which are loaded at the first access."""

    def __init__(self, own: dict[str, _T], group: str, check: Callable[[str, Any], None]) -> None:
        self._own, self._group, self._check = own, group, check

    @cached_property
    def _all(self) -> dict[str, _T]:
        return {**self._own, **loaded(self._group, self._own, self._check)}

    def __getitem__(self, name: str) -> _T:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)
