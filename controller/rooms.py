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

    ``install`` is the distribution that has it.
    """

    packages: tuple[str, ...]
    entry: str
    brings: str
    install: str = "dets-controller"


ROOMS = {
    "agents": Room(("controller.agents", "apps.agent"), "controller.agents.of_fabric", "agents on hosts"),
    "cluster": Room(
        ("controller.cluster", "controller.frames", "controller.shards", "controller.nodes", "apps.cluster"),
        "apps.cluster.member",
        "several controllers",
    ),
}


@cache
def is_here(name: str) -> bool:
    """Whether a room is installed."""
    try:
        return find_spec(ROOMS[name].entry) is not None
    except ModuleNotFoundError:  # the package that it is in is missing
        return False


def check(name: str, key: str, value: object) -> None:
    """Raise InvalidValueError where a value needs a room that is not installed."""
    if not is_here(name):
        one = ROOMS[name]
        raise InvalidValueError(key, value, f"needs {one.brings}: pip install {one.install}")


def room(name: str) -> Any:
    """Return the module that is asked for a room. ModuleNotFoundError if it is not installed."""
    return import_module(ROOMS[name].entry)
