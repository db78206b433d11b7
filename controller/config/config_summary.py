"""The differences between two configurations as sentences: what was added, removed or renamed, and changed values.

Consequences are omitted: the limits of a VLAN's VNs where the VLAN's own changed, the VNs of a new port, the VNs of a
removed VLAN. The same change at several ports is one sentence.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

from controller.config.config_diff import FILE_KEYS, ConfigChange, diff_configs, diff_values
from controller.fabric.config_model import DIRECTIONS, Config, CoreLink, EdgePort, Switch, Vlan
from controller.units import format_rate, with_whole_numbers

_MAX_NAMED = 20
_APART = frozenset({"vlans", "switches", "links", "source_name"})
_CEILINGS = tuple(f"{way}_ceiling_bps" for way in DIRECTIONS)
_Ports = list[tuple[str, EdgePort, EdgePort]]


class ConfigDiff(NamedTuple):
    """The differences between two configurations: every value, and sentences."""

    changes: list[ConfigChange]
    summary: list[str]


def compare_configs(before: Config, after: Config) -> ConfigDiff:
    """Return the differences between two configurations."""
    changes = diff_configs(before, after)
    return ConfigDiff(changes, summarize_changes(before, after) if changes else [])


def summarize_changes(before: Config, after: Config) -> list[str]:
    """Return the differences as sentences: VLANs, switches, ports, VNs, links, then single values by their paths."""
    lines = list(_added_removed("VLAN", _vlan_names(before.vlans), _vlan_names(after.vlans)))
    for vid, vlan in after.vlans.items():
        if vid in before.vlans:
            lines += _values(f"VLAN {vid}", before.vlans[vid], vlan, ())
    lines += _switches(before, after)
    lines += _links(before.links, after.links)
    for one in fields(Config):
        if one.name not in _APART:
            key = FILE_KEYS.get(one.name, one.name)
            for change in diff_values(key, getattr(before, one.name), getattr(after, one.name)):
                as_rate = "_bps" if one.name.endswith("_bps") else ""
                lines.append(_was(f"{change.path}{as_rate}", change.before, change.after))
    return lines


def shorten(names: Iterable[str], between: str = ", ") -> str:
    """Return names for a sentence, cut short when there are many."""
    all_names = list(names)
    more = f" and {len(all_names) - _MAX_NAMED} more" if len(all_names) > _MAX_NAMED else ""
    return between.join(all_names[:_MAX_NAMED]) + more


def _vlan_names(vlans: Mapping[int, Vlan]) -> dict[int, str]:
    return {vid: str(vid) if vlan.name == f"vlan{vid}" else f"{vid} ({vlan.name})" for vid, vlan in vlans.items()}


def _links(before: Iterable[CoreLink], after: Iterable[CoreLink]) -> Iterator[str]:
    """Yield the differences of links, identified by the dpids and ports of their ends."""
    olds, news = (
        {frozenset((end.dpid, end.port_no) for end in one.ends): one for one in links} for links in (before, after)
    )
    names = tuple({key: " - ".join(map(str, one.ends)) for key, one in links.items()} for links in (olds, news))
    yield from _added_removed("link", names[0], names[1])
    for key, link in news.items():
        if key in olds:
            yield from _values(f"link {names[1][key]}", olds[key], link, ("ends",))


def _switches(before: Config, after: Config) -> Iterator[str]:
    """Yield the differences of switches, identified by their dpids, with their ports and VNs."""
    olds, news = ({one.dpid: one for one in config.switches.values()} for config in (before, after))
    names = tuple({dpid: one.name for dpid, one in switches.items()} for switches in (olds, news))
    yield from _added_removed("switch", names[0], names[1], "switches")
    ports: tuple[dict[Hashable, str], dict[Hashable, str]] = ({}, {})
    both: _Ports = []
    for dpid, new in news.items():
        if dpid not in olds:
            continue
        old = olds[dpid]
        yield from _values(f"switch {new.name}", old, new, ("ports",))
        for named, switch in zip(ports, (old, new), strict=True):
            named |= {(dpid, number): f"{switch.name}:{port.label}" for number, port in switch.ports.items()}
        for number, port in new.ports.items():
            if number in old.ports:
                both.append((f"{new.name}:{port.label}", old.ports[number], port))
                yield from _port(old, old.ports[number], new, port)
    yield from _added_removed("port", ports[0], ports[1])
    yield from _vns(before.vlans, after.vlans, both)


def _port(old_switch: Switch, old: EdgePort, switch: Switch, port: EdgePort) -> Iterator[str]:
    """Yield what has changed at an edge port, one sentence each."""
    place = f"port {switch.name}:{port.label}"
    # A default name changes together with its switch's.
    follows = (old.name, port.name) == (f"{old_switch.name}-{old.port_no}", f"{switch.name}-{port.port_no}")
    yield from _values(place, old, port, ("untagged_vid", "vns", *(("name",) if follows else ())))
    if old.is_access != port.is_access:
        yield f"{place}: {'an access port' if port.is_access else 'a trunk'} now"
    if old.untagged_vid != port.untagged_vid and not port.is_access and not (old.is_access and not port.untagged_vid):
        yield f"{place}: {f'native VLAN {port.untagged_vid}' if port.untagged_vid else 'no native VLAN'} now"


def _vns(before: Mapping[int, Vlan], after: Mapping[int, Vlan], ports: _Ports) -> Iterator[str]:
    """Yield the differences of VNs at ports that both configurations have.

    The same change at several ports is one sentence.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for place, old_port, port in ports:
        if old_port.vns == port.vns:
            continue
        olds, news = ({vn.vlan_vid: vn for vn in one.vns} for one in (old_port, port))
        for vid in olds.keys() - news.keys() & after.keys():
            found.setdefault((f"VLAN {vid}", " removed"), []).append(place)
        for vid, vn in news.items():
            old = olds.get(vid)
            if old is None:
                found.setdefault((f"VLAN {vid}", " added"), []).append(place)
                continue
            names = [f"{one}_limit_bps" for one in DIRECTIONS if one in old.own_limits or one in vn.own_limits]
            for name in (*names, *_CEILINGS, "weight", "flood_limit_bps"):
                was, now = getattr(old, name), getattr(vn, name)
                if was != now:
                    found.setdefault((f"VLAN {vid}", f": {_was(name, was, now)}"), []).append(place)
    yield from (f"{vlan} at {shorten(places)}{what}" for (vlan, what), places in found.items())


