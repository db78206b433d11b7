"""The bytes of a message to columns, as views; malformed messages are rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.columns import FloatArray, IntArray
from controller.node_protocol import codec_native
from controller.node_protocol.header import (
    COLUMNS,
    DTYPES,
    HEAD,
    KINDS,
    LEFT,
    LIMIT,
    MAGIC,
    MAX_BPS,
    MAX_ROWS,
    MAY_OMIT,
    PAIRS,
    VERSION,
    Header,
    Octets,
    TableColumns,
    columns_of_entries,
)
from controller.node_protocol.message_types import Frame, GrantMessage, GrantRecord, ReportMessage
from controller.node_protocol.rejection import MessageRejectedError, RejectCause

_AS_BEFORE = 2  # result for a valid message with the previous pairs
_ROWS = frozenset({"loaded", "decided", "sender", "receiver", "vn"})


class PreviousMessage(NamedTuple):
    """A ``frame`` with the same pairs as all messages of that ``token`` with numbers ``first`` to ``latest``."""

    token: int
    first: int
    latest: int
    frame: ReportMessage | GrantMessage


def decode(
    data: Octets,
    fabric: bytes,
    vns: int,
    links: int = 0,
    before: Mapping[type[Frame], PreviousMessage] | None = None,
    sent_grants: Mapping[int, GrantRecord] | None = None,
) -> tuple[Header, Frame]:
    """Return the decoded message, with columns as views of the bytes; raise MessageRejectedError if it is malformed.

    ``vns`` is the number of rows of the VN table, ``links`` the number of links. A message that refers to the pairs of
    ``before``, a previous message of its kind, has the same ``sender`` and ``receiver`` arrays, which are not checked
    again. ``sent_grants`` are the grants of the receiving node, by number.
    """
    if len(data) < HEAD.size:
        raise MessageRejectedError(RejectCause.LENGTH, f"{len(data)} octets are less than a header's {HEAD.size}")
    fields = HEAD.unpack_from(data)
    magic, version, kind, to_allocator, omitted, sender_fabric, token, number, ack = fields[:9]
    *acked, pairs, limits, first_rows, pair_rows = fields[9:]
    counts = first_rows, pair_rows
    if magic != MAGIC or kind not in KINDS or to_allocator > 1:
        raise MessageRejectedError(RejectCause.NOT_A_FRAME, f"begins with {data[:8].hex()}")
    if version != VERSION:
        raise MessageRejectedError(RejectCause.VERSION, f"version {version} is not {VERSION}")
    if sender_fabric != fabric:
        raise MessageRejectedError(RejectCause.FABRIC, "names the VNs of another configuration, or has other owners")
    form = KINDS[kind]
    previous = (before or {}).get(form)
    last = previous.frame if previous is not None else None
    if omitted & ~MAY_OMIT.get(kind, 0) or (limits and form is not ReportMessage):
        raise MessageRejectedError(RejectCause.NOT_A_FRAME, "omits columns that its kind requires")
    if pairs:
        if previous is not None and token < previous.token:
            raise MessageRejectedError(
                RejectCause.TOKEN, f"token {token} is below {previous.token}: its owner was replaced"
            )
        if previous is None or previous.token != token or not previous.first <= pairs <= previous.latest:
            raise MessageRejectedError(RejectCause.PAIRS, f"has the pairs of number {pairs}, which are not known")
        if len(previous.frame.sender) != pair_rows:
            raise MessageRejectedError(
                RejectCause.LENGTH, f"{pair_rows} rows are not the {len(previous.frame.sender)} of its pairs"
            )
    granted = (sent_grants or {}).get(limits) if limits else None
    if limits and (not pairs or last is None or granted is None or granted.sender is not last.sender):
        raise MessageRejectedError(RejectCause.PAIRS, f"has the limits of number {limits}, which are not known")
    names_of = COLUMNS[form][0], columns_of_entries(kind, pairs > 0, omitted, limits > 0)
    if counts[1] and not form.tables[1]:
        raise MessageRejectedError(RejectCause.LENGTH, f"{counts[1]} rows of a table that has no columns")
    if max(counts) > MAX_ROWS:
        raise MessageRejectedError(RejectCause.LENGTH, f"{max(counts)} rows are more than {MAX_ROWS}")
    size = HEAD.size + counts[0] * names_of[0].octets + counts[1] * names_of[1].octets
    if len(data) != size:
        raise MessageRejectedError(RejectCause.LENGTH, f"{len(data)} octets are not the {size} of its rows")
    head = Header(token, number, ack, bool(to_allocator), (acked[0], acked[1]), pairs, omitted, limits)
    columns = dict[str, Any]()
    if pairs and last is not None:
        columns = _read_as_mostly(data, counts, names_of, vns, last)
    if not columns:
        columns = _read(data, form, counts, names_of, vns, links, last, pairs > 0)
    columns |= {
        name: _same(value, pair_rows)
        for group, usual_values in LEFT.items()
        if omitted & group
        for name, value in usual_values.items()
    }
    if form is ReportMessage:
        columns["limits"] = columns.pop(LIMIT) if granted is None else granted
    return head, form(**columns)


def _read_as_mostly(
    data: Octets,
    counts: tuple[int, int],
    names_of: tuple[TableColumns, TableColumns],
    vns: int,
    last: ReportMessage | GrantMessage,
) -> dict[str, Any]:
    """Return the columns of a message with the pairs of the ``last`` one; nothing if any part is invalid."""
    if codec_native.library is None:
        return {}
    entries, before = names_of[1], getattr(last, last.first)
    widths = [(len(names.eights), len(names.fours), len(names.ones)) for names in names_of]
    unlimited = entries.eights.index(LIMIT) if LIMIT in entries.eights else -1
    parts = (HEAD.size, counts[0], *widths[0]), (counts[1], *widths[1])
    right = codec_native.is_valid_message(np.frombuffer(data, np.uint8), *parts, vns, unlimited, MAX_BPS, before)
    if not right:
        return {}
    columns, at = {"sender": last.sender, "receiver": last.receiver}, HEAD.size
    for names, rows in zip(names_of, counts, strict=True):
        rates, others = _views(data, at, names, rows)
        at += rows * names.octets
        columns |= zip(names.eights, rates, strict=True)
        columns |= {name: _as_read(column) for name, column in others.items()}
    if right == _AS_BEFORE:
        columns[last.first] = before
    return columns


def _read(
    data: Octets,
    form: type[Frame],
    counts: tuple[int, int],
    names_of: tuple[TableColumns, TableColumns],
    vns: int,
    links: int,
    last: ReportMessage | GrantMessage | None,
    pairs: bool,
) -> dict[str, Any]:
    """Return the columns of a message, with ``pairs`` and other values taken from the ``last`` one.

    Raise MessageRejectedError.
    """
    columns, offset = dict[str, Any](), HEAD.size
    rows_of = dict.fromkeys(_ROWS, vns) | {"link": links}
    for table, (names, rows) in enumerate(zip(names_of, counts, strict=True)):
        rates, others = _views(data, offset, names, rows)
        offset += rows * names.octets
        columns |= zip(names.eights, rates, strict=True)
        if not table and _is_listed(form.first, rates, others, rows_of):
            columns |= {name: _as_read(column) for name, column in others.items()}
            continue
        if table and last is not None:
            same = {name: getattr(last, name) for name in PAIRS}
            if _as_before(names.eights, rates, others, last):
                columns |= {name: _as_read(column) for name, column in others.items() if name not in PAIRS} | same
                continue
            columns |= same if pairs else {}
        _check_rates(names.eights, rates)
        for name, column in others.items():
            if last is not None and name in PAIRS and np.array_equal(column, _raw_rows(getattr(last, name))):
                columns[name] = getattr(last, name)
            else:
                columns[name] = _as_read(column)
                _check(name, columns[name], rows_of)
        if not table:
            _check_order(form.first, columns[form.first])
    if form.tables[1] and (last is None or any(columns[name] is not getattr(last, name) for name in PAIRS)):
        _check_order("entries", columns["receiver"] * vns + columns["sender"])
    return columns


def _views(data: Octets, offset: int, names: TableColumns, rows: int) -> tuple[FloatArray, dict[str, NDArray[Any]]]:
    """Return the columns of a table at offset ``at``: those of eight bytes, (columns, rows), and the others."""
    eight_bytes, *other_dtypes = DTYPES
    rates: FloatArray = np.ndarray((len(names.eights), rows), eight_bytes, data, offset)
    offset += rates.nbytes
    columns = {}
    for dtype, group in zip(other_dtypes, names[1:-1], strict=True):
        for name in group:
            columns[name] = np.ndarray(rows, dtype, data, offset)
            offset += rows * dtype.itemsize
    return rates, columns


def _is_listed(first: str, rates: FloatArray, columns: Mapping[str, NDArray[Any]], rows_of: Mapping[str, int]) -> bool:
    """Return whether a first table is valid (fast path)."""
    if codec_native.library is None:
        return False
    flags = [column for column in columns.values() if column.dtype == np.bool_]
    return codec_native.is_valid_table(rates, MAX_BPS, columns[first], rows_of[first], flags)


def _as_before(
    names: Sequence[str], rates: FloatArray, columns: Mapping[str, NDArray[Any]], last: ReportMessage | GrantMessage
) -> bool:
    """Return whether the pairs equal the ``last`` message's, or are omitted, and all is valid (fast path)."""
    if codec_native.library is None:
        return False
    unlimited = names.index(LIMIT) if LIMIT in names else -1
    flags = [column for column in columns.values() if column.dtype == np.bool_]
    pairs = [(columns[name], getattr(last, name)) for name in PAIRS if name in columns]
    return codec_native.matches_previous(rates, unlimited, MAX_BPS, flags, pairs)


