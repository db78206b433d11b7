"""Rates of ports and queues: only what two readings in a row show is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.stats import PORT_STATS, QUEUE_STATS
from controller.switch.delivery import CounterRates, Delivery


def queues(*rows):
    """Return QUEUE_STATS of (port_no, queue_id, tx_bytes, tx_errors, duration_s) rows."""
    stats = np.zeros(len(rows), dtype=QUEUE_STATS)
    for row, values in enumerate(rows):
        for name, value in zip(("port_no", "queue_id", "tx_bytes", "tx_errors", "duration_s"), values, strict=True):
            stats[row][name] = value
    return stats


def column(*values):
    return np.array(values, dtype=np.int64)


def test_a_queue_is_unknown_until_it_was_read_twice():
    delivery = Delivery()
    delivery.read_queues(queues((1, 10, 1000, 0, 5.0)))
    assert np.isnan(delivery.queue_bps(column(1), column(10)))[0]
    delivery.read_queues(queues((1, 10, 6000, 4, 5.5)))
    assert delivery.queue_bps(column(1), column(10))[0] == pytest.approx(80_000)
    assert delivery.queue_drops_pps(column(1), column(10))[0] == pytest.approx(8)


def test_queues_are_told_apart_by_port_and_number():
    delivery = Delivery()
    delivery.read_queues(queues((1, 10, 0, 0, 1.0), (1, 20, 0, 0, 1.0), (2, 10, 0, 0, 1.0)))
    delivery.read_queues(queues((2, 10, 300, 0, 2.0), (1, 20, 200, 0, 2.0), (1, 10, 100, 0, 2.0)))
    rates = delivery.queue_bps(column(1, 1, 2, 2), column(10, 20, 10, 20))
    assert rates[:3].tolist() == [800, 1600, 2400]
    assert np.isnan(rates[3])


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ((1, 10, 900, 0, 6.0), "the counter went back"),
        ((1, 10, 9000, 0, 5.0), "the clock stood still"),
        ((1, 10, 9000, 0, 1.0), "the queue was made anew"),
        ((1, 10, COUNTER_UNAVAILABLE, 0, 6.0), "the switch does not count"),
    ],
)
def test_what_cannot_be_told_is_unknown_and_never_zero(second, why):
    delivery = Delivery()
    delivery.read_queues(queues((1, 10, 1000, 0, 5.0)))
    delivery.read_queues(queues(second))
    assert np.isnan(delivery.queue_bps(column(1), column(10)))[0], why


def test_ports_have_both_directions():
    delivery = Delivery()
    for tx_bytes, rx_bytes, duration_s in ((0, 0, 1.0), (500, 250, 2.0)):
        stats = np.zeros(1, dtype=PORT_STATS)
        stats[0]["port_no"], stats[0]["tx_bytes"], stats[0]["rx_bytes"] = 7, tx_bytes, rx_bytes
        stats[0]["duration_s"] = duration_s
        delivery.read_ports(stats)
    assert delivery.port_sent_bps(column(7)).tolist() == [4000]
    assert delivery.port_received_bps(column(7)).tolist() == [2000]


@settings(derandomize=True, max_examples=60)
@given(
    st.lists(
        st.dictionaries(st.integers(1, 6), st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=5), max_size=8
    )
)
def test_rates_follow_a_dictionary_of_readings(readings):
    rates, last = CounterRates.unread(), {}
    for reading in readings:
        stats = np.zeros(len(reading), dtype=PORT_STATS)
        for row, (port_no, (count, clock)) in enumerate(reading.items()):
            stats[row]["port_no"], stats[row]["tx_bytes"], stats[row]["duration_s"] = port_no, count, clock
        rates = rates.read(stats["port_no"].astype(np.int64), stats, ("tx_bytes",))
        for port_no in range(1, 7):
            value = rates.at("tx_bytes", column(port_no))[0] if len(reading) else np.nan
            expected = None
            if port_no in reading and port_no in last:
                (count, clock), (old_count, old_clock) = reading[port_no], last[port_no]
                if clock > old_clock and count >= old_count:
                    expected = (count - old_count) / (clock - old_clock)
            assert np.isnan(value) if expected is None else value == pytest.approx(expected)
        last = reading
