"""What crosses between two shards: DETS's messages as columns of bytes, little-endian.

| octet | field | octets | meaning |
|---|---|---|---|
| 0 | magic | 4 | ``DETS`` |
| 4 | version | 1 | 5 |
| 5 | kind | 1 | 1: Report, 2: Grants, 4: LinkUse, 5: QueuesRead, 6: PortsRead, 7: MarksRead (3: places.py) |
| 6 | asked | 1 | 1: the speaker takes the hearer for the allocator (network_wide.py), else 0 |
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

Deviation: in the paper Initialize and Deactivate are messages of their own. Here Grants name the receivers that are
congested, and the senders' shard knows its senders; Keep Alive is the frame itself. Senders in VLANs whose policy
always controls are under control without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from functools import cache
from struct import Struct
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.columns import BoolArray, FloatArray, IntArray
from controller.errors import DetsError
from controller.fabric.vns import VnTable
from controller.shards import crossing_kernel

MAGIC, VERSION = b"DETS", 5
MOST_ROWS = 1_000_000
"""of a table in one frame: 60 MB"""
MOST_BPS = 1e15
"""of a rate: sums of what a million entries say stay numbers"""
_HEAD = Struct("<4sBBBB8sQQQQQQQII")
Octets: TypeAlias = bytes | memoryview
Place: TypeAlias = Callable[[int], NDArray[np.uint8]]
_Layout: TypeAlias = tuple[tuple[str, str], ...]


class Cause(StrEnum):
    """Why a frame is refused; each is counted."""

    LENGTH = "length"
    NOT_A_FRAME = "not-a-frame"
    VERSION = "version"
    FABRIC = "fabric"
    ROW = "row"
    VALUE = "value"
    NOT_OWNED = "not-owned"
    TOKEN = "token"
    ORDER = "order"
    LATE = "late"
    PAIRS = "pairs"


class FrameError(DetsError):
    """A frame is refused."""

    def __init__(self, cause: Cause, text: str) -> None:
        self.cause = cause
        super().__init__(text)


class Left(IntFlag):
    """Columns of entries that are left out of a frame, since they have one value or are of no use to the hearer."""

    NONE = 0
    UNREAD = 1
    """``unread_intervals`` are 0"""
    ACTIVE = 2
    """``active`` are true"""
    FORFEITS = 4
    """``forfeits`` are false"""
    LAST = 8
    """``last_bps``, which the allocator alone looks at"""


class Head(NamedTuple):
    """Who speaks, and when; what it ``knows`` of Reports and Grants, and which ``pairs`` the frame is of, as above.

    ``left`` and ``limits`` are what it leaves out besides.
    """

    token: int
    number: int
    heard: int
    asked: bool = False
    knows: tuple[int, int] = (0, 0)
    pairs: int = 0
    left: int = Left.NONE
    limits: int = 0


class Given(NamedTuple):
    """What a peer was granted: the ``rows`` of ``rate_bps``, for the pairs of ``sender``, an array that stays."""

    sender: IntArray
    rate_bps: FloatArray
    rows: IntArray


@dataclass(frozen=True)
class Report:
    """Senders' to receivers' shard: Loads, and Traffic Reports of entries under control or with traffic.

    ``loaded`` (receivers,) are rows of VNs, ascending, with what the speaker's meters bring there, as in ``Loads``. The
    others have shape (entries,) and are sorted by receiver, then sender, rows of VNs: as in ``TrafficReport``, and
    what policies see of an entry besides (``Surroundings``).
    """

    kind: ClassVar[int] = 1
    first: ClassVar[str] = "loaded"
    tables: ClassVar[tuple[_Layout, _Layout]] = (
        (("passed_bps", "<f8"), ("smoothed_bps", "<f8"), ("dropped_bps", "<f8"), ("loaded", "<u4")),
        (
            ("measured_bps", "<f8"),
            ("refused_bps", "<f8"),
            ("limit_bps", "<f8"),
            ("available_bps", "<f8"),
            ("last_bps", "<f8"),
            ("sender", "<u4"),
            ("receiver", "<u4"),
            ("unread_intervals", "<u4"),
            ("active", "|b1"),
        ),
    )

    loaded: IntArray
    passed_bps: FloatArray
    smoothed_bps: FloatArray
    dropped_bps: FloatArray
    sender: IntArray
    receiver: IntArray
    measured_bps: FloatArray
    refused_bps: FloatArray
    """what the entry's meter dropped"""
    limits: FloatArray | Given
    """``limit_bps``, or where it is to be found"""
    available_bps: FloatArray
    last_bps: FloatArray
    """what passed the entry's meter in the last interval"""
    unread_intervals: IntArray
    active: BoolArray

    @property
    def limit_bps(self) -> FloatArray:
        """The limits in force."""
        limits = self.limits
        return limits if isinstance(limits, np.ndarray) else limits.rate_bps[limits.rows]


