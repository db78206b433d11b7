"""Plugins: algorithms, policies, topologies and scenarios of other packages, declared by entry points.

A plugin is an entry point of one of ``GROUPS``. An installed package declares it, or the ``pyproject.toml`` in the
folder that the environment variable ``DETS_PLUGINS`` names. A plugin that cannot be loaded is recorded in ``faults``,
and the others are used. Standard library only: ``mn --custom`` loads topologies with the system's Python.
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
    return next(
        (f"{plugin}: {why}" for plugin, why in faults.items() if plugin.name == name and plugin.group in groups), None
    )


def reason_of(error: BaseException) -> str:
    """Return an error as text: the project's own errors unchanged, others with their type."""
    return str(error) if isinstance(error, InvalidValueError) else f"{type(error).__name__}: {error}"


def declared(group: str) -> list[Plugin]:
    """Return the plugins that a group declares, without loading them: the folder's first, then those of distributions.

    Distributions are in the order of their names. A plugin that both declare is returned once.
    """
    from importlib.metadata import entry_points  # deferred: naming a group or setting a folder does not need it

    installed = []
    for point in entry_points(group=group):
        origin = "an installed package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
        installed.append(Plugin(group, point.name, point.value, origin))
    installed.sort(key=lambda plugin: (plugin.origin, plugin.name))
    unique: dict[tuple[str, str], Plugin] = {}
    for plugin in [*_of_folder(group), *installed]:
        unique.setdefault((plugin.name, plugin.target), plugin)
    return [*unique.values()]


def loaded(group: str, known: Mapping[str, Any], check: Callable[[str, Any], None]) -> dict[str, Any]:
    """Return the objects of a group's plugins, by name; a plugin that cannot be loaded is added to ``faults``.

    ``known`` are the objects whose names are taken. ``check`` raises an error for an object of the wrong type.
    """
    objects: dict[str, Any] = {}
    for plugin in declared(group):
        try:
            if plugin.name in known or plugin.name in objects:
                raise InvalidValueError("name", plugin.name, "is taken")
            value = load(plugin.target)
            check(plugin.name, value)
        except (Exception, SystemExit) as error:
            faults[plugin] = reason_of(error)
        else:
            objects[plugin.name] = value
    return objects


def use_folder(folder: Path) -> None:
    """Use the plugins of a folder in this process and its children; raise InvalidValueError if the folder has none."""
    _entries(folder)
    os.environ[VARIABLE] = str(folder.resolve())


def _of_folder(group: str) -> Iterator[Plugin]:
    """Yield the plugins of a group in the folder that the environment names, and let its modules be imported.

    A folder without valid plugins is added to ``faults``.
    """
    folder_name = os.environ.get(VARIABLE)
    if not folder_name:
        return
    folder = Path(folder_name)
    try:
        entries = _entries(folder).get(group, {})
    except InvalidValueError as error:
        faults[Plugin(group, "*", "", folder_name)] = error.reason
        return
    source = str(folder / "src" if (folder / "src").is_dir() else folder)
    if source not in sys.path:
        sys.path.append(source)  # last, so that the folder hides no module of the project or of Python
    yield from (Plugin(group, name, target, folder_name) for name, target in sorted(entries.items()))


def _entries(folder: Path) -> dict[str, dict[str, str]]:
    """Return the entry points, ``MODULE:NAME``, that a folder's ``pyproject.toml`` declares, by group and name.

    Raises InvalidValueError if the file cannot be read, is not valid, or declares no plugin.
    """
    path = folder / "pyproject.toml"
    try:
        with path.open("rb") as file:
            text = file.read(MAX_PYPROJECT_BYTES + 1)
    except OSError as error:
        raise InvalidValueError("plugins", str(folder), f"has no pyproject.toml to read: {error.strerror}") from error
    if len(text) > MAX_PYPROJECT_BYTES:
        raise InvalidValueError("plugins", str(folder), f"pyproject.toml is above {MAX_PYPROJECT_BYTES} bytes")
    try:
        by_group = tomllib.loads(text.decode()).get("project", {}).get("entry-points", {})
    except (ValueError, AttributeError) as error:
        raise InvalidValueError("plugins", str(folder), f"pyproject.toml is not valid: {error}") from error
    own_groups = {group: by_group.get(group, {}) for group in GROUPS} if isinstance(by_group, dict) else {}
    for group, entries in own_groups.items():
        if not isinstance(entries, dict) or not all(isinstance(target, str) for target in entries.values()):
            raise InvalidValueError("plugins", str(folder), f"pyproject.toml: {group} is not a table of NAME = TEXT")
    if not any(own_groups.values()):
        raise InvalidValueError("plugins", str(folder), f"pyproject.toml declares none of {', '.join(GROUPS)}")
    return own_groups


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
