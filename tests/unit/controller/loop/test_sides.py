"""The three sides of an interval apart: a fabric cut into shards that tell each other messages alone, against one step.

A shard owns some VNs: it is the senders' and the grants' side of the entries that they send on, and the receivers' side
of those that they receive on. Messages are instant. Rows are addressed by what both ends know, the fabric's own table.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fluid_meters import PORTS, World, ints

from controller.dets.messages import (
    DeactivateTrafficControl,
    InitializeTrafficControl,
    KeepAlive,
    ReceiverLoads,
    SetRate,
    TrafficReport,
)
from controller.dets.rate_allocator import IntervalContext
from controller.dets.send_rate_controller import MachineState, traffic_reports
from controller.loop import control_step
from controller.loop.grant_side import apply_grants
from controller.loop.receiver_side import watch_receivers
from controller.loop.sender_side import read_meters
from controller.policy.policy_groups import held_while_stale

INTERVALS = 8
ALGORITHMS = ("fs", "sp", "fp", "fe")


@dataclass
class Shard:
    """What one shard keeps: ``sends`` and ``receives`` are rows of the fabric's table."""

    sends: np.ndarray
    receives: np.ndarray
    senders: control_step.ControlState
    receivers: control_step.ControlState


def rows_of(message, rows):
    """Return a message whose rows are of another table."""
    return type(message)(rows[message.entry], *message[1:])


