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
_OTHERWISE_COMPARED = frozenset({"vlans", "switches", "links", "source_name"})
_CEILINGS = tuple(f"{direction}_ceiling_bps" for direction in DIRECTIONS)
_CommonPorts = list[tuple[str, EdgePort, EdgePort]]
"""the ports that both configurations have: the location, the old and the new port"""


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
    for field in fields(Config):
        if field.name not in _OTHERWISE_COMPARED:
            key = FILE_KEYS.get(field.name, field.name)
            for change in diff_values(key, getattr(before, field.name), getattr(after, field.name)):
                unit_suffix = "_bps" if field.name.endswith("_bps") else ""  # so that the value is shown as a rate
                lines.append(_value_change(f"{change.path}{unit_suffix}", change.before, change.after))
    return lines


def shorten(names: Iterable[str], between: str = ", ") -> str:
    """Return names for a sentence, cut short when there are many."""
    all_names = list(names)
    more = f" and {len(all_names) - _MAX_NAMED} more" if len(all_names) > _MAX_NAMED else ""
    return between.join(all_names[:_MAX_NAMED]) + more


def _vlan_names(vlans: Mapping[int, Vlan]) -> dict[int, str]:
    """Return the VLANs as operators call them, by id: the id, and the name if it is not the default."""
    return {vid: str(vid) if vlan.name == f"vlan{vid}" else f"{vid} ({vlan.name})" for vid, vlan in vlans.items()}


def _links(before: Iterable[CoreLink], after: Iterable[CoreLink]) -> Iterator[str]:
    """Yield the differences of links, identified by the dpids and ports of their ends."""
    old_links, new_links = (
        {frozenset((end.dpid, end.port_no) for end in link.ends): link for link in links} for links in (before, after)
    )
    names = [{key: " - ".join(map(str, link.ends)) for key, link in links.items()} for links in (old_links, new_links)]
    yield from _added_removed("link", names[0], names[1])
    for key, link in new_links.items():
        if key in old_links:
            yield from _values(f"link {' - '.join(map(str, link.ends))}", old_links[key], link, ("ends",))


def _switches(before: Config, after: Config) -> Iterator[str]:
    """Yield the differences of switches, identified by their dpids, with their ports and VNs."""
    old_switches, new_switches = ({one.dpid: one for one in config.switches.values()} for config in (before, after))
    names = [{dpid: switch.name for dpid, switch in switches.items()} for switches in (old_switches, new_switches)]
    yield from _added_removed("switch", names[0], names[1], "switches")
    # The ports, by dpid and number, of the switches that both configurations have.
    old_ports, new_ports = dict[Hashable, str](), dict[Hashable, str]()
    common_ports: _CommonPorts = []
    for dpid, new in new_switches.items():
        if dpid not in old_switches:
            continue
        old = old_switches[dpid]
        yield from _values(f"switch {new.name}", old, new, ("ports",))
        for port_names, switch in ((old_ports, old), (new_ports, new)):
            port_names.update({(dpid, number): f"{switch.name}:{port.label}" for number, port in switch.ports.items()})
        for number, port in new.ports.items():
            if number in old.ports:
                common_ports.append((f"{new.name}:{port.label}", old.ports[number], port))
                yield from _port(old, old.ports[number], new, port)
    yield from _added_removed("port", old_ports, new_ports)
    yield from _vns(before.vlans, after.vlans, common_ports)


