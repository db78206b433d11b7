"""A round begins early when traffic begins that nobody is held back for, and not more often than is allowed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import configs

from controller.fabric.vns import VnTable
from controller.loop.early_rounds import AT_ONCE, PER_S, PORT_PAUSE_S, EarlyRounds, PortCounters

PORTS, CAPACITY_BPS, LIMIT_BPS, LOOK_S = 6, 100e6, 40e6, 0.012
DPIDS = (1, 2)


class Fabric:
    """Two switches with PORTS ports each, whose counters go on at rates, and which are looked at."""

    def __init__(self) -> None:
        ports = dict.fromkeys(range(1, PORTS + 1), 10)
        self.vns = VnTable.of_config(configs.fabric(dict.fromkeys(DPIDS, ports), "100M", {10: "40M"}))
        self.congested = np.zeros(len(self.vns), np.bool_)
        self.rounds = EarlyRounds()
        self.now_s = 100.0
        self.sent_bytes = np.full(len(DPIDS) * PORTS, 2.0**40)
        self.rate_bps = np.zeros(len(self.sent_bytes))

    def counters(self) -> PortCounters:
        port_no = np.tile(np.arange(1, PORTS + 1), len(DPIDS))
        ends = PORTS * np.arange(1, len(DPIDS) + 1)
        return PortCounters(list(DPIDS), port_no, self.sent_bytes.astype(np.uint64), ends)

    def look(self, counters: PortCounters | None = None) -> bool:
        self.now_s += LOOK_S
        self.sent_bytes += self.rate_bps * LOOK_S / 8
        return self.rounds.look(self.vns, self.congested, counters or self.counters(), self.now_s)

    def looks(self, count: int) -> list[bool]:
        return [self.look() for _ in range(count)]


@pytest.fixture
def fabric() -> Fabric:
    fabric = Fabric()
    assert fabric.looks(3) == [False] * 3
    return fabric


def test_what_begins_near_a_limit_is_worth_two_rounds(fabric: Fabric) -> None:
    fabric.rate_bps[4] = 50e6
    assert fabric.looks(4) == [True, True, False, False]


def test_what_begins_a_little_below_a_limit_is_a_reason(fabric: Fabric) -> None:
    fabric.rate_bps[4] = 33e6
    assert fabric.look()


@pytest.mark.parametrize("rate_bps", [9e6, 31e6])
def test_what_is_little_or_far_from_every_limit_is_no_reason(fabric: Fabric, rate_bps: float) -> None:
    fabric.rate_bps[4] = rate_bps
    assert not any(fabric.looks(4))


def test_where_senders_are_held_already_nothing_is_a_reason(fabric: Fabric) -> None:
    fabric.congested[4] = True
    fabric.rate_bps[4] = 50e6
    assert not any(fabric.looks(4))
    fabric.rate_bps[7] = 50e6
    assert fabric.look()


def test_the_first_look_at_a_switch_says_nothing() -> None:
    fabric = Fabric()
    fabric.rate_bps[:] = 50e6
    assert not any(fabric.looks(4))


def test_counters_that_go_back_or_jump_are_no_reason_nor_are_those_that_stay_away(fabric: Fabric) -> None:
    fabric.sent_bytes[4] -= 1e9
    assert not any(fabric.looks(2))
    fabric.sent_bytes[4] += 1e12
    assert not any(fabric.looks(3))
    one = PortCounters([1], np.arange(1, PORTS + 1), fabric.sent_bytes[:PORTS].astype(np.uint64), np.array([PORTS]))
    assert not any(fabric.look(one) for _ in range(3))
    nobody = PortCounters([], np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64))
    assert not fabric.look(nobody)
    fabric.rate_bps[10] = 50e6  # of the switch that was away: over all that time it is little
    assert not any(fabric.looks(1))


def test_ports_that_the_fabric_does_not_have_are_left_out(fabric: Fabric) -> None:
    fabric.rate_bps[4] = 50e6
    fabric.now_s += LOOK_S
    fabric.sent_bytes += fabric.rate_bps * LOOK_S / 8
    port_no, sent = np.array([99, 5, 2**32 - 2]), np.array([0.0, fabric.sent_bytes[4], 5e9]).astype(np.uint64)
    counters = PortCounters([7, 1], port_no, sent, np.array([1, 3]))
    assert fabric.rounds.look(fabric.vns, fabric.congested, counters, fabric.now_s)


def test_a_port_is_a_reason_once_in_a_while(fabric: Fabric) -> None:
    reasons = 0
    for _ in range(round(5.0 / (2 * LOOK_S))):
        fabric.rate_bps[4] = 50e6 - fabric.rate_bps[4]
        reasons += sum(fabric.looks(2))
    assert 2 <= reasons <= 2 * (5.0 / PORT_PAUSE_S + 1)


@given(st.lists(st.lists(st.booleans(), min_size=12, max_size=12), min_size=20, max_size=120))
def test_whatever_hosts_do_there_are_no_more_early_rounds_than_that(pattern: Sequence[Sequence[bool]]) -> None:
    fabric = Fabric()
    begun = 0
    for on in pattern:
        fabric.rate_bps = np.where(on, 80e6, 0.0)
        begun += fabric.look()
    assert begun <= 2 * (AT_ONCE + PER_S * len(pattern) * LOOK_S)


def test_another_table_of_vns_is_taken_up(fabric: Fabric) -> None:
    fabric.vns = Fabric().vns
    fabric.rate_bps[4] = 50e6
    assert fabric.looks(3) == [False] * 3  # all ports are as new
    fabric.rate_bps[5] = 50e6
    assert fabric.look()
