"""Bounds-checked reading of messages: malformed bytes raise ProtocolError, never IndexError."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from controller.errors import InvalidValueError, ProtocolError
from controller.openflow import constants as ofp

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER = Struct("!BBHI")
_LENGTH = Struct("!H")
_FIRST_WINDOW = 8
MAX_XID = 2**32 - 1


def malformed(message: str, field: str, got: object, expected: str) -> ProtocolError:
    """Return the error for a ``field`` of ``message`` that holds ``got`` instead of ``expected``."""
    return ProtocolError(f"{message}: {field}: {got}, expected {expected}")


def open_message(buf: Buffer, message_type: ofp.MessageType) -> memoryview:
    """Return the body of one message, after its header (7.1).

    Raises ProtocolError unless version, type and length fit.
    """
    name = message_type.name
    version, found_type, length, _xid = read(HEADER, memoryview(buf), 0, name, "header")
    if version != ofp.VERSION:
        raise malformed(name, "version", version, str(ofp.VERSION))
    if found_type != message_type:
        raise malformed(name, "type", found_type, str(int(message_type)))
    if length != len(buf):
        raise malformed(name, "length", length, f"{len(buf)}, the bytes that arrived")
    return memoryview(buf)[ofp.HEADER_BYTES :]


def read(layout: Struct, view: memoryview, offset: int, message: str, field: str) -> tuple[Any, ...]:
    """Return the values of ``layout`` at ``offset``; raises ProtocolError naming ``field`` when the bytes end early."""
    if offset + layout.size > len(view):
        raise malformed(message, field, f"{max(len(view) - offset, 0)} bytes left", f"{layout.size} or more")
    return layout.unpack_from(view, offset)


def read_bytes(view: memoryview, offset: int, size: int, message: str, field: str) -> memoryview:
    """Return ``size`` bytes at ``offset``; raises ProtocolError naming ``field`` when the bytes end before."""
    if size < 0 or offset + size > len(view):
        raise malformed(message, field, f"{size} bytes claimed", f"0 to {max(len(view) - offset, 0)}, the bytes left")
    return view[offset : offset + size]


def rows(view: memoryview, layout: npt.DTypeLike, message: str) -> npt.NDArray[np.void]:
    """Return ``view`` as an array of equal records, big-endian and read-only; ProtocolError on a remainder."""
    dtype = np.dtype(layout)
    if len(view) % dtype.itemsize:
        raise malformed(message, "length of the body", len(view), f"a multiple of {dtype.itemsize}")
    return np.frombuffer(view, dtype=dtype)


def record_length(view: memoryview, offset: int, length_at: int, smallest: int, message: str) -> int:
    """Return the length of the record at ``offset``, which is a uint16 at ``length_at`` in the record.

    Raises ProtocolError for a record shorter than ``smallest`` or one that reaches beyond the body.
    """
    left = len(view) - offset
    if left < smallest:
        raise malformed(message, "last entry", f"{left} bytes left", f"{smallest} or more")
    length: int = _LENGTH.unpack_from(view, offset + length_at)[0]
    if not smallest <= length <= left:
        raise malformed(message, f"length of the entry at {offset}", length, f"{smallest} to {left}")
    return length


def equal_runs(view: memoryview, length_at: int, smallest: int, message: str) -> Iterator[tuple[int, int, int]]:
    """Yield the body as runs of records of equal length: (offset, length, count) each, in order.

    Every record has its length in a uint16 at ``length_at``. Raises ProtocolError as ``record_length`` does.
    """
    offset, end = 0, len(view)
    while offset < end:
        length = record_length(view, offset, length_at, smallest, message)
        count = _run(view[offset:], length_at, length)
        yield offset, length, count
        offset += count * length


def strided(view: memoryview, layout: npt.DTypeLike, run: tuple[int, int, int], skip: int = 0) -> npt.NDArray[np.void]:
    """Return the record of ``layout`` that lies ``skip`` bytes into each record of a run, without copying."""
    offset, length, count = run
    return np.ndarray((count,), np.dtype(layout), view, offset + skip, (length,))


def record_offsets(view: memoryview, length_at: int, smallest: int, message: str) -> npt.NDArray[np.int64]:
    """Return where each record starts, and the end: for bodies whose records differ in length.

    Raises ProtocolError as ``record_length`` does.
    """
    parts = [
        offset + length * np.arange(count, dtype=np.int64)
        for offset, length, count in equal_runs(view, length_at, smallest, message)
    ]
    return np.concatenate([*parts, np.array([len(view)], np.int64)])


def _run(view: memoryview, length_at: int, length: int) -> int:
    """Return the number of whole records of that length at the start of ``view``, searched in growing steps."""
    most, window = len(view) // length, _FIRST_WINDOW
    for count in range(1, min(most, window)):  # an array costs more than a few numbers
        if _LENGTH.unpack_from(view, count * length + length_at)[0] != length:
            return count
    while True:
        window = min(window, most)
        fits = np.ndarray((window,), ">u2", view, length_at, (length,)) == length
        if not fits.all():
            return int(np.argmin(fits))
        if window == most:
            return most
        window *= 8


def gather_records(view: memoryview, offsets: npt.NDArray[np.int64], layout: npt.DTypeLike) -> npt.NDArray[np.void]:
    """Return the records of ``layout`` that start at ``offsets`` of ``view``, which must contain them completely."""
    dtype = np.dtype(layout)
    if not len(offsets):
        return np.empty(0, dtype)
    octets = np.frombuffer(view, np.uint8)
    records: npt.NDArray[np.void] = octets[offsets[:, None] + np.arange(dtype.itemsize)].view(dtype)[:, 0]
    return records


def duration_s(records: npt.NDArray[np.void]) -> npt.NDArray[np.float64]:
    """Return the columns ``duration_sec`` and ``duration_nsec`` as seconds."""
    seconds: npt.NDArray[np.float64] = records["duration_sec"].astype(np.float64)
    seconds += records["duration_nsec"] * 1e-9
    return seconds


def xids(first: int, count: int) -> npt.NDArray[np.uint32]:
    """Return ``count`` transaction ids from ``first`` on, wrapping after 2**32 - 1."""
    if not 0 <= first <= MAX_XID:
        raise InvalidValueError("xid", first, f"is outside 0 to {MAX_XID}")
    return ((first + np.arange(count, dtype=np.uint64)) & np.uint64(MAX_XID)).astype(np.uint32)


def check_range(key: str, value: int, low: int, high: int) -> None:
    """Raise InvalidValueError unless ``value`` is an integer from ``low`` to ``high``."""
    if type(value) is int and low <= value <= high:
        return  # nearly always; this is called for every field
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InvalidValueError(key, value, f"is not an integer from {low} to {high}")