@dataclass(frozen=True)
class Grants:
    """Receivers' to senders' shard: which receivers are congested, and Set Rate for the entries that were reported.

    ``decided`` (receivers,) are the rows of VNs whose senders are under control, ascending, ``congested`` those of them
    that are congested, ``senders`` how many each shares its limit among. ``forfeits`` (entries,) are those whose
    senders lose the bursts that they have saved; where such a frame is lost they keep them.
    """

    kind: ClassVar[int] = 2
    first: ClassVar[str] = "decided"
    tables: ClassVar[tuple[_Layout, _Layout]] = (
        (("decided", "<u4"), ("senders", "<u4"), ("congested", "|b1")),
        (("rate_bps", "<f8"), ("sender", "<u4"), ("receiver", "<u4"), ("forfeits", "|b1")),
    )

    decided: IntArray
    senders: IntArray
    congested: BoolArray
    sender: IntArray
    receiver: IntArray
    rate_bps: FloatArray
    forfeits: BoolArray


@dataclass(frozen=True)
class LinkUse:
    """To who decides for the whole network: what other VLANs' senders to the speaker's receivers use of links.

    ``link`` are rows of links, ascending; the others have its shape and are as in ``PolicyView``.
    """

    kind: ClassVar[int] = 4
    first: ClassVar[str] = "link"
    tables: ClassVar[tuple[_Layout, _Layout]] = (
        (("others_bps", "<f8"), ("others_within_bps", "<f8"), ("link", "<u4")),
        (),
    )

    link: IntArray
    others_bps: FloatArray
    others_within_bps: FloatArray


@dataclass(frozen=True)
class QueuesRead:
    """To the same: what the receiving queues of the speaker's VNs did since they were read before (``QueueReadings``).

    ``vn`` are the rows of those that were read now, ascending; the others have its shape.
    """

    kind: ClassVar[int] = 5
    first: ClassVar[str] = "vn"
    tables: ClassVar[tuple[_Layout, _Layout]] = (
        (
            ("served_bps", "<f8"),
            ("served_packets", "<f8"),
            ("dropped_bps", "<f8"),
            ("dropped_packets", "<f8"),
            ("elapsed_s", "<f8"),
            ("vn", "<u4"),
        ),
        (),
    )

    vn: IntArray
    served_bps: FloatArray
    served_packets: FloatArray
    dropped_bps: FloatArray
    dropped_packets: FloatArray
    elapsed_s: FloatArray


@dataclass(frozen=True)
class PortsRead:
    """To the same: what the ports of the speaker's switches sent since they were read before (``PortReadings``).

    ``link`` are the rows of the links whose ports were read now, ascending; the others have its shape.
    """

    kind: ClassVar[int] = 6
    first: ClassVar[str] = "link"
    tables: ClassVar[tuple[_Layout, _Layout]] = (
        (("transmitted_bps", "<f8"), ("elapsed_s", "<f8"), ("link", "<u4")),
        (),
    )

    link: IntArray
    transmitted_bps: FloatArray
    elapsed_s: FloatArray


