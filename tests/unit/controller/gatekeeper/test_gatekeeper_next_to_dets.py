"""A Gatekeeper VLAN and one of DETS on the same ports: what the one decides is no matter to the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star

from controller.fabric.link_table import LinkTable
from controller.fabric.vn_table import VnTable
from controller.loop import control_step, pair_changes
from controller.metering.counters import MeterReadings
from controller.metering.fabric_readings import FabricReadings
from controller.metering.queue_readings import QueueReadings
from controller.policy.policy_groups import apply_choices, choices_of, groups_of

M = 1e6
INTERVAL_S = 0.055
DETS, GATEKEEPER = 10, 20
CONFIG = star(3, limits={DETS: "400M", GATEKEEPER: "500M"}, vlans={GATEKEEPER: {"algorithm": "gatekeeper"}})
CHOICES = choices_of(CONFIG)
VNS = apply_choices(VnTable.from_config(CONFIG), CHOICES)
GROUPS = groups_of(VNS, CHOICES)
PAIRS = [(vid, port) for vid in (DETS, GATEKEEPER) for port in (1, 2)]  # all send to port 3

rate = st.floats(0.0, 1000.0)
interval = st.tuples(rate, rate, rate, rate, st.one_of(st.just(np.nan), rate))


def limits_of(intervals):
    """Return what DETS's and Gatekeeper's pairs are limited to, and the messages sent, after each interval.

    Of each interval: what the four pairs offer in Mb/s, and what Gatekeeper's queue drops (NaN: it is not read).
    """
    state = control_step.ControlState.start(VNS, GROUPS)
    ends = [np.array([VNS.row_of(vid, 1, port) for vid, port in PAIRS])]
    ends.append(np.array([VNS.row_of(vid, 1, 3) for vid, _ in PAIRS]))
    now_s = 100.0
    rates = pair_changes.first_settings(state, VNS, GROUPS, *ends)
    state = pair_changes.add_entries(state, VNS, *ends, np.arange(1, 5), *rates, now_s, added_now=True)
    dets = np.isin(state.entries.sender, np.flatnonzero(VNS.vlan_vid == DETS))
    counted = np.zeros(4)
    found = []
    for *offered_mbps, dropped_mbps in intervals:
        now_s += INTERVAL_S
        of_pair = dict(zip(zip(*(end.tolist() for end in ends), strict=True), offered_mbps, strict=True))
        rows = zip(state.entries.sender.tolist(), state.entries.receiver.tolist(), strict=True)
        counted = counted + np.array([of_pair[pair] for pair in rows]) * M * INTERVAL_S / 8
        nothing = np.zeros(4)
        since_s = nothing + now_s - 100.0
        readings = MeterReadings(counted, nothing, since_s, nothing + now_s, nothing == 0, np.full(4, np.nan))
        column, known = np.zeros(len(VNS)), np.zeros(len(VNS), dtype=bool)
        dropped_bps, receiver = column.copy(), VNS.row_of(GATEKEEPER, 1, 3)
        dropped_bps[receiver], known[receiver] = dropped_mbps * M, not np.isnan(dropped_mbps)
        queues = QueueReadings(column + 500 * M, column, dropped_bps, column, column + INTERVAL_S, known, known & False)
        state, result = control_step.control_step(
            state, VNS, GROUPS, readings, now_s, LinkTable.access_links(VNS), FabricReadings(queues=queues)
        )
        counted[result.changes.rows] = 0.0
        told = [one.feedback.entry.tolist() for one in state.allocators.decisions if one.feedback is not None]
        limit_bps = control_step.effective_limits_bps(state, VNS)
        found.append((limit_bps[dets].tolist(), limit_bps[~dets].tolist(), told))
    return found, np.flatnonzero(~dets).tolist()


@settings(max_examples=40)
@given(st.lists(interval, min_size=1, max_size=12))
def test_the_other_vlans_grants_are_untouched(intervals):
    mixed, mine = limits_of(intervals)
    alone, _ = limits_of([(a, b, 0.0, 0.0, 0.0) for a, b, *_ in intervals])
    assert [dets for dets, *_ in mixed] == [dets for dets, *_ in alone]
    for _, _, told in mixed:
        assert all(row in mine for rows in told for row in rows)


def test_both_are_limited_at_once():
    """So the property above is not about nothing."""
    found, _ = limits_of([(300.0, 300.0, 500.0, 400.0, 300.0)] * 6)
    dets, gatekeeper, _ = found[-1]
    assert dets == [200 * M, 200 * M]
    assert max(gatekeeper) < 500 * M
    assert any(rows for *_, told in found for rows in told)
