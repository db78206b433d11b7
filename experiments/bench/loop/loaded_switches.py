"""Switches whose meters always count, and that reply quickly: the controller is measured, not the switches.

With 200 switches in one process of Python, the time of a switch for a reply decides whether a round waits. So the
requests of a round have a short path of their own here; everything else works as in software switches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.openflow import constants as ofp
from controller.openflow.constants import ControllerRole, MessageType, MeterFlags, MeterModCommand, MultipartType
from experiments.switch import replies
from experiments.switch.datapath import Datapath
from experiments.switch.meter_table import MeterTable
from experiments.switch.multipart import Multipart

GUARANTEED = 0.95  # of the entitled rate, up to the fair share: below it a sender's guarantee is violated
_ALL_METERS = MultipartType.METER.to_bytes(2) + bytes(6) + ofp.METER_ALL.to_bytes(4) + bytes(4)
# A meter-mod as words: in those that modify one band and have a burst, three words are constant.
_MOD_WORDS, _MOD_BYTES = 8, 32
_SAME_WORDS = (0, 2, 4)
_OF_A_MODIFY = np.array(
    [
        int(ofp.VERSION) << 24 | int(MessageType.METER_MOD) << 16 | _MOD_BYTES,
        int(MeterModCommand.MODIFY) << 16 | int(MeterFlags.KBPS | MeterFlags.BURST | MeterFlags.STATS),
        int(ofp.METER_BAND_DROP) << 16 | 16,
    ],
    dtype=">u4",
)
_METER_ID, _RATE, _BURST = 3, 5, 6
_METER_MOD = int(MessageType.METER_MOD)


class LoadSwing:
    """Whether the senders of varied receivers send or pause: alternating between two readings of all switches."""

    def __init__(self) -> None:
        self._sending = True
        self._read: set[int] = set()

    def read(self, meters: MeterTable) -> bool:
        """Register the reading of a table; the second reading of a table begins a new turn."""
        if id(meters) in self._read:
            self._read.clear()
            self._sending = not self._sending
        self._read.add(id(meters))
        return self._sending


@dataclass
class MeterWriteLog:
    """Changes of prepared meters since ``begin_watch``; columns are indexed by meter id.

    ``first_set_s`` is when each controller, by its number, first modified a meter; ``filled_again`` counts the meters
    that a controller's first change set to their present values. ``passed_bits`` passed in ``counted_s``.
    """

    passed_bits: npt.NDArray[np.float64]
    counted_s: npt.NDArray[np.float64]
    first_set_s: dict[int, float] = field(default_factory=dict)
    filled_again: int = 0
    _set_by: dict[int, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def set(self, writer: int, ids: npt.NDArray[np.int64], same: npt.NDArray[np.bool_], now_s: float) -> None:
        """Record that a controller sets meters; ``same`` marks those that already had this rate and burst."""
        self.first_set_s.setdefault(writer, now_s)
        already_set = self._set_by.setdefault(writer, np.zeros(len(self.passed_bits), np.bool_))
        self.filled_again += int(np.count_nonzero(same & ~already_set[ids]))
        already_set[ids] = True


class BusyMeters(MeterTable):
    """Meters that are offered traffic whenever all of them are read.

    Bytes count, packets do not: the controller does not use them. ``writer`` returns the number of the sending
    controller.
    """

    watch: MeterWriteLog | None = None
    writer: Callable[[], int] = staticmethod(lambda: 0)
    _prepared_ids: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # none while the tables are filled
    _listed: npt.NDArray[np.int64] | None = None
    _size = 0

    def begin_watch(self) -> None:
        """Record from now on what is done to the meters."""
        self.watch = MeterWriteLog(np.zeros(self._size), np.zeros(self._size))

    def report(self) -> dict[str, Any]:
        """Return the record since ``begin_watch``.

        "steady" is the number of senders to receivers that do not vary; "missed" of them passed less than GUARANTEED of
        their offered rate. The other keys are those of MeterWriteLog.
        """
        assert self.watch is not None
        steady_mask = (self._offered_bps > 0) & ~self._varied & (self.watch.counted_s > 0)
        rate_bps = self.watch.passed_bits[steady_mask] / self.watch.counted_s[steady_mask]
        missed_mask = rate_bps < GUARANTEED * self._offered_bps[steady_mask]
        record = {"first_set_s": self.watch.first_set_s, "filled_again": self.watch.filled_again}
        return {**record, "steady": int(np.count_nonzero(steady_mask)), "missed": int(np.count_nonzero(missed_mask))}

    def prepare(
        self, offered_bps: npt.NDArray[np.float64], varied: npt.NDArray[np.bool_], swing: LoadSwing, now_s: float
    ) -> None:
        """Set the traffic; ``offered_bps`` and ``varied`` are indexed by meter id, 0 without traffic."""
        self._offered_bps, self._varied, self._swing = offered_bps, varied, swing
        self._paused_bps = np.where(varied, 0.0, offered_bps)
        if self._size:  # the rest is done once
            return
        self._size, self._prepared_ids, self._listed = len(offered_bps), super().ids(), None
        self._in_bits, self._dropped_bits, self._bucket_bits = np.zeros((3, self._size))
        self._counted_s = np.full(self._size, now_s)
        self._rate_bps = self._rows["rate_kbps"][: self._size] * 1e3
        self._burst_bits = self._rows["burst_kbits"][: self._size] * 1e3
        # All have one age, so that one duration applies to all.
        self._rows["created_s"] = self._created_s = self._rows["created_s"].max()
        records = self._records = np.zeros(len(self._prepared_ids), replies.METER_STATS)
        records["meter_id"], records["length"] = self._prepared_ids, records.itemsize

    def ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the meters, ascending: ``_prepared_ids`` itself while there are no others."""
        if self._listed is None:
            self._listed = super().ids()
            if np.array_equal(self._listed, self._prepared_ids):
                self._listed = self._prepared_ids
        return self._listed

    def delete(self, meter_id: int) -> list[int]:
        """Delete a meter, or all; return the deleted ids."""
        self._listed = None
        return super().delete(meter_id)

    def stats(
        self, ids: npt.NDArray[np.int64], flow_counts: npt.NDArray[np.int64], now_s: float
    ) -> npt.NDArray[np.void]:
        """Return the records of a meter-stats reply; if all prepared meters are read, after one more batch of traffic.

        Other meters, which the controller tests when a switch connects, have no traffic.
        """
        if ids is not self._prepared_ids:
            return super().stats(ids, flow_counts, now_s)
        sending, records = self._swing.read(self), self._records
        elapsed_s = now_s - self._counted_s
        offered_bits = (self._offered_bps if sending else self._paused_bps) * elapsed_s
        available_bits = self._rate_bps * elapsed_s
        available_bits += self._bucket_bits
        passed_bits = np.minimum(offered_bits, available_bits)
        self._bucket_bits = np.minimum(available_bits - passed_bits, self._burst_bits)
        self._counted_s[:] = now_s
        self._in_bits += offered_bits
        self._dropped_bits += offered_bits - passed_bits
        if self.watch is not None:
            self.watch.passed_bits += passed_bits
            self.watch.counted_s += elapsed_s
        records["byte_in_count"] = self._in_bits[ids] / 8
        records["band_byte_count"] = self._dropped_bits[ids] / 8
        records["flow_count"] = flow_counts
        records["duration_sec"], records["duration_nsec"] = replies.split_duration(now_s - self._created_s)
        return records

    def set_prepared(
        self, ids: npt.NDArray[np.int64], rate_kbps: npt.NDArray[Any], burst_kbits: npt.NDArray[Any], now_s: float
    ) -> bool:
        """Modify meters, with full buckets and counters at zero; return whether they are all prepared meters.

        If not, nothing changes.
        """
        if int(ids.max()) >= self._size or not self._rows["exists"][ids].all():
            return False
        if self.watch is not None:
            old = self._rows["rate_kbps"][ids], self._rows["burst_kbits"][ids]
            self.watch.set(self.writer(), ids, (old[0] == rate_kbps) & (old[1] == burst_kbits), now_s)
        self._rows["rate_kbps"][ids], self._rows["burst_kbits"][ids] = rate_kbps, burst_kbits
        self._rate_bps[ids] = rate_kbps * 1e3
        self._burst_bits[ids] = self._bucket_bits[ids] = burst_kbits * 1e3
        self._in_bits[ids] = self._dropped_bits[ids] = 0.0
        self._counted_s[ids] = now_s
        return True

    def _write(self, ids: npt.NDArray[np.int64], rows: npt.NDArray[np.void], now_s: float) -> None:
        if not self.set_prepared(ids, rows["rate"], rows["burst_size"], now_s):
            self._listed = None
            super()._write(ids, rows, now_s)


