"""The loop's fallback where a switch's meters cannot count: its flow-stats, read as if its meters had said them.

Flow counters are stale (Open vSwitch renews them every 500 ms at the latest) and do not tell what a meter dropped. So a
rate is known only when a counter has moved, and is then the mean over the time it stood still.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from controller.forwarding.pipeline import Table
from controller.openflow.flows import Flow, FlowStats
from controller.openflow.meters import METER_STATS

STALE_S = 0.6  # a counter that stood still for longer counts nothing because there is nothing to count


class FlowCounting:
    """Remembers, per meter, the last count and when it moved, and the count when the meter was last modified.

    A modified meter counts from zero again (on Open vSwitch, and so everywhere in the core), its flows do not.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, float]] = {}
        self._since: dict[int, int] = {}

    def modified(self, meter_ids: Iterable[int]) -> None:
        """Meters were modified: what they count is counted from here on."""
        for meter_id in meter_ids:
            if meter_id in self._last:
                self._since[meter_id] = self._last[meter_id][0]

    def meter_stats(self, flows: FlowStats, now_s: float) -> NDArray[np.void]:
        """Return METER_STATS rows for the meters whose flow counters moved, or have stood still for STALE_S.

        Bytes and packets of all flows that lead to a meter are added up; ``duration_s`` is that of the oldest. What was
        dropped is not known and stands as 0.
        """
        totals: dict[int, tuple[int, int, float, int]] = {}
        counters = zip(flows.flows, flows.packet_count, flows.byte_count, flows.duration_s, strict=True)
        for flow, packets, octets, duration_s in counters:
            if not isinstance(flow, Flow) or flow.table_id != Table.RATE_CONTROL or flow.meter_id is None:
                continue
            some = totals.get(flow.meter_id, (0, 0, 0.0, 0))
            oldest_s = max(some[2], float(duration_s))
            totals[flow.meter_id] = (some[0] + int(packets), some[1] + int(octets), oldest_s, some[3] + 1)
        fresh = {meter_id: total for meter_id, total in totals.items() if self._moved(meter_id, total[1], now_s)}
        self._last = {meter_id: last for meter_id, last in self._last.items() if meter_id in totals}
        self._since = {meter_id: count for meter_id, count in self._since.items() if meter_id in totals}
        rows = np.zeros(len(fresh), dtype=METER_STATS)
        for row, (meter_id, (packets, octets, duration_s, flow_count)) in enumerate(fresh.items()):
            octets -= self._since.get(meter_id, 0)
            rows[row] = (meter_id, flow_count, packets, max(octets, 0), duration_s, 0, 0)
        return rows

    def _moved(self, meter_id: int, octets: int, now_s: float) -> bool:
        last = self._last.get(meter_id)
        if last is not None and last[0] == octets and now_s - last[1] < STALE_S:
            return False
        self._last[meter_id] = (octets, now_s)
        return True
