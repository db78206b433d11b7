"""What ports carried over the last second, and the counters of all time, of edge ports and of links alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.central.controller import CentralController
from controller.columns import FloatArray, IntArray
from controller.switch.counter_changes import CounterChanges
from controller.units import BITS_PER_BYTE

_NAMES = ("tx_bytes", "rx_bytes")


class PortTraffic:
    """The ports' counters, looked at once a second, by dpid."""

    def __init__(self) -> None:
        self._readings: dict[int, tuple[IntArray, NDArray[np.void]]] = {}
        self._changes: dict[int, CounterChanges] = {}

    def read(self, central: CentralController) -> None:
        """Take the last counters of every switch that is connected, and forget those of others."""
        for dpid, record in central.switches.items():
            reading = central.fabric.deliveries[dpid].ports.latest
            if reading is None or not record.connected:
                self._forget(dpid)
            elif dpid not in self._readings or reading[1] is not self._readings[dpid][1]:
                self._changes[dpid] = CounterChanges.between(_NAMES, self._readings.get(dpid), reading)
                self._readings[dpid] = reading
        for dpid in self._readings.keys() - central.switches.keys():
            self._forget(dpid)

    def sent_bps(self, dpid: int, port_no: IntArray) -> FloatArray:
        """Return what ports sent, bit/s; NaN: unknown."""
        return self._at("tx_bytes", dpid, port_no)

    def received_bps(self, dpid: int, port_no: IntArray) -> FloatArray:
        """Return what ports received, bit/s; NaN: unknown."""
        return self._at("rx_bytes", dpid, port_no)

    def counted_bytes(self, dpid: int) -> dict[int, tuple[int, int]]:
        """Return what the ports of a switch have sent and received in all, by port number."""
        if dpid not in self._readings:
            return {}
        port_no, counters = self._readings[dpid]
        sent, received = (counters[name].tolist() for name in _NAMES)
        return dict(zip(port_no.tolist(), zip(sent, received, strict=True), strict=True))

    def _forget(self, dpid: int) -> None:
        self._readings.pop(dpid, None)
        self._changes.pop(dpid, None)

    def _at(self, name: str, dpid: int, port_no: IntArray) -> FloatArray:
        changes = self._changes.get(dpid)
        return np.full(len(port_no), np.nan) if changes is None else changes.per_second(name, port_no) * BITS_PER_BYTE
