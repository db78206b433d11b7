"""Multipart requests and replies (OpenFlow 1.3.5, section 7.3.5); flow and meter replies have their own modules.

Large replies come in several parts: parse each with ``multipart_header``, join the bodies, decode once.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from controller.openflow import constants as ofp
from controller.openflow.bounded_reader import Buffer, check_range, duration_s, malformed, open_message, read, rows
from controller.openflow.constants import MessageType, MultipartType
from controller.openflow.match import Match as _Match
from controller.openflow.match import encode_match

_MULTIPART = Struct("!HH4x")
MULTIPART_HEAD = Struct("!BBHIHH4x")  # of a whole message
_WORD = Struct("!I4x")
# Looking up a member of an enumeration costs as much as packing a message.
_REQUEST, _REPLY = int(MessageType.MULTIPART_REQUEST), int(MessageType.MULTIPART_REPLY)
_METER_REQUEST = Struct("!BBHIHH4xI4x")
_METER = int(MultipartType.METER)
_QUEUE_REQUEST = Struct("!II")
_FLOW_REQUEST = Struct("!B3xII4xQQ")
_PORT = Struct("!I4x6s2x16sIIIIIIII")

_DESC = Struct("!256s256s256s32s256s")
_TABLE_RECORD = np.dtype([("table_id", "u1"), ("pad", "V3"), ("active", ">u4"), ("lookups", ">u8"), ("matched", ">u8")])

_PORT_COUNTERS = (
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_dropped",
    "tx_dropped",
    "rx_errors",
    "tx_errors",
    "rx_frame_err",
    "rx_over_err",
    "rx_crc_err",
    "collisions",
)
_QUEUE_COUNTERS = ("tx_bytes", "tx_packets", "tx_errors")
_DURATION = [("duration_sec", ">u4"), ("duration_nsec", ">u4")]
_PORT_RECORD = np.dtype([("port_no", ">u4"), ("pad", "V4"), *((name, ">u8") for name in _PORT_COUNTERS), *_DURATION])
_QUEUE_RECORD = np.dtype(
    [("port_no", ">u4"), ("queue_id", ">u4"), *((name, ">u8") for name in _QUEUE_COUNTERS), *_DURATION]
)
PORT_STATS = np.dtype(
    [("port_no", np.uint32), *((name, np.uint64) for name in _PORT_COUNTERS), ("duration_s", np.float64)]
)
"""One port's counters; a counter that the switch does not keep reads COUNTER_UNAVAILABLE."""
QUEUE_STATS = np.dtype(
    [
        ("port_no", np.uint32),
        ("queue_id", np.uint32),
        *((name, np.uint64) for name in _QUEUE_COUNTERS),
        ("duration_s", np.float64),
    ]
)
"""One queue's counters; a counter that the switch does not keep reads COUNTER_UNAVAILABLE."""


class MultipartPart(NamedTuple):
    """One part of a multipart reply: its type, whether more parts follow, and its body."""

    type: int
    more: bool
    body: memoryview


class SwitchDesc(NamedTuple):
    """The description that a switch gives of itself (7.3.5.1)."""

    manufacturer: str
    hardware: str
    software: str
    serial_number: str
    datapath: str


@dataclass(frozen=True, slots=True)
class PortDesc:
    """A port as the switch describes it; ``hw_addr`` is an integer of 48 bits, speeds are kb/s (0: unknown)."""

    port_no: int
    name: str
    hw_addr: int
    config: int
    state: int
    curr_speed_kbps: int
    max_speed_kbps: int

    @property
    def up(self) -> bool:
        """Return whether the port has a link and is not administratively down."""
        return not (self.config & ofp.PORT_CONFIG_DOWN or self.state & ofp.PORT_STATE_LINK_DOWN)


def encode_meter_stats_request(xid: int, meter_id: int = ofp.METER_ALL) -> bytes:
    """Return the request for the counters of one meter, or of all."""
    check_range("xid", xid, 0, 2**32 - 1)
    return _METER_REQUEST.pack(ofp.VERSION, _REQUEST, _METER_REQUEST.size, xid, _METER, 0, meter_id)


def encode_meter_config_request(xid: int, meter_id: int = ofp.METER_ALL) -> bytes:
    """Return the request for the settings of one meter, or of all."""
    return _request(MultipartType.METER_CONFIG, xid, _WORD.pack(meter_id))


def encode_meter_features_request(xid: int) -> bytes:
    """Return the request for the switch's meter features."""
    return _request(MultipartType.METER_FEATURES, xid)


def encode_port_stats_request(xid: int, port_no: int = ofp.PORT_ANY) -> bytes:
    """Return the request for the counters of one port, or of all."""
    return _request(MultipartType.PORT_STATS, xid, _WORD.pack(port_no))


