"""Meters that police runs of whole packets: the software switches' meter table with buckets of plain numbers.

Modify, delete and statistics are those of ``experiments.switch.meter_table``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.units import BITS_PER_BYTE
from experiments.measure.frame_sizes import TCP_WIRE_BYTES
from experiments.model.queues import Bucket, whole_ms
from experiments.switch.datapath import Datapath
from experiments.switch.meter_table import MeterAbilities, MeterTable
from experiments.switch.multipart import Multipart


class PacketMeters(MeterTable):
    """The meter table of one switch; its dynamic part is in ``buckets`` (by meter id)."""

    def __init__(self, abilities: MeterAbilities) -> None:
        super().__init__(abilities)
        self.buckets: dict[int, Bucket] = {}

    def police(self, meter_id: int, octets: int, now_s: float) -> bool:
        """Whether the meter passes one packet of that many bytes now; the packet is counted either way."""
        bucket = self.buckets.get(meter_id)
        return bucket is not None and bucket.consume(1, octets * BITS_PER_BYTE, whole_ms(now_s)) == 1

    def stats(
        self, ids: npt.NDArray[np.int64], flow_counts: npt.NDArray[np.int64], now_s: float
    ) -> npt.NDArray[np.void]:
        """Return the records of a meter-stats reply, as ``MeterTable`` does, with the counts of the buckets."""
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
        """Delete a meter, or all; return the deleted ids."""
        gone = super().delete(meter_id)
        for one in gone:
            del self.buckets[one]
        return gone


class ModelDatapath(Datapath):
    """A software switch whose meters police runs of packets."""

    meters: PacketMeters

    def clear_tables(self) -> None:
        """Delete all flows and meters."""
        super().clear_tables()
        self.meters = PacketMeters(self.abilities)
        self.multipart = Multipart(self.options, self.tables, self.meters, self.ports)

    def count(self, octets: Mapping[int, int], now_s: float) -> None:
        """Count traffic of flow entries, by their row; as on Open vSwitch, timeouts run from the last traffic."""
        rows = np.array(list(octets), np.int64)
        self.tables.hit_rates(rows, np.array(list(octets.values()), np.float64), TCP_WIRE_BYTES, now_s)

    def describe(self) -> dict[str, Any]:
        """Return the switch's state, for a run's manifest."""
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
