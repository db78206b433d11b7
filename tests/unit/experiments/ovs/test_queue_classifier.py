"""The parts of the queue classifier that need no kernel: its program, its decisions, its reading of announcements."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.ovs.queue_classifier import (
    HtbClass,
    PortState,
    announced_indices,
    changes_for,
    classifier_program,
    desired_program,
    leaf_packets,
    parse_tc_rate,
    uplink_lines,
    uplink_program,
)

SKF_AD_VLAN_TAG = 0xFFFFF02C  # the tag that is beside the frame, 0 without one


def run_program(text: str, frame: bytes, tci: int = 0) -> int:
    """A reading of linux/filter.h, for the instructions in use."""
    count, *lines = text.split(",")
    program = [tuple(map(int, line.split())) for line in lines]
    assert len(program) == int(count)
    accumulator = at = 0
    while True:
        code, jump_true, jump_false, k = program[at]
        at += 1
        if code == 0x28 and k == SKF_AD_VLAN_TAG:
            accumulator = tci
        elif code == 0x28:
            accumulator = int.from_bytes(frame[k : k + 2], "big")
        elif code == 0x15:
            at += jump_true if accumulator == k else jump_false
        elif code == 0x54:
            accumulator &= k
        elif code == 0x04:
            accumulator += k
        elif code == 0x44:
            accumulator |= k
        elif code == 0x16:
            return accumulator
        elif code == 0x06:
            return k
        else:
            raise AssertionError(f"unknown instruction {code:#x}")


def frame(vlan_vid: int | None, priority: int = 0) -> bytes:
    tag = b"" if vlan_vid is None else struct.pack("!HH", 0x8100, priority << 13 | vlan_vid)
    return bytes(12) + tag + b"\x08\x00" + b"\x45\x00" + bytes(40)


@settings(derandomize=True, deadline=None)
@given(vlan_vid=st.integers(0, 4095), priority=st.integers(0, 7))
def test_the_class_of_a_tagged_frame_is_its_vlan_plus_one(vlan_vid: int, priority: int) -> None:
    assert run_program(classifier_program(None), frame(vlan_vid, priority)) == 0x10000 + vlan_vid + 1


@settings(derandomize=True, deadline=None)
@given(vlan_vid=st.integers(0, 4095), priority=st.integers(0, 7))
def test_on_a_pns_way_out_the_tag_is_beside_the_frame(vlan_vid: int, priority: int) -> None:
    assert run_program(uplink_program(), frame(None), priority << 13 | vlan_vid) == 0x10000 + vlan_vid + 1


def test_a_pns_way_out_has_a_class_for_each_vlan_and_one_for_the_rest() -> None:
    lines = uplink_lines("x", 100_000_000, {10: (40_000_000, 80_000_000)})
    assert [line for line in lines if line.startswith("class")] == [
        "class add dev x parent 1: classid 1:fffe htb rate 100000000bit",
        "class add dev x parent 1:fffe classid 1:1 htb rate 1000000bit ceil 100000000bit",
        "class add dev x parent 1:fffe classid 1:b htb rate 40000000bit ceil 80000000bit",
    ]
    assert f"qdisc add dev x parent 1:b pfifo_head_drop limit {leaf_packets(80e6)}" in lines
    assert lines[0] == "qdisc add dev x root handle 1: htb default 1"
    assert lines[-1].startswith("filter add dev x parent 1: ")


def test_untagged_frames_have_no_class_unless_the_port_has_one_vlan() -> None:
    default, ten, twenty = (HtbClass(minor, 1e8, "") for minor in (1, 11, 21))
    programs = [classifier_program(None), classifier_program(11)]
    programs += [desired_program(classes) for classes in ([default], [default, ten], [default, ten, twenty])]
    assert [run_program(program, frame(None)) for program in programs] == [0, 0x1000B, 0, 0x1000B, 0]


@pytest.mark.parametrize(("ceil_bps", "packets"), [(0, 30), (1e6, 30), (40e6, 99), (100e6, 247), (1e9, 1000)])
def test_a_leaf_is_30_ms_long_within_bounds(ceil_bps: float, packets: int) -> None:
    assert leaf_packets(ceil_bps) == packets


def test_only_what_is_missing_is_changed() -> None:
    good = HtbClass(2, 40e6, "pfifo_head_drop 99")
    program = desired_program([good])
    assert changes_for("x", PortState(True, (good,), program)) == []
    assert changes_for("x", PortState(False)) == []
    missing_leaf = changes_for("x", PortState(True, (HtbClass(11, 40e6, ""),), desired_program([HtbClass(11, 0, "")])))
    assert missing_leaf == ["qdisc replace dev x parent 1:b pfifo_head_drop limit 99"]
    [add] = changes_for("x", PortState(True, (good,), None))
    assert add.startswith("filter add dev x parent 1: ")
    assert f'bytecode "{program}"' in add
    remove, add = changes_for("x", PortState(True, (good,), classifier_program(7)))
    assert remove.startswith("filter del dev x parent 1: ")


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("40Mbit", 40e6), ("1Gbit", 1e9), ("12500Kbit", 12.5e6), ("800bit", 800), ("1500bit", 1500)],
)
def test_rates_as_tc_prints_them(text: str, rate_bps: float) -> None:
    assert parse_tc_rate(text) == rate_bps


def announcement(kind: int, index: int, extra: int = 0) -> bytes:
    body = struct.pack("=BxxxiIII", 0, index, 0x10000, 0xFFFFFFFF, 0) + bytes(extra)
    message = struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body
    return message + bytes(-len(message) % 4)


def test_announcements_about_traffic_control_name_their_interfaces() -> None:
    train = announcement(36, 5) + announcement(40, 7, extra=9) + announcement(16, 9) + announcement(44, 5)
    assert announced_indices(train) == {5, 7}


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_failing(data: bytes) -> None:
    assert isinstance(announced_indices(data), set)
