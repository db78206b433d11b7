"""Differences between two configurations, for operators who are about to reload one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from controller.errors import InvalidValueError
from controller.fabric.config_model import Config, CoreLink, Endpoint, Vn

FILE_KEYS = {
    "interval_ms": "control.interval_ms",
    "on_stop": "control.on_stop",
    "mac_ageing_s": "control.mac_ageing_s",
    "max_macs_per_vn": "control.max_macs_per_vn",
    "packet_in_rate_bps": "control.packet_in_rate",
    "newcomers": "control.newcomers",
    "openflow_listen": "openflow.listen",
    "openflow_tls": "openflow",
    "first_meter_id": "openflow.first_meter_id",
    "last_meter_id": "openflow.last_meter_id",
    "queue_max_rate": "queues.max_rate",
    "queue_mode": "queues.mode",
    "control_frame_rate_bps": "agents.control_frame_rate",
    "agent_long_frames": "agents.long_frames",
    "agent_experimental_ethertype": "agents.experimental_ethertype",
    "vn_metrics": "metrics.vns",
    "ecn_source": "ecn.source",
    "ecn_exposed": "ecn.expose_to_hosts",
    "ecn_codepoint": "ecn.codepoint",
    "log_format": "logging.format",
    "log_level": "logging.level",
}
"""Keys in the file by the attributes of Config; other attributes are keys themselves."""
RESTART_ONLY = (
    "interval_ms",
    "openflow_listen",
    "openflow_tls",
    "ovsdb_tls",
    "first_meter_id",
    "last_meter_id",
    "rest",
    "cluster",
)


class ConfigChange(NamedTuple):
    """One changed value: its path, its old and its new value; None where it is absent."""

    path: str
    before: Any
    after: Any


def diff_configs(before: Config, after: Config) -> list[ConfigChange]:
    """Return every value that differs, in the order of ``after``; values that only ``before`` has come last."""
    return diff_values("", before, after)


def diff_values(path: str, before: Any, after: Any) -> list[ConfigChange]:
    """Return every plain value that differs, in the order of ``after``; ``path`` is that of ``before`` and ``after``.

    Plain values are those without values of their own: numbers and texts, but also addresses.
    """
    return [*_changed_values(path, before, after), *_removed_values(path, before, after)]


def check_changeable(before: Config, after: Config) -> None:
    """Raise InvalidValueError, naming the key, if a value differs that only a restart can change."""
    for name in RESTART_ONLY:
        key, old, new = FILE_KEYS.get(name, name), getattr(before, name), getattr(after, name)
        if old == new:
            continue
        change = diff_values(key, old, new)[0]
        reason = f"can only be changed by a restart (dets runs with {_shown(change.before)})"
        raise InvalidValueError(change.path, _shown(change.after), reason)
    if after.cluster is not None and after.cluster.mode == "sharded":
        for change in diff_configs(before, after):
            reason = "can only be changed by a restart of every node: cluster.mode is sharded"
            raise InvalidValueError(change.path, _shown(change.after), reason)


def _changed_values(path: str, before: Any, after: Any) -> Iterator[ConfigChange]:
    """Yield every plain value of ``after`` that differs, in its order; equal values are not descended into.

    A plain value that replaces a section is yielded as added. A section that disappears is not yielded here.
    """
    if before == after:
        return
    inner_before, inner_after = _inner_values(before), _inner_values(after)
    if inner_after is not None:
        for key, value in inner_after.items():
            yield from _changed_values(_joined(path, key), (inner_before or {}).get(key), value)
    elif inner_before is None or after is not None:
        yield ConfigChange(path, before if inner_before is None else None, after)


def _removed_values(path: str, before: Any, after: Any) -> Iterator[ConfigChange]:
    """Yield every plain value of ``before`` that ``after`` lacks, in its order."""
    if before == after:
        return
    inner_before, inner_after = _inner_values(before), _inner_values(after)
    if inner_before is None and inner_after is not None and before is not None:
        yield ConfigChange(path, before, None)
    for key, value in (inner_before or {}).items():
        inner_path = _joined(path, key)
        if inner_after is not None and key in inner_after:
            yield from _removed_values(inner_path, value, inner_after[key])
        else:
            # Its plain values, found as if they were added.
            yield from (
                ConfigChange(added.path, added.after, None) for added in _changed_values(inner_path, None, value)
            )


def _joined(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _inner_values(value: Any) -> Mapping[Any, Any] | None:
    """Return the values within a value by their keys in the file; None if it is a plain one."""
    if isinstance(value, tuple) and value and isinstance(value[0], Vn | CoreLink):
        return {_item_key(item): item for item in value}
    if is_dataclass(value) and not isinstance(value, Endpoint):
        by_field = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Config):
            return {FILE_KEYS.get(name, name): inner for name, inner in by_field.items() if name != "source_name"}
        return by_field
    return value if isinstance(value, Mapping) else None


def _item_key(item: Vn | CoreLink) -> str:
    """Return the key of an item of a list: a VN's VLAN id, or the two ends of a link."""
    return str(item.vlan_vid) if isinstance(item, Vn) else "-".join(str(end) for end in item.ends)


def _shown(value: Any) -> Any:
    """Return a value as operators write it, if that is not its own form."""
    return str(value) if isinstance(value, Endpoint) else value
