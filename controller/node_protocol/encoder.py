"""Columns to the bytes of a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.columns import IntArray
from controller.node_protocol import codec_native
from controller.node_protocol.header import (
    COLUMNS,
    DTYPES,
    HEAD,
    MAGIC,
    VERSION,
    Header,
    Octets,
    TableColumns,
    columns_of_entries,
)
from controller.node_protocol.message_types import Frame, GrantMessage, ReportMessage

Place: TypeAlias = Callable[[int], NDArray[np.uint8]]


def encode(
    head: Header, fabric: bytes, frame: Frame, said: IntArray | None = None, place: Place | None = None
) -> Octets:
    """Return the bytes of a frame. ``said`` are which rows of its entries it says, None: all.

    With a ``place``, which returns where so many octets are to be written, what is returned is a view of that.
    """
    first = COLUMNS[type(frame)][0]
    entries = columns_of_entries(frame.kind, head.pairs_ref > 0, head.omitted, head.limits_ref > 0)
    rows = said if said is not None else frame.sender if isinstance(frame, ReportMessage | GrantMessage) else ()
    counts = len(getattr(frame, frame.first)), len(rows)
    of_entries = HEAD.size + counts[0] * first.octets
    octets = of_entries + counts[1] * entries.octets
    whole = np.empty(octets, np.uint8) if place is None else place(octets)
    told = head.incarnation, head.number, head.ack, *head.acked_pairs, head.pairs_ref, head.limits_ref
    HEAD.pack_into(whole.data, 0, MAGIC, VERSION, frame.kind, head.to_allocator, head.omitted, fabric, *told, *counts)
    _write(whole, HEAD.size, frame, first, None)
    _write(whole, of_entries, frame, entries, said)
    return whole.tobytes() if place is None else whole.data


def _write(whole: NDArray[np.uint8], at: int, frame: Frame, names: TableColumns, said: IntArray | None) -> None:
    """Write a table's columns into a frame, from octet ``at`` on."""
    by_width = [[getattr(frame, name) for name in some] for some in names[:-1]]
    if said is not None and codec_native.library is not None:
        codec_native.write_columns(whole[at:], said, *by_width)
        return
    for dtype, columns in zip(DTYPES, by_width, strict=True):
        for column in columns:
            rows = column if said is None else column[said]
            np.ndarray(len(rows), dtype, whole, at)[:] = rows
            at += len(rows) * dtype.itemsize
