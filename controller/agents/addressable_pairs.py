"""The pairs that control frames to agents can name, and the pair that a report names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from controller.columns import NEW_ROW, BoolArray, IntArray
from controller.fabric.pair_table import PairTable, find_pairs
from controller.fabric.vn_table import VnTable


@dataclass(frozen=True)
class AddressablePairs:
    """The pairs that a control frame can name; columns of shape (pairs,).

    Their senders are behind agents, and each of their receivers has one address. ``row`` is the row in ``entries``, in
    ascending order; ``sender`` is a row of the VN table. A sender with several addresses is named by the lowest one.
    """

    vns: VnTable
    entries: PairTable
    row: IntArray
    sender: IntArray
    sender_mac: IntArray
    receiver_mac: IntArray

    @classmethod
    def select(
        cls, vns: VnTable, entries: PairTable, behind: BoolArray, host_count: IntArray, lowest_mac: IntArray
    ) -> AddressablePairs:
        """Return the pairs of ``entries`` that a frame can name.

        The columns have the shape (vns,): whether a VN is ``behind`` an agent, how many hosts the VN has, and the
        lowest address of these hosts.
        """
        sends, receives = behind & (host_count > 0), host_count == 1
        row = np.flatnonzero(sends[entries.sender] & receives[entries.receiver])
        sender = entries.sender[row]
        return cls(vns, entries, row, sender, lowest_mac[sender], lowest_mac[entries.receiver[row]])

    def find(self, sender: IntArray, receiver_mac: IntArray) -> IntArray:
        """Return the row of the pair from each VN to each address of its VLAN, shape (reports,).

        NEW_ROW where there is no pair.
        """
        if not len(self.row):
            return np.full(len(sender), NEW_ROW)
        address, receiver = self._receivers
        wanted = self._in_vlan(sender, receiver_mac)
        at = np.minimum(np.searchsorted(address, wanted), len(address) - 1)
        return np.where(address[at] == wanted, find_pairs(self.entries, sender, receiver[at]), NEW_ROW)

    @cached_property
    def _receivers(self) -> tuple[IntArray, IntArray]:
        """Return the receivers' addresses with their VLANs, in ascending order, and the VN (row) of each.

        Shape (receivers,) both.
        """
        receiver = self.entries.receiver[self.row]
        address, first = np.unique(self._in_vlan(receiver, self.receiver_mac), return_index=True)
        return address, receiver[first]

    def _in_vlan(self, vn: IntArray, mac: IntArray) -> IntArray:
        """Return a number for each address that is unique over all VLANs; ``vn`` (rows) gives the VLANs."""
        in_vlan: IntArray = self.vns.vlan_vid[vn].astype(np.int64) << 48 | mac
        return in_vlan
