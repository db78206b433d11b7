"""What an agent decides: pairs, rates, time-outs and reports, without a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from apps.agent.main import parse_vlans
from apps.agent.pair_state import KEPT_INTERVALS, AgentPairs
from apps.agent.shaper import VN_AGGREGATE, PairCounters, ShapedPair
from controller.agents.control_frames import (
    CONTROLLER_MAC,
    NO_RATE,
    ControlFrame,
    FrameAddress,
    Opcode,
    ReportFlag,
    records,
)
from controller.dets.send_rate_controller import KEEP_ALIVE_INTERVALS
from controller.errors import InvalidValueError

SENDER, RECEIVER, OTHER = 0x02_0000_0001, 0x02_0000_0002, 0x02_0000_0003
PAIR = ShapedPair(10, RECEIVER.to_bytes(6))
ALL = ShapedPair(10, VN_AGGREGATE)


def said(opcode: Opcode, *receivers: int, vid: int = 10, **columns) -> ControlFrame:
    entries = records(opcode, sender=[SENDER] * len(receivers), receiver=list(receivers), **columns)
    return ControlFrame(FrameAddress(SENDER, CONTROLLER_MAC, vid, 1), opcode, 1, 0, entries)


def counted(sent=(), dropped=(), backlog=()) -> PairCounters:
    return PairCounters(*(np.array(column, dtype=np.int64) for column in (sent, dropped, backlog)))


@pytest.fixture
def pairs():
    """A pair under control whose rate is 5 Mb/s."""
    made = AgentPairs([10], 100)
    made.on_frame(said(Opcode.INITIALIZE, RECEIVER))
    made.on_frame(said(Opcode.SET_RATE, RECEIVER, rate_kbps=[5000]))
    assert made.drain_changes() == ([(PAIR, 5_000_000)], [])
    return made


def silent(pairs: AgentPairs, intervals: int) -> None:
    for _ in range(intervals):
        nothing = [0] * len(pairs.pairs)
        pairs.interval(counted(nothing, nothing, nothing), 0.055)


def test_a_rate_without_initialize_is_not_for_an_idle_machine() -> None:
    pairs = AgentPairs([10], 100)
    pairs.on_frame(said(Opcode.SET_RATE, RECEIVER, rate_kbps=[5000]))
    assert pairs.drain_changes() == ([], [])


@pytest.mark.parametrize(
    ("opcode", "columns", "changes"),
    [
        pytest.param(Opcode.SET_RATE, {"rate_kbps": [5000]}, ([], []), id="the same rate again"),
        pytest.param(Opcode.SET_RATE, {"rate_kbps": [NO_RATE]}, ([], [PAIR]), id="no rate"),
        pytest.param(Opcode.DEACTIVATE, {}, ([], [PAIR]), id="deactivate"),
    ],
)
def test_a_frame_changes_a_pair_under_control(pairs, opcode, columns, changes) -> None:
    pairs.on_frame(said(opcode, RECEIVER, **columns))
    assert pairs.drain_changes() == changes
    assert (pairs.pairs == []) == (opcode is Opcode.DEACTIVATE)


def test_a_vn_with_itself_stands_for_all_that_it_sends(pairs) -> None:
    pairs.on_frame(said(Opcode.INITIALIZE, SENDER))
    pairs.on_frame(said(Opcode.SET_RATE, SENDER, rate_kbps=[20_000]))
    assert pairs.drain_changes() == ([(ALL, 20_000_000)], [])


def test_a_silent_controller_is_forgotten_late_and_its_rates_later_still(pairs) -> None:
    silent(pairs, KEEP_ALIVE_INTERVALS + KEPT_INTERVALS)
    assert pairs.rate_kbps == {PAIR: 5000}
    assert pairs.drain_changes() == ([], [])
    silent(pairs, 1)
    assert pairs.drain_changes() == ([], [PAIR])


def test_keep_alive_keeps_a_rate_for_ever(pairs) -> None:
    for _ in range(100):
        silent(pairs, 1)
        pairs.on_frame(said(Opcode.KEEP_ALIVE, RECEIVER))
    assert pairs.rate_kbps == {PAIR: 5000}


def test_a_controller_that_is_back_finds_the_rate_in_force(pairs) -> None:
    silent(pairs, KEEP_ALIVE_INTERVALS + 5)
    pairs.on_frame(said(Opcode.INITIALIZE, RECEIVER))
    reports = pairs.interval(counted([0], [0], [0]), 0.055)
    assert reports[10]["limit_kbps"].tolist() == [5000]


def test_reports_are_rates_of_what_was_sent_dropped_and_put_in_the_queue(pairs) -> None:
    pairs.interval(counted([0], [0], [0]), 0.05)
    (report,) = pairs.interval(counted([31_250], [6_250], [3_125]), 0.05)[10]
    assert (report["measured_kbps"], report["dropped_kbps"], report["limit_kbps"]) == (5000, 1500, 5000)
    assert report["sender"].tobytes() == SENDER.to_bytes(6)
    assert report["receiver"].tobytes() == RECEIVER.to_bytes(6)
    assert report["flags"] == ReportFlag.ACTIVE | ReportFlag.SHAPED_HERE | ReportFlag.BACKLOG


def test_a_queue_that_drains_is_no_demand(pairs) -> None:
    pairs.interval(counted([0], [0], [9_000]), 0.05)
    (report,) = pairs.interval(counted([31_250], [0], [0]), 0.05)[10]
    assert report["dropped_kbps"] == 0


def test_the_first_report_of_a_pair_has_no_rate_yet(pairs) -> None:
    (report,) = pairs.interval(counted([10**6], [0], [0]), 0.05)[10]
    assert report["flags"] & ReportFlag.RATE_UNKNOWN


def test_available_is_what_the_vn_does_not_send_elsewhere(pairs) -> None:
    pairs.on_frame(said(Opcode.INITIALIZE, SENDER, OTHER))
    pairs.on_frame(said(Opcode.SET_RATE, SENDER, OTHER, rate_kbps=[20_000, 9_000]))
    pairs.interval(counted([0] * 3, [0] * 3, [0] * 3), 1.0)
    reports = pairs.interval(counted([500_000, 1_500_000, 1_000_000], [0] * 3, [0] * 3), 1.0)[10]
    assert reports["available_kbps"].tolist() == [12_000, 20_000, 16_000]


def test_pairs_beyond_the_most_and_of_other_vlans_are_refused() -> None:
    pairs = AgentPairs([10], 2)
    pairs.on_frame(said(Opcode.INITIALIZE, *range(2, 7)))
    pairs.on_frame(said(Opcode.INITIALIZE, RECEIVER, vid=20))
    assert (len(pairs.pairs), pairs.refused) == (2, 4)


def test_counters_stay_with_their_pairs_when_others_go(pairs) -> None:
    pairs.on_frame(said(Opcode.INITIALIZE, OTHER))
    pairs.on_frame(said(Opcode.SET_RATE, OTHER, rate_kbps=[1000]))
    pairs.interval(counted([1000, 50_000], [0, 0], [0, 0]), 1.0)
    pairs.on_frame(said(Opcode.DEACTIVATE, RECEIVER))
    (report,) = pairs.interval(counted([175_000], [0], [0]), 1.0)[10]
    assert (report["measured_kbps"], report["limit_kbps"]) == (1000, 1000)


@pytest.mark.parametrize("text", ["", "10,10", "0", "4095", "a", "10,"])
def test_vlans_are_different_ids(text) -> None:
    with pytest.raises(InvalidValueError, match="VLAN ids"):
        parse_vlans(text, access=False)


def test_an_access_port_has_no_vlans() -> None:
    assert parse_vlans(None, access=True) == (0,)
    with pytest.raises(InvalidValueError, match="'10' cannot be with --access"):
        parse_vlans("10", access=True)
    with pytest.raises(InvalidValueError, match="is needed, or --access"):
        parse_vlans(None, access=False)
