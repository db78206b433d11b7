"""Rooms: optional parts, which other modules import only through this table.

A missing room has no effect until a configuration names it, which is then rejected. To add one: its folder, and a line
here.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from controller.errors import InvalidValueError


class Room(NamedTuple):
    """An optional part: its packages, its main module ``entry``, and a text of what it brings.

    ``commands`` is the module with its sub-commands of ``dets``, ``install`` the distribution that contains it.
    """

    packages: tuple[str, ...]
    entry: str
    brings: str
    commands: str = ""
    install: str = "dets-controller"


ROOMS = {
    "agents": Room(
        ("controller.agents", "apps.agent"), "controller.agents.agent_manager", "agents on hosts", "apps.agent.command"
    ),
    "cluster": Room(
        ("controller.cluster", "controller.node_protocol", "controller.shards", "controller.partition", "apps.cluster"),
        "apps.cluster.cluster_member",
        "several controllers",
        "apps.cluster.command",
        install="dets-controller[cluster]",
    ),
    "seawall": Room(("controller.seawall",), "controller.seawall.policy", "Seawall's policies"),
    "gatekeeper": Room(("controller.gatekeeper",), "controller.gatekeeper.policy", "Gatekeeper's policy"),
    "hygenicc": Room(("controller.hygenicc",), "controller.hygenicc.policy", "HyGenICC's policy"),
    "ui": Room(("apps.ui",), "apps.ui", "the web UI"),
    "experiments": Room(("experiments",), "experiments.commands", "experiments", "experiments.commands", "dets-lab"),
}


def room_of(module: str) -> str:
    """Return the name of a module's room, "" if it has none."""
    return next((name for name, one in ROOMS.items() if module.startswith(tuple(f"{of}." for of in one.packages))), "")


@cache
def is_installed(name: str) -> bool:
    """Return whether a room is installed; modules without a room (``room_of``) always are."""
    if not name:
        return True
    try:
        found = find_spec(ROOMS[name].entry)
    except ModuleNotFoundError:  # the package that contains it is missing
        return False
    return found is not None and found.has_location


def check(name: str, key: str, value: object) -> None:
    """Raise InvalidValueError if a value needs a room that is not installed."""
    if not is_installed(name):
        one = ROOMS[name]
        raise InvalidValueError(key, value, f"needs {one.brings}: pip install {one.install}")


def commands(name: str) -> Any:
    """Return the module with a room's sub-commands. ModuleNotFoundError if it is not installed."""
    return import_module(ROOMS[name].commands)


def room(name: str) -> Any:
    """Return the main module of a room. ModuleNotFoundError if it is not installed."""
    return import_module(ROOMS[name].entry)


def load(target: str) -> Any:
    """Return the object ``MODULE:NAME``, in a room or not."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
