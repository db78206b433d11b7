"""Fallback for switches whose meters cannot count: meter-stats derived from flow-stats.

Flow counters are stale (Open vSwitch updates them every 500 ms at the latest) and do not include a meter's drops. So a
rate is known only when a counter has changed, and is then the mean over the time since its last change. If a flow
counts more than its meter can have passed, by its rate and bucket, the rest was dropped. If the rest counted as passed,
it would empty the true bucket, and a sender that keeps offering too much would end with nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.capability.meter_monitor import Settings, decode_kilo
from controller.forwarding.pipeline import Table
from controller.openflow.flows import Flow, FlowStats
from controller.openflow.meters import METER_STATS
from controller.units import BITS_PER_BYTE

STALE_S = 0.6  # a counter that did not change for longer has no traffic


@dataclass
class _Bucket:
    """A model of a meter's token bucket: ``bits`` may have passed since the last reading, as of ``at_s``.

    ``dropped_bytes`` are the assumed drops since the meter's last modify.
    """

    rate_bps: float
    burst_bits: float
    bits: float
    at_s: float
    dropped_bytes: float = 0.0

    def modify(self, rate_bps: float, burst_bits: float, now_s: float) -> None:
        """Set another rate, and fill the bucket (as Open vSwitch does)."""
        # Not capped at a burst: what passed before the modify is subtracted with the next reading.
        self.bits += self.rate_bps * (now_s - self.at_s) + burst_bits
        self.rate_bps, self.burst_bits, self.at_s, self.dropped_bytes = rate_bps, burst_bits, now_s, 0.0

    def consume(self, octets: int, now_s: float) -> None:
        """Subtract the bytes that arrived since the last reading; those that could not pass count as dropped."""
        available_bits = self.bits + self.rate_bps * (now_s - self.at_s)
        passed_bits = min(octets * BITS_PER_BYTE, available_bits)
        self.dropped_bytes += octets - passed_bits / BITS_PER_BYTE
        self.bits, self.at_s = min(available_bits - passed_bits, self.burst_bits), now_s


class FlowStatsMeters:
    """Stores, per meter, the last count and the time of its last change, and the count at the last modify.

    A modified meter counts from zero again (on Open vSwitch, and so everywhere in the core), its flows do not.
    ``settings`` returns the meters' settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._last: dict[int, tuple[int, float]] = {}
        self._since: dict[int, int] = {}
        self._buckets: dict[int, _Bucket] = {}  # of meters with known settings

    def modified(self, meter_ids: Iterable[int], now_s: float) -> None:
        """Record that meters were modified: their counts begin here."""
        counted = [meter_id for meter_id in meter_ids if meter_id in self._last]
        self._since |= {meter_id: self._last[meter_id][0] for meter_id in counted}
        for meter_id, setting in self._known_settings(counted):
            if meter_id in self._buckets:
                self._buckets[meter_id].modify(*setting, now_s)

    def _known_settings(self, meter_ids: list[int]) -> list[tuple[int, tuple[float, float]]]:
        """Return the ids, and the rates (bit/s) and bursts (bits), of those meters with known settings."""
        rate_bps, burst_bits = map(decode_kilo, self._settings(np.array(meter_ids, dtype=np.int64)))
        settings = zip(rate_bps.tolist(), burst_bits.tolist(), strict=True)
        return [(one, setting) for one, setting in zip(meter_ids, settings, strict=True) if np.isfinite(setting).all()]

    def meter_stats(self, flows: FlowStats, now_s: float) -> NDArray[np.void]:
        """Return METER_STATS rows for the meters with flow counters that changed, or that did not change for STALE_S.

        The bytes of all flows of a meter are added up; ``duration_s`` is that of the oldest flow. Bytes before a
        meter's first reading count as passed.
        """
        totals: dict[int, tuple[int, float]] = {}  # by meter id: bytes, and the age of the oldest flow
        for flow, octets, duration_s in zip(flows.flows, flows.byte_count, flows.duration_s, strict=True):
            if not isinstance(flow, Flow) or flow.table_id != Table.RATE_CONTROL or flow.meter_id is None:
                continue
            counted, oldest_s = totals.get(flow.meter_id, (0, 0.0))
            totals[flow.meter_id] = counted + int(octets), max(oldest_s, float(duration_s))
        before = {meter_id: octets for meter_id, (octets, _) in self._last.items()}
        fresh = {meter_id: total for meter_id, total in totals.items() if self._is_fresh(meter_id, total[0], now_s)}
        self._update({meter_id: total[0] for meter_id, total in fresh.items()}, before, now_s)
        self._last = {meter_id: last for meter_id, last in self._last.items() if meter_id in totals}
        self._since = {meter_id: count for meter_id, count in self._since.items() if meter_id in totals}
        rows = np.zeros(len(fresh), dtype=METER_STATS)
        for row, (meter_id, (octets, duration_s)) in enumerate(fresh.items()):
            octets = max(octets - self._since.get(meter_id, 0), 0)
            dropped = self._buckets[meter_id].dropped_bytes if meter_id in self._buckets else 0.0
            rows[row] = (meter_id, 0, octets, duration_s, min(int(dropped), octets))  # 0: dropped packets are unknown
        return rows

    def _update(self, octets: dict[int, int], before: dict[int, int], now_s: float) -> None:
        """Let buckets consume what arrived from the counts ``before`` to the counts ``octets``, bytes by meter id.

        A bucket begins, full, with a meter's first count, and again when the count went back, since flows have changed.
        """
        not_reset = {meter_id: count for meter_id, count in before.items() if octets.get(meter_id, count) >= count}
        self._buckets = {meter_id: bucket for meter_id, bucket in self._buckets.items() if meter_id in not_reset}
        for meter_id in octets.keys() & self._buckets.keys():
            self._buckets[meter_id].consume(octets[meter_id] - not_reset[meter_id], now_s)
        new = [meter_id for meter_id in octets if meter_id not in self._buckets]
        for meter_id, (rate_bps, burst_bits) in self._known_settings(new):
            self._buckets[meter_id] = _Bucket(rate_bps, burst_bits, burst_bits, now_s)

    def _is_fresh(self, meter_id: int, octets: int, now_s: float) -> bool:
        """Return whether a meter's bytes changed, or did not for STALE_S; if so, store them."""
        last = self._last.get(meter_id)
        if last is not None and last[0] == octets and now_s - last[1] < STALE_S:
            return False
        self._last[meter_id] = (octets, now_s)
        return True
