"""Flow entries of one VN and one address, in columns: known sources of LEARN, pairs of RATE_CONTROL.

Their matches have the same form: port, source or destination address, VLAN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, IntArray
from controller.forwarding import pipeline
from controller.forwarding.flow_table import KEY, KeyArray, pack_key
from controller.openflow.constants import VID_PRESENT
from controller.openflow.flows import Flow

# The fields of a packed key (``pack_key``) of such a flow entry: table, priority, length, and three OXM TLVs.
_LAYOUT = np.dtype(
    [
        ("table_id", "u1"),
        ("priority", ">u2"),
        ("match_bytes", "u1"),
        ("in_port_oxm", ">u4"),
        ("in_port", ">u4"),
        ("mac_oxm", ">u4"),
        ("mac_high", ">u2"),
        ("mac_low", ">u4"),
        ("vlan_oxm", ">u4"),
        ("vlan_vid", ">u2"),
        ("pad", "V12"),
    ]
)
_ADDRESS_BITS = 48  # wider than a port number
# The fields that are equal in all keys of one form.
_ALIKE = ("table_id", "match_bytes", "in_port_oxm", "mac_oxm", "vlan_oxm")
KNOWN_SOURCE, PAIR = pipeline.known_source(1, 1, 0, 0), pipeline.rate_control(1, 1, 0, None, 0)


class HostFlows(NamedTuple):
    """Flow entries of a VN and an address, shape (entries,): packed key, port, VLAN, address, meter (0: none)."""

    key: KeyArray
    in_port: IntArray
    vlan_vid: IntArray
    mac: IntArray
    meter_id: IntArray

    def only(self, rows: BoolArray | IntArray | slice) -> HostFlows:
        """Return some of the rows."""
        return HostFlows(self.key[rows], self.in_port[rows], self.vlan_vid[rows], self.mac[rows], self.meter_id[rows])

    def map_distinct(self, name: Literal["in_port", "mac"], answer: Callable[[int, int], int]) -> IntArray:
        """Return the value of ``answer`` for each row's VLAN and port or address; equal ones are computed once."""
        values = self.vlan_vid << _ADDRESS_BITS | getattr(self, name)
        distinct, index = np.unique(values, return_inverse=True)
        answers = [answer(value >> _ADDRESS_BITS, value & (1 << _ADDRESS_BITS) - 1) for value in distinct.tolist()]
        return np.array(answers, dtype=np.int64)[index]

    def to(self, addresses: Iterable[tuple[int, int]]) -> BoolArray:
        """Return the mask of the rows for these (VLAN, address), (entries,)."""
        desired = np.array([vlan_vid << _ADDRESS_BITS | mac for vlan_vid, mac in addresses], dtype=np.int64)
        return np.isin(self.vlan_vid << _ADDRESS_BITS | self.mac, desired)

    def batches(self, batch_size: int) -> Iterator[HostFlows]:
        """Yield all rows in order, ``batch_size`` at a time."""
        for start in range(0, len(self.key), batch_size):
            yield self.only(slice(start, start + batch_size))


def select_like(example: Flow, keys: KeyArray, meter_id: NDArray[np.uint32]) -> tuple[BoolArray, HostFlows]:
    """Return the flow entries in the table of ``example`` with matches of its form: their mask, and their columns.

    ``example`` is KNOWN_SOURCE or PAIR; the mask has the shape of ``keys``.
    """
    records, example_record = keys.view(_LAYOUT), np.array([pack_key(example)], KEY).view(_LAYOUT)
    alike = np.logical_and.reduce([records[name] == example_record[name] for name in _ALIKE])
    rows = records[alike]
    in_port = rows["in_port"].astype(np.int64)
    vlan_vid = rows["vlan_vid"].astype(np.int64) & ~VID_PRESENT
    mac = rows["mac_high"].astype(np.int64) << 32 | rows["mac_low"]
    return alike, HostFlows(keys[alike], in_port, vlan_vid, mac, meter_id[alike].astype(np.int64))


def build_keys(example: Flow, in_port: IntArray, vlan_vid: IntArray, mac: IntArray) -> KeyArray:
    """Return the packed keys of flow entries like ``example`` for other ports, VLANs (1..4094) and addresses."""
    records = np.full(len(mac), np.array([pack_key(example)], KEY)).view(_LAYOUT)
    records["in_port"], records["vlan_vid"] = in_port, vlan_vid | VID_PRESENT
    records["mac_high"], records["mac_low"] = mac >> 32, mac & 0xFFFF_FFFF
    keys: KeyArray = records.view(KEY)
    return keys
