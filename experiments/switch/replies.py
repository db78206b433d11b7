"""Messages of a switch: headers and multipart bodies, counters taken from columns (OpenFlow 1.3.5, section 7)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

import numpy as np
import numpy.typing as npt

from controller.openflow import constants as ofp
from controller.openflow.bounded_reader import HEADER
from controller.openflow.constants import MessageType, MultipartType
from controller.openflow.match import Match, encode_match
from experiments.switch.openflow_errors import OpenFlowReplyError

METER_STATS = np.dtype(
    [
        ("meter_id", ">u4"),
        ("length", ">u2"),
        ("pad", "V6"),
        ("flow_count", ">u4"),
        ("packet_in_count", ">u8"),
        ("byte_in_count", ">u8"),
        ("duration_sec", ">u4"),
        ("duration_nsec", ">u4"),
        ("band_packet_count", ">u8"),
        ("band_byte_count", ">u8"),
    ]
)
METER_CONFIG = np.dtype(
    [
        ("length", ">u2"),
        ("flags", ">u2"),
        ("meter_id", ">u4"),
        ("band_type", ">u2"),
        ("band_length", ">u2"),
        ("rate", ">u4"),
        ("burst_size", ">u4"),
        ("pad", "V4"),
    ]
)
PORT_STATS = np.dtype(
    [
        ("port_no", ">u4"),
        ("pad", "V4"),
        ("rx_packets", ">u8"),
        ("tx_packets", ">u8"),
        ("rx_bytes", ">u8"),
        ("tx_bytes", ">u8"),
        ("rx_dropped", ">u8"),
        ("tx_dropped", ">u8"),
        ("rx_errors", ">u8"),
        ("tx_errors", ">u8"),
        ("rx_frame_err", ">u8"),
        ("rx_over_err", ">u8"),
        ("rx_crc_err", ">u8"),
        ("collisions", ">u8"),
        ("duration_sec", ">u4"),
        ("duration_nsec", ">u4"),
    ]
)
QUEUE_STATS = np.dtype(
    [
        ("port_no", ">u4"),
        ("queue_id", ">u4"),
        ("tx_bytes", ">u8"),
        ("tx_packets", ">u8"),
        ("tx_errors", ">u8"),
        ("duration_sec", ">u4"),
        ("duration_nsec", ">u4"),
    ]
)
_MULTIPART = Struct("!HH4x")
_PACKET_IN = Struct("!IHBBQ")
_FLOW_REMOVED = Struct("!QHBBIIHHQQ")
_PORT = Struct("!I4x6s2x16sIIIIIIII")
_MAX_UINT16 = 0xFFFF


def message(message_type: MessageType, xid: int, body: bytes = b"") -> bytes:
    """Return a whole message."""
    return HEADER.pack(ofp.VERSION, message_type, HEADER.size + len(body), xid) + body


def error(refusal: OpenFlowReplyError, refused: bytes) -> bytes:
    """Return the error reply to ``refused``, with its xid and its first bytes as data."""
    xid = HEADER.unpack_from(refused)[3]
    return message(MessageType.ERROR, xid, refusal.type.to_bytes(2) + refusal.code.to_bytes(2) + refused[:128])


def multipart(
    part_type: MultipartType, xid: int, entries: Iterable[bytes], part_bytes: int = _MAX_UINT16
) -> Iterable[bytes]:
    """Yield the parts, none over ``part_bytes`` long if entries allow, of the reply made of ``entries``, in order."""
    max_bytes = min(part_bytes, _MAX_UINT16) - HEADER.size - _MULTIPART.size
    records: list[bytes] = []
    used_bytes = 0
    for entry in entries:
        if records and used_bytes + len(entry) > max_bytes:
            yield _part(part_type, xid, ofp.MULTIPART_REPLY_MORE, b"".join(records))
            records, used_bytes = [], 0
        records.append(entry)
        used_bytes += len(entry)
    yield _part(part_type, xid, 0, b"".join(records))


def multipart_rows(
    part_type: MultipartType, xid: int, rows: npt.NDArray[np.void], part_bytes: int = _MAX_UINT16
) -> Iterable[bytes]:
    """Yield the parts of a reply made of records of one size, without handling each record."""
    max_bytes = min(part_bytes, _MAX_UINT16) - HEADER.size - _MULTIPART.size
    rows_per_part = max(max_bytes // rows.dtype.itemsize, 1)
    starts = range(0, max(len(rows), 1), rows_per_part)
    for start in starts:
        flags = ofp.MULTIPART_REPLY_MORE if start + rows_per_part < len(rows) else 0
        yield _part(part_type, xid, flags, rows[start : start + rows_per_part].tobytes())


def packet_in(
    reason: int, table_id: int, cookie: int, in_port: int, frame: bytes, max_len: int, metadata: int = 0
) -> bytes:
    """Return the packet-in with at most ``max_len`` bytes of ``frame`` (all of it for 0xffff).

    Metadata of 0 is left out (section 7.4.1).
    """
    sent = frame if max_len == ofp.MAX_LEN_NO_BUFFER else frame[:max_len]
    match = encode_match(Match(in_port=in_port, metadata=metadata or None))
    body = _PACKET_IN.pack(ofp.NO_BUFFER, len(frame), reason, table_id, cookie) + match + bytes(2) + sent
    return message(MessageType.PACKET_IN, 0, body)


def flow_removed(
    match: Match,
    identity: tuple[int, int, int],
    reason: int,
    timeouts_s: tuple[int, int],
    age_s: float,
    counters: tuple[int, int],
) -> bytes:
    """Return the flow-removed of the entry (cookie, table_id, priority) with its (idle, hard) timeouts and counters."""
    cookie, table_id, priority = identity
    seconds, nanoseconds = split_duration(age_s)
    fixed = _FLOW_REMOVED.pack(cookie, priority, reason, table_id, seconds, nanoseconds, *timeouts_s, *counters)
    return message(MessageType.FLOW_REMOVED, 0, fixed + encode_match(match))


def port(port_no: int, name: str, hw_addr: int, config: int, state: int, speed_kbps: int) -> bytes:
    """Return the ofp_port."""
    words = (config, state, 0, 0, 0, 0, speed_kbps, 0)
    return _PORT.pack(port_no, hw_addr.to_bytes(6), name.encode()[:15], *words)


def split_duration(age_s: float) -> tuple[int, int]:
    """Return whole seconds and the remaining nanoseconds."""
    nanoseconds = round(age_s * 1e9)
    return nanoseconds // 10**9, nanoseconds % 10**9


def fill_duration(rows: npt.NDArray[np.void], age_s: npt.NDArray[np.float64]) -> None:
    """Write ``age_s`` into the two duration columns."""
    nanoseconds = np.rint(age_s * 1e9).astype(np.int64)
    rows["duration_sec"] = nanoseconds // 10**9
    rows["duration_nsec"] = nanoseconds % 10**9


def _part(part_type: MultipartType, xid: int, flags: int, body: bytes) -> bytes:
    """Return one part of a multipart reply."""
    return message(MessageType.MULTIPART_REPLY, xid, _MULTIPART.pack(part_type, flags) + body)