@dataclass(frozen=True)
class MarksRead:
    """To the same: what the phantom meters of the speaker's VNs counted since they were read before (``MarkReadings``).

    ``vn`` are the rows of those that were read now, ascending; the others have its shape.
    """

    kind: ClassVar[int] = 7
    first: ClassVar[str] = "vn"
    tables: ClassVar[tuple[_Layout, _Layout]] = ((("arrived_bps", "<f8"), ("beyond_bps", "<f8"), ("vn", "<u4")), ())

    vn: IntArray
    arrived_bps: FloatArray
    beyond_bps: FloatArray


Read: TypeAlias = QueuesRead | PortsRead | MarksRead
Frame: TypeAlias = Report | Grants | LinkUse | Read
_FORMS: tuple[type[Frame], ...] = (Report, Grants, LinkUse, QueuesRead, PortsRead, MarksRead)
_KINDS: dict[int, type[Frame]] = {one.kind: one for one in _FORMS}
_RATE = "<f8"
_WIDTHS = (_RATE, "<u4", "|b1")  # in which columns of a table follow each other
_DTYPES = tuple(map(np.dtype, _WIDTHS))
_PAIRS = ("sender", "receiver")
_AS_BEFORE = 2  # of a frame that is right
_ROWS = frozenset({"loaded", "decided", "sender", "receiver", "vn"})
_LIMIT = "limit_bps"  # infinite of an entry that has no grant yet
_LEFT: dict[Left, tuple[str, NDArray[Any]]] = {
    Left.UNREAD: ("unread_intervals", np.zeros(1, np.int64)),
    Left.ACTIVE: ("active", np.ones(1, np.bool_)),
    Left.FORFEITS: ("forfeits", np.zeros(1, np.bool_)),
    Left.LAST: ("last_bps", np.zeros(1)),
}
_MAY_LEAVE = {Report.kind: int(Left.UNREAD | Left.ACTIVE | Left.LAST), Grants.kind: int(Left.FORFEITS)}


def fabric_digest(vns: VnTable, links: Iterable[str] = (), owners: bytes = b"") -> bytes:
    """Return eight octets that two fabrics share only if their VNs, ``links`` and ``owners`` are the same."""
    names = (vns.vlan_vid.astype("<i8"), vns.dpid.astype("<u8"), vns.port_no.astype("<i8"))
    of_links = "".join(f"{name}\0" for name in links).encode()
    parts = [*(column.tobytes() for column in names), of_links, b"\0", owners]
    return hashlib.blake2b(b"".join(parts), digest_size=8).digest()


class _Columns(NamedTuple):
    """A table's columns by their widths, and the octets of a row."""

    eights: tuple[str, ...]
    fours: tuple[str, ...]
    ones: tuple[str, ...]
    octets: int

    @classmethod
    def of(cls, layout: _Layout) -> _Columns:
        """Return those of a table."""
        eights, fours, ones = (tuple(name for name, dtype in layout if dtype == width) for width in _WIDTHS)
        return cls(eights, fours, ones, sum(np.dtype(dtype).itemsize for _, dtype in layout))


_COLUMNS: dict[type[Frame], tuple[_Columns, ...]] = {form: tuple(map(_Columns.of, form.tables)) for form in _FORMS}


@cache
def _columns_of_entries(kind: int, pairs: bool, left: int, limits: bool) -> _Columns:
    """Return the columns of the second table without ``pairs``, those that are ``left`` out, and ``limits``."""
    out = {name for one, (name, _) in _LEFT.items() if left & one}
    out |= {*(_PAIRS if pairs else ()), *((_LIMIT,) if limits else ())}
    return _Columns.of(tuple(column for column in _KINDS[kind].tables[1] if column[0] not in out))


