"""Columns to the bytes of a message."""

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

Allocate: TypeAlias = Callable[[int], NDArray[np.uint8]]


def encode(
    head: Header, fabric: bytes, frame: Frame, rows: IntArray | None = None, allocate: Allocate | None = None
) -> Octets:
    """Return the bytes of a message with ``rows`` of the message's pairs; None: all.

    ``allocate`` returns the buffer of a number of bytes to write into; the result is then a view of that buffer.
    """
    first = COLUMNS[type(frame)][0]
    entries = columns_of_entries(frame.kind, head.pairs_ref > 0, head.omitted, head.limits_ref > 0)
    whole_table = frame.sender if isinstance(frame, ReportMessage | GrantMessage) else ()
    counts = len(getattr(frame, frame.first)), len(whole_table if rows is None else rows)
    of_entries = HEAD.size + counts[0] * first.octets
    octets = of_entries + counts[1] * entries.octets
    whole = np.empty(octets, np.uint8) if allocate is None else allocate(octets)
    numbers = head.incarnation, head.number, head.ack, *head.acked_pairs, head.pairs_ref, head.limits_ref
    HEAD.pack_into(
        whole.data, 0, MAGIC, VERSION, frame.kind, head.to_allocator, head.omitted, fabric, *numbers, *counts
    )
    _write(whole, HEAD.size, frame, first, None)
    _write(whole, of_entries, frame, entries, rows)
    return whole.tobytes() if allocate is None else whole.data


def _write(whole: NDArray[np.uint8], at: int, frame: Frame, names: TableColumns, rows: IntArray | None) -> None:
    """Write a table's columns into a message, from offset ``at`` on."""
    by_width = [[getattr(frame, name) for name in some] for some in names[:-1]]
    if rows is not None and codec_native.library is not None:
        codec_native.write_columns(whole[at:], rows, *by_width)
        return
    for dtype, columns in zip(DTYPES, by_width, strict=True):
        for column in columns:
            values = column if rows is None else column[rows]
            np.ndarray(len(values), dtype, whole, at)[:] = values
            at += len(values) * dtype.itemsize
