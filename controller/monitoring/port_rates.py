"""The rates of ports over the last second, and their total counters, of edge ports and of links alike."""

from __future__ import annotations

from controller.central.controller import CentralController
from controller.columns import FloatArray, IntArray
from controller.switch.delivered_rates import DeliveredRates

_UNKNOWN = DeliveredRates()


class PortRates:
    """The ports' counters by dpid, read once a second; rates are computed when they are asked for."""

    def __init__(self) -> None:
        self._switches: dict[int, DeliveredRates] = {}

    def read(self, central: CentralController) -> None:
        """Store the last counters of every connected switch, and forget the other switches."""
        last, self._switches = self._switches, {}
        for dpid, record in central.switches.items():
            ports = central.fabric.deliveries[dpid].ports
            if ports.latest is not None and record.connected:
                self._switches[dpid] = last.get(dpid) or DeliveredRates()
                self._switches[dpid].read_ports(ports.latest, ports.received_s)

    def sent_bps(self, dpid: int, port_no: IntArray) -> FloatArray:
        """Return the sent rates of ports, bit/s; NaN: unknown."""
        return self._switches.get(dpid, _UNKNOWN).port_sent_bps(port_no)

    def received_bps(self, dpid: int, port_no: IntArray) -> FloatArray:
        """Return the received rates of ports, bit/s; NaN: unknown."""
        return self._switches.get(dpid, _UNKNOWN).port_received_bps(port_no)

    def counted_bytes(self, dpid: int) -> dict[int, tuple[int, int]]:
        """Return the total bytes that the ports of a switch have sent and received, by port number."""
        counters = self._switches.get(dpid, _UNKNOWN).ports.latest
        if counters is None:
            return {}
        sent, received = (counters[name].tolist() for name in ("tx_bytes", "rx_bytes"))
        return dict(zip(counters["port_no"].tolist(), zip(sent, received, strict=True), strict=True))
