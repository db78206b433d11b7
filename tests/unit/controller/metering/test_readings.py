"""Readings of queues and links: unknown as unknown, what no traffic can do as implausible."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.metering.port_readings import PortChanges, PortReadings
from controller.metering.queue_readings import FULL_FRAME_BYTES, QueueChanges, QueueReadings

CAPACITY_BPS = 100e6
NAN = float("nan")


def queue(sent_bytes, sent_packets, dropped_packets, elapsed_s, arrival_bps=3 * CAPACITY_BPS):
    changes = QueueChanges(*(np.array([one]) for one in (sent_bytes, sent_packets, dropped_packets, elapsed_s)))
    return QueueReadings.from_changes(changes, np.array([CAPACITY_BPS]), np.array([arrival_bps]))


def port(sent_bytes, dropped_packets, elapsed_s):
    changes = PortChanges(*(np.array([one]) for one in (sent_bytes, dropped_packets, elapsed_s)))
    return PortReadings.from_changes(changes, np.array([CAPACITY_BPS]))


def test_a_queue_is_read_on_its_own_clock_and_drops_are_as_long_as_what_was_sent():
    got = queue(150_000.0, 100.0, 10.0, 0.05)
    assert got.served_bps.tolist() == [24e6]
    assert (got.served_packets.tolist(), got.dropped_packets.tolist()) == ([100], [10])
    assert got.dropped_bps.tolist() == pytest.approx([10 * 1500 * 8 / 0.05])
    assert (got.known.tolist(), got.implausible.tolist(), got.elapsed_s.tolist()) == ([True], [False], [0.05])


def test_a_queue_that_only_dropped_dropped_full_frames():
    assert queue(0.0, 0.0, 5.0, 0.1).dropped_bps.tolist() == pytest.approx([5 * FULL_FRAME_BYTES * 8 / 0.1])
    nothing = queue(0.0, 0.0, 0.0, 0.1)
    assert (nothing.known.tolist(), nothing.dropped_bps.tolist(), nothing.served_bps.tolist()) == ([True], [0.0], [0.0])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ((-1.0, 100.0, 10.0, 0.05), "bytes went back"),
        ((150_000.0, -1.0, 10.0, 0.05), "packets went back"),
        ((150_000.0, 100.0, -1.0, 0.05), "drops went back"),
        ((20.1 * CAPACITY_BPS / 8, 1e5, 0.0, 1.0), "it sent more than twenty times what the port carries"),
        ((1500.0, 1.0, 60.1 * CAPACITY_BPS / 12_000, 1.0), "it dropped more than can arrive twenty times over"),
    ],
)
def test_what_no_traffic_does_is_implausible_and_not_known(values, why):
    got = queue(*values)
    assert (got.known[0], got.implausible[0]) == (False, True), why
    assert np.isnan(got.served_bps[0])


def test_a_burst_from_all_sides_is_plausible():
    """Two hundred hosts at full speed towards one queue: what it drops is two hundred times what its port carries."""
    dropped = 200 * CAPACITY_BPS / 12_000 * 0.05
    got = queue(1500.0 * 400, 400.0, dropped, 0.05, arrival_bps=200 * CAPACITY_BPS)
    assert got.known[0]


def test_a_link_is_read_on_its_ports_clock():
    got = port(1_250_000.0, 7.0, 0.5)
    assert (got.transmitted_bps.tolist(), got.dropped_packets.tolist(), got.known.tolist()) == ([20e6], [7], [True])
    from_host = port(1_250_000.0, NAN, 0.5)
    assert (from_host.transmitted_bps.tolist(), from_host.known.tolist()) == ([20e6], [True])
    for values in ((NAN, 0.0, 0.5), (10.0, 0.0, NAN)):
        assert (port(*values).known[0], port(*values).implausible[0]) == (False, False)
    for values in ((-1.0, 0.0, 0.5), (10.0, -1.0, 0.5), (20.1 * CAPACITY_BPS / 8, 0.0, 1.0)):
        assert (port(*values).known[0], port(*values).implausible[0]) == (False, True)
        assert np.isnan(port(*values).transmitted_bps[0])


moves = st.sampled_from([NAN, -5.0, 0.0, 1.0, 1e3, 1e7, 1e12])


@settings(max_examples=150)
@given(moves, moves, moves, st.sampled_from([NAN, 0.01, 0.055, 10.0]))
def test_a_reading_is_known_or_all_of_it_is_nan(sent, packets, dropped, elapsed_s):
    got = queue(sent, packets, dropped, elapsed_s)
    columns = [getattr(got, field.name)[0] for field in dataclasses.fields(got)[:5]]
    if got.known[0]:
        assert all(np.isfinite(columns))
        assert min(columns) >= 0.0
        assert got.served_bps[0] * elapsed_s == pytest.approx(sent * 8)
        assert not got.implausible[0]
    else:
        assert np.isnan(columns).all()
        assert got.implausible[0] == (not np.isnan(sent + packets + dropped + elapsed_s))
