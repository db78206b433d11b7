"""Codec of the other messages: their kind, a header, the number of rows in each table, and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, TypeAlias

import numpy as np

from controller.node_protocol.header import MAGIC, MAX_ROWS, VERSION, Octets
from controller.node_protocol.message_types import Layout
from controller.node_protocol.rejection import MessageRejectedError, RejectCause

Tables: TypeAlias = tuple[Layout, ...]
_BEGINNING = Struct("<4sBBH8s")


def message_kind(data: Octets) -> int:
    """Return the kind in the bytes of a message, which may be malformed."""
    return data[5] if len(data) > 5 else 0


def encode_tables(kind: int, fabric: bytes, head: Struct, values: Sequence[int], tables: Tables, rows: object) -> bytes:
    """Return the bytes of a message with these ``values`` in its header; ``rows`` has the columns of all ``tables``."""
    counts = Struct(f"<{len(tables)}I").pack(*(len(getattr(rows, table[0][0])) for table in tables))
    columns = [
        np.ascontiguousarray(getattr(rows, name), dtype=dtype).tobytes() for table in tables for name, dtype in table
    ]
    return b"".join([_BEGINNING.pack(MAGIC, VERSION, kind, 0, fabric), head.pack(*values), counts, *columns])


def decode_tables(
    data: Octets, kind: int, fabric: bytes, head: Struct, tables: Tables
) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Return the values of a message's header, and its columns by name.

    Raise MessageRejectedError if it is malformed.
    """
    counts = Struct(f"<{len(tables)}I")
    at = _BEGINNING.size + head.size + counts.size
    if len(data) < at:
        raise MessageRejectedError(RejectCause.LENGTH, f"{len(data)} octets are less than a header's {at}")
    magic, version, its_kind, zero, its_fabric = _BEGINNING.unpack_from(data)
    if magic != MAGIC or its_kind != kind or zero:
        raise MessageRejectedError(RejectCause.NOT_A_FRAME, f"begins with {bytes(data[:8]).hex()}")
    if version != VERSION:
        raise MessageRejectedError(RejectCause.VERSION, f"version {version} is not {VERSION}")
    if its_fabric != fabric:
        raise MessageRejectedError(RejectCause.FABRIC, "names the VNs of another configuration")
    rows = counts.unpack_from(data, at - counts.size)
    if max(rows) > MAX_ROWS:
        raise MessageRejectedError(RejectCause.LENGTH, f"{max(rows)} rows are more than {MAX_ROWS}")
    widths = [sum(np.dtype(dtype).itemsize for _, dtype in table) for table in tables]
    size = at + sum(count * width for count, width in zip(rows, widths, strict=True))
    if len(data) != size:
        raise MessageRejectedError(RejectCause.LENGTH, f"{len(data)} octets are not the {size} of its rows")
    columns = dict[str, Any]()
    for table, count in zip(tables, rows, strict=True):
        for name, dtype in table:
            column = np.frombuffer(data, dtype, count, at)
            at += column.nbytes
            columns[name] = column.astype(np.int64) if dtype == "<u4" else column
    return head.unpack_from(data, _BEGINNING.size), columns