class PreparedMultipart(Multipart):
    """Multipart replies that encode flow statistics and count the users of all meters once per state of the tables."""

    # Computed for this version of the tables: the reply to a request's body in parts, and the users of meters by id.
    _flow_bytes: tuple[int, bytes, list[bytes]] | None = None
    _users: tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None

    def reply(self, xid: int, body: memoryview, now_s: float) -> list[bytes]:
        """Return the parts of the reply."""
        if body == _ALL_METERS:
            return list(replies.multipart_rows(MultipartType.METER, xid, self._all_meters(now_s)))
        if body[:2] != MultipartType.FLOW.to_bytes(2):
            return super().reply(xid, body, now_s)
        key = (self._tables.version, bytes(body))
        if self._flow_bytes is None or self._flow_bytes[:2] != key:
            self._flow_bytes = (*key, super().reply(xid, body, now_s))
        # The stored reply, with the xid of the present request in the header.
        return [part[:4] + xid.to_bytes(4) + part[8:] for part in self._flow_bytes[2]]

    def _all_meters(self, now_s: float) -> npt.NDArray[np.void]:
        """Return the records of all meters; the users of each meter are counted once per state of the tables."""
        ids, version = self._meters.ids(), self._tables.version
        if self._users is None or self._users[0] != version or self._users[1] is not ids:
            self._users = version, ids, self._users_of(ids)
        return self._meters.stats(ids, self._users[2], now_s)


