"""What the meters of send limits see, and who shows it."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import star
from support.fabrics import ControlLoop
from support.host_traffic import started

from controller.metering.counters import MeterReadings
from controller.metering.send_limit_meters import SendLimitMeters
from controller.monitoring.pair_explanation import explain_pair

M = 1e6
CAPACITY_BPS = np.full(2, 1e9)


def reading(in_bytes, dropped_bytes, at_s):
    columns = [np.array([float(value)] * 2) for value in (in_bytes, dropped_bytes, at_s, at_s)]
    return MeterReadings(*columns, np.array([True, False]), np.full(2, np.nan))


def test_rates_are_known_from_the_second_reading_on_and_stand_while_nothing_is_read():
    meters = SendLimitMeters.initial(2).updated(reading(0, 0, 1.0), CAPACITY_BPS)
    assert np.isnan(meters.offered_bps).all()
    meters = meters.updated(reading(1e6, 25e4, 2.0), CAPACITY_BPS)
    assert (meters.offered_bps[0], meters.dropped_bps[0]) == (8e6, 2e6)
    assert np.isnan([meters.offered_bps[1], meters.dropped_bps[1]]).all()
    assert meters.offered_to_passed.tolist() == [8 / 6, 1.0]
    assert meters.updated(MeterReadings.initial(2), CAPACITY_BPS).offered_bps[0] == 8e6


def test_a_modify_begins_a_new_count_and_what_is_forgotten_is_unknown():
    meters = SendLimitMeters.initial(2).updated(reading(1e6, 0, 1.0), CAPACITY_BPS)
    modified = meters.modified(np.array([0]), 1.0).updated(reading(1e6, 0, 2.0), CAPACITY_BPS)
    assert modified.offered_bps[0] == 8e6
    forgotten = meters.invalidated(np.array([0])).updated(reading(9e6, 0, 2.0), CAPACITY_BPS)
    assert np.isnan(forgotten.offered_bps[0])


def test_a_sender_of_which_nothing_passes_multiplies_nothing():
    meters = SendLimitMeters.initial(2).updated(reading(0, 0, 1.0), CAPACITY_BPS)
    assert meters.updated(reading(1e6, 1e6, 2.0), CAPACITY_BPS).offered_to_passed.tolist() == [1.0, 1.0]


def test_what_a_send_limit_drops_is_counted_and_explained_also_after_changes_and_absence():
    """Two receivers of one sender that may send 40 Mb/s, and is asked for 60."""
    loop = ControlLoop(started(star(4, limits={10: "40M"})))
    loop.add((1, 1), (1, 2), 10, 40 * M)
    loop.add((1, 1), (1, 3), 10, 20 * M)
    loop.run(40)
    net, vns = loop.fabric, loop.fabric.central.vns
    row, meters = vns.row_of(10, 1, 1), net.central.fabric.send_limits
    assert meters.offered_bps[row] == pytest.approx(60 * M, rel=0.02)
    assert meters.dropped_bps[row] == pytest.approx(20 * M, rel=0.05)
    assert meters.offered_bps[vns.row_of(10, 1, 2)] == 0.0
    text = str(explain_pair(net.central.fabric, 0))
    assert text.endswith("; s1:1's send limit drops 20.0 Mb/s of the 60.0 Mb/s that it sends in all"), text
    net.operator.set_vn(row, net.now_s, send_limit_bps=int(30 * M))
    loop.run(40)
    assert net.central.fabric.send_limits.dropped_bps[row] == pytest.approx(30 * M, rel=0.05)
    net.disconnect(1)
    net.operator.set_vn(row, net.now_s, send_limit_bps=int(35 * M))
    net.connect(1)
    loop.run(40)
    assert net.central.fabric.send_limits.dropped_bps[row] == pytest.approx(25 * M, rel=0.05)
