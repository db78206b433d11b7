"""The pair table: one row per active (sender VN, receiver VN) pair, with the meter that limits it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray

NO_METER = 0
"""The meter id of a pair that an agent on its host shapes alone; ids begin at 1 (OpenFlow 1.3.5, section 7.3.4.4)."""


class PairColumns(Protocol):
    """Columns of pairs: ``sender`` and ``receiver``, rows of the VN table, sorted by receiver, then sender."""

    @property
    def sender(self) -> IntArray:
        """The sending VNs."""

    @property
    def receiver(self) -> IntArray:
        """The receiving VNs."""


@dataclass(frozen=True)
class PairTable:
    """Pairs sorted by (receiver, sender), so that a receiver's senders are one slice; columns of shape (pairs,).

    ``sender`` and ``receiver`` are rows of the VN table. ``meter_id`` is the meter at the sender's edge switch. A row
    number addresses a pair in the messages of ``controller.dets.messages``.
    """

    sender: IntArray
    receiver: IntArray
    meter_id: IntArray

    @classmethod
    def empty(cls) -> PairTable:
        """Return a table without pairs."""
        none = np.empty(0, dtype=np.int64)
        return cls(none, none, none)

    def __len__(self) -> int:
        return len(self.sender)

    @cached_property
    def metered(self) -> BoolArray:
        """The mask of the pairs with a meter, shape (pairs,)."""
        metered: BoolArray = self.meter_id != NO_METER
        return metered

    @cached_property
    def all_metered(self) -> bool:
        """Return whether all pairs have a meter."""
        return bool(self.metered.all())

    def min_of_ends(self, sender_bps: FloatArray, receiver_bps: FloatArray) -> FloatArray:
        """Return the lower of each pair's ``sender_bps[sender]`` and ``receiver_bps[receiver]``, (pairs,).

        Both arguments have shape (vns,). The result is cached until they become other arrays, which only a change of
        the configuration causes.
        """
        cached: tuple[FloatArray, FloatArray, FloatArray] | None = self.__dict__.get("_min_of_ends")
        if cached is None or cached[0] is not sender_bps or cached[1] is not receiver_bps:
            cached = (sender_bps, receiver_bps, np.minimum(sender_bps[self.sender], receiver_bps[self.receiver]))
            self.__dict__["_min_of_ends"] = cached
        return cached[2]

    def add(self, sender: IntArray, receiver: IntArray, meter_id: IntArray) -> tuple[PairTable, IntArray]:
        """Return the table with more pairs, and for each of its rows the old row (NEW_ROW for added ones)."""
        order = np.lexsort((sender, receiver))
        positions = np.searchsorted(_order_key(self.sender, self.receiver), _order_key(sender[order], receiver[order]))
        old_row = np.insert(np.arange(len(self)), positions, NEW_ROW)
        columns = (self.sender, sender), (self.receiver, receiver), (self.meter_id, meter_id)
        return PairTable(*(np.insert(column, positions, new[order]) for column, new in columns)), old_row

    def keep(self, kept: BoolArray) -> tuple[PairTable, IntArray]:
        """Return the table with the ``kept`` rows only, and for each of its rows the old row."""
        old_row = np.flatnonzero(kept)
        return PairTable(self.sender[kept], self.receiver[kept], self.meter_id[kept]), old_row


def find_pairs(pairs: PairColumns, sender: IntArray, receiver: IntArray) -> IntArray:
    """Return the row of ``pairs`` for each sender and receiver, NEW_ROW for absent pairs."""
    keys, searched_keys = _order_key(pairs.sender, pairs.receiver), _order_key(sender, receiver)
    if not len(keys):
        return np.full(len(searched_keys), NEW_ROW)
    rows = np.minimum(np.searchsorted(keys, searched_keys), len(keys) - 1)
    return np.where(keys[rows] == searched_keys, rows, NEW_ROW)


def _order_key(sender: IntArray, receiver: IntArray) -> IntArray:
    """Return one number per pair that sorts pairs by receiver, then sender; rows of VNs are below 2**31."""
    return receiver << 32 | sender