class BusyDatapath(Datapath):
    """A switch of the benchmark: its flow entries never age, its counters always grow."""

    def clear_tables(self) -> None:
        """Restart, with busy meters."""
        super().clear_tables()
        self.meters: BusyMeters = BusyMeters(self.abilities)
        self.meters.writer = lambda: self.conversations.index(self.current)
        self.multipart = PreparedMultipart(self.options, self.tables, self.meters, self.ports)

    def advance(self, now_s: float) -> None:
        """Do nothing: no flow entry expires."""

    def _one_band_meter_mods(self, view: memoryview, now_s: float) -> int:
        """Handle a run of plain modifies of prepared meters; other messages as software switches do."""
        count = len(view) // _MOD_BYTES
        words = np.frombuffer(view[: count * _MOD_BYTES], ">u4").reshape(count, _MOD_WORDS)
        if count and self.current.role != ControllerRole.SLAVE and (words[:, _SAME_WORDS] == _OF_A_MODIFY).all():
            ids, rate, burst = words[:, (_METER_ID, _RATE, _BURST)].T.astype(np.int64)
            if rate.all() and self.meters.set_prepared(ids, rate, burst, now_s):
                self._note_writer()
                self.handled[_METER_MOD] = self.handled.get(_METER_MOD, 0) + count
                return count * _MOD_BYTES
        return super()._one_band_meter_mods(view, now_s)