def for_rows(kind, messages, rows):
    """Return what of these messages, addressed by rows of the fabric's table, is for one shard's table of ``rows``."""
    columns = [np.concatenate(column) for column in zip(*messages, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    columns = [column[order] for column in columns]
    mine = np.isin(columns[0], rows)
    return kind(np.searchsorted(rows, columns[0][mine]), *(column[mine] for column in columns[1:]))


def summed(parts):
    """Return what all shards together bring to each receiver."""
    return ReceiverLoads(*map(sum, zip(*parts, strict=True)))


def in_shards(world, shards, ceiling_bps):
    """Run one interval: every message goes to where it is for; return the limits in force, by rows of the fabric."""
    vns, groups, now_s = world.vns, world.groups, world.now_s

    def everywhere(columns):
        whole = np.zeros(len(world.entries), dtype=columns[0].dtype)
        for shard, column in zip(shards, columns, strict=True):
            whole[shard.sends] = column
        return whole

    sides = []
    for shard in shards:
        state = shard.senders
        holds = held_while_stale(groups, state.entries.receiver, len(vns))
        counted = state.counters, state.measured, state.machines, state.unread_intervals
        readings = world.readings(shard.sends)
        sides.append(read_meters(state.entries, *counted, readings, vns, holds))
    parts = [side.loads(shard.senders.enforcement, vns, now_s) for side, shard in zip(sides, shards, strict=True)]
    loads = summed(parts)
    controlled = everywhere([side.machines.controlled for side in sides])
    watched, begun, ended = [], [], []
    for shard in shards:
        state = shard.receivers
        watched.append(watch_receivers(state.allocators, state.accounts, loads, vns, now_s))
        begin, end = watched[-1].first_messages(state.entries, controlled[shard.receives], vns)
        begun.append(rows_of(begin, shard.receives))
        ended.append(rows_of(end, shard.receives))
    reports = []
    for number, shard in enumerate(shards):
        begin = for_rows(InitializeTrafficControl, begun, shard.sends)
        end = for_rows(DeactivateTrafficControl, ended, shard.sends)
        sides[number] = side = sides[number].after_messages(begin, end)
        report = traffic_reports(side.machines, side.machines.rows, side.entries, vns, side.seen.measured)
        reports.append(rows_of(report, shard.sends))
    used = everywhere([side.seen.measured.measured_bps for side in sides])
    passed = everywhere([side.seen.measured.passed_bps for side in sides])
    unread = everywhere([side.seen.unread_intervals for side in sides])
    limits = np.minimum(everywhere([side.machines.limit_bps for side in sides]), ceiling_bps)
    rates, alive = [], []
    for number, shard in enumerate(shards):
        rows, state = shard.receives, shard.receivers
        elapsed_s = 0.0 if np.isnan(state.decided_s) else now_s - state.decided_s
        columns = used[rows], limits[rows], unread[rows], loads.passed_bps, passed[rows]
        seen = IntervalContext(now_s, elapsed_s, None, *columns)
        said = for_rows(TrafficReport, reports, rows)
        watched[number], set_rate, keep_alive = watched[number].answer(groups, state.entries, vns, said, seen)
        rates.append(rows_of(set_rate, rows))
        alive.append(rows_of(keep_alive, rows))
    in_force = []
    for number, shard in enumerate(shards):
        side, state = sides[number], shard.senders
        granted = apply_grants(
            side,
            state.enforcement,
            for_rows(SetRate, rates, shard.sends),
            for_rows(KeepAlive, alive, shard.sends),
            ceiling_bps[shard.sends],
            None,
            watched[number].remaining,
            now_s,
        )
        in_force.append(granted)
        shard.senders = control_step.ControlState(
            state.entries,
            granted.counters,
            side.seen.measured,
            granted.machines,
            state.allocators,
            granted.enforcement,
            state.accounts,
            side.seen.unread_intervals,
            now_s,
        )
        shard.receivers = shard.receivers._replace(
            allocators=watched[number].allocators, accounts=watched[number].accounts, decided_s=now_s
        )
    meters_bps = everywhere([one.enforcement.rate_bps for one in in_force])
    return everywhere([one.limit_bps for one in in_force]), meters_bps


def compare(algorithm, owner, offered):
    """Run a fabric whole and in shards; return how many entries were limited at the end."""
    world = World(algorithm)
    everything, owner = np.arange(len(world.entries)), ints(owner)
    one = world.state(everything)
    shards = []
    for number in np.unique(owner):
        sends = np.flatnonzero(owner[world.entries.sender] == number)
        receives = np.flatnonzero(owner[world.entries.receiver] == number)
        shards.append(Shard(sends, receives, world.state(sends), world.state(receives)))
    ceiling_bps, limit_bps = control_step.ceilings(world.entries, world.vns), np.full(len(everything), np.inf)
    for offered_kbits in offered:
        world.pass_interval(offered_kbits, limit_bps)
        one, result = control_step.control_step(one, world.vns, world.groups, world.readings(everything), world.now_s)
        limits_bps, meters_bps = in_shards(world, shards, ceiling_bps)
        np.testing.assert_array_equal(limits_bps, result.limit_bps)
        np.testing.assert_array_equal(meters_bps, one.enforcement.rate_bps)
        limit_bps = result.limit_bps
        world.modified(result.changes.rows)
    return int(np.count_nonzero(one.machines.control == MachineState.LIMITED))


owners = st.lists(st.integers(0, 3), min_size=PORTS, max_size=PORTS)
loads_kbits = st.lists(st.lists(st.integers(0, 600), min_size=7, max_size=7), min_size=INTERVALS, max_size=INTERVALS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=25)
@given(owner=owners, offered=loads_kbits)
def test_shards_that_tell_each_other_messages_grant_what_one_step_grants(algorithm, owner, offered):
    compare(algorithm, owner, offered)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_comparison_is_of_senders_that_are_limited(algorithm):
    assert compare(algorithm, [0, 0, 1, 1, 2, 3], [[600, 500, 400, 300, 200, 100, 50]] * INTERVALS) > 10


def test_loads_that_are_lost_would_be_noticed(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "summed", lambda parts: parts[0])
    with pytest.raises(AssertionError):
        compare("fs", [0, 0, 1, 1, 2, 3], [[600, 500, 400, 300, 200, 100, 50]] * INTERVALS)