def _as_read(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype("<i8") if column.dtype == np.uint32 else column


def _raw_rows(rows: IntArray) -> NDArray[np.uint32]:
    """Return decoded rows as they are in the message, without a copy."""
    return rows.view("<u4")[::2]


def _check_rates(names: Sequence[str], rates: FloatArray) -> None:
    if _are_rates(rates):  # usually one test of all of them is enough
        return
    for name, column in zip(names, rates, strict=True):
        if not _are_rates(column[~np.isposinf(column)] if name == LIMIT else column):
            raise MessageRejectedError(RejectCause.VALUE, f"{name} has values that are no rates")


def _are_rates(rates: FloatArray) -> bool:
    # NaN propagates to the minimum and the maximum, and fails every comparison.
    return not rates.size or bool(rates.min() >= 0.0 and rates.max() <= MAX_BPS)


def _check(name: str, column: NDArray[Any], rows_of: Mapping[str, int]) -> None:
    if column.dtype == np.bool_:
        if column.view(np.uint8).max(initial=0) > 1:
            raise MessageRejectedError(RejectCause.VALUE, f"{name} has values that are neither true nor false")
    elif name in rows_of and len(column) and column.max() >= rows_of[name]:
        raise MessageRejectedError(RejectCause.ROW, f"{name} names rows beyond the {rows_of[name]} that there are")


def _check_order(name: str, keys: IntArray) -> None:
    if not (keys[1:] > keys[:-1]).all():
        raise MessageRejectedError(RejectCause.ROW, f"{name} are not in ascending order")


def _same(value: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return a column with one value everywhere, which uses no memory."""
    return np.ndarray(rows, value.dtype, value, strides=(0,))
