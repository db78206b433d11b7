"""What ports carried over the last second: from the second reading on, of switches that are connected."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from controller.monitoring.port_rates import PortRates
from controller.openflow.multipart import PORT_STATS
from controller.switch.delivered_rates import DeliveredRates

PORT = np.array([4])


def counters(sent: int, received: int, duration_s: float) -> np.ndarray:
    row = np.zeros(1, PORT_STATS)
    row["port_no"], row["tx_bytes"], row["rx_bytes"], row["duration_s"] = 4, sent, received, duration_s
    return row


def test_ports_are_known_from_the_second_look_on_and_while_their_switch_is_connected() -> None:
    record, delivery, traffic = SimpleNamespace(connected=True), DeliveredRates(), PortRates()
    central = SimpleNamespace(switches={1: record}, fabric=SimpleNamespace(deliveries={1: delivery}))

    def look() -> tuple[float, float, dict[int, tuple[int, int]]]:
        traffic.read(central)
        return traffic.sent_bps(1, PORT)[0], traffic.received_bps(1, PORT)[0], traffic.counted_bytes(1)

    assert np.isnan(look()[:2]).all()
    delivery.read_ports(counters(1000, 500, 10.0), 1.0)
    *unknown, counted = look()
    assert (np.isnan(unknown).all(), counted) == (True, {4: (1000, 500)})
    delivery.read_ports(counters(1500, 750, 10.5), 1.5)  # between two looks
    delivery.read_ports(counters(3000, 1000, 11.0), 2.0)
    for _ in range(2):  # looked at again before the switch has said more
        assert look() == (16_000.0, 4_000.0, {4: (3000, 1000)})
    record.connected = False
    *unknown, counted = look()
    assert (np.isnan(unknown).all(), counted) == (True, {})
    record.connected = True
    assert np.isnan(look()[:2]).all(), "what it was before says nothing"
