"""Differences between two configurations: every plain value, in the order of the newer file, what is gone last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.config.config_diff import ConfigChange, diff_configs
from controller.config.loader import parse_config
from controller.fabric.config_model import Config, CoreLink, Endpoint, Vn


def values(path: str, value: Any) -> dict[str, Any]:
    """Return every plain value within a configuration, whether or not it is like another one's."""
    if isinstance(value, tuple) and value and isinstance(value[0], Vn | CoreLink):
        value = {str(one.vlan_vid) if isinstance(one, Vn) else "-".join(map(str, one.ends)): one for one in value}
    if is_dataclass(value) and not isinstance(value, Endpoint):
        value = {one.name: getattr(value, one.name) for one in fields(value) if one.name != "source_name"}
    if not isinstance(value, Mapping):
        return {path: value}
    found: dict[str, Any] = {}
    for key, inner in value.items():
        found |= values(f"{path}.{key}" if path else str(key), inner)
    return found


def all_compared(before: Config, after: Config) -> list[ConfigChange]:
    old, new = values("", before), values("", after)
    paths = [*new, *(path for path in old if path not in new)]
    return [ConfigChange(path, old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path)]


@st.composite
def configurations(draw: st.DrawFn) -> Config:
    vids = draw(st.lists(st.sampled_from([10, 20, 30]), unique=True, min_size=1))
    limit = st.sampled_from(["1M", "2M"])
    vlans = {
        vid: {"send_limit": draw(limit), "receive_limit": "1M", **draw(st.sampled_from([{}, {"parameters": {"d": 3}}]))}
        for vid in vids
    }
    switches: dict[str, Any] = {}
    for dpid in draw(st.lists(st.integers(1, 3), unique=True, min_size=1)):
        ports = {
            number: {
                "capacity": "100M",
                "trunk": draw(st.permutations(vids)),
                "vns": {vids[0]: {"send_limit": draw(limit)}},
            }
            for number in draw(st.lists(st.integers(1, 2), unique=True))
        }
        switches[f"s{dpid}"] = {"dpid": dpid, "ports": ports}
    names = list(switches)
    between = [[f"{names[0]}:9", f"{names[1]}:9"]] if len(names) > 1 and draw(st.booleans()) else []
    rest = {"listen": f"127.0.0.1:{draw(st.sampled_from([8080, 8081]))}"}
    links = [{"between": ends, "capacity": "10G"} for ends in between]
    return parse_config(str({"rest": rest, "vlans": vlans, "switches": switches, "links": links}).replace("'", '"'))


@given(configurations(), configurations())
@settings(max_examples=80)
def test_what_is_equal_need_not_be_looked_into(before: Config, after: Config) -> None:
    assert diff_configs(before, after) == all_compared(before, after)
    assert diff_configs(before, before) == []
