"""Decodes a message's bytes to columns, which are views of the bytes; rejects malformed messages."""

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

# Result of the native check: the message is valid, and its column of rows of the first table equals the last message's.
_SAME_FIRST_COLUMN = 2
_VN_ROW_COLUMNS = frozenset({"loaded", "decided", "sender", "receiver", "vn"})


class PreviousMessage(NamedTuple):
    """The last message of a kind that included its pairs, ``frame``; its number is ``latest``.

    All such messages from number ``first`` on, of the same sender's incarnation ``token``, had the same pairs.
    """

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

    ``fabric`` is the receiving node's ``fabric_digest``, ``vns`` the number of rows of the VN table, ``links`` the
    number of links. ``before`` has the sender's last message with pairs, by kind. A message that omits its pairs, and
    refers to those of that message, gets the same ``sender`` and ``receiver`` arrays, which are not checked again.
    ``sent_grants`` are the grants that the receiving node sent, by number: a Report may refer to one instead of
    repeating the limits.
    """
    if len(data) < HEAD.size:
        raise MessageRejectedError(RejectCause.LENGTH, f"{len(data)} octets are less than a header's {HEAD.size}")
    fields = HEAD.unpack_from(data)
    magic, version, kind, to_allocator, omitted, sender_fabric, token, number, ack = fields[:9]
    # Each reference is the number of the message that has the omitted columns; 0: nothing is omitted.
    *acked, pairs_ref, limits_ref, first_rows, pair_rows = fields[9:]
    counts = first_rows, pair_rows  # of the two tables
    if magic != MAGIC or kind not in KINDS or to_allocator > 1:
        raise MessageRejectedError(RejectCause.NOT_A_FRAME, f"begins with {data[:8].hex()}")
    if version != VERSION:
        raise MessageRejectedError(RejectCause.VERSION, f"version {version} is not {VERSION}")
    if sender_fabric != fabric:
        raise MessageRejectedError(RejectCause.FABRIC, "names the VNs of another configuration, or has other owners")
    form = KINDS[kind]
    previous = (before or {}).get(form)
    last = previous.frame if previous is not None else None
    if omitted & ~MAY_OMIT.get(kind, 0) or (limits_ref and form is not ReportMessage):
        raise MessageRejectedError(RejectCause.NOT_A_FRAME, "omits columns that its kind requires")
    if pairs_ref:
        if previous is not None and token < previous.token:
            raise MessageRejectedError(
                RejectCause.TOKEN, f"token {token} is below {previous.token}: its owner was replaced"
            )
        if previous is None or previous.token != token or not previous.first <= pairs_ref <= previous.latest:
            raise MessageRejectedError(RejectCause.PAIRS, f"has the pairs of number {pairs_ref}, which are not known")
        if len(previous.frame.sender) != pair_rows:
            raise MessageRejectedError(
                RejectCause.LENGTH, f"{pair_rows} rows are not the {len(previous.frame.sender)} of its pairs"
            )
    # The omitted limits are rates of a Grant; they fit only if its pairs are this message's, the same array.
    granted = (sent_grants or {}).get(limits_ref) if limits_ref else None
    if limits_ref and (not pairs_ref or last is None or granted is None or granted.sender is not last.sender):
        raise MessageRejectedError(RejectCause.PAIRS, f"has the limits of number {limits_ref}, which are not known")
    names_of = COLUMNS[form][0], columns_of_entries(kind, pairs_ref > 0, omitted, limits_ref > 0)
    if counts[1] and not form.tables[1]:
        raise MessageRejectedError(RejectCause.LENGTH, f"{counts[1]} rows of a table that has no columns")
    if max(counts) > MAX_ROWS:
        raise MessageRejectedError(RejectCause.LENGTH, f"{max(counts)} rows are more than {MAX_ROWS}")
    size = HEAD.size + counts[0] * names_of[0].octets + counts[1] * names_of[1].octets
    if len(data) != size:
        raise MessageRejectedError(RejectCause.LENGTH, f"{len(data)} octets are not the {size} of its rows")
    head = Header(token, number, ack, bool(to_allocator), (acked[0], acked[1]), pairs_ref, omitted, limits_ref)
    columns = dict[str, Any]()
    if pairs_ref and last is not None:
        columns = _read_with_last_pairs(data, counts, names_of, vns, last)
    if not columns:
        columns = _read(data, form, counts, names_of, vns, links, last, pairs_ref > 0)
    # Each omitted column gets its usual value in all rows.
    columns |= {
        name: _same(value, pair_rows)
        for group, usual_values in LEFT.items()
        if omitted & group
        for name, value in usual_values.items()
    }
    if form is ReportMessage:
        columns["limits"] = columns.pop(LIMIT) if granted is None else granted
    return head, form(**columns)


def _read_with_last_pairs(
    data: Octets,
    counts: tuple[int, int],
    names_of: tuple[TableColumns, TableColumns],
    vns: int,
    last: ReportMessage | GrantMessage,
) -> dict[str, Any]:
    """Return the columns of a message with the pairs of the ``last`` one, by name (fast path).

    The result is empty if any value is invalid, or without native code: then ``_read`` reads the message, and finds the
    reason. The arguments are those of ``_read``.
    """
    if codec_native.library is None:
        return {}
    last_first_column = getattr(last, last.first)
    column_counts = [(len(names.eights), len(names.fours), len(names.ones)) for names in names_of]
    first_table, pair_table = (HEAD.size, counts[0], *column_counts[0]), (counts[1], *column_counts[1])
    limit_index = _limit_index(names_of[1].eights)
    octets = np.frombuffer(data, np.uint8)
    tables = first_table, pair_table
    validity = codec_native.is_valid_message(octets, *tables, vns, limit_index, MAX_BPS, last_first_column)
    if not validity:
        return {}
    columns, offset = {"sender": last.sender, "receiver": last.receiver}, HEAD.size
    for names, rows in zip(names_of, counts, strict=True):
        rates, others = _views(data, offset, names, rows)
        offset += rows * names.octets
        columns |= zip(names.eights, rates, strict=True)
        columns |= {name: _as_read(column) for name, column in others.items()}
    if validity == _SAME_FIRST_COLUMN:
        columns[last.first] = last_first_column
    return columns


def _read(
    data: Octets,
    form: type[Frame],
    counts: tuple[int, int],
    names_of: tuple[TableColumns, TableColumns],
    vns: int,
    links: int,
    last: ReportMessage | GrantMessage | None,
    omits_pairs: bool,
) -> dict[str, Any]:
    """Return the columns of a message by name; raise MessageRejectedError for bad values.

    ``form`` is the kind of the message. ``counts`` are the rows of the two tables, ``names_of`` the columns that each
    table has in this message. ``vns`` and ``links`` are the numbers of VNs and links. With ``omits_pairs`` the pairs
    are those of the ``last`` message of the kind. Columns of pairs that equal the ``last`` message's are the same
    arrays as there.

    Native code first checks a table as a whole; the second table only if the pairs are those of ``last``. If it is
    absent, or finds a bad value, the columns are checked one by one, so that the error names the bad column.
    """
    columns, offset = dict[str, Any](), HEAD.size
    row_counts = dict.fromkeys(_VN_ROW_COLUMNS, vns) | {"link": links}  # by column of rows: the rows that there are
    for table, (names, rows) in enumerate(zip(names_of, counts, strict=True)):
        is_first = table == 0
        rates, others = _views(data, offset, names, rows)
        offset += rows * names.octets
        columns |= zip(names.eights, rates, strict=True)
        if is_first and _is_valid_first_table(form.first, rates, others, row_counts):
            columns |= {name: _as_read(column) for name, column in others.items()}
            continue
        if not is_first and last is not None:
            last_pairs = {name: getattr(last, name) for name in PAIRS}
            if _has_last_pairs(names.eights, rates, others, last):
                columns |= {name: _as_read(column) for name, column in others.items() if name not in PAIRS} | last_pairs
                continue
            columns |= last_pairs if omits_pairs else {}
        _check_rates(names.eights, rates)
        for name, column in others.items():
            if last is not None and name in PAIRS and np.array_equal(column, _raw_rows(getattr(last, name))):
                columns[name] = getattr(last, name)
            else:
                columns[name] = _as_read(column)
                _check(name, columns[name], row_counts)
        if is_first:
            _check_order(form.first, columns[form.first])
    # The pairs must be in ascending order, by receiver, then sender; those of ``last`` were checked before.
    if form.tables[1] and not (last is not None and all(columns[name] is getattr(last, name) for name in PAIRS)):
        _check_order("entries", columns["receiver"] * vns + columns["sender"])
    return columns


def _views(data: Octets, offset: int, names: TableColumns, rows: int) -> tuple[FloatArray, dict[str, NDArray[Any]]]:
    """Return the columns of a table at a byte offset: those of eight bytes, (columns, rows), and the others by name."""
    eight_bytes, *other_dtypes = DTYPES
    rates: FloatArray = np.ndarray((len(names.eights), rows), eight_bytes, data, offset)
    offset += rates.nbytes
    columns = {}
    for dtype, group in zip(other_dtypes, names[1:-1], strict=True):
        for name in group:
            columns[name] = np.ndarray(rows, dtype, data, offset)
            offset += rows * dtype.itemsize
    return rates, columns


def _is_valid_first_table(
    first: str, rates: FloatArray, columns: Mapping[str, NDArray[Any]], row_counts: Mapping[str, int]
) -> bool:
    """Return whether the first table, with the row column ``first``, has valid values in valid order (fast path)."""
    if codec_native.library is None:
        return False
    flags = [column for column in columns.values() if column.dtype == np.bool_]
    return codec_native.is_valid_table(rates, MAX_BPS, columns[first], row_counts[first], flags)


def _has_last_pairs(
    names: Sequence[str], rates: FloatArray, columns: Mapping[str, NDArray[Any]], last: ReportMessage | GrantMessage
) -> bool:
    """Return whether all values are valid, and the pairs omitted or equal to those of the ``last`` message (fast path).

    ``rates`` (columns, rows) have the names ``names``.
    """
    if codec_native.library is None:
        return False
    flags = [column for column in columns.values() if column.dtype == np.bool_]
    pairs = [(columns[name], getattr(last, name)) for name in PAIRS if name in columns]
    return codec_native.matches_previous(rates, _limit_index(names), MAX_BPS, flags, pairs)


def _limit_index(names: Sequence[str]) -> int:
    """Return the index of the column of limits, the only one that may hold infinite rates; -1 without one."""
    return names.index(LIMIT) if LIMIT in names else -1


def _as_read(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column of a message in the type that the controller uses: rows of tables become int64."""
    return column.astype("<i8") if column.dtype == np.uint32 else column


