"""What ports carried over the last second, and the counters of all time, of edge ports and of links alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.central.controller import CentralController
from controller.columns import FloatArray, IntArray
from controller.switch.counter_changes import CounterChanges
from controller.switch.delivery import port_key_of
from controller.units import BITS_PER_BYTE

_NAMES = ("tx_bytes", "rx_bytes")


class PortTraffic:
    """The ports' counters, looked at once a second, by dpid; what they moved is worked out when somebody asks."""

    def __init__(self) -> None:
        self._readings: dict[int, NDArray[np.void]] = {}
        self._before: dict[int, NDArray[np.void]] = {}
        self._changes: dict[int, CounterChanges] = {}

    def read(self, central: CentralController) -> None:
        """Take the last counters of every switch that is connected, and forget those of others."""
        for dpid, record in central.switches.items():
            reading, last = central.fabric.deliveries[dpid].ports.latest, self._readings.get(dpid)
            if reading is None or not record.connected:
                self._forget(dpid)
            elif reading is not last:
                self._changes.pop(dpid, None)
                self._readings[dpid] = reading
                if last is not None:
                    self._before[dpid] = last
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
        counters = self._readings[dpid]
        sent, received = (counters[name].tolist() for name in _NAMES)
        return dict(zip(counters["port_no"].tolist(), zip(sent, received, strict=True), strict=True))

    def _forget(self, dpid: int) -> None:
        for known in (self._readings, self._before, self._changes):
            known.pop(dpid, None)

    def _at(self, name: str, dpid: int, port_no: IntArray) -> FloatArray:
        if dpid not in self._readings:
            return np.full(len(port_no), np.nan)
        if dpid not in self._changes:
            before = self._before.get(dpid)
            keyed = None if before is None else (port_key_of(before), before)
            after = self._readings[dpid]
            self._changes[dpid] = CounterChanges.between(_NAMES, keyed, (port_key_of(after), after))
        return self._changes[dpid].per_second(name, port_no) * BITS_PER_BYTE
