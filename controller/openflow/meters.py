"""Meters on arrays: one structured array becomes all meter-mods, and one statistics reply becomes columns.

OpenFlow 1.3.5, sections 7.3.4.4 (meter-mod) and 7.3.5.13 to 15 (meter statistics, configuration, features). The
controller's meters have the flags KBPS, BURST and STATS and one drop band. Rates are kb/s, bursts kb (1000 bits), as on
the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from controller.errors import ColumnError, InvalidValueError
from controller.openflow import constants as ofp
from controller.openflow import meter_codec_native
from controller.openflow.bounded_reader import MAX_XID, Buffer, duration_s, equal_runs, malformed, read, strided, xids
from controller.openflow.constants import MeterFlags, MeterModCommand

IntColumn: TypeAlias = npt.NDArray[np.integer] | Sequence[int]
MeterMods: TypeAlias = npt.NDArray[np.uint32]
"""Meter-mods that add or modify: rows command, meter_id, rate_kbps and burst_kbits, shape (4, meters)."""

METER_FLAGS = MeterFlags.KBPS | MeterFlags.BURST | MeterFlags.STATS

METER_STATS = np.dtype(
    [
        ("meter_id", np.uint32),
        ("band_packet_count", np.uint32),
        ("byte_in_count", np.uint64),
        ("duration_s", np.float64),
        ("band_byte_count", np.uint64),
    ]
)
"""One meter: bytes offered to it, its age by the switch's clock, and what its bands dropped (or remarked). A record has
32 bytes, since all are read in every interval; the packet count, which is rarely used, has its low 32 bits only."""
PACKETS_UNAVAILABLE = ofp.COUNTER_UNAVAILABLE & 0xFFFFFFFF

METER_CONFIG = np.dtype(
    [("meter_id", np.uint32), ("flags", np.uint16), ("rate_kbps", np.uint32), ("burst_kbits", np.uint32)]
)

_METER_MOD = np.dtype(
    [
        ("version", "u1"),
        ("type", "u1"),
        ("length", ">u2"),
        ("xid", ">u4"),
        ("command", ">u2"),
        ("flags", ">u2"),
        ("meter_id", ">u4"),
        ("band_type", ">u2"),
        ("band_length", ">u2"),
        ("rate", ">u4"),
        ("burst_size", ">u4"),
        ("pad", ">u4"),
    ]
)
_TEMPLATE = np.array(
    (
        ofp.VERSION,
        ofp.MessageType.METER_MOD,
        _METER_MOD.itemsize,
        0,
        0,
        METER_FLAGS,
        0,
        ofp.METER_BAND_DROP,
        16,
        0,
        0,
        0,
    ),
    _METER_MOD,
).tobytes()
_LAST = (int(MeterModCommand.MODIFY), ofp.METER_MAX)
_WITHOUT_BAND = 16
_BLOCK = 4096  # records converted at once, so that they stay in the cache
_STATS_HEAD = np.dtype(
    [
        ("meter_id", ">u4"),
        ("length", ">u2"),
        ("pad", "V6"),
        ("flow_count", ">u4"),
        ("packet_in_count", ">u8"),
        ("byte_in_count", ">u8"),
        ("duration_sec", ">u4"),
        ("duration_nsec", ">u4"),
    ]
)
_BAND_STATS = np.dtype([("packet_count", ">u8"), ("byte_count", ">u8")])
STATS_BYTES = _STATS_HEAD.itemsize + _BAND_STATS.itemsize  # bytes of a meter with one band
_CONFIG_HEAD = np.dtype([("length", ">u2"), ("flags", ">u2"), ("meter_id", ">u4")])
_BAND = np.dtype([("type", ">u2"), ("length", ">u2"), ("rate", ">u4"), ("burst_size", ">u4"), ("pad", "V4")])
_CONFIG_ONE_BAND = np.dtype([("head", _CONFIG_HEAD), ("band", _BAND)])
_BAND_HEADER = Struct("!HHII")
_FEATURES = Struct("!IIIBB2x")
_U32_MAX = 2**32 - 1
_XID_AT = 4
_STATS_NAME = "METER stats reply"
_CONFIG_NAME = "METER_CONFIG reply"


@dataclass(frozen=True, slots=True)
class MeterFeatures:
    """The meter features of a switch; ``max_meter`` 0 means no meters."""

    max_meter: int
    band_types: int
    capabilities: MeterFlags
    max_bands: int
    max_color: int

    @property
    def can_drop(self) -> bool:
        """Return whether drop bands are supported."""
        return bool(self.band_types & (1 << ofp.METER_BAND_DROP))


def encode_meter_mods(
    command: MeterModCommand | IntColumn,
    meter_id: IntColumn,
    rate_kbps: IntColumn,
    burst_kbits: IntColumn,
    xid_first: int,
) -> bytes:
    """Return one meter-mod for each row, in order, with xids from ``xid_first`` on.

    ``command`` is a scalar or a column. A DELETE row has no band; its rate and burst are ignored. Raises ColumnError
    for a value that the field cannot carry (a rate or burst of 0 included) and InvalidValueError for columns that are
    not integers or not of one length.
    """
    ids = _column("meter_id", meter_id)
    commands = np.broadcast_to(_column("command", np.atleast_1d(np.asarray(command))), _row_shape(command, ids))
    rates = _column("rate_kbps", rate_kbps)
    bursts = _column("burst_kbits", burst_kbits)
    for name, column in (("rate_kbps", rates), ("burst_kbits", bursts), ("command", commands)):
        if len(column) != len(ids):
            raise InvalidValueError(name, len(column), f"rows do not match the {len(ids)} rows of meter_id")
    if meter_codec_native.library is not None and 0 <= xid_first <= _U32_MAX:
        columns = (commands, ids, rates, bursts)
        if all(not len(column) or (column.min() >= 0 and column.max() <= _U32_MAX) for column in columns):
            mods = np.stack([column.astype(np.uint32, copy=False) for column in columns], axis=1)
            octets = meter_codec_native.encode(_TEMPLATE, b"", _LAST, [mods.T], np.array([xid_first]))
            if octets is not None:  # otherwise there is a DELETE, or a value that the checks below name
                return bytes(octets[0])
    deletes = commands == MeterModCommand.DELETE
    _check("command", commands, 0, MeterModCommand.DELETE)
    _check("meter_id", ids, 1, ofp.METER_MAX)
    _check("rate_kbps", rates, 1, _U32_MAX, but=deletes)
    _check("burst_kbits", bursts, 1, _U32_MAX, but=deletes)
    return _pack_meter_mods(commands, ids, rates, bursts, deletes, xid_first)


def encode_meter_mods_batch(mods: Sequence[MeterMods], xid_first: Sequence[int], request: bytes) -> Sequence[Buffer]:
    """Return the meter-mods of each switch with xids from ``xid_first`` on, then ``request`` with the next one.

    ``mods`` are the rows of each switch, faster if the values of a meter are adjacent in memory; ``request`` is a
    message without a body. Errors as ``encode_meter_mods``.
    """
    if meter_codec_native.library is not None and mods:
        octets = meter_codec_native.encode(_TEMPLATE, request, _LAST, mods, np.array(xid_first, np.int64))
        if octets is not None:
            return octets
    made: list[Buffer] = []
    for (command, meter_id, rate_kbps, burst_kbits), xid in zip(mods, xid_first, strict=True):
        next_xid = (xid + len(meter_id)) & MAX_XID
        asked = request[:_XID_AT] + next_xid.to_bytes(4) + request[_XID_AT + 4 :]
        made.append(encode_meter_mods(command, meter_id, rate_kbps, burst_kbits, xid) + asked)
    return made


def decode_meter_mod(message: Buffer) -> tuple[int, int, int, int] | None:
    """Return command, meter_id, rate_kbps and burst_kbits of a meter-mod with one band; None for any other message."""
    if len(message) < _METER_MOD.itemsize:
        return None
    row = np.frombuffer(message, _METER_MOD, 1)[0]
    if row["type"] != ofp.MessageType.METER_MOD or row["length"] != _METER_MOD.itemsize:
        return None
    return int(row["command"]), int(row["meter_id"]), int(row["rate"]), int(row["burst_size"])


def encode_meter_deletes(meter_id: IntColumn, xid_first: int) -> bytes:
    """Return a deleting meter-mod for each id, in order, with xids from ``xid_first`` on."""
    zeros = np.zeros(len(meter_id), np.int64)
    return encode_meter_mods(MeterModCommand.DELETE, meter_id, zeros, zeros, xid_first)


def decode_meter_stats(body: Buffer) -> npt.NDArray[np.void]:
    """Return the METER_STATS rows of the body of a meter-stats reply (of one part, or of several joined).

    The counts of several bands are added up; a meter without bands has dropped nothing. Counters are unchanged,
    COUNTER_UNAVAILABLE included. Raises ProtocolError when malformed.
    """
    view = memoryview(body)
    if meter_codec_native.library is not None and (found := meter_codec_native.decode(view, METER_STATS)) is not None:
        return found
    runs = list(equal_runs(view, 4, _STATS_HEAD.itemsize, _STATS_NAME))
    out = np.empty(sum(count for _offset, _length, count in runs), METER_STATS)
    row = 0
    for run in runs:
        _offset, length, count = run
        if (length - _STATS_HEAD.itemsize) % _BAND_STATS.itemsize:
            raise malformed(_STATS_NAME, f"length of entry {row}", length, "40 and 16 for each band")
        _fill_stats(out[row : row + count], view, run)
        row += count
    return out


def decode_meter_config(body: Buffer) -> tuple[npt.NDArray[np.void], npt.NDArray[np.uint32]]:
    """Return the METER_CONFIG rows of the meters with exactly one drop band, and the ids of all other meters.

    Raises ProtocolError when malformed.
    """
    view = memoryview(body)
    one_drop_band, other_ids = [np.empty(0, _CONFIG_ONE_BAND)], [np.empty(0, np.uint32)]
    for run in equal_runs(view, 0, _CONFIG_HEAD.itemsize, _CONFIG_NAME):
        if run[1] == _CONFIG_ONE_BAND.itemsize:
            records = strided(view, _CONFIG_ONE_BAND, run)
            _check_band_lengths(records["band"]["length"])
            drops = records["band"]["type"] == ofp.METER_BAND_DROP
            one_drop_band.append(records[drops])
            other_ids.append(records["head"]["meter_id"][~drops])
        else:
            _check_bands(view, run)
            other_ids.append(strided(view, _CONFIG_HEAD, run)["meter_id"])
    records = np.concatenate(one_drop_band)
    out = np.empty(len(records), METER_CONFIG)
    out["meter_id"] = records["head"]["meter_id"]
    out["flags"] = records["head"]["flags"]
    out["rate_kbps"] = records["band"]["rate"]
    out["burst_kbits"] = records["band"]["burst_size"]
    return out, np.concatenate(other_ids).astype(np.uint32)


def decode_meter_features(body: Buffer) -> MeterFeatures:
    """Return the body of a meter-features reply; raises ProtocolError when malformed."""
    view = memoryview(body)
    max_meter, band_types, capabilities, max_bands, max_color = read(_FEATURES, view, 0, "METER_FEATURES reply", "body")
    if len(view) != _FEATURES.size:
        raise malformed("METER_FEATURES reply", "length of the body", len(view), str(_FEATURES.size))
    return MeterFeatures(max_meter, band_types, MeterFlags(capabilities), max_bands, max_color)


def _row_shape(command: MeterModCommand | IntColumn, ids: npt.NDArray[np.int64]) -> tuple[int]:
    return (len(ids),) if np.ndim(command) == 0 else (len(np.asarray(command)),)


def _column(name: str, values: IntColumn) -> npt.NDArray[np.int64]:
    """Return values as a column of integers of any type; InvalidValueError if they are none in one dimension."""
    column = np.asarray(values)
    if column.ndim != 1:
        raise InvalidValueError(name, column.shape, "is not a column: one dimension is expected")
    if not len(column):
        return np.empty(0, np.int64)
    if column.dtype.kind not in "iu":
        raise InvalidValueError(name, str(column.dtype), "is not a column of integers")
    return column


def _check(
    name: str, column: npt.NDArray[np.int64], low: int, high: int, but: npt.NDArray[np.bool_] | None = None
) -> None:
    bad = (column < low) | (column > high)
    if but is not None:
        bad &= ~but
    if bad.any():
        row = int(np.argmax(bad))
        raise ColumnError(name, row, int(column[row]), f"is outside {low} to {high}")


def _pack_meter_mods(
    commands: npt.NDArray[np.int64],
    ids: npt.NDArray[np.int64],
    rates: npt.NDArray[np.int64],
    bursts: npt.NDArray[np.int64],
    deletes: npt.NDArray[np.bool_],
    xid_first: int,
) -> bytes:
    """Return one meter-mod per id, in kb/s and kb; those in ``deletes`` have no band."""
    octets = bytearray(_TEMPLATE * len(ids))  # twice as fast as filling every column
    out = np.frombuffer(octets, _METER_MOD)
    out["xid"] = xids(xid_first, len(ids))
    out["command"] = commands
    out["meter_id"] = ids
    out["rate"] = rates
    out["burst_size"] = bursts
    if not deletes.any():
        return bytes(octets)
    out["length"][deletes] = _WITHOUT_BAND
    out["flags"][deletes] = 0
    table = np.frombuffer(octets, np.uint8).reshape(len(ids), _METER_MOD.itemsize)
    keep = np.ones(table.shape, np.bool_)
    keep[deletes, _WITHOUT_BAND:] = False
    return table[keep].tobytes()


def _fill_stats(out: npt.NDArray[np.void], view: memoryview, run: tuple[int, int, int]) -> None:
    """Write one run of meters, all with the same number of bands, into ``out``."""
    heads = strided(view, _STATS_HEAD, run)
    skips = range(_STATS_HEAD.itemsize, run[1], _BAND_STATS.itemsize)
    bands = [strided(view, _BAND_STATS, run, skip) for skip in skips]
    for start in range(0, len(out), _BLOCK):
        rows = slice(start, start + _BLOCK)
        for name in ("meter_id", "byte_in_count"):
            out[name][rows] = heads[name][rows]
        out["duration_s"][rows] = duration_s(heads[rows])
        packets = np.asarray(_sum([band["packet_count"][rows] for band in bands]), np.uint64)
        out["band_packet_count"][rows] = packets & np.uint64(PACKETS_UNAVAILABLE)  # the low 32 bits
        out["band_byte_count"][rows] = _sum([band["byte_count"][rows] for band in bands])


def _sum(bands: list[npt.NDArray[np.void]]) -> npt.NDArray[np.void] | npt.NDArray[np.uint64] | int:
    """Return the sum over each meter's bands; unavailable if any band's count is."""
    if len(bands) < 2:
        return bands[0] if bands else 0
    values = np.array(bands, np.uint64)
    total: npt.NDArray[np.uint64] = values.sum(axis=0, dtype=np.uint64)
    total[(values == ofp.COUNTER_UNAVAILABLE).any(axis=0)] = ofp.COUNTER_UNAVAILABLE
    return total


def _check_band_lengths(lengths: npt.NDArray[np.void]) -> None:
    wrong = np.flatnonzero(lengths != _BAND.itemsize)
    if len(wrong):
        raise malformed(_CONFIG_NAME, "band.len", lengths[wrong[0]], str(_BAND.itemsize))


def _check_bands(view: memoryview, run: tuple[int, int, int]) -> None:
    """Raise ProtocolError unless the bands of every meter of a run fill it exactly."""
    start, length, count = run
    for end in range(start + length, start + length * (count + 1), length):
        offset = end - length + _CONFIG_HEAD.itemsize
        while offset < end:
            _type, size, _rate, _burst = read(_BAND_HEADER, view[:end], offset, _CONFIG_NAME, "band")
            if not _BAND.itemsize <= size <= end - offset:
                raise malformed(_CONFIG_NAME, "band.len", size, f"{_BAND.itemsize} to {end - offset}")
            offset += size