def _raw_rows(rows: IntArray) -> NDArray[np.uint32]:
    """Return decoded rows as they are in the message, without a copy: the low half of each int64."""
    return rows.view("<u4")[::2]


def _check_rates(names: Sequence[str], rates: FloatArray) -> None:
    """Raise MessageRejectedError unless all ``rates`` (columns, rows) are 0 to MAX_BPS; limits may be infinite."""
    if _are_rates(rates):  # usually one test of all of them is enough
        return
    for name, column in zip(names, rates, strict=True):
        if not _are_rates(column[~np.isposinf(column)] if name == LIMIT else column):
            raise MessageRejectedError(RejectCause.VALUE, f"{name} has values that are no rates")


def _are_rates(rates: FloatArray) -> bool:
    # NaN propagates to the minimum and the maximum, and fails every comparison.
    return not rates.size or bool(rates.min() >= 0.0 and rates.max() <= MAX_BPS)


def _check(name: str, column: NDArray[Any], row_counts: Mapping[str, int]) -> None:
    """Raise MessageRejectedError for flags that are not 0 or 1, and for rows that their table does not have."""
    if column.dtype == np.bool_:
        if column.view(np.uint8).max(initial=0) > 1:
            raise MessageRejectedError(RejectCause.VALUE, f"{name} has values that are neither true nor false")
    elif name in row_counts and len(column) and column.max() >= row_counts[name]:
        raise MessageRejectedError(RejectCause.ROW, f"{name} names rows beyond the {row_counts[name]} that there are")


def _check_order(name: str, keys: IntArray) -> None:
    """Raise MessageRejectedError unless ``keys`` ascend strictly, so that no row occurs twice."""
    if not (keys[1:] > keys[:-1]).all():
        raise MessageRejectedError(RejectCause.ROW, f"{name} are not in ascending order")


def _same(value: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return a column with one value everywhere, which uses no memory."""
    return np.ndarray(rows, value.dtype, value, strides=(0,))
