"""What ports carried over the last second, and the counters of all time, of edge ports and of links alike."""

from __future__ import annotations

from controller.central.controller import CentralController
from controller.columns import FloatArray, IntArray
from controller.switch.delivered_rates import DeliveredRates

_UNKNOWN = DeliveredRates()


class PortRates:
    """The ports' counters, looked at once a second, by dpid; what they moved is worked out when somebody asks."""

    def __init__(self) -> None:
        self._switches: dict[int, DeliveredRates] = {}

    def read(self, central: CentralController) -> None:
        """Take the last counters of every switch that is connected, and forget those of others."""
        last, self._switches = self._switches, {}
        for dpid, record in central.switches.items():
            ports = central.fabric.deliveries[dpid].ports
            if ports.latest is not None and record.connected:
                self._switches[dpid] = last.get(dpid) or DeliveredRates()
                self._switches[dpid].read_ports(ports.latest, ports.received_s)

    def sent_bps(self, dpid: int, port_no: IntArray) -> FloatArray:
        """Return what ports sent, bit/s; NaN: unknown."""
        return self._switches.get(dpid, _UNKNOWN).port_sent_bps(port_no)

    def received_bps(self, dpid: int, port_no: IntArray) -> FloatArray:
        """Return what ports received, bit/s; NaN: unknown."""
        return self._switches.get(dpid, _UNKNOWN).port_received_bps(port_no)

    def counted_bytes(self, dpid: int) -> dict[int, tuple[int, int]]:
        """Return what the ports of a switch have sent and received in all, by port number."""
        counters = self._switches.get(dpid, _UNKNOWN).ports.latest
        if counters is None:
            return {}
        sent, received = (counters[name].tolist() for name in ("tx_bytes", "rx_bytes"))
        return dict(zip(counters["port_no"].tolist(), zip(sent, received, strict=True), strict=True))
