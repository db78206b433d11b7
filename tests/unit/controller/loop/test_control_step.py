"""One control interval: counters in, meters out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star

from controller.dets.send_rate_controller import MachineState
from controller.fabric.vn_table import VnTable
from controller.loop import control_step, pair_changes
from controller.metering.counters import MeterReadings
from controller.metering.enforcement import burst_for
from controller.policy.policy_groups import choices_of, groups_of

LIMIT = 100e6
INTERVAL_S = 0.055


def world(algorithm="fs", vlans=None):
    config = star(6, limits={10: "100M", 20: "100M"}, algorithm=algorithm, vlans=vlans)
    vns = VnTable.from_config(config)
    return vns, groups_of(vns, choices_of(config))


def ints(*values):
    return np.array(values, dtype=np.int64)


class Bench:
    """A control state with entries towards one VN, and meters that count what the test says."""

    def __init__(self, algorithm="fs", senders=3, vlans=None):
        self.vns, self.groups = world(algorithm, vlans)
        self.now_s, self.started_s = 5000.0, 5000.0
        self.hub = self.vns.row_of(10, 1, 6)
        self.state = control_step.ControlState.start(self.vns, self.groups)
        self.counts = {}
        for port in range(1, senders + 1):
            self.join(port)

    def join(self, port, target=6):
        sender, receiver = ints(self.vns.row_of(10, 1, port)), ints(self.vns.row_of(10, 1, target))
        rate, burst = pair_changes.first_settings(self.state, self.vns, self.groups, sender, receiver)
        meter_id = 100 * target + port
        self.state = pair_changes.add_entries(
            self.state, self.vns, sender, receiver, ints(meter_id), rate, burst, self.now_s, added_now=True
        )
        self.counts[meter_id] = (0.0, 0.0, self.now_s)
        return rate[0]

    def step(self, offered, dropped=0.0, *, present=True):
        """One interval in which the meters saw these rates, in the order of the table."""
        self.now_s += INTERVAL_S
        rows = len(self.state.entries)
        offered, dropped = np.broadcast_to(offered, rows), np.broadcast_to(dropped, rows)
        for meter, rate, drop in zip(self.state.entries.meter_id.tolist(), offered, dropped, strict=True):
            count, gone, added_s = self.counts[meter]
            self.counts[meter] = (count + rate * INTERVAL_S / 8, gone + drop * INTERVAL_S / 8, added_s)
        now = np.array([self.counts[meter] for meter in self.state.entries.meter_id.tolist()]).reshape(rows, 3)
        clocks = self.now_s - now[:, 2], np.full(rows, self.now_s)
        readings = MeterReadings(now[:, 0], now[:, 1], *clocks, np.full(rows, present), np.full(rows, np.nan))
        self.state, result = control_step.control_step(self.state, self.vns, self.groups, readings, self.now_s)
        for meter in self.state.entries.meter_id[result.changes.rows].tolist():
            self.counts[meter] = (0.0, 0.0, self.counts[meter][2])
        return result


def test_nothing_happens_below_the_limits():
    bench = Bench()
    for _ in range(30):
        result = bench.step(30e6)
        assert len(result.changes.rows) == 0
    assert result.received_bps[bench.hub] == pytest.approx(90e6)
    assert not bench.state.machines.controlled.any()
    assert control_step.effective_limits_bps(bench.state, bench.vns).tolist() == [LIMIT] * 3


def test_congestion_is_answered_in_the_interval_in_which_it_is_seen():
    bench = Bench()
    result = bench.step(90e6)
    assert np.flatnonzero(bench.state.allocators.congested).tolist() == [bench.hub]
    assert bench.state.machines.control.tolist() == [MachineState.LIMITED] * 3
    assert control_step.effective_limits_bps(bench.state, bench.vns) == pytest.approx([LIMIT / 3] * 3)
    assert result.changes.rate_bps.tolist() == [33_333_000.0] * 3


def test_a_sender_that_joins_a_congested_receiver_starts_at_a_share():
    bench = Bench()
    assert bench.join(5) == LIMIT
    bench.step(90e6)
    assert bench.join(4) == LIMIT / 5
    bench.step([25e6, 25e6, 25e6, 0.0, 25e6])
    assert bench.state.machines.controlled.all()
    assert np.flatnonzero(bench.state.allocators.congested).tolist() == [bench.hub]


def test_a_receivers_only_sender_has_a_bucket_saved_where_no_queue_holds_it():
    """Its meter gets that of its first rate an interval later; a second sender has what its meter holds."""
    bench = Bench(senders=0)
    bench.vns = bench.vns.with_columns(has_queue=np.zeros(len(bench.vns), dtype=np.bool_))
    bench.join(1)
    standing = bench.state.enforcement
    assert standing.credit_bits[0] == pytest.approx(0.3 * LIMIT)
    assert standing.level_bits[0] == standing.burst_bits[0] < 0.03 * LIMIT
    result = bench.step(0.0)
    assert result.changes.burst_bits[0] == pytest.approx(0.3 * standing.rate_bps[0], rel=0.001)
    bench.join(2)
    assert bench.state.enforcement.credit_bits[1] == bench.state.enforcement.burst_bits[1] < 0.03 * LIMIT


@pytest.mark.parametrize("algorithm", ["fs", "sp", "fp", "fe"])
def test_a_sender_that_joins_a_congested_receiver_is_measured(algorithm):
    """Also when its meter is modified in the interval in which it was added."""
    bench = Bench(algorithm)
    for _ in range(3):
        bench.step(60e6)
    bench.join(4)
    for _ in range(4):
        bench.step(31e6)
    assert bench.state.measured.passed_bps == pytest.approx([31e6] * 4)


def test_unknown_counters_keep_the_state_as_it_is():
    bench = Bench()
    for _ in range(40):
        bench.step(33e6, 20e6)
        bench.step(90e6)
    limits = bench.state.machines.limit_bps.tolist()
    for _ in range(50):
        result = bench.step(0.0, present=False)
        assert len(result.changes.rows) == 0
    assert bench.state.machines.limit_bps.tolist() == limits
    assert bench.state.measured.active.all()
    assert len(result.implausible) == 0


def test_counters_that_jump_are_told_and_not_believed():
    bench = Bench()
    bench.step(30e6)
    result = bench.step([30e6, 1e15, 30e6])
    assert result.implausible.tolist() == [1]
    assert result.received_bps[bench.hub] == pytest.approx(90e6)
    assert not bench.state.allocators.congested.any()


def test_adopted_entries_are_not_new():
    bench = Bench(senders=1)
    rates = np.array([20e6, LIMIT])
    bursts = burst_for(rates, np.array([True, False]))
    senders = ints(bench.vns.row_of(10, 1, 2), bench.vns.row_of(10, 1, 3))
    receivers = ints(bench.hub, bench.vns.row_of(10, 1, 2))
    state = pair_changes.add_entries(
        bench.state, bench.vns, senders, receivers, ints(50, 51), rates, bursts, 1.0, added_now=False
    )
    row = state.entries.meter_id.tolist().index(50)
    assert (state.machines.control[row], state.machines.limit_bps[row]) == (MachineState.LIMITED, 20e6)
    assert np.flatnonzero(state.allocators.congested).tolist() == [bench.hub]
    assert np.isnan(state.counters.epoch_s[row])
    assert (state.machines.control != MachineState.IDLE).sum() == 1


@pytest.mark.parametrize("algorithm", ["fp", "sp", "fe", "fs", "level"])
@pytest.mark.parametrize("shares", [(1 / 3, 1 / 3, 1 / 3), (0.5, 0.3, 0.2)])
def test_adopted_grants_hold_until_the_meters_count(algorithm, shares):
    bench = Bench(algorithm, senders=0)
    rates = LIMIT * np.array(shares)
    pairs = ints(*(bench.vns.row_of(10, 1, port) for port in (1, 2, 3))), np.full(3, bench.hub), ints(1, 2, 3)
    settings = rates, burst_for(rates, np.array([True] * 3))
    bench.state = pair_changes.add_entries(bench.state, bench.vns, *pairs, *settings, bench.now_s, added_now=False)
    bench.counts = dict.fromkeys((1, 2, 3), (0.0, 0.0, bench.now_s))
    for present in (False, False, True):  # the first count that comes in says nothing of a rate
        bench.step(LIMIT, LIMIT - rates, present=present)
        limits_bps = control_step.effective_limits_bps(bench.state, bench.vns)
        assert (limits_bps <= np.maximum(rates, LIMIT / 2)).all()
        if bench.groups[0].policy.sums_within_limit:
            assert limits_bps.sum() <= LIMIT + 1.0


def test_a_removed_entry_takes_nothing_with_it():
    bench = Bench()
    bench.step(90e6)
    before = bench.state
    after = pair_changes.remove_entries(before, ints(1))
    for column in ("limit_bps", "control"):
        assert getattr(after.machines, column).tolist() == getattr(before.machines, column)[[0, 2]].tolist()
    assert after.enforcement.rate_bps.tolist() == before.enforcement.rate_bps[[0, 2]].tolist()
    bench.state = after
    bench.step(90e6)
    assert control_step.effective_limits_bps(bench.state, bench.vns) == pytest.approx([LIMIT / 2] * 2)


happenings = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.integers(1, 5), st.integers(1, 6)),
        st.tuples(st.just("leave"), st.integers(0, 10), st.just(0)),
        st.tuples(st.just("step"), st.floats(0.0, 200e6), st.floats(0.0, 1.0)),
        st.tuples(st.just("silence"), st.just(0), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


@pytest.mark.parametrize("algorithm", ["fs", "sp", "fp", "fe"])
@given(happenings)
@settings(max_examples=25)
def test_invariants(algorithm, events):
    """Whatever comes: limits within the ceilings, meters within the limits, VLAN 20 and its state untouched."""
    bench = Bench(algorithm, senders=0)
    present = set()
    for what, first, second in events:
        if what == "join" and first != second and (first, second) not in present:
            bench.join(first, second)
            present.add((first, second))
        elif what == "leave" and len(bench.state.entries):
            row = first % len(bench.state.entries)
            meter = int(bench.state.entries.meter_id[row])
            present.discard((meter % 100, meter // 100))
            bench.state = pair_changes.remove_entries(bench.state, ints(row))
        elif what in ("step", "silence"):
            result = bench.step(first, first * second, present=what == "step")
            state = bench.state
            ceilings = control_step.ceilings(state.entries, bench.vns)
            limits = control_step.effective_limits_bps(state, bench.vns)
            assert (limits <= ceilings).all()
            assert (limits >= 0).all()
            assert (state.enforcement.rate_bps <= np.maximum(ceilings, 1000)).all()
            assert (state.enforcement.rate_bps % 1000 == 0).all()
            assert (state.enforcement.burst_bits % 1000 == 0).all()
            assert np.isfinite(result.received_bps).all()
            controlled = state.machines.controlled
            assert (controlled == state.allocators.congested[state.entries.receiver]).all()
            assert not state.allocators.congested[bench.vns.vlan_vid == 20].any()
            assert len(set(result.changes.rows.tolist())) == len(result.changes.rows)
