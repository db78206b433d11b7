"""Differences between two configurations, for operators who are about to reload one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from controller.errors import InvalidValueError
from controller.fabric.config_model import Config, CoreLink, Endpoint, Vn

# What only a restart can change, by the attribute of Config and the key in the file.
RESTART_ONLY = {
    "interval_ms": "control.interval_ms",
    "openflow_listen": "openflow.listen",
    "openflow_tls": "openflow",
    "ovsdb_tls": "ovsdb_tls",
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


def diff_configs(before: Config, after: Config) -> list[ConfigChange]:
    """Return every value that differs, in the order of ``after``; those that only ``before`` has come last."""
    return diff_values("", before, after)


def diff_values(path: str, before: Any, after: Any) -> list[ConfigChange]:
    """Return every plain value that differs of what stands at a path."""
    return [*_changed(path, before, after), *_gone(path, before, after)]


def check_changeable(before: Config, after: Config) -> None:
    """Raise InvalidValueError, naming the key, if something differs that only a restart can change."""
    for name, key in RESTART_ONLY.items():
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        change = diff_values(key, old, new)[0]
        reason = f"can only be changed by a restart (dets runs with {_shown(change.before)})"
        raise InvalidValueError(change.path, _shown(change.after), reason)
    if after.cluster is not None and after.cluster.mode == "sharded":
        for change in diff_configs(before, after):
            reason = "can only be changed by a restart of every node: cluster.mode is sharded"
            raise InvalidValueError(change.path, _shown(change.after), reason)


def _changed(path: str, old: Any, new: Any) -> Iterator[ConfigChange]:
    """Yield every plain value of ``new`` that differs, in its order; what is equal is not looked into."""
    if old == new:
        return
    olds, news = _inner(old), _inner(new)
    if news is not None:
        for key, inner in news.items():
            yield from _changed(_joined(path, key), (olds or {}).get(key), inner)
    elif olds is None or new is not None:
        yield ConfigChange(path, old if olds is None else None, new)


def _gone(path: str, old: Any, new: Any) -> Iterator[ConfigChange]:
    """Yield every plain value of ``old`` of which ``new`` has nothing, in its order."""
    if old == new:
        return
    olds, news = _inner(old), _inner(new)
    if olds is None and news is not None and old is not None:
        yield ConfigChange(path, old, None)
    for key, inner in (olds or {}).items():
        if news is not None and key in news:
            yield from _gone(_joined(path, key), inner, news[key])
        else:
            yield from (ConfigChange(one.path, one.after, None) for one in _changed(_joined(path, key), None, inner))


def _joined(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _inner(value: Any) -> Mapping[Any, Any] | None:
    """Return the values within a value by their names; None if it is a plain one."""
    if isinstance(value, tuple) and value and isinstance(value[0], Vn | CoreLink):
        return {_name(one): one for one in value}
    if is_dataclass(value) and not isinstance(value, Endpoint):
        left_out = {"source_name"} if isinstance(value, Config) else set()
        return {one.name: getattr(value, one.name) for one in fields(value) if one.name not in left_out}
    return value if isinstance(value, Mapping) else None


def _name(value: Vn | CoreLink) -> str:
    return str(value.vlan_vid) if isinstance(value, Vn) else "-".join(str(end) for end in value.ends)


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, Endpoint) else value
