"""Congestion, and what the rate allocators say to the senders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from support.configs import star

from controller.dets.messages import ReceiverLoads, TrafficReport
from controller.dets.rate_allocator import (
    CALM_BELOW,
    CALM_INTERVALS,
    CONGESTED_ABOVE,
    IntervalContext,
    RateAllocators,
    answer_reports,
    initialize,
    received_rates,
    watch_congestion,
)
from controller.dets.send_rate_controller import KEEP_ALIVE_INTERVALS
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.measurement import Measurement
from controller.policy.interface import Decision, Policy, StaleMode
from controller.policy.policy_groups import PolicyChoice, PolicyGroup, choices_of, groups_of

CONFIG = star(6, limits={10: "100M", 20: "100M"})
VNS = VnTable.from_config(CONFIG)
GROUPS = groups_of(VNS, choices_of(CONFIG))
HUB = VNS.row_of(10, 1, 6)
SENDERS = np.array([VNS.row_of(10, 1, port) for port in (1, 2, 3)])
ENTRIES, _ = PairTable.empty().add(SENDERS, np.full(3, HUB), np.array([11, 12, 13]))
LIMIT = 100e6
NOBODY = np.zeros(len(VNS), dtype=bool)


def seen(passed, dropped=0.0, active=(True, True, True)):
    passed = np.broadcast_to(np.array(passed, dtype=float), 3).copy()
    dropped = np.broadcast_to(np.array(dropped, dtype=float), 3).copy()
    return Measurement(passed + dropped, dropped, passed, passed, np.where(active, 0, 99).astype(np.int16))


def calm():
    return RateAllocators.initial(len(VNS), GROUPS)


def congested_by(state, measured):
    columns = measured.passed_bps, measured.smoothed_bps, measured.dropped_bps
    loads = ReceiverLoads(*(received_rates(ENTRIES, column, len(VNS)) for column in columns), np.zeros(len(VNS)))
    state = watch_congestion(state, loads, VNS)
    assert not np.delete(state.congested, HUB).any()
    return state, bool(state.congested[HUB])


def reports(measured, limit_bps, rows=(0, 1, 2), available_bps=LIMIT):
    rows = np.array(rows)
    return TrafficReport(
        rows,
        measured.passed_bps[rows],
        measured.dropped_bps[rows],
        measured.dropped_bps[rows] > 0.0,
        np.broadcast_to(np.array(limit_bps, dtype=float), len(rows)).copy(),
        np.full(len(rows), float(available_bps)),
        measured.active[rows],
    )


def unlimited_reports(passed):
    """Reports of all entries, which have no limits yet and drop nothing."""
    nothing = np.zeros(len(passed))
    measured = Measurement(passed, nothing, passed, passed, nothing.astype(np.int16))
    return reports(measured, np.inf, np.arange(len(passed)))


def around(entries):
    rows = len(entries)
    unread, nothing = np.zeros(rows, dtype=int), np.zeros(rows)
    return IntervalContext(0.0, 0.055, None, nothing, nothing, unread, np.zeros(len(VNS)), nothing)


def ask(state, measured, limit_bps, groups=GROUPS, vns=VNS, seen=None, **kwargs):
    said = reports(measured, limit_bps, **kwargs)
    state, set_rate, keep_alive = answer_reports(state, groups, ENTRIES, vns, said, seen or around(ENTRIES))
    return state, dict(zip(set_rate.entry.tolist(), set_rate.rate_bps.tolist(), strict=True)), keep_alive.entry.tolist()


# -- congestion


def test_more_than_the_limit_is_congestion_and_what_is_dropped_at_the_meters_does_not_count():
    assert not congested_by(calm(), seen(LIMIT * CONGESTED_ABOVE / 3 - 1, 500e6))[1]
    assert congested_by(calm(), seen(LIMIT * CONGESTED_ABOVE / 3 + 1))[1]


def test_congestion_holds_until_it_was_calm_for_long():
    state, _ = congested_by(calm(), seen(50e6))
    for _ in range(CALM_INTERVALS - 1):
        state, congested = congested_by(state, seen(CALM_BELOW * LIMIT / 3 - 1))
        assert congested
    assert not congested_by(state, seen(CALM_BELOW * LIMIT / 3 - 1))[1]


@pytest.mark.parametrize("disturbance", [seen(CALM_BELOW * LIMIT / 3 + 1), seen(1e6, [0.0, 1.0, 0.0])])
def test_a_full_or_a_dropping_interval_starts_the_calm_anew(disturbance):
    state, _ = congested_by(calm(), seen(50e6))
    for _ in range(CALM_INTERVALS - 1):
        state, _ = congested_by(state, seen(1e6))
    state, _ = congested_by(state, disturbance)
    for number in range(1, CALM_INTERVALS + 1):
        state, congested = congested_by(state, seen(1e6))
        assert congested == (number < CALM_INTERVALS)


@pytest.mark.parametrize("controlled", [(True, False, False), (True, False, True), (False,) * 3, (True,) * 3])
def test_who_is_told_what(controlled):
    """Whoever is not under control begins where that is wanted, and whoever is ends where it is not, at any time."""
    entries, _ = PairTable.empty().add(SENDERS, np.full(3, HUB), np.array([11, 12, 13]))
    hub, controlled = np.arange(len(VNS)) == HUB, np.array(controlled)
    for congested, always in ((NOBODY, NOBODY), (hub, NOBODY), (NOBODY, NOBODY), (NOBODY, hub), (NOBODY, NOBODY)):
        begin, end = initialize(calm()._replace(congested=congested), entries, controlled, always)
        wanted = bool((congested | always)[HUB])
        assert begin.entry.tolist() == (np.flatnonzero(~controlled).tolist() if wanted else [])
        assert end.entry.tolist() == ([] if wanted else np.flatnonzero(controlled).tolist())


# -- answers


def test_first_grants_and_keep_alives():
    state, grants, kept = ask(calm(), seen(50e6), np.inf)
    assert grants == pytest.approx(dict.fromkeys(range(3), LIMIT / 3))
    assert kept == []
    assert ask(calm(), seen(50e6), np.inf, available_bps=10e6)[1] == pytest.approx(dict.fromkeys(range(3), 10e6))
    _, grants, kept = ask(state, seen(LIMIT / 3), LIMIT / 3)
    assert (grants, kept) == ({}, [0, 1, 2])


def test_an_idle_senders_standing_rate_is_a_share_as_if_it_were_one_more():
    _, grants, _ = ask(calm(), seen(50e6, active=(True, False, True)), np.inf)
    assert grants == pytest.approx({0: 50e6, 1: LIMIT / 3, 2: 50e6})
    _, grants, _ = ask(calm(), seen(0.0, active=(False, False, False)), np.inf)
    assert grants == pytest.approx(dict.fromkeys(range(3), LIMIT))


def test_a_rate_of_nothing_is_a_grant_too():
    _, grants, kept = ask(calm(), seen(0.0), [0.0, 0.0, 5e6], available_bps=0.0)
    assert grants == {2: 0.0}
    assert kept == [0, 1]


def test_receivers_are_shared_out_each_by_its_own_algorithm():
    """VLAN 10 by FS, VLAN 20 by FE, at one time."""
    groups = groups_of(VNS, {10: PolicyChoice("fs", {}), 20: PolicyChoice("fe", {"k": 1.0})})
    assert [group.policy.name for group in groups] == ["fs", "fe"]
    hub = VNS.row_of(20, 1, 6)
    more = np.array([VNS.row_of(20, 1, 1), VNS.row_of(20, 1, 2)])
    entries, _ = ENTRIES.add(more, np.full(2, hub), np.array([21, 22]))
    report = unlimited_reports(np.where(entries.receiver == hub, 60e6, 50e6))
    state = RateAllocators.initial(len(VNS), groups)
    for _ in range(2):
        state, set_rate, _ = answer_reports(state, groups, entries, VNS, report, around(entries))
    granted = np.full(5, np.nan)
    granted[set_rate.entry] = set_rate.rate_bps
    assert granted[entries.receiver == HUB] == pytest.approx([LIMIT / 3] * 3)
    # FE's second step: 50 Mb/s times 1 - (120 - 100) / 100.
    assert granted[entries.receiver == hub] == pytest.approx([40e6] * 2)


def fe_state(state, number=0):
    rates_bps = state.memories[number].vn_column("rate_bps")
    return {vn: rates_bps[vn] for vn in np.flatnonzero(~np.isnan(rates_bps)).tolist()}


FE = groups_of(VNS, {10: PolicyChoice("fe", {"k": 0.5}), 20: PolicyChoice("fe", {"k": 0.5})})


def test_an_algorithms_memory_follows_its_receiver_and_its_entries():
    state, _, _ = ask(RateAllocators.initial(len(VNS), FE), seen(50e6), np.inf, FE)
    state, _, _ = ask(state, seen(50e6), LIMIT / 3, FE)
    before = fe_state(state)
    assert before == pytest.approx({HUB: LIMIT / 3 * 0.75})
    # Another receiver becomes congested, whose entries stand before and after: rows move.
    lower, upper = VNS.row_of(10, 1, 1), VNS.row_of(20, 1, 6)
    entries, old_row = ENTRIES.add(
        np.array([VNS.row_of(10, 1, 2), VNS.row_of(20, 1, 1)]), np.array([lower, upper]), np.array([31, 32])
    )
    state = state.reindexed(old_row)
    report = unlimited_reports(np.where(entries.receiver == HUB, LIMIT / 3, LIMIT))
    state, _, _ = answer_reports(state, FE, entries, VNS, report, around(entries))
    assert fe_state(state) == pytest.approx({lower: LIMIT, HUB: before[HUB], upper: LIMIT})
    # And an entry of it goes.
    entries, old_row = entries.keep(np.array([False, True, True, False, True]))
    state = state.reindexed(old_row)
    report = unlimited_reports(np.where(entries.receiver == HUB, LIMIT / 2, LIMIT))
    state, _, _ = answer_reports(state, FE, entries, VNS, report, around(entries))
    assert fe_state(state) == pytest.approx({HUB: before[HUB], upper: LIMIT})


def test_another_vlans_new_algorithm_leaves_a_memory_alone():
    policies = {10: PolicyChoice("fe", {"k": 0.5}), 20: PolicyChoice("fs", {})}
    groups = groups_of(VNS, policies)
    state, _ = congested_by(RateAllocators.initial(len(VNS), groups), seen(50e6))
    state, _, _ = ask(state, seen(50e6), np.inf, groups)
    state, _, _ = ask(state, seen(50e6), LIMIT / 3, groups)
    number = [group.policy.name for group in groups].index("fe")
    before = fe_state(state, number)
    others = groups_of(VNS, {**policies, 20: PolicyChoice("fp", {"d": 3.0})})
    changed = state.with_groups(groups, others)
    assert changed.congested.tolist() == state.congested.tolist()
    number = [group.policy.name for group in others].index("fe")
    assert fe_state(changed, number) == before
    changed, grants, _ = ask(changed, seen(LIMIT / 3), LIMIT / 3 * 0.75, others)
    assert fe_state(changed, number) == pytest.approx(before)
    assert grants == {}


# -- silence


@dataclass(frozen=True)
class Always(Policy):
    """Grants every entry the same, whatever it sees."""

    grant_bps: float
    silence: StaleMode = StaleMode.LAST_KNOWN
    name = "always"

    def decide(self, view, memory):
        return Decision(view, np.full(len(view.rows), self.grant_bps), memory)

    def explain(self, decision, at, place):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("silence", "unread", "expected"),
    [
        (StaleMode.LAST_KNOWN, 1000, 50e6),
        (StaleMode.FREE, KEEP_ALIVE_INTERVALS - 1, 50e6),
        (StaleMode.FREE, KEEP_ALIVE_INTERVALS, LIMIT),
        (StaleMode.HOLD, 0, 50e6),
        (StaleMode.HOLD, 1, 30e6),
        (StaleMode.HOLD, 1000, 30e6),
    ],
)
def test_an_entry_whose_meter_is_not_read(silence, unread, expected):
    groups = (PolicyGroup("always", Always(50e6, silence), np.flatnonzero(VNS.vlan_vid == 10)),)
    seen_now = around(ENTRIES)._replace(unread_intervals=np.array([unread, 0, 0]))
    state = RateAllocators.initial(len(VNS), groups)
    _, grants, kept = ask(state, seen(30e6), 30e6, groups, seen=seen_now)
    assert grants.get(0, 30e6) == expected
    assert (grants[1], grants[2]) == (50e6, 50e6)
    assert kept == ([0] if expected == 30e6 else [])


def test_a_silent_entry_that_holds_may_still_be_lowered():
    groups = (PolicyGroup("always", Always(10e6, StaleMode.HOLD), np.flatnonzero(VNS.vlan_vid == 10)),)
    seen_now = around(ENTRIES)._replace(unread_intervals=np.full(3, 99))
    _, grants, _ = ask(RateAllocators.initial(len(VNS), groups), seen(30e6), 30e6, groups, seen=seen_now)
    assert grants == dict.fromkeys(range(3), 10e6)
