"""The rooms: parts that the rest does without. Nothing imports them but by this table.

One that is taken out is not missed until a configuration names it, which is then refused. To add one: its folder, and a
line here.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from controller.errors import InvalidValueError


class Room(NamedTuple):
    """A part that may be missing: its packages, the module that is asked for it, and what it brings, in words.

    ``commands`` is the module with its sub-commands of ``dets``, ``install`` the distribution that has it.
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
    "ui": Room(("apps.ui",), "apps.ui", "the live page"),
    "experiments": Room(("experiments",), "experiments.commands", "experiments", "experiments.commands", "dets-lab"),
}


def room_of(module: str) -> str:
    """Return the name of the room that a module is of, nothing for none."""
    return next((name for name, one in ROOMS.items() if module.startswith(tuple(f"{of}." for of in one.packages))), "")


@cache
def is_here(name: str) -> bool:
    """Whether a room is installed; what is of none (``room_of``) always is."""
    if not name:
        return True
    try:
        found = find_spec(ROOMS[name].entry)
    except ModuleNotFoundError:  # the package that it is in is missing
        return False
    return found is not None and found.has_location


def check(name: str, key: str, value: object) -> None:
    """Raise InvalidValueError where a value needs a room that is not installed."""
    if not is_here(name):
        one = ROOMS[name]
        raise InvalidValueError(key, value, f"needs {one.brings}: pip install {one.install}")


def commands(name: str) -> Any:
    """Return the module with the sub-commands of a room that has some. ModuleNotFoundError if it is not installed."""
    return import_module(ROOMS[name].commands)


def room(name: str) -> Any:
    """Return the module that is asked for a room. ModuleNotFoundError if it is not installed."""
    return import_module(ROOMS[name].entry)


def load(target: str) -> Any:
    """Return what MODULE:NAME has, of a room or not."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
