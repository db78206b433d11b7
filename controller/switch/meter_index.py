"""The meters in the replies of a round, as one array, and the pairs and VNs that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from operator import is_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import IntArray, columns_equal
from controller.forwarding.pipeline import VnMeters
from controller.metering import measurement_native
from controller.metering.counters import NOT_LISTED, RowArray
from controller.native_loader import choose
from controller.openflow.meters import METER_STATS
from controller.switch.switch_record import NO_ENTRY, SwitchRecord


class MeterStatsBatch(Mapping[int, NDArray[np.void]]):
    """METER_STATS by dpid: parts of ``whole``, in which the meters of each switch end at its ``ends``.

    ``bounds`` has the range of each dpid.
    """

    def __init__(
        self,
        dpids: Iterable[int],
        whole: NDArray[np.void],
        ends: IntArray,
        meter_id: NDArray[np.uint32] | None = None,
    ) -> None:
        """Take the replies; ``dpids`` are in the order of ``ends``; ``meter_id`` are the ids in ``whole``, if known."""
        self.dpids, self.whole, self.ends = tuple(dpids), whole, ends
        self.meter_id = whole["meter_id"].copy() if meter_id is None else meter_id
        # The result of ``MeterIndex.find``, which is used several times in a round.
        self.listed: tuple[list[RowArray], MeterOwners] | None = None
        self.bounds = dict(zip(self.dpids, pairwise([0, *ends.tolist()]), strict=True))

    @classmethod
    def from_stats(cls, stats: Mapping[int, NDArray[np.void]]) -> MeterStatsBatch:
        """Return the meters as one array; without a copy if they are one already."""
        if isinstance(stats, MeterStatsBatch):
            return stats
        octets = [np.empty(0, np.uint8), *(meters.view(np.uint8) for meters in stats.values())]
        whole = np.concatenate(octets).view(METER_STATS)  # a tenth of the time of a copy field by field
        return cls(stats, whole, np.cumsum([len(meters) for meters in stats.values()], dtype=np.int64))

    def select_switches(self, dpids: Mapping[int, object]) -> MeterStatsBatch:
        """Return the meters of these switches only."""
        if self.bounds.keys() <= dpids.keys():
            return self
        return MeterStatsBatch.from_stats({dpid: meters for dpid, meters in self.items() if dpid in dpids})

    def lists_as(self, other: MeterStatsBatch) -> bool:
        """Return whether ``other`` has the same meters of the same switches."""
        return (
            self.dpids == other.dpids
            and columns_equal(self.ends, other.ends)
            and columns_equal(self.meter_id, other.meter_id)
        )

    def __len__(self) -> int:
        return len(self.dpids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.dpids)

    def __contains__(self, dpid: object) -> bool:
        return dpid in self.bounds

    def __getitem__(self, dpid: int) -> NDArray[np.void]:
        start, end = self.bounds[dpid]
        return self.whole[start:end]


class MeterOwners(NamedTuple):
    """The owner of each meter: a row of the pair table, or of VNs' meters.

    Shape (meters,) each, NO_ENTRY for meters without an owner. Field ``kind`` of VnMeters of a VN is row ``VN_METERS *
    vn + kind``.
    """

    entry: RowArray
    vn: RowArray


VN_METERS = len(VnMeters._fields)


class MeterPositions(NamedTuple):
    """The position of each row's meter in the replies, the last one if it appears twice; shape (rows,) each.

    ``meter`` is the index in ``MeterStatsBatch.whole``, NOT_LISTED where absent, and ``switch`` the index of the switch
    among those that replied.
    """

    meter: RowArray
    switch: RowArray

    @classmethod
    def build(cls, row: RowArray, ends: IntArray, rows: int) -> MeterPositions:
        """Return the positions of meters with the owners ``row`` (NO_ENTRY: none).

        Each switch's meters end at its ``ends``.
        """
        meter, switch = np.full(rows, NOT_LISTED, dtype=np.int32), np.zeros(rows, dtype=np.int32)
        _place(ends, row, meter, switch)
        return cls(meter, switch)


def _plain_place(ends: IntArray, row: RowArray, meter: RowArray, switch: RowArray) -> None:
    """Write positions as ``measurement_native.index_meters`` does."""
    listed = np.flatnonzero(row != NO_ENTRY).astype(np.int32)
    switch_of_meter = np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0))
    meter[row[listed]], switch[row[listed]] = listed, switch_of_meter[listed]


_place = choose(measurement_native, measurement_native.index_meters, _plain_place)
_NONE = MeterOwners(np.empty(0, np.int32), np.empty(0, np.int32))


class _OfSwitch(NamedTuple):
    """The owners of one switch's meters, found for this ``row_of_meter`` and these meter ids."""

    row_of_meter: RowArray
    meter_id: NDArray[np.uint32]
    owners: MeterOwners


