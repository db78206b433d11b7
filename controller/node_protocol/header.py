"""What crosses between two shards: DETS's messages as columns of bytes, little-endian.

| octet | field | octets | meaning |
|---|---|---|---|
| 0 | magic | 4 | ``DETS`` |
| 4 | version | 1 | 7 |
| 5 | kind | 1 | 1: Report, 2: Grants, 4: LinkUse, 5: QueuesRead, 6: PortsRead, 7: MarksRead; 3 and 8: below |
| 6 | asked | 1 | 1: the speaker takes the hearer for the allocator (network_allocation.py), else 0 |
| 7 | left | 1 | which columns of entries are left out, a sum (``Left``) |
| 8 | fabric | 8 | ``fabric_digest`` of the VNs and links whose rows are named, and of owners |
| 16 | token | 8 | of the speaker's ownership; a higher one voids what lower ones said |
| 24 | number | 8 | of the speaker's interval, from 1 |
| 32 | heard | 8 | the hearer's last number that the speaker had heard, 0: none |
| 40 | knows | 16 | by which of the hearer's Reports and of its Grants the speaker knows their pairs, 0: none |
| 56 | pairs | 8 | which frame of this kind had the pairs of this one, which says none; 0: it does |
| 64 | limits | 8 | which of the hearer's Grants are in force, instead of ``limit_bps``; 0: that is said |
| 72 | first | 4 | rows of the first table: of VNs, or of links |
| 76 | entries | 4 | rows of the second table; 0 where a kind has none |
| 80 | columns | .. | those of the first table, then those of the second, each as a whole |

A frame is all that one shard has to say to another one in an interval, and not what has changed: a lost frame is made
good by the next one, and a frame that comes twice does nothing. ``sender`` and ``receiver`` alone are not said again
once the hearer ``knows`` them, nor limits that it has granted; one that does not know them, after all, refuses such a
frame and says so. A frame's age is told by ``heard``: the hearer knows by its own clock when it said that, so that
nodes' clocks need not agree.

Frames of the kinds 3 (switch_snapshot.py) and 8 (host_update.py) have headers of their own.

Deviation: in the paper Initialize and Deactivate are messages of their own. Here Grants name the receivers that are
congested, and the senders' shard knows its senders; Keep Alive is the frame itself. Senders in VLANs whose policy
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
"""of a table in one frame: 60 MB"""
MAX_BPS = 1e15
"""of a rate: sums of what a million entries say stay numbers"""
HEAD = Struct("<4sBBBB8sQQQQQQQII")
Octets: TypeAlias = bytes | memoryview
KINDS: dict[int, type[Frame]] = {one.kind: one for one in FORMS}
_WIDTHS = ("<f8", "<u4", "|b1")  # in which columns of a table follow each other
DTYPES = tuple(map(np.dtype, _WIDTHS))
PAIRS = ("sender", "receiver")
LIMIT = "limit_bps"  # infinite of an entry that has no grant yet
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
    """Who speaks, and when; what it ``knows`` of Reports and Grants, and which ``pairs`` the frame is of, as above.

    ``left`` and ``limits`` are what it leaves out besides.
    """

    incarnation: int
    number: int
    ack: int
    to_allocator: bool = False
    acked_pairs: tuple[int, int] = (0, 0)
    pairs_ref: int = 0
    omitted: int = OmittedColumns.NONE
    limits_ref: int = 0


def fabric_digest(vns: VnTable, links: Iterable[str] = (), owners: bytes = b"") -> bytes:
    """Return eight octets that two fabrics share only if their VNs, ``links`` and ``owners`` are the same."""
    names = (vns.vlan_vid.astype("<i8"), vns.dpid.astype("<u8"), vns.port_no.astype("<i8"))
    of_links = "".join(f"{name}\0" for name in links).encode()
    parts = [*(column.tobytes() for column in names), of_links, b"\0", owners]
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


class TableColumns(NamedTuple):
    """A table's columns by their widths, and the octets of a row."""

    eights: tuple[str, ...]
    fours: tuple[str, ...]
    ones: tuple[str, ...]
    octets: int

    @classmethod
    def from_layout(cls, layout: Layout) -> TableColumns:
        """Return those of a table."""
        eights, fours, ones = (tuple(name for name, dtype in layout if dtype == width) for width in _WIDTHS)
        return cls(eights, fours, ones, sum(np.dtype(dtype).itemsize for _, dtype in layout))


COLUMNS: dict[type[Frame], tuple[TableColumns, ...]] = {
    form: tuple(map(TableColumns.from_layout, form.tables)) for form in FORMS
}


@cache
def columns_of_entries(kind: int, pairs: bool, left: int, limits: bool) -> TableColumns:
    """Return the columns of the second table without ``pairs``, those that are ``left`` out, and ``limits``."""
    out = {name for one, names in LEFT.items() if left & one for name in names}
    out |= {*(PAIRS if pairs else ()), *((LIMIT,) if limits else ())}
    return TableColumns.from_layout(tuple(column for column in KINDS[kind].tables[1] if column[0] not in out))


def is_omitted(column: NDArray[Any]) -> bool:
    """Whether a column that was read from a frame was not there: it has the same value everywhere."""
    return column.strides == (0,)
