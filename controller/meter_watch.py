"""Finds switches whose meters are there in name only: traffic comes in, and no meter ever counts any."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from controller.columns import IntArray
from controller.openflow.constants import COUNTER_UNAVAILABLE

WINDOW_S = 2.0
# Less than this may be frames that no meter is meant to see: hosts' own LLDP, foreign VLANs.
PLENTY_BYTES = 1_000_000


class MeterWatch:
    """Compares what a switch's edge ports received with what its meters counted, one WINDOW_S after the other."""

    def __init__(self, edge_ports: IntArray) -> None:
        self.idle = False
        """Whether in the last window with traffic no meter counted anything."""
        self._edge_ports = edge_ports
        self._since: tuple[float, int] | None = None
        self._counted = False

    def read(self, meters: NDArray[np.void], ports: NDArray[np.void], now_s: float) -> None:
        """Note METER_STATS and PORT_STATS rows that were read at the same time."""
        self._counted = self._counted or bool(meters["byte_in_count"].any())
        if self._since is not None and now_s - self._since[0] < WINDOW_S:
            return
        mine = np.isin(ports["port_no"], self._edge_ports) & (ports["rx_bytes"] != COUNTER_UNAVAILABLE)
        received = int(ports["rx_bytes"][mine].sum())
        if self._since is not None and received - self._since[1] >= PLENTY_BYTES:
            self.idle = not self._counted
        self._since, self._counted = (now_s, received), False
