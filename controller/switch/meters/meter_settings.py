"""Settings of a switch's meters as columns with a mapping interface, so that comparing thousands is fast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.meter_bounds import UNBOUNDED, MeterBounds
from controller.metering.enforcement import to_kilo
from controller.openflow.meters import IntColumn


class MeterSetting(NamedTuple):
    """Rate and burst of a meter, in the units of a band."""

    rate_kbps: int
    burst_kbits: int


class MeterSettingsTable(Mapping[int, MeterSetting]):
    """Meters by ascending id; columns of shape (meters,)."""

    def __init__(self, meter_id: IntColumn, rate_kbps: IntColumn, burst_kbits: IntColumn) -> None:
        """Take columns in any order; ids are all different."""
        order = np.argsort(meter_id, kind="stable")
        self.meter_id = np.asarray(meter_id, dtype=np.int64)[order]
        self.rate_kbps = np.asarray(rate_kbps, dtype=np.int64)[order]
        self.burst_kbits = np.asarray(burst_kbits, dtype=np.int64)[order]

    @classmethod
    def from_rates(cls, meter_id: IntArray, rate_bps: FloatArray, burst_bits: FloatArray) -> MeterSettingsTable:
        """Return the settings for rates and bursts that are whole kb/s and kb."""
        return cls(meter_id, to_kilo(rate_bps), to_kilo(burst_bits))

    @classmethod
    def from_installed(cls, meters: NDArray[np.void]) -> MeterSettingsTable:
        """Return the settings that a switch reports (METER_CONFIG)."""
        return cls(meters["meter_id"], meters["rate_kbps"], meters["burst_kbits"])

    def __len__(self) -> int:
        return len(self.meter_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self.meter_id.tolist())

    def __getitem__(self, meter_id: int) -> MeterSetting:
        row = int(np.searchsorted(self.meter_id, meter_id))
        if row == len(self.meter_id) or self.meter_id[row] != meter_id:
            raise KeyError(meter_id)
        return MeterSetting(int(self.rate_kbps[row]), int(self.burst_kbits[row]))

    def select(self, meter_id: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the columns of the meters of these ids, which must exist."""
        rows = np.searchsorted(self.meter_id, meter_id)
        return self.meter_id[rows], self.rate_kbps[rows], self.burst_kbits[rows]

    def settings(self) -> dict[int, MeterSetting]:
        """Return all settings as a dict, for callers that look up thousands."""
        settings = map(MeterSetting, self.rate_kbps.tolist(), self.burst_kbits.tolist())
        return dict(zip(self.meter_id.tolist(), settings, strict=True))

    def merged(self, other: MeterSettingsTable) -> MeterSettingsTable:
        """Return these meters merged with others, which have different ids."""
        columns = zip(self._columns, other._columns, strict=True)
        return MeterSettingsTable(*(np.concatenate(both) for both in columns))

    @property
    def _columns(self) -> tuple[IntArray, IntArray, IntArray]:
        return self.meter_id, self.rate_kbps, self.burst_kbits

    def within_bounds(self, bounds: MeterBounds) -> MeterSettingsTable:
        """Return the meters with settings fitted to a switch's bounds."""
        if bounds == UNBOUNDED:
            return self
        return MeterSettingsTable(self.meter_id, *bounds.fitted(self.rate_kbps, self.burst_kbits))

    def within(self, first: int, last: int) -> MeterSettingsTable:
        """Return the meters whose ids are in a range."""
        rows = slice(*np.searchsorted(self.meter_id, (first, last + 1)))
        return MeterSettingsTable(self.meter_id[rows], self.rate_kbps[rows], self.burst_kbits[rows])

    def differing(self, other: MeterSettingsTable) -> set[int]:
        """Return the ids of the meters that only one of both has, or that have different settings."""
        if len(self) == len(other) and np.array_equal(self.meter_id, other.meter_id):
            unlike = (self.rate_kbps != other.rate_kbps) | (self.burst_kbits != other.burst_kbits)
            return set(self.meter_id[unlike].tolist())
        return set(self.meter_id[~self._same_in(other)].tolist()) | set(other.meter_id[~other._same_in(self)].tolist())

    def _same_in(self, other: MeterSettingsTable) -> BoolArray:
        if not len(other):
            return np.zeros(len(self), dtype=np.bool_)
        row = np.minimum(np.searchsorted(other.meter_id, self.meter_id), len(other) - 1)
        same: BoolArray = (
            (other.meter_id[row] == self.meter_id)
            & (other.rate_kbps[row] == self.rate_kbps)
            & (other.burst_kbits[row] == self.burst_kbits)
        )
        return same
