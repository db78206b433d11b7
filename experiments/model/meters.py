"""Meters that police runs of whole packets: the software switches' meter table with buckets of plain numbers.

A slot offers a handful of packets to a few dozen meters one after the other; on so little, plain numbers are several
times as quick as columns. What a modify, a delete and a report mean stays that of ``experiments.switch.meter_table``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.measure.frame_sizes import TCP_WIRE_BYTES
from experiments.switch.datapath import Datapath
from experiments.switch.meter_table import MeterAbilities, MeterTable
from experiments.switch.multipart import Multipart

_BITS_PER_BYTE = 8


class Bucket:
    """The token bucket and the counters of one meter.

    Open vSwitch keeps time for meters in whole milliseconds, and so does this.
    """

    __slots__ = ("band_bytes", "band_packets", "bytes_in", "depth_bits", "filled_ms", "packets_in", "rate", "tokens")

    def __init__(self) -> None:
        self.set(1, 0.0, 0)

    def set(self, rate_kbps: int, depth_bits: float, now_ms: int) -> None:
        """Take a new rate (1 kb/s is 1 bit/ms) and depth: full again, and counting from zero."""
        self.rate, self.depth_bits, self.tokens, self.filled_ms = rate_kbps, depth_bits, depth_bits, now_ms
        self.packets_in = self.bytes_in = self.band_packets = self.band_bytes = 0

    def take(self, packets: int, packet_bits: int, now_ms: int) -> int:
        """Return how many of ``packets`` that arrive now pass; all are counted."""
        tokens = self.tokens
        if now_ms > self.filled_ms:
            tokens = min(tokens + (now_ms - self.filled_ms) * self.rate, self.depth_bits)
            self.filled_ms = now_ms
        passed = min(packets, int(tokens // packet_bits))
        self.tokens = tokens - passed * packet_bits
        self.packets_in += packets
        self.bytes_in += packets * packet_bits // _BITS_PER_BYTE
        if passed < packets:
            self.band_packets += packets - passed
            self.band_bytes += (packets - passed) * packet_bits // _BITS_PER_BYTE
        return passed


class PacketMeters(MeterTable):
    """The meter table of one switch, whose dynamic part stands in ``buckets`` (by meter id)."""

    def __init__(self, abilities: MeterAbilities) -> None:
        super().__init__(abilities)
        self.buckets: dict[int, Bucket] = {}

    def police(self, meter_id: int, octets: int, now_s: float) -> bool:
        """Whether the meter lets one packet of that many bytes pass now; it is counted either way."""
        bucket = self.buckets.get(meter_id)
        return bucket is not None and bucket.take(1, octets * _BITS_PER_BYTE, whole_ms(now_s)) == 1

    def stats(
        self, ids: npt.NDArray[np.int64], flow_counts: npt.NDArray[np.int64], now_s: float
    ) -> npt.NDArray[np.void]:
        """Return the records of a meter-stats reply."""
        buckets = [self.buckets[meter_id] for meter_id in ids.tolist()]
        for name in ("packets_in", "bytes_in", "band_packets", "band_bytes"):
            self._rows[name][ids] = [getattr(bucket, name) if self.abilities.count else 0 for bucket in buckets]
        return super().stats(ids, flow_counts, now_s)

    def _write(self, ids: npt.NDArray[np.int64], rows: npt.NDArray[np.void], now_s: float) -> None:
        super()._write(ids, rows, now_s)
        now_ms = whole_ms(now_s)
        for meter_id, depth_bits in zip(ids.tolist(), self._depth_bits(ids).tolist(), strict=True):
            bucket = self.buckets.setdefault(meter_id, Bucket())
            bucket.set(int(self._rows["rate_kbps"][meter_id]), depth_bits, now_ms)

    def delete(self, meter_id: int) -> list[int]:
        """Delete a meter, or all; return the ids of those deleted."""
        gone = super().delete(meter_id)
        for one in gone:
            del self.buckets[one]
        return gone


class ModelDatapath(Datapath):
    """A software switch whose meters police runs of packets."""

    meters: PacketMeters

    def clear_tables(self) -> None:
        """Forget all flows and meters."""
        super().clear_tables()
        self.meters = PacketMeters(self.abilities)
        self.multipart = Multipart(self.options, self.tables, self.meters, self.ports)

    def count(self, octets: Mapping[int, int], now_s: float) -> None:
        """Count traffic of entries, by their row; Open vSwitch's timeouts run from the last of it."""
        rows = np.array(list(octets), np.int64)
        self.tables.hit_rates(rows, np.array(list(octets.values()), np.float64), TCP_WIRE_BYTES, now_s)

    def describe(self) -> dict[str, Any]:
        """Return what it holds, for a run's manifest."""
        meters = {
            str(meter_id): "rate {} kb/s, burst {} kb".format(*self.meters.setting(meter_id))
            for meter_id in self.meters.ids().tolist()
        }
        queues = {
            str(port.port_no): {str(queue_id): vars_of(queue) for queue_id, queue in port.queues.items()}
            for port in self.ports.values()
        }
        return {"meters": meters, "flow entries": len(self.tables), "queues": queues}


def vars_of(queue: Any) -> str:
    """Return a queue's rates as text."""
    return f"min {queue.min_rate_bps:.0f}, max {queue.max_rate_bps:.0f} bit/s"


def whole_ms(now_s: float) -> int:
    """Return the time as whole milliseconds, not thrown off by what floating point lacks."""
    return int(now_s * 1000.0 + 1e-6)