def _same(value: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return a column that has the same value everywhere, and no memory of its own."""
    return np.ndarray(rows, value.dtype, value, strides=(0,))


def is_left_out(column: NDArray[Any]) -> bool:
    """Whether a column that was read from a frame was not there: it has the same value everywhere."""
    return column.strides == (0,)


class Known(NamedTuple):
    """A ``frame`` that has the pairs of all frames of that ``token``, ``first`` to ``latest``, which have some."""

    token: int
    first: int
    latest: int
    frame: Report | Grants


def encode(head: Head, fabric: bytes, frame: Frame, said: IntArray | None = None, place: Place | None = None) -> Octets:
    """Return the bytes of a frame. ``said`` are which rows of its entries it says, None: all.

    With a ``place``, which returns where so many octets are to be written, what is returned is a view of that.
    """
    first = _COLUMNS[type(frame)][0]
    entries = _columns_of_entries(frame.kind, head.pairs > 0, head.left, head.limits > 0)
    rows = said if said is not None else frame.sender if isinstance(frame, Report | Grants) else ()
    counts = len(getattr(frame, frame.first)), len(rows)
    of_entries = _HEAD.size + counts[0] * first.octets
    octets = of_entries + counts[1] * entries.octets
    whole = np.empty(octets, np.uint8) if place is None else place(octets)
    told = head.token, head.number, head.heard, *head.knows, head.pairs, head.limits
    _HEAD.pack_into(whole.data, 0, MAGIC, VERSION, frame.kind, head.asked, head.left, fabric, *told, *counts)
    _write(whole, _HEAD.size, frame, first, None)
    _write(whole, of_entries, frame, entries, said)
    return whole.tobytes() if place is None else whole.data


def _write(whole: NDArray[np.uint8], at: int, frame: Frame, names: _Columns, said: IntArray | None) -> None:
    """Write a table's columns into a frame, from octet ``at`` on."""
    by_width = [[getattr(frame, name) for name in some] for some in names[:-1]]
    if said is not None and crossing_kernel.library is not None:
        crossing_kernel.say(whole[at:], said, *by_width)
        return
    for dtype, columns in zip(_DTYPES, by_width, strict=True):
        for column in columns:
            rows = column if said is None else column[said]
            np.ndarray(len(rows), dtype, whole, at)[:] = rows
            at += len(rows) * dtype.itemsize


def decode(
    data: Octets,
    fabric: bytes,
    vns: int,
    links: int = 0,
    before: Mapping[type[Frame], Known] | None = None,
    given: Mapping[int, Given] | None = None,
) -> tuple[Head, Frame]:
    """Return what the bytes of a frame say, its columns views of them; raise FrameError for any that say nothing.

    ``vns`` is how many rows the VN table has, ``links`` how many links there are. A frame that has the pairs of the one
    ``before`` it, of its kind, or none, has the same ``sender`` and ``receiver``, which are not looked through again.
    ``given`` is what the hearer has granted, by number.
    """
    if len(data) < _HEAD.size:
        raise FrameError(Cause.LENGTH, f"{len(data)} octets are less than a header's {_HEAD.size}")
    magic, version, kind, asked, left, its_fabric, token, number, heard, *knows, pairs, limits, of_first, of_entries = (
        _HEAD.unpack_from(data)
    )
    counts = of_first, of_entries
    if magic != MAGIC or kind not in _KINDS or asked > 1:
        raise FrameError(Cause.NOT_A_FRAME, f"begins with {data[:8].hex()}")
    if version != VERSION:
        raise FrameError(Cause.VERSION, f"version {version} is not {VERSION}")
    if its_fabric != fabric:
        raise FrameError(Cause.FABRIC, "names the VNs of another configuration, or knows other owners")
    form = _KINDS[kind]
    known = (before or {}).get(form)
    last = known.frame if known is not None else None
    if left & ~_MAY_LEAVE.get(kind, 0) or (limits and form is not Report):
        raise FrameError(Cause.NOT_A_FRAME, "leaves out columns that its kind has to have")
    if pairs:
        if known is not None and token < known.token:
            raise FrameError(Cause.TOKEN, f"token {token} is below {known.token}: its owner was replaced")
        if known is None or known.token != token or not known.first <= pairs <= known.latest:
            raise FrameError(Cause.PAIRS, f"has the pairs of number {pairs}, which are not known")
        if len(known.frame.sender) != of_entries:
            raise FrameError(Cause.LENGTH, f"{of_entries} rows are not the {len(known.frame.sender)} of its pairs")
    granted = (given or {}).get(limits) if limits else None
    if limits and (not pairs or last is None or granted is None or granted.sender is not last.sender):
        raise FrameError(Cause.PAIRS, f"has the limits of number {limits}, which are not known")
    names_of = _COLUMNS[form][0], _columns_of_entries(kind, pairs > 0, left, limits > 0)
    if counts[1] and not form.tables[1]:
        raise FrameError(Cause.LENGTH, f"{counts[1]} rows of a table that has no columns")
    if max(counts) > MOST_ROWS:
        raise FrameError(Cause.LENGTH, f"{max(counts)} rows are more than {MOST_ROWS}")
    size = _HEAD.size + counts[0] * names_of[0].octets + counts[1] * names_of[1].octets
    if len(data) != size:
        raise FrameError(Cause.LENGTH, f"{len(data)} octets are not the {size} of its rows")
    head = Head(token, number, heard, bool(asked), (knows[0], knows[1]), pairs, left, limits)
    columns = dict[str, Any]()
    if pairs and last is not None:
        columns = _read_as_mostly(data, counts, names_of, vns, last)
    if not columns:
        columns = _read(data, form, counts, names_of, vns, links, last, pairs > 0)
    columns |= {name: _same(value, of_entries) for one, (name, value) in _LEFT.items() if left & one}
    if form is Report:
        columns["limits"] = columns.pop(_LIMIT) if granted is None else granted
    return head, form(**columns)


def _read_as_mostly(
    data: Octets, counts: tuple[int, int], names_of: tuple[_Columns, _Columns], vns: int, last: Report | Grants
) -> dict[str, Any]:
    """Return the columns of a frame that has the pairs of the ``last`` one; none if anything in it is to be refused."""
    if crossing_kernel.library is None:
        return {}
    entries, before = names_of[1], getattr(last, last.first)
    widths = [(len(names.eights), len(names.fours), len(names.ones)) for names in names_of]
    unlimited = entries.eights.index(_LIMIT) if _LIMIT in entries.eights else -1
    parts = (_HEAD.size, counts[0], *widths[0]), (counts[1], *widths[1])
    right = crossing_kernel.right(np.frombuffer(data, np.uint8), *parts, vns, unlimited, MOST_BPS, before)
    if not right:
        return {}
    columns, at = {"sender": last.sender, "receiver": last.receiver}, _HEAD.size
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
    names_of: tuple[_Columns, _Columns],
    vns: int,
    links: int,
    last: Report | Grants | None,
    pairs: bool,
) -> dict[str, Any]:
    """Return the columns of a frame, ``pairs`` and what it has of these from the ``last`` one; raise FrameError."""
    columns, at = dict[str, Any](), _HEAD.size
    rows_of = dict.fromkeys(_ROWS, vns) | {"link": links}
    for table, (names, rows) in enumerate(zip(names_of, counts, strict=True)):
        rates, others = _views(data, at, names, rows)
        at += rows * names.octets
        columns |= zip(names.eights, rates, strict=True)
        if not table and _is_listed(form.first, rates, others, rows_of):
            columns |= {name: _as_read(column) for name, column in others.items()}
            continue
        if table and last is not None:
            same = {name: getattr(last, name) for name in _PAIRS}
            if _as_before(names.eights, rates, others, last):
                columns |= {name: _as_read(column) for name, column in others.items() if name not in _PAIRS} | same
                continue
            columns |= same if pairs else {}
        _check_rates(names.eights, rates)
        for name, column in others.items():
            if last is not None and name in _PAIRS and np.array_equal(column, _as_said(getattr(last, name))):
                columns[name] = getattr(last, name)
            else:
                columns[name] = _as_read(column)
                _check(name, columns[name], rows_of)
        if not table:
            _check_order(form.first, columns[form.first])
    if form.tables[1] and (last is None or any(columns[name] is not getattr(last, name) for name in _PAIRS)):
        _check_order("entries", columns["receiver"] * vns + columns["sender"])
    return columns