def _port(old_switch: Switch, old: EdgePort, switch: Switch, port: EdgePort) -> Iterator[str]:
    """Yield what has changed at an edge port, one sentence each; ``_vns`` has the changes of its VNs."""
    subject = f"port {switch.name}:{port.label}"
    # A default name changes together with the name of its switch.
    has_default_name = (old.name, port.name) == (f"{old_switch.name}-{old.port_no}", f"{switch.name}-{port.port_no}")
    yield from _values(subject, old, port, ("untagged_vid", "vns", *(("name",) if has_default_name else ())))
    if old.is_access != port.is_access:
        yield f"{subject}: {'an access port' if port.is_access else 'a trunk'} now"
    # An access port's VLAN is a matter of its VNs; a port that was one has lost its untagged VLAN by becoming a trunk.
    if old.untagged_vid != port.untagged_vid and not port.is_access and not (old.is_access and not port.untagged_vid):
        yield f"{subject}: {f'native VLAN {port.untagged_vid}' if port.untagged_vid else 'no native VLAN'} now"


def _vns(before: Mapping[int, Vlan], after: Mapping[int, Vlan], ports: _CommonPorts) -> Iterator[str]:
    """Yield the differences of VNs at ports that both configurations have.

    The same change at several ports is one sentence.
    """
    locations_of: dict[tuple[str, str], list[str]] = {}  # by VLAN and change
    for location, old_port, port in ports:
        if old_port.vns == port.vns:
            continue
        old_vns, new_vns = ({vn.vlan_vid: vn for vn in one_port.vns} for one_port in (old_port, port))
        for vid in (old_vns.keys() - new_vns.keys()) & after.keys():
            locations_of.setdefault((f"VLAN {vid}", " removed"), []).append(location)
        for vid, vn in new_vns.items():
            old = old_vns.get(vid)
            if old is None:
                locations_of.setdefault((f"VLAN {vid}", " added"), []).append(location)
                continue
            # A limit that both inherit from the VLAN changed with the VLAN's, which is a sentence of its own.
            limits = [f"{one}_limit_bps" for one in DIRECTIONS if one in old.own_limits or one in vn.own_limits]
            for name in (*limits, *_CEILINGS, "weight", "flood_limit_bps"):
                was, now = getattr(old, name), getattr(vn, name)
                if was != now:
                    locations_of.setdefault((f"VLAN {vid}", f": {_value_change(name, was, now)}"), []).append(location)
    yield from (f"{vlan} at {shorten(locations)}{change}" for (vlan, change), locations in locations_of.items())


def _added_removed(
    kind: str, before: Mapping[Any, str], after: Mapping[Any, str], plural: str | None = None
) -> Iterator[str]:
    """Yield a sentence on the objects of a kind that only ``after`` has, and one on those that only ``before`` has.

    ``before`` and ``after`` have the names of the objects.
    """
    for word, having, lacking in (("added", after, before), ("removed", before, after)):
        names = [name for key, name in having.items() if key not in lacking]
        if names:
            yield f"{kind if len(names) == 1 else plural or f'{kind}s'} {shorten(names)} {word}"


def _values(subject: str, old: object, new: object, left_out: tuple[str, ...]) -> Iterator[str]:
    """Yield the differing fields of two dataclasses of one type, without those ``left_out``.

    A different name is a renaming.
    """
    for field in fields(new):  # type: ignore[arg-type]
        was, now = getattr(old, field.name), getattr(new, field.name)
        if was == now or field.name in left_out:
            continue
        if is_dataclass(now):
            yield from _values(f"{subject}: {field.name}", was, now, ())
        elif field.name == "name":
            yield f"{subject}: renamed, was {was}" if subject.endswith(now) else f"{subject}: renamed {now}, was {was}"
        else:
            yield f"{subject}: {_value_change(field.name, was, now)}"


def _value_change(name: str, before: object, after: object) -> str:
    """Return a changed value as text; a ``name`` that ends with ``_bps`` is that of a rate in bit/s."""
    return f"{name.removesuffix('_bps')} {_shown(name, after)}, was {_shown(name, before)}"


def _shown(name: str, value: object) -> str:
    """Return a value as operators write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return " ".join(f"{key}={inner}" for key, inner in with_whole_numbers(value).items()) or "none"
    return format_rate(value) if name.endswith("_bps") and isinstance(value, int) else str(with_whole_numbers(value))
