"""What a reload changes, in the operator's terms."""

from __future__ import annotations

from dataclasses import fields

import pytest

from controller.config import sections as sections_module
from controller.config.config_diff import FILE_KEYS
from controller.config.config_summary import compare_configs, summarize_changes
from controller.config.loader import parse_config
from controller.config.sections import RootSection
from controller.fabric.config_model import Config

BEFORE = """\
control: {on_stop: keep}
vlans:
  10: {name: blue, send_limit: 40M, receive_limit: 40M, parameters: {d: 2}}
  20: {name: red, send_limit: 10M, receive_limit: 10M}
switches:
  s1:
    dpid: 1
    ports:
      1: {capacity: 1G, trunk: [10, 20]}
      2: {capacity: 1G, trunk: [10, 20], vns: {10: {send_limit: 30M}}}
      3: {name: lab, capacity: 1G, access: 10}
  s2: {dpid: 2, ports: {1: {capacity: 1G, access: 10}}}
links: [{between: ["s1:9", "s2:9"], capacity: 1G}]
"""


def summary(*replaced: tuple[str, str]) -> list[str]:
    text = BEFORE
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return summarize_changes(parse_config(BEFORE), parse_config(text))


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("keep", "remove", ["control.on_stop remove, was keep"]),
        ("control: {on_stop: keep}", "metrics: {vns: false}", ["metrics.vns false, was true"]),
        ("on_stop: keep}", "packet_in_rate: 64k}", ["control.packet_in_rate 64k, was 128k"]),
        ("name: blue", "name: green", ["VLAN 10: renamed green, was blue"]),
        ("  20: {", "  30: {send_limit: 1M, receive_limit: 1M}\n  20: {", ["VLAN 30 added"]),
        (
            "3: {name: lab, capacity: 1G, access: 10}",
            "13: {capacity: 1G, access: 10}\n      14: {capacity: 1G, access: 20}",
            ["ports s1:13, s1:14 added", "port s1:3 removed"],
        ),
        ("name: lab", "name: office", ["port s1:3: renamed office, was lab"]),
        ("s2", "south", ["switch south: renamed, was s2"]),
        ("red, send_limit: 10M", "red, send_limit: 20M", ["VLAN 20: send_limit 20M, was 10M"]),
        ("red, send_limit", "red, weight: 2, send_limit", ["VLAN 20: weight 2, was 1"]),
        ("{d: 2}", "{d: 3}", ["VLAN 10: parameters d=3, was d=2"]),
        ("10: {send_limit: 30M}", "10: {send_limit: 35M}", ["VLAN 10 at s1:2: send_limit 35M, was 30M"]),
        (", vns: {10: {send_limit: 30M}}", "", ["VLAN 10 at s1:2: send_limit 40M, was 30M"]),
        ("[10, 20]", "[10]", ["VLAN 20 at s1:1, s1:2 removed"]),
        ("lab, capacity: 1G", "lab, capacity: 10G", ["port s1:3: capacity 10G, was 1G"]),
        (
            "lab, capacity: 1G",
            "lab, capacity: 1G, frame_overhead_bytes: 24",
            ["port s1:3: frame_overhead_bytes 24, was 0"],
        ),
        (
            '"s2:9"], capacity',
            '"s2:9"], frame_overhead_bytes: 4, capacity',
            ["link s1:9 - s2:9: frame_overhead_bytes 4, was 0"],
        ),
        ("access: 10}\n  s2", "trunk: [10]}\n  s2", ["port s1:3: a trunk now"]),
        (
            "1: {capacity: 1G, trunk: [10, 20]}",
            "1: {capacity: 1G, trunk: [10, 20], native: 20}",
            ["port s1:1: native VLAN 20 now"],
        ),
        ("access: 10}\n  s2", "access: 20}\n  s2", ["VLAN 10 at s1:3 removed", "VLAN 20 at s1:3 added"]),
        ('"s2:9"], capacity: 1G', '"s2:9"], capacity: 2G', ["link s1:9 - s2:9: capacity 2G, was 1G"]),
        ("dpid: 2,", "dpid: 2, meters: {min_rate: 1M},", ["switch s2: meters: min_rate 1M, was none"]),
    ],
)
def test_a_change_is_a_sentence(old: str, new: str, lines: list[str]) -> None:
    assert summary((old, new)) == lines


def test_what_changes_alike_at_several_ports_is_one_sentence() -> None:
    found = summary(("parameters: {d: 2}}", "algorithm: max-min, send_ceiling: 90M}"))
    assert "VLAN 10: algorithm max-min, was fp" in found
    assert "VLAN 10 at s1:1, s1:2, s1:3, s2:1: send_ceiling 90M, was none" in found


def test_a_vlan_that_is_gone_takes_its_vns_along() -> None:
    gone = summary(("  20: {name: red, send_limit: 10M, receive_limit: 10M}\n", ""), ("[10, 20]", "[10]"))
    assert gone == ["VLAN 20 (red) removed"]


def test_many_are_cut_short() -> None:
    ports = "".join(f"      {number}: {{capacity: 1G, access: 20}}\n" for number in range(20, 50))
    (line,) = summary(("  s2:", f"{ports}  s2:"))
    assert line.endswith("s1:38, s1:39 and 10 more added")


def test_every_value_is_called_by_its_key_in_the_file() -> None:
    sections = {one.path: set(one.model_fields) for one in vars(sections_module).values() if hasattr(one, "required")}
    for field in fields(Config):
        section, _, key = FILE_KEYS.get(field.name, field.name).partition(".")
        if field.name != "source_name":
            assert section in RootSection.model_fields, field.name
            assert not key or key in sections[section], field.name


def test_what_is_equal_differs_in_nothing() -> None:
    assert compare_configs(parse_config(BEFORE), parse_config(BEFORE)) == ([], [])
