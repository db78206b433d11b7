"""Messages between two shards: DETS's messages as columns of bytes, little-endian.

| octet | field | octets | meaning |
|---|---|---|---|
| 0 | magic | 4 | ``DETS`` |
| 4 | version | 1 | 7 |
| 5 | kind | 1 | 1: Report, 2: Grant, 4: LinkUse, 5: QueueReadings, 6: PortReadings, 7: MarkReadings; 3 and 8: below |
| 6 | to_allocator | 1 | 1: the sender takes the receiver for the allocator (network_allocation.py), otherwise 0 |
| 7 | omitted | 1 | omitted columns of pairs, a sum (``OmittedColumns``) |
| 8 | fabric | 8 | ``fabric_digest`` of the VNs, the links and the switches' owners |
| 16 | incarnation | 8 | of the sender; a higher one voids messages of lower ones |
| 24 | number | 8 | of the sender's interval, from 1 |
| 32 | ack | 8 | the last number that the sender got from the receiver, 0: none |
| 40 | acked_pairs | 16 | numbers of the receiver's Report and Grant with the pairs that the sender has, 0: none |
| 56 | pairs_ref | 8 | number of the message of this kind with the same pairs, which are omitted; 0: included |
| 64 | limits_ref | 8 | number of the receiver's Grant whose rates equal ``limit_bps``, which is omitted; 0: included |
| 72 | first | 4 | rows of the first table: of VNs, or of links |
| 76 | entries | 4 | rows of the second table; 0 where a kind has none |
| 80 | columns | .. | those of the first table, then those of the second, each as a whole |

A message has the whole state of an interval, not the changes: the next message makes up for a lost one, and a duplicate
has no effect. Only ``sender`` and ``receiver`` are omitted once the receiver has acknowledged them, and limits that it
has granted itself; a receiver that does not have them rejects the message and reports that. A message's age follows
from ``ack``: the receiver knows by its own clock when it sent that number, so that nodes' clocks need not agree.

Messages of the kinds 3 (switch_snapshot.py) and 8 (host_update.py) have headers of their own.

Deviation: in the paper Initialize and Deactivate are messages of their own. Here a Grant message names the congested
receivers, and the senders' shard knows its senders; Keep Alive is the message itself. Senders in VLANs whose policy
always controls are under control without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.fabric.vn_table import VnTable
from controller.node_protocol.message_types import FORMS, Frame, GrantMessage, Layout, OmittedColumns, ReportMessage

MAGIC, VERSION = b"DETS", 7
MAX_ROWS = 1_000_000
"""rows of a table in one message: 60 MB"""
MAX_BPS = 1e15
"""maximum of a rate: sums over a million pairs stay finite"""
HEAD = Struct("<4sBBBB8sQQQQQQQII")
Octets: TypeAlias = bytes | memoryview
KINDS: dict[int, type[Frame]] = {one.kind: one for one in FORMS}
_WIDTHS = ("<f8", "<u4", "|b1")  # the order of the columns of a table
DTYPES = tuple(map(np.dtype, _WIDTHS))
PAIRS = ("sender", "receiver")
LIMIT = "limit_bps"  # infinite for a pair without a grant yet
LEFT: dict[int, dict[str, NDArray[Any]]] = {
    OmittedColumns.UNREAD: {"unread_intervals": np.zeros(1, np.int64)},
    OmittedColumns.ACTIVE: {"active": np.ones(1, np.bool_)},
    OmittedColumns.FORFEITS: {"forfeits": np.zeros(1, np.bool_)},
    OmittedColumns.AMOUNTS: {"last_bps": np.zeros(1), "refused_bps": np.zeros(1)},
}
MAY_OMIT = {
    ReportMessage.kind: OmittedColumns.UNREAD | OmittedColumns.ACTIVE | OmittedColumns.AMOUNTS,
    GrantMessage.kind: OmittedColumns.FORFEITS,
}


class Header(NamedTuple):
    """The header of a message: sender, number, acknowledged pairs, and references to omitted columns, as above."""

    incarnation: int
    number: int
    ack: int
    to_allocator: bool = False
    acked_pairs: tuple[int, int] = (0, 0)
    pairs_ref: int = 0
    omitted: int = OmittedColumns.NONE
    limits_ref: int = 0


def fabric_digest(vns: VnTable, links: Iterable[str] = (), owners: bytes = b"") -> bytes:
    """Return a digest of eight bytes, equal for two nodes only if their VNs, ``links`` and ``owners`` are equal."""
    names = (vns.vlan_vid.astype("<i8"), vns.dpid.astype("<u8"), vns.port_no.astype("<i8"))
    of_links = "".join(f"{name}\0" for name in links).encode()
    parts = [*(column.tobytes() for column in names), of_links, b"\0", owners]
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


class TableColumns(NamedTuple):
    """A table's columns by element size, and the bytes of a row."""

    eights: tuple[str, ...]
    fours: tuple[str, ...]
    ones: tuple[str, ...]
    octets: int

    @classmethod
    def from_layout(cls, layout: Layout) -> TableColumns:
        """Return the columns of a table."""
        eights, fours, ones = (tuple(name for name, dtype in layout if dtype == width) for width in _WIDTHS)
        return cls(eights, fours, ones, sum(np.dtype(dtype).itemsize for _, dtype in layout))


COLUMNS: dict[type[Frame], tuple[TableColumns, ...]] = {
    form: tuple(map(TableColumns.from_layout, form.tables)) for form in FORMS
}


@cache
def columns_of_entries(kind: int, pairs: bool, left: int, limits: bool) -> TableColumns:
    """Return the columns of the second table of a message of this kind that omits some.

    ``left`` are the omitted groups (``OmittedColumns``); ``pairs`` and ``limits`` tell whether the message omits the
    ends of pairs, and the limits.
    """
    out = {name for one, names in LEFT.items() if left & one for name in names}
    out |= {*(PAIRS if pairs else ()), *((LIMIT,) if limits else ())}
    return TableColumns.from_layout(tuple(column for column in KINDS[kind].tables[1] if column[0] not in out))


def is_omitted(column: NDArray[Any]) -> bool:
    """Return whether a decoded column was omitted in the message: it has one value everywhere."""
    return column.strides == (0,)