def encode_queue_stats_request(xid: int, port_no: int = ofp.PORT_ANY, queue_id: int = ofp.QUEUE_ALL) -> bytes:
    """Return the request for the counters of one queue, or of all queues of one port or of all."""
    return _request(MultipartType.QUEUE, xid, _QUEUE_REQUEST.pack(port_no, queue_id))


def encode_port_desc_request(xid: int) -> bytes:
    """Return the request for the description of all ports."""
    return _request(MultipartType.PORT_DESC, xid)


def encode_desc_request(xid: int) -> bytes:
    """Return the request for the switch's description."""
    return _request(MultipartType.DESC, xid)


def encode_table_stats_request(xid: int) -> bytes:
    """Return the request for the list of tables."""
    return _request(MultipartType.TABLE, xid)


def encode_flow_stats_request(xid: int, cookie: int = 0, cookie_mask: int = 0, table_id: int = ofp.TABLE_ALL) -> bytes:
    """Return the request for flow entries, in one table or all, with this ``cookie`` under ``cookie_mask``."""
    check_range("table_id", table_id, 0, ofp.TABLE_ALL)
    fixed = _FLOW_REQUEST.pack(table_id, ofp.PORT_ANY, ofp.GROUP_ANY, cookie, cookie_mask)
    return _request(MultipartType.FLOW, xid, fixed + encode_match(_Match()))


def multipart_header(buf: Buffer) -> MultipartPart:
    """Return the parsed multipart reply message; raises ProtocolError if its header is malformed."""
    if len(buf) >= MULTIPART_HEAD.size:  # nearly always; this is called for every reply of every switch
        version, message_type, length, _xid, part_type, flags = MULTIPART_HEAD.unpack_from(buf)
        if version == ofp.VERSION and message_type == _REPLY and length == len(buf):
            return MultipartPart(
                part_type, bool(flags & ofp.MULTIPART_REPLY_MORE), memoryview(buf)[MULTIPART_HEAD.size :]
            )
    view = open_message(buf, MessageType.MULTIPART_REPLY)
    part_type, flags = read(_MULTIPART, view, 0, "MULTIPART_REPLY", "header")
    return MultipartPart(part_type, bool(flags & ofp.MULTIPART_REPLY_MORE), view[_MULTIPART.size :])


def decode_port_stats(body: Buffer) -> npt.NDArray[np.void]:
    """Return the PORT_STATS rows of the body of a port-stats reply; raises ProtocolError when malformed."""
    return _counters(memoryview(body), _PORT_RECORD, PORT_STATS, "PORT_STATS reply")


def decode_queue_stats(body: Buffer) -> npt.NDArray[np.void]:
    """Return the QUEUE_STATS rows of the body of a queue-stats reply; raises ProtocolError when malformed."""
    return _counters(memoryview(body), _QUEUE_RECORD, QUEUE_STATS, "QUEUE stats reply")


def decode_port_desc(body: Buffer, message: str = "PORT_DESC reply") -> list[PortDesc]:
    """Return the ports in the body of a port-description reply; raises ProtocolError when malformed."""
    view = memoryview(body)
    if len(view) % _PORT.size:
        raise malformed(message, "length of the body", len(view), f"a multiple of {_PORT.size}")
    return [_port(_PORT.unpack_from(view, offset)) for offset in range(0, len(view), _PORT.size)]


def decode_desc(body: Buffer) -> SwitchDesc:
    """Return the body of a description reply; raises ProtocolError when malformed."""
    return SwitchDesc(*map(_text, read(_DESC, memoryview(body), 0, "DESC reply", "body")))


def decode_table_ids(body: Buffer) -> frozenset[int]:
    """Return the table ids in the body of a table-stats reply; raises ProtocolError if malformed."""
    return frozenset(rows(memoryview(body), _TABLE_RECORD, "TABLE stats reply")["table_id"].tolist())


def _text(octets: bytes) -> str:
    return octets.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")


def _request(part_type: MultipartType, xid: int, body: bytes = b"") -> bytes:
    check_range("xid", xid, 0, 2**32 - 1)
    return MULTIPART_HEAD.pack(ofp.VERSION, _REQUEST, MULTIPART_HEAD.size + len(body), xid, part_type, 0) + body


def _counters(
    view: memoryview, record: np.dtype[np.void], columns: np.dtype[np.void], message: str
) -> npt.NDArray[np.void]:
    records = rows(view, record, message)
    out = np.empty(len(records), columns)
    for name in columns.names or ():
        out[name] = duration_s(records) if name == "duration_s" else records[name]
    return out


def _port(values: tuple[int, bytes, bytes, int, int, int, int, int, int, int, int]) -> PortDesc:
    port_no, hw_addr, name, config, state, _curr, _advertised, _supported, _peer, curr_speed, max_speed = values
    return PortDesc(port_no, _text(name), int.from_bytes(hw_addr), config, state, curr_speed, max_speed)
