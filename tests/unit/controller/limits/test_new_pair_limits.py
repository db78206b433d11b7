"""What a VN may send before the controller has seen it: with its pair's first meter no more than its part."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import star

from controller.fabric.vn_table import VnTable
from controller.limits.new_pair_limits import new_pair_limits
from controller.loop import control_step, pair_changes
from controller.metering.receive_budgets import IDLE_RESERVE_S
from controller.policy.policy_groups import choices_of, groups_of

LIMIT = 50e6


def first_of(vns, config, sender, receiver):
    """Return rate and burst of the first meter of a pair."""
    groups = groups_of(vns, choices_of(config))
    ends = (np.array([row]) for row in (sender, receiver))
    nothing = control_step.ControlState.start(vns, groups)
    return (column[0] for column in pair_changes.first_settings(nothing, vns, groups, *ends))


def table(ports, receive_limit_bps=LIMIT):
    config = star(ports, limits={10: "50M"})
    limits_bps = np.broadcast_to(receive_limit_bps, ports).astype(np.float64)
    no_queues = np.zeros(ports, dtype=np.bool_)
    return config, VnTable.from_config(config).with_columns(receive_limit_bps=limits_bps, has_queue=no_queues)


def test_the_only_possible_sender_has_its_limit_and_one_bucket():
    config, vns = table(2)
    rate_bps, burst_bits = new_pair_limits(vns)
    _, own_bits = first_of(vns, config, 0, 1)
    assert rate_bps.tolist() == [LIMIT, LIMIT]
    assert burst_bits[0] + own_bits == pytest.approx(0.3 * LIMIT, abs=2000)


def test_it_is_the_limit_of_the_other_that_counts():
    _, vns = table(2, [10e6, 50e6])
    assert new_pair_limits(vns)[0].tolist() == [50e6, 10e6]


@pytest.mark.parametrize("ports", [3, 11])
def test_others_have_their_part_of_the_reserve(ports):
    config, vns = table(ports)
    rate_bps, burst_bits = new_pair_limits(vns)
    _, own_bits = first_of(vns, config, 0, 1)
    others = ports - 1
    assert rate_bps[0] * 0.060 == pytest.approx(IDLE_RESERVE_S * LIMIT / 2 / others, rel=0.01)
    assert burst_bits[0] == pytest.approx(max(IDLE_RESERVE_S * LIMIT / 4 / others, 36_528), abs=1000)
    assert own_bits == pytest.approx(IDLE_RESERVE_S * LIMIT / 4, abs=1000)