def _views(data: Octets, at: int, names: _Columns, rows: int) -> tuple[FloatArray, dict[str, NDArray[Any]]]:
    """Return the columns of a table that begins at octet ``at``: those of eight octets, (columns, rows), and others."""
    eight, *others = _DTYPES
    rates: FloatArray = np.ndarray((len(names.eights), rows), eight, data, at)
    at += rates.nbytes
    found = {}
    for dtype, some in zip(others, names[1:-1], strict=True):
        for name in some:
            found[name] = np.ndarray(rows, dtype, data, at)
            at += rows * dtype.itemsize
    return rates, found


def _is_listed(first: str, rates: FloatArray, others: Mapping[str, NDArray[Any]], rows_of: Mapping[str, int]) -> bool:
    """Whether nothing in a first table is refused, as mostly."""
    if crossing_kernel.library is None:
        return False
    flags = [column for column in others.values() if column.dtype == np.bool_]
    return crossing_kernel.listed(rates, MOST_BPS, others[first], rows_of[first], flags)


def _as_before(
    names: Sequence[str], rates: FloatArray, others: Mapping[str, NDArray[Any]], last: Report | Grants
) -> bool:
    """Whether entries have the pairs of the ``last`` frame, or none, and nothing that is refused: mostly it is so."""
    if crossing_kernel.library is None:
        return False
    unlimited = names.index(_LIMIT) if _LIMIT in names else -1
    flags = [column for column in others.values() if column.dtype == np.bool_]
    pairs = [(others[name], getattr(last, name)) for name in _PAIRS if name in others]
    return crossing_kernel.as_before(rates, unlimited, MOST_BPS, flags, pairs)


