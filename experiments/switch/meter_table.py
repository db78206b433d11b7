"""Meters as columns indexed by meter_id, with the semantics measured on Open vSwitch.

A modify refills the bucket and zeroes the counters while the duration continues; without OFPMF_BURST the bucket is one
second of traffic; the input counters count before the drop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from controller.openflow import constants as ofp
from controller.openflow.constants import ErrorType, MeterFlags, MeterModCommand
from controller.units import BITS_PER_BYTE
from experiments.switch import replies
from experiments.switch.openflow_errors import OpenFlowReplyError

_COLUMNS: tuple[tuple[str, type], ...] = (
    ("exists", np.bool_),
    ("flags", np.uint16),
    ("rate_kbps", np.uint32),
    ("burst_kbits", np.uint32),
    ("bucket_bits", np.float64),
    ("filled_s", np.float64),
    ("created_s", np.float64),
    ("packets_in", np.float64),
    ("bytes_in", np.float64),
    ("band_packets", np.float64),
    ("band_bytes", np.float64),
)
_KNOWN_FLAGS = MeterFlags.KBPS | MeterFlags.BURST | MeterFlags.STATS


@dataclass(frozen=True, slots=True)
class MeterLimits:
    """The limits of a band, in kb/s and kb, and of the number of meters.

    ``rounds`` is the handling of a rate between two steps: reject it, or use the next step below or above.
    ``supports_burst_flag``: the switch knows OFPMF_BURST; otherwise it rejects that flag.
    """

    min_burst_kbits: int = 1
    max_burst_kbits: int = 2**32 - 1
    min_rate_kbps: int = 1
    max_rate_kbps: int = 2**32 - 1
    rate_step_kbps: int = 1
    rounds: Literal["not", "down", "up"] = "not"
    count: int = 2**32 - 1
    supports_burst_flag: bool = True

    def rounded(self, rate_kbps: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the rates in kb/s that the switch sets for requested rates."""
        step = self.rate_step_kbps
        if self.rounds == "not" or step == 1:
            return rate_kbps
        raised = rate_kbps.astype(np.int64) + (step - 1 if self.rounds == "up" else 0)
        return np.maximum(raised // step * step, step).astype(np.uint32)

    def refusal(self, rate_kbps: int, burst_kbits: int) -> str | None:
        """Return the error code for a band; None: the band is accepted."""
        if not self.min_burst_kbits <= burst_kbits <= self.max_burst_kbits:
            return "BAD_BURST"
        off_step = self.rounds == "not" and rate_kbps % self.rate_step_kbps
        if off_step or not self.min_rate_kbps <= rate_kbps <= self.max_rate_kbps:
            return "BAD_RATE"
        return None


NO_LIMITS = MeterLimits()


@dataclass(slots=True)
class MeterAbilities:
    """The switch's abilities with meters. ``refuse``: rejects all; ``limit`` and ``count``: what accepted ones do.

    ``reports_counting`` is its reported ability to count (OFPMF_STATS).
    """

    max_meters: int = 65_535
    limits: MeterLimits = field(default=NO_LIMITS)
    refuse: bool = False
    limit: bool = True
    count: bool = True
    reports_counting: bool = True


class MeterTable:
    """The meters of one switch. Counters are whole numbers kept as float64, so exact up to 2**53."""

    def __init__(self, abilities: MeterAbilities) -> None:
        self.abilities = abilities
        self.offsets: dict[int, dict[str, int]] = {}  # see shift()
        self._rows = np.zeros(64, np.dtype(list(_COLUMNS)))

    @property
    def count(self) -> int:
        """The number of meters."""
        return int(np.count_nonzero(self._rows["exists"]))

    def ids(self) -> npt.NDArray[np.int64]:
        """Return the ids of the meters, ascending."""
        return np.flatnonzero(self._rows["exists"])

    def exists(self, meter_id: int) -> bool:
        """Whether a meter exists."""
        return meter_id < len(self._rows) and bool(self._rows["exists"][meter_id])

    def setting(self, meter_id: int) -> tuple[int, int]:
        """Return (rate in kb/s, burst in kb) of a meter; raises KeyError when there is none."""
        if not self.exists(meter_id):
            raise KeyError(meter_id)
        row = self._rows[meter_id]
        return int(row["rate_kbps"]), int(row["burst_kbits"])

    def apply_rows(self, rows: npt.NDArray[np.void], now_s: float) -> list[tuple[int, OpenFlowReplyError]]:
        """Apply meter-mods in order (columns of requests.METER_MOD); return the rejected rows with their errors."""
        refusals = []
        all_plain = self._all_plain(rows)
        if all_plain:
            self._write(rows["meter_id"].astype(np.int64), rows, now_s)
            return []
        for number in range(len(rows)):
            try:
                self._apply_one(rows[number : number + 1], now_s)
            except OpenFlowReplyError as refusal:
                refusals.append((number, refusal))
        return refusals

    def delete(self, meter_id: int) -> list[int]:
        """Delete a meter, or all; return the deleted ids (none is no error, section 7.3.4.4)."""
        ids = self.ids().tolist() if meter_id == ofp.METER_ALL else [meter_id] if self.exists(meter_id) else []
        self._rows[ids] = 0
        return ids

    def police(self, meter_id: int, octets: int, now_s: float) -> bool:
        """Whether the meter passes one packet of that many bytes now; the packet is counted either way."""
        if not self.exists(meter_id):
            return False
        ids = np.array([meter_id])
        self._refill(ids, now_s)
        row = self._rows[meter_id]
        passes = not self.abilities.limit or row["bucket_bits"] >= octets * BITS_PER_BYTE
        if self.abilities.limit and passes:
            row["bucket_bits"] -= octets * BITS_PER_BYTE
        if self.abilities.count:
            row["packets_in"] += 1
            row["bytes_in"] += octets
            row["band_packets"] += not passes
            row["band_bytes"] += 0 if passes else octets
        return bool(passes)

    def police_rates(
        self, ids: npt.NDArray[np.int64], offered_bytes: npt.NDArray[np.float64], packet_bytes: float, now_s: float
    ) -> npt.NDArray[np.float64]:
        """Offer each meter its bytes, spread evenly since the last call.

        Return the share that passes, 0 to 1, (ids,).

        ``ids`` are all different. A deleted meter passes nothing.
        """
        self._grow(int(ids.max(initial=0)))
        cols = self._rows
        offered_bits = offered_bytes * BITS_PER_BYTE
        elapsed_s = now_s - cols["filled_s"][ids]
        available_bits = cols["bucket_bits"][ids] + cols["rate_kbps"][ids] * 1000.0 * elapsed_s
        passed_bits = np.minimum(offered_bits, available_bits if self.abilities.limit else np.inf)
        remaining_bits = np.maximum(available_bits - passed_bits, 0.0)
        cols["bucket_bits"][ids] = np.minimum(remaining_bits, self._depth_bits(ids))
        cols["filled_s"][ids] = now_s
        if self.abilities.count:
            dropped = (offered_bits - passed_bits) / BITS_PER_BYTE
            cols["bytes_in"][ids] += offered_bytes
            cols["packets_in"][ids] += offered_bytes / packet_bytes
            cols["band_bytes"][ids] += dropped
            cols["band_packets"][ids] += dropped / packet_bytes
        passed_share = np.divide(passed_bits, offered_bits, out=np.ones(len(ids)), where=offered_bits > 0)
        return np.where(cols["exists"][ids], passed_share, 0.0)

    def stats(
        self, ids: npt.NDArray[np.int64], flow_counts: npt.NDArray[np.int64], now_s: float
    ) -> npt.NDArray[np.void]:
        """Return the records of a meter-stats reply; ``flow_counts`` are the entries that use each meter."""
        rows = np.zeros(len(ids), replies.METER_STATS)
        cols = self._rows[ids]
        rows["meter_id"] = ids
        rows["length"] = rows.dtype.itemsize
        rows["flow_count"] = flow_counts
        for name, column in (
            ("packet_in_count", "packets_in"),
            ("byte_in_count", "bytes_in"),
            ("band_packet_count", "band_packets"),
            ("band_byte_count", "band_bytes"),
        ):
            rows[name] = np.floor(cols[column]).astype(np.uint64)
        replies.fill_duration(rows, now_s - cols["created_s"])
        for number in np.flatnonzero(np.isin(ids, list(self.offsets))) if self.offsets else ():
            for name, offset in self.offsets[int(ids[number])].items():
                rows[name][number] = (int(rows[name][number]) + offset) % 2**64
        return rows

    def config(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
        """Return the records of a meter-config reply."""
        rows = np.zeros(len(ids), replies.METER_CONFIG)
        rows["length"] = rows.dtype.itemsize
        rows["flags"] = self._rows["flags"][ids]
        rows["meter_id"] = ids
        rows["band_type"] = ofp.METER_BAND_DROP
        rows["band_length"] = 16
        rows["rate"] = self._rows["rate_kbps"][ids]
        rows["burst_size"] = self._rows["burst_kbits"][ids]
        return rows

    def shift(self, meter_id: int, name: str, offset: int) -> None:
        """From now on report a counter of a meter with ``offset`` added, modulo 2**64: a jump or a wrap."""
        self.offsets.setdefault(meter_id, {})[name] = offset

    def reset_counters(self) -> None:
        """Zero all counters, as after a restart of the datapath; durations restart with the next add only."""
        for name in ("packets_in", "bytes_in", "band_packets", "band_bytes"):
            self._rows[name] = 0

    def _depth_bits(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the depth of buckets in bits: the burst if set, otherwise one second at the rate."""
        uses_burst = (self._rows["flags"][ids] & MeterFlags.BURST > 0) & (self._rows["burst_kbits"][ids] > 0)
        kbits: npt.NDArray[np.uint32] = np.where(
            uses_burst, self._rows["burst_kbits"][ids], self._rows["rate_kbps"][ids]
        )
        return (kbits * 1000.0).astype(np.float64)

    def _refill(self, ids: npt.NDArray[np.int64], now_s: float) -> None:
        """Add the tokens of the time since the last refill, up to the depth of the bucket."""
        rows = self._rows
        refilled = rows["bucket_bits"][ids] + rows["rate_kbps"][ids] * 1000.0 * (now_s - rows["filled_s"][ids])
        rows["bucket_bits"][ids] = np.minimum(refilled, self._depth_bits(ids))
        rows["filled_s"][ids] = now_s

    def _grow(self, meter_id: int) -> None:
        """Extend the columns so that a meter id has a row."""
        if meter_id >= len(self._rows):
            bigger = np.zeros(max(meter_id + 1, 2 * len(self._rows)), self._rows.dtype)
            bigger[: len(self._rows)] = self._rows
            self._rows = bigger

    def _all_plain(self, rows: npt.NDArray[np.void]) -> bool:
        """Whether every row modifies an existing meter, or every row adds a new one, and none is rejected."""
        ids = rows["meter_id"].astype(np.int64)
        flags = rows["flags"]
        if not (
            len(rows)
            and not self.abilities.refuse
            and self.abilities.limits == NO_LIMITS
            and ((ids >= 1) & (ids <= self.abilities.max_meters)).all()
            and (rows["rate"] > 0).all()
            and (rows["band_type"] == ofp.METER_BAND_DROP).all()
            and ((flags & ~np.uint16(_KNOWN_FLAGS)) == 0).all()
            and (flags & MeterFlags.KBPS).all()
        ):
            return False
        self._grow(int(ids.max()))
        if (rows["command"] == MeterModCommand.MODIFY).all():
            return bool(self._rows["exists"][ids].all())
        adds = (rows["command"] == MeterModCommand.ADD).all()
        return bool(adds and not self._rows["exists"][ids].any() and len(np.unique(ids)) == len(ids))

    def _apply_one(self, row: npt.NDArray[np.void], now_s: float) -> None:
        """Apply one add or modify, (1,); OpenFlowReplyError with the code of the first reason to reject it."""
        command, meter_id, flags = int(row["command"][0]), int(row["meter_id"][0]), int(row["flags"][0])
        failed = ErrorType.METER_MOD_FAILED
        if command not in (MeterModCommand.ADD, MeterModCommand.MODIFY):
            raise OpenFlowReplyError(failed, "BAD_COMMAND")
        if not 1 <= meter_id <= ofp.METER_MAX:
            raise OpenFlowReplyError(failed, "INVALID_METER")
        if command == MeterModCommand.ADD and self.exists(meter_id):
            raise OpenFlowReplyError(failed, "METER_EXISTS")
        if command == MeterModCommand.MODIFY and not self.exists(meter_id):
            raise OpenFlowReplyError(failed, "UNKNOWN_METER")
        limits = self.abilities.limits
        known = _KNOWN_FLAGS if limits.supports_burst_flag else _KNOWN_FLAGS & ~MeterFlags.BURST
        if flags & ~known or not flags & MeterFlags.KBPS:
            raise OpenFlowReplyError(failed, "BAD_FLAGS")
        if row["band_type"][0] != ofp.METER_BAND_DROP:
            raise OpenFlowReplyError(failed, "BAD_BAND")
        if not row["rate"][0]:
            raise OpenFlowReplyError(failed, "BAD_RATE")
        full = command == MeterModCommand.ADD and self.count >= limits.count
        if self.abilities.refuse or meter_id > self.abilities.max_meters or full:
            raise OpenFlowReplyError(failed, "OUT_OF_METERS")
        code = limits.refusal(int(row["rate"][0]), int(row["burst_size"][0]))
        if code is not None:
            raise OpenFlowReplyError(failed, code)
        self._grow(meter_id)
        self._write(np.array([meter_id]), row, now_s)

    def _write(self, ids: npt.NDArray[np.int64], rows: npt.NDArray[np.void], now_s: float) -> None:
        """Set meters: buckets are full and counters zero afterwards; the duration of existing meters continues."""
        cols = self._rows
        fresh = ids[~cols["exists"][ids]]
        cols["created_s"][fresh] = now_s
        cols["exists"][ids] = True
        cols["flags"][ids] = rows["flags"]
        cols["rate_kbps"][ids] = self.abilities.limits.rounded(rows["rate"].astype(np.uint32))
        cols["burst_kbits"][ids] = rows["burst_size"]
        cols["bucket_bits"][ids] = self._depth_bits(ids)
        cols["filled_s"][ids] = now_s
        for name in ("packets_in", "bytes_in", "band_packets", "band_bytes"):
            cols[name][ids] = 0
