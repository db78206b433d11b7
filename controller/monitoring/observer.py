"""Records a controller's state after each round, for operators and monitoring.

It follows changes of the configuration, and decides nothing.
"""

from __future__ import annotations

from controller.central.controller import CentralController
from controller.monitoring.link_status import LinkCommitments, LinkUptime
from controller.monitoring.port_rates import PortRates
from controller.monitoring.time_series import TimeSeries
from controller.monitoring.traffic_totals import TrafficTotals, current_rates


class Observer:
    """The recorded state of one controller; ``on_round_end`` is called after each round of the loop."""

    def __init__(self, central: CentralController) -> None:
        self.central = central
        self.traffic = TrafficTotals.initial(len(central.vns))
        self.series = TimeSeries(central.vns)
        self.ports = PortRates()
        self.links = LinkUptime()
        self.promises = LinkCommitments(central.config)
        self._fabric, self._vns = central.fabric, central.vns
        self._noted_s: float | None = None

    def on_round_end(self, now_s: float) -> None:
        """Record the state after a round."""
        self.sync_vns()
        central, fabric = self.central, self._fabric
        elapsed_s = fabric.config.interval_s if self._noted_s is None else max(now_s - self._noted_s, 0.0)
        self._noted_s = now_s
        self.links.note(fabric.network.topology.links(), now_s)
        rates_bps = current_rates(central)
        self.series.add(central, rates_bps)
        if self.traffic.add(rates_bps, central, elapsed_s, now_s):
            self.series.close(central.vns, self.traffic.mean_bps, now_s)
            self.ports.read(central)

    def sync_vns(self) -> None:
        """Align the columns with the controller's VNs, which may have changed with the configuration."""
        central = self.central
        if self._fabric is central.fabric:
            return
        if not central.vns.has_rows_of(self._vns):
            self.traffic = self.traffic.reindexed(central.vns.rows_in(self._vns))
            self.series = TimeSeries(central.vns).with_history(self.series, central.vns)
        self.promises = LinkCommitments(central.config)
        self._fabric, self._vns = central.fabric, central.vns
