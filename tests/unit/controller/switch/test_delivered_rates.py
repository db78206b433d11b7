"""Rates of ports and queues: only what two readings in a row show is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.multipart import PORT_STATS, QUEUE_STATS
from controller.switch.counter_deltas import CounterDeltas
from controller.switch.delivered_rates import CounterHistory, DeliveredRates


def queues(*rows):
    """Return QUEUE_STATS of (port_no, queue_id, tx_bytes, tx_errors, duration_s) rows."""
    stats = np.zeros(len(rows), dtype=QUEUE_STATS)
    for row, values in enumerate(rows):
        for name, value in zip(("port_no", "queue_id", "tx_bytes", "tx_errors", "duration_s"), values, strict=True):
            stats[row][name] = value
    return stats


def column(*values):
    return np.array(values, dtype=np.int64)


def test_queues_are_told_apart_by_port_and_number_and_unknown_until_they_were_read_twice():
    delivery, asked = DeliveredRates(), (column(1, 1, 2, 2), column(10, 20, 10, 20))
    assert np.isnan(delivery.queue_bps(*asked)).all()
    delivery.read_queues(queues((1, 10, 0, 0, 5.0), (1, 20, 0, 0, 1.0), (2, 10, 0, 0, 1.0)), 0.0)
    assert np.isnan(delivery.queue_bps(*asked)).all()
    delivery.read_queues(queues((2, 10, 300, 0, 2.0), (1, 20, 200, 0, 2.0), (1, 10, 100, 4, 5.5)), 1.0)
    rates = delivery.queue_bps(*asked)
    assert rates[:3].tolist() == [1600, 1600, 2400]
    assert np.isnan(rates[3])
    changes = delivery.queues.changes
    assert sorted(changes.delta["tx_errors"].tolist()) == [0, 0, 4]
    assert sorted(changes.elapsed_s.tolist()) == [0.5, 1.0, 1.0]


def test_ports_have_both_directions():
    delivery = DeliveredRates()
    for tx_bytes, rx_bytes, duration_s in ((0, 0, 1.0), (500, 250, 2.0)):
        stats = np.zeros(1, dtype=PORT_STATS)
        stats[0]["port_no"], stats[0]["tx_bytes"], stats[0]["rx_bytes"] = 7, tx_bytes, rx_bytes
        stats[0]["duration_s"] = duration_s
        delivery.read_ports(stats, duration_s)
    assert delivery.port_sent_bps(column(7)).tolist() == [4000]
    assert delivery.port_received_bps(column(7)).tolist() == [2000]


def test_a_reading_right_behind_another_is_left_out_and_the_next_covers_both():
    delivery = DeliveredRates()
    for received_s, count in ((0.0, 0), (0.055, 1000), (0.060, 5000), (0.110, 7000)):
        delivery.read_queues(queues((1, 10, count, 0, 1.0 + received_s)), received_s)
        if received_s == 0.060:
            assert delivery.queues.received_s == 0.055
            assert delivery.queue_bps(column(1), column(10))[0] == pytest.approx(8_000 / 0.055)
    assert delivery.queue_bps(column(1), column(10))[0] == pytest.approx(48_000 / 0.055)


def test_counters_beyond_what_a_float_holds_are_subtracted_exactly():
    delivery = DeliveredRates()
    for number in range(2):
        delivery.read_queues(queues((1, 10, 2**63 + 3 * number, number, 1.0 + number)), float(number))
    assert delivery.queues.changes.delta["tx_bytes"].tolist() == [3]


def test_changes_are_worked_out_when_somebody_asks():
    asked = []

    def key_of(rows):
        asked.append(len(rows))
        return rows["port_no"].astype(np.int64)

    counters = CounterHistory(key_of, ("tx_bytes",))
    for number in range(100):
        counters.note(np.zeros(3, dtype=PORT_STATS), float(number))
    assert asked == []
    assert counters.changes is counters.changes
    assert asked == [3, 3]


@settings(max_examples=60)
@given(
    st.lists(
        st.dictionaries(
            st.integers(1, 6),
            st.tuples(st.integers(0, 50) | st.just(COUNTER_UNAVAILABLE), st.integers(1, 9)),
            max_size=5,
        ),
        max_size=8,
    )
)
def test_changes_follow_a_dictionary_of_readings(readings):
    before, last = None, {}
    for reading in readings:
        stats = np.zeros(len(reading), dtype=PORT_STATS)
        for row, (port_no, (count, clock)) in enumerate(reading.items()):
            stats[row]["port_no"], stats[row]["tx_bytes"], stats[row]["duration_s"] = port_no, count, clock
        after = stats["port_no"].astype(np.int64), stats
        changes = CounterDeltas.between(("tx_bytes",), before, after)
        for port_no in range(1, 7):
            value = changes.per_second("tx_bytes", column(port_no))[0]
            _, row = changes.rows_of(column(port_no))
            moved = changes.delta["tx_bytes"][row].tolist()
            expected = None
            if port_no in reading and port_no in last:
                (count, clock), (old_count, old_clock) = reading[port_no], last[port_no]
                if clock > old_clock and COUNTER_UNAVAILABLE not in (count, old_count):
                    expected = (count - old_count) / (clock - old_clock)
                    assert moved == [count - old_count]
            assert np.isnan(value) if expected is None or expected < 0 else value == pytest.approx(expected)
            assert len(moved) == (port_no in reading)
            assert expected is not None or np.isnan(moved).all()
        before, last = after, reading
