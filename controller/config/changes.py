"""Differences between two configurations, for operators who are about to reload one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from controller.errors import InvalidValueError
from controller.fabric.description import Config, CoreLink, Endpoint, Vn

# What only a restart can change, by the attribute of Config and the key in the file.
FIXED = {
    "interval_ms": "control.interval_ms",
    "look_ms": "control.look_ms",
    "openflow_listen": "openflow.listen",
    "openflow_tls": "openflow",
    "first_meter_id": "openflow.first_meter_id",
    "last_meter_id": "openflow.last_meter_id",
    "rest": "rest",
    "cluster": "cluster",
}


class ConfigChange(NamedTuple):
    """One value: its path, and what it was and is; None where there is none."""

    path: str
    before: Any
    after: Any


def config_changes(before: Config, after: Config) -> list[ConfigChange]:
    """Return every value that differs, in the order of ``after``; those that only ``before`` has come last."""
    old, new = dict(_values("", before)), dict(_values("", after))
    paths = [*new, *(path for path in old if path not in new)]
    found = (ConfigChange(path, old.get(path), new.get(path)) for path in paths)
    return [change for change in found if change.before != change.after]


def check_changeable(before: Config, after: Config) -> None:
    """Raise InvalidValueError, naming the key, if something differs that only a restart can change."""
    for name, key in FIXED.items():
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        change = next(iter(_differing(key, old, new)))
        reason = f"can only be changed by a restart (dets runs with {_shown(change.before)})"
        raise InvalidValueError(change.path, _shown(change.after), reason)
    if after.cluster is not None and after.cluster.share == "switches":
        for change in config_changes(before, after):
            reason = "can only be changed by a restart of every node: cluster.share is switches"
            raise InvalidValueError(change.path, _shown(change.after), reason)


def _differing(key: str, old: Any, new: Any) -> Iterator[ConfigChange]:
    olds, news = dict(_values(key, old)), dict(_values(key, new))
    for path in [*news, *olds]:
        if olds.get(path) != news.get(path):
            yield ConfigChange(path, olds.get(path), news.get(path))


def _values(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every plain value within a configuration, with the names of the values around it."""
    if isinstance(value, tuple) and value and isinstance(value[0], Vn | CoreLink):
        value = {_name(one): one for one in value}
    if is_dataclass(value) and not isinstance(value, Endpoint):
        left_out = {"source_name"} if isinstance(value, Config) else set()
        value = {one.name: getattr(value, one.name) for one in fields(value) if one.name not in left_out}
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _values(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, value


def _name(value: Vn | CoreLink) -> str:
    return str(value.vlan_vid) if isinstance(value, Vn) else "-".join(str(end) for end in value.ends)


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, Endpoint) else value