def _as_read(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype("<i8") if column.dtype == np.uint32 else column


def _as_said(rows: IntArray) -> NDArray[np.uint32]:
    """Return rows that were read from a frame as they stood there, without a copy."""
    return rows.view("<u4")[::2]


def _check_rates(names: Sequence[str], rates: FloatArray) -> None:
    if _are_rates(rates):  # mostly one look at all of them is enough
        return
    for name, column in zip(names, rates, strict=True):
        if not _are_rates(column[~np.isposinf(column)] if name == _LIMIT else column):
            raise FrameError(Cause.VALUE, f"{name} has values that are no rates")


def _are_rates(rates: FloatArray) -> bool:
    # A number that is not one is the least and the greatest, and fails every comparison.
    return not rates.size or bool(rates.min() >= 0.0 and rates.max() <= MOST_BPS)


def _check(name: str, column: NDArray[Any], rows_of: Mapping[str, int]) -> None:
    if column.dtype == np.bool_:
        if column.view(np.uint8).max(initial=0) > 1:
            raise FrameError(Cause.VALUE, f"{name} has values that are neither true nor false")
    elif name in rows_of and len(column) and column.max() >= rows_of[name]:
        raise FrameError(Cause.ROW, f"{name} names rows beyond the {rows_of[name]} that there are")


def _check_order(name: str, keys: IntArray) -> None:
    if not (keys[1:] > keys[:-1]).all():
        raise FrameError(Cause.ROW, f"{name} are not in ascending order")
