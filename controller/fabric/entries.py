"""The entry table: one row per (sender VN, receiver VN) pair that talks, with the meter that limits it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import NEW_ROW, BoolArray, IntArray

NO_METER = 0
"""The meter id of an entry that an agent on its host shapes alone; ids begin at 1 (OpenFlow 1.3.5, section 7.3.4.4)."""


@dataclass(frozen=True)
class EntryTable:
    """Entries sorted by (receiver, sender), so that a receiver's senders are one slice; columns of shape (entries,).

    ``sender`` and ``receiver`` are rows of the VN table. ``meter_id`` is the meter at the sender's edge switch.
    A row number addresses an entry in the messages of ``controller.dets.messages``.
    """

    sender: IntArray
    receiver: IntArray
    meter_id: IntArray

    @classmethod
    def empty(cls) -> EntryTable:
        """Return a table without entries."""
        none = np.empty(0, dtype=np.int64)
        return cls(none, none, none)

    def __len__(self) -> int:
        return len(self.sender)

    def offsets(self, vns: int) -> IntArray:
        """Return shape (vns + 1,): the entries towards VN r are rows ``offsets[r]:offsets[r + 1]``."""
        return np.searchsorted(self.receiver, np.arange(vns + 1)).astype(np.int64)

    def add(self, sender: IntArray, receiver: IntArray, meter_id: IntArray) -> tuple[EntryTable, IntArray]:
        """Return the table with more entries, and for each of its rows the old row (NEW_ROW for the added)."""
        old_row = np.concatenate([np.arange(len(self)), np.full(len(sender), NEW_ROW)])
        senders = np.concatenate([self.sender, sender])
        receivers = np.concatenate([self.receiver, receiver])
        order = np.lexsort((senders, receivers))
        meters = np.concatenate([self.meter_id, meter_id])
        return EntryTable(senders[order], receivers[order], meters[order]), old_row[order]

    def keep(self, kept: BoolArray) -> tuple[EntryTable, IntArray]:
        """Return the table with only the ``kept`` rows, and for each of its rows the old row."""
        old_row = np.flatnonzero(kept)
        return EntryTable(self.sender[kept], self.receiver[kept], self.meter_id[kept]), old_row