class _OfAll(NamedTuple):
    """The owners of all switches' meters, found for these inputs."""

    row_of_meter: list[RowArray]
    ends: IntArray
    meter_id: NDArray[np.uint32]
    owners: MeterOwners


class _Placed(NamedTuple):
    """The positions for the owners ``row`` of the meters, and for VNs' meters those of each kind."""

    row: RowArray
    positions: MeterPositions
    of_kind: dict[int, MeterPositions]


class _Sought(NamedTuple):
    """The positions of the meters ``meter_id`` in replies that list meters as ``reports``."""

    meter_id: IntArray
    reports: MeterStatsBatch
    positions: MeterPositions


_MAX_PLACED = 4  # pairs' and VNs' positions: of all switches that usually reply, and of these without a late one


class MeterIndex:
    """The owners of the meters in the last replies, kept since replies usually list the same meters again."""

    def __init__(self) -> None:
        self._switches: dict[int, _OfSwitch] = {}
        # By the switches that replied: the last ones, and the largest other set of switches.
        self._all: dict[tuple[int, ...], _OfAll] = {}
        self._placed: list[_Placed] = []
        self._sought: list[_Sought] = []

    def places_of_entries(self, listed: MeterOwners, ends: IntArray, entries: int) -> MeterPositions:
        """Return the positions of the meters of all ``entries``; each switch's meters end at its ``ends``."""
        return self._places(listed.entry, ends, entries).positions

    def places_of_vns(self, listed: MeterOwners, ends: IntArray, vns: int) -> MeterPositions:
        """Return the positions of the meters of all ``vns``, shape (vns, VN_METERS) each."""
        meter, switch = self._places(listed.vn, ends, VN_METERS * vns).positions
        return MeterPositions(meter.reshape(vns, VN_METERS), switch.reshape(vns, VN_METERS))

    def places_of_kind(self, listed: MeterOwners, ends: IntArray, vns: int, kind: int) -> MeterPositions:
        """Return the positions of the meters of one kind, a field of VnMeters, of all ``vns``, shape (vns,) each."""
        placed = self._places(listed.vn, ends, VN_METERS * vns)
        if kind not in placed.of_kind:
            columns = (np.ascontiguousarray(column[kind::VN_METERS]) for column in placed.positions)
            placed.of_kind[kind] = MeterPositions(*columns)
        return placed.of_kind[kind]

    def places_of_meters(
        self, dpid: NDArray[np.uint64], meter_id: IntArray, reports: MeterStatsBatch
    ) -> MeterPositions:
        """Return the positions of meters that are given by switch and id; shape (meters,), as the arguments.

        The same array ``meter_id`` as before means the same meters.
        """
        for cached in self._sought:
            if cached.meter_id is meter_id and cached.reports.lists_as(reports):
                return cached.positions
        switch_index = {dpid: index for index, dpid in enumerate(reports.dpids)}
        switch = np.array([switch_index.get(one, NOT_LISTED) for one in dpid.tolist()], dtype=np.int64)
        # A key is the switch's index and the meter id. The last element of ``order`` is for keys above all others.
        keys = np.repeat(np.arange(len(reports.ends)), np.diff(reports.ends, prepend=0)) << 32 | reports.meter_id
        order, searched_keys = np.append(np.argsort(keys), NOT_LISTED), switch << 32 | meter_id
        index = order[np.searchsorted(keys, searched_keys, sorter=order[:-1])]
        is_listed = np.append(keys, NOT_LISTED)[index] == searched_keys
        meter = np.where(is_listed, index, NOT_LISTED).astype(np.int32)
        positions = MeterPositions(meter, np.maximum(switch, 0).astype(np.int32))
        self._sought = [*self._sought[1 - _MAX_PLACED :], _Sought(meter_id, reports, positions)]
        return positions

    def _places(self, row: RowArray, ends: IntArray, rows: int) -> _Placed:
        """Return the positions of the meters of ``rows`` owners, cached while ``row`` is the same array."""
        for index, cached in enumerate(self._placed):
            if cached.row is row and len(cached.positions.meter) == rows:
                self._placed.append(self._placed.pop(index))  # the last used ones are kept
                return cached
        placed = _Placed(row, MeterPositions.build(row, ends, rows), {})
        self._placed = [*self._placed[1 - _MAX_PLACED :], placed]
        return placed

    def find(self, switches: Mapping[int, SwitchRecord], reports: MeterStatsBatch) -> MeterOwners:
        """Return the owners of these meters, from the cache if the replies list the same meters as before."""
        maps = [switches[dpid].row_of_meter for dpid in reports.dpids]
        if reports.listed is not None and all(map(is_, reports.listed[0], maps)):
            return reports.listed[1]
        last = self._all.get(reports.dpids)
        if (
            last is None
            or not all(map(is_, last.row_of_meter, maps))
            or not columns_equal(last.ends, reports.ends)
            or not columns_equal(last.meter_id, reports.meter_id)
        ):
            parts = [_NONE, *(self._find_of(dpid, switches[dpid], meters) for dpid, meters in reports.items())]
            owners = MeterOwners(*map(np.concatenate, zip(*parts, strict=True)))
            last = _OfAll(maps, reports.ends, reports.meter_id, owners)
            others = [dpids for dpids in self._all if dpids != reports.dpids]
            self._all = {dpids: self._all[dpids] for dpids in sorted(others, key=len)[-1:]} | {reports.dpids: last}
        reports.listed = maps, last.owners
        return last.owners

    def _find_of(self, dpid: int, record: SwitchRecord, meters: NDArray[np.void]) -> MeterOwners:
        """Return the owners of one switch's meters, from the cache if possible."""
        last, meter_id = self._switches.get(dpid), meters["meter_id"]
        if last is None or last.row_of_meter is not record.row_of_meter or not np.array_equal(last.meter_id, meter_id):
            pair_rows = record.rows_of(meter_id.astype(np.int64)).astype(np.int32)
            owners = MeterOwners(pair_rows, _rows_of_vns(record, meter_id))
            last = self._switches[dpid] = _OfSwitch(record.row_of_meter, meter_id.copy(), owners)
        return last.owners


def _rows_of_vns(record: SwitchRecord, meter_id: NDArray[np.uint32]) -> RowArray:
    """Return the row of VNs' meters of each meter of a switch, shape of ``meter_id``; NO_ENTRY for other meters."""
    vns, vn_ids = record.vn_meter_columns()
    exists = vn_ids > 0
    row, vn_ids = (VN_METERS * vns + np.arange(VN_METERS)[:, None])[exists], vn_ids[exists]
    if not len(vn_ids):
        return np.full(len(meter_id), NO_ENTRY, dtype=np.int32)
    order = np.argsort(vn_ids)
    index = order[np.minimum(np.searchsorted(vn_ids, meter_id, sorter=order), len(vn_ids) - 1)]
    return np.where(vn_ids[index] == meter_id, row[index], NO_ENTRY).astype(np.int32)
