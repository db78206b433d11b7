"""What a node tells its peers of its switches, besides the interval's frames: hosts, links, and which are there.

| octet | field | octets | meaning |
|---|---|---|---|
| 0 | magic | 4 | ``DETS`` |
| 4 | version | 1 | 5 |
| 5 | kind | 1 | 3 |
| 6 | zero | 2 | 0 |
| 8 | fabric | 8 | as in ``layout`` |
| 16 | token | 8 | as in ``layout`` |
| 24 | number | 8 | of the speaker's snapshots, from 1 |
| 32 | rows | 20 | how many switches, hosts, hellos, receivers and lost switches follow |
| 52 | columns | .. | of the five tables, each as a whole |

It is a snapshot, sent when something has changed and again now and then: a lost one is made good by the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, IntArray
from controller.frames.layout import MAGIC, MOST_ROWS, VERSION, Octets
from controller.frames.refusal import Cause, FrameError

KIND = 3
_HEAD = Struct("<4sBBH8sQQ5I")
BODY_AT = 32
"""where a snapshot says what is known: what comes before differs in each"""
_TABLES = (
    (("up", "<u8"),),
    (("mac", "<u8"), ("vn", "<u4")),
    (
        ("sender_dpid", "<u8"),
        ("receiver_dpid", "<u8"),
        ("sender_port", "<u4"),
        ("receiver_port", "<u4"),
        ("late", "|b1"),
    ),
    (("sent_to", "<u4"),),
    (("lost", "<u8"),),
)
_VNS = frozenset({"vn", "sent_to"})


class PlacesHead(NamedTuple):
    """Who speaks, and when."""

    token: int
    number: int


@dataclass(frozen=True)
class Places:
    """What a node knows of its own switches.

    ``up`` (switches,) are the dpids of those under its control. ``mac`` and ``vn`` (hosts,) are the hosts behind these,
    ``vn`` rows of the VN table. ``sender_*`` and ``receiver_*`` (hellos,) are the ports between which hellos were heard
    at these switches lately, ``late`` those whose next one is missing. ``sent_to`` (receivers,) are the VNs that they
    send to, rows. ``lost`` (switches,) are those that it had under control and that have gone; others are about to be
    taken over.
    """

    up: NDArray[np.uint64]
    mac: NDArray[np.uint64]
    vn: IntArray
    sender_dpid: NDArray[np.uint64]
    receiver_dpid: NDArray[np.uint64]
    sender_port: IntArray
    receiver_port: IntArray
    late: BoolArray
    sent_to: IntArray
    lost: NDArray[np.uint64]


def is_places(data: Octets) -> bool:
    """Whether the bytes of a frame would be of this kind."""
    return data[5:6] == bytes([KIND])


def encode_places(head: PlacesHead, fabric: bytes, places: Places) -> bytes:
    """Return the bytes of a snapshot."""
    counts = [len(getattr(places, table[0][0])) for table in _TABLES]
    columns = [
        np.ascontiguousarray(getattr(places, name), dtype=dtype).tobytes() for table in _TABLES for name, dtype in table
    ]
    return b"".join([_HEAD.pack(MAGIC, VERSION, KIND, 0, fabric, *head, *counts), *columns])


def decode_places(data: Octets, fabric: bytes, vns: int) -> tuple[PlacesHead, Places]:
    """Return what the bytes of a snapshot say; raise FrameError for any that say nothing."""
    if len(data) < _HEAD.size:
        raise FrameError(Cause.LENGTH, f"{len(data)} octets are less than a header's {_HEAD.size}")
    magic, version, kind, zero, its_fabric, token, number, *counts = _HEAD.unpack_from(data)
    if magic != MAGIC or kind != KIND or zero:
        raise FrameError(Cause.NOT_A_FRAME, f"begins with {data[:8].hex()}")
    if version != VERSION:
        raise FrameError(Cause.VERSION, f"version {version} is not {VERSION}")
    if its_fabric != fabric:
        raise FrameError(Cause.FABRIC, "names the VNs of another configuration")
    if max(counts) > MOST_ROWS:
        raise FrameError(Cause.LENGTH, f"{max(counts)} rows are more than {MOST_ROWS}")
    widths = [sum(np.dtype(dtype).itemsize for _, dtype in table) for table in _TABLES]
    size = _HEAD.size + sum(rows * width for rows, width in zip(counts, widths, strict=True))
    if len(data) != size:
        raise FrameError(Cause.LENGTH, f"{len(data)} octets are not the {size} of its rows")
    columns, at = dict[str, Any](), _HEAD.size
    for table, rows in zip(_TABLES, counts, strict=True):
        for name, dtype in table:
            column = np.frombuffer(data, dtype, rows, at)
            at += column.nbytes
            columns[name] = column.astype(np.int64) if dtype == "<u4" else column
    for name in _VNS:
        if len(columns[name]) and int(columns[name].max()) >= vns:
            raise FrameError(Cause.ROW, f"{name} names rows beyond {vns} VNs")
    if len(columns["mac"]) and int(columns["mac"].max()) >> 48:
        raise FrameError(Cause.VALUE, "mac has values of more than 48 bits")
    if columns["late"].view(np.uint8).max(initial=0) > 1:
        raise FrameError(Cause.VALUE, "late has values that are neither true nor false")
    return PlacesHead(token, number), Places(**columns)
