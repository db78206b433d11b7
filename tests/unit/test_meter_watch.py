"""Meters that count nothing while ports receive."""

from __future__ import annotations

import numpy as np

from controller.meter_watch import PLENTY_BYTES, WINDOW_S, MeterWatch
from controller.openflow.meters import METER_STATS
from controller.openflow.stats import PORT_STATS


def read(watch: MeterWatch, now_s: float, counted: int, received: int, elsewhere: int = 0) -> bool:
    meters, ports = np.zeros(2, METER_STATS), np.zeros(2, PORT_STATS)
    meters["byte_in_count"][1] = counted
    ports["port_no"], ports["rx_bytes"] = (1, 9), (received, elsewhere)
    watch.read(meters, ports, now_s)
    return watch.idle


def test_only_a_window_with_traffic_and_no_count_tells():
    watch = MeterWatch(np.array([1]))
    assert not read(watch, 0.0, 0, 0)
    assert not read(watch, WINDOW_S / 2, 0, PLENTY_BYTES)
    assert read(watch, WINDOW_S, 0, PLENTY_BYTES)
    assert read(watch, 2 * WINDOW_S, 7, PLENTY_BYTES)  # no traffic to speak of: still what it was
    assert read(watch, 2.5 * WINDOW_S, 7, 2 * PLENTY_BYTES)
    assert not read(watch, 3 * WINDOW_S, 0, 2 * PLENTY_BYTES)


def test_ports_to_other_switches_do_not_matter():
    watch = MeterWatch(np.array([1]))
    read(watch, 0.0, 0, 0)
    assert not read(watch, WINDOW_S, 0, PLENTY_BYTES - 1, elsewhere=10 * PLENTY_BYTES)


def test_ports_that_count_anew_begin_a_new_window():
    watch = MeterWatch(np.array([1]))
    read(watch, 0.0, 0, 5 * PLENTY_BYTES)
    assert not read(watch, WINDOW_S, 0, 0)
    assert not read(watch, 1.5 * WINDOW_S, 0, 3 * PLENTY_BYTES)
    assert read(watch, 2 * WINDOW_S, 0, 3 * PLENTY_BYTES)