def _added_removed(
    kind: str, before: Mapping[Any, str], after: Mapping[Any, str], plural: str | None = None
) -> Iterator[str]:
    for word, some, others in (("added", after, before), ("removed", before, after)):
        names = [name for key, name in some.items() if key not in others]
        if names:
            yield f"{kind if len(names) == 1 else plural or f'{kind}s'} {shorten(names)} {word}"


def _values(subject: str, old: object, new: object, left_out: tuple[str, ...]) -> Iterator[str]:
    """Yield the differing fields of two dataclasses of one type; a different name is a renaming."""
    for one in fields(new):  # type: ignore[arg-type]
        was, now = getattr(old, one.name), getattr(new, one.name)
        if was == now or one.name in left_out:
            continue
        if is_dataclass(now):
            yield from _values(f"{subject}: {one.name}", was, now, ())
        elif one.name == "name":
            yield f"{subject}: renamed, was {was}" if subject.endswith(now) else f"{subject}: renamed {now}, was {was}"
        else:
            yield f"{subject}: {_was(one.name, was, now)}"


def _was(name: str, before: object, after: object) -> str:
    return f"{name.removesuffix('_bps')} {_shown(name, after)}, was {_shown(name, before)}"


def _shown(name: str, value: object) -> str:
    """Return a value as operators write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={one}" for key, one in with_whole_numbers(value).items()) or "none"
    return format_rate(value) if name.endswith("_bps") and isinstance(value, int) else str(with_whole_numbers(value))
