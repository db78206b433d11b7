"""Link discovery frames: IEEE 802.1AB TLVs that name and authenticate the switch and port that sent them.

A host can send LLDP too, or copy a frame. Each of the controller's frames carries an authenticator over (dpid, port_no)
under a key that exists for one run only, so a host cannot invent a link; ``is_authentic`` checks it.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from controller.errors import ProtocolError
from controller.openflow.bounded_reader import check_range
from controller.openflow.ethernet import ETH_TYPE_LLDP, FrameHeader, build_frame, parse_frame

DESTINATION = 0x0180C200000E  # nearest bridge (IEEE 802.1AB, table 7-1)
NONCE_BYTES = 16
TTL_S = 120

_END, _CHASSIS_ID, _PORT_ID, _TTL, _SPECIFIC = 0, 1, 2, 3, 127
_LOCALLY_ASSIGNED = b"\x07"
# A locally administered identifier (second lowest bit of the first byte), so not a registered one, and subtype 1.
_DETS_OUI = bytes.fromhex("02de7501")
_SMALLEST_FRAME = 60
_MAX_DIGITS = 10  # of a port number
_TLV = Struct("!H")
_IDENTITY = Struct("!QI")


@dataclass(frozen=True, slots=True)
class LldpInfo:
    """The sender of a frame, and its authenticator."""

    dpid: int
    port_no: int
    nonce: bytes


def authenticator(key: bytes, dpid: int, port_no: int) -> bytes:
    """Return the NONCE_BYTES that prove, to holders of ``key``, that the frame was made for this port."""
    return hmac.digest(key, _IDENTITY.pack(dpid, port_no), "sha256")[:NONCE_BYTES]


def is_authentic(info: LldpInfo, key: bytes) -> bool:
    """Return whether ``info`` has the authenticator of its own dpid and port under ``key``."""
    return hmac.compare_digest(info.nonce, authenticator(key, info.dpid, info.port_no))


def build(dpid: int, port_no: int, nonce: bytes) -> bytes:
    """Return the frame that port ``port_no`` of switch ``dpid`` sends, padded to 60 bytes.

    Raises InvalidValueError for a dpid, port or nonce that does not fit.
    """
    check_range("dpid", dpid, 0, 2**64 - 1)
    check_range("port_no", port_no, 1, 2**32 - 1)
    check_range("nonce", len(nonce), NONCE_BYTES, NONCE_BYTES)
    tlvs = (
        (_CHASSIS_ID, _LOCALLY_ASSIGNED + f"dpid:{dpid:016x}".encode()),
        (_PORT_ID, _LOCALLY_ASSIGNED + str(port_no).encode()),
        (_TTL, TTL_S.to_bytes(2)),
        (_SPECIFIC, _DETS_OUI + nonce),
        (_END, b""),
    )
    payload = b"".join(_TLV.pack(kind << 9 | len(value)) + value for kind, value in tlvs)
    # Choice: a locally administered source made from the dpid, so that learning switches do not mistake it for a
    # host's.
    source = 0x02 << 40 | dpid & 0xFFFFFFFFFF
    return build_frame(FrameHeader(DESTINATION, source, None, ETH_TYPE_LLDP), payload).ljust(_SMALLEST_FRAME, b"\0")


def parse(frame: bytes) -> LldpInfo | None:
    """Return the contents of one of the controller's frames; None for any other frame, such as a host's own LLDP.

    Choice: a frame that has the controller's TLV but is malformed raises ProtocolError, since it should be reported.
    ``is_authentic`` checks whether a frame is genuine.
    """
    try:
        header = parse_frame(frame)
    except ProtocolError:
        return None
    if header.eth_type != ETH_TYPE_LLDP or header.vlan_vid is not None or _DETS_OUI not in frame:
        return None
    tlvs: dict[int, bytes] = {}
    for kind, value in _walk(frame[14:]):
        if kind == _SPECIFIC and not value.startswith(_DETS_OUI):
            continue
        if kind in tlvs:
            raise ProtocolError(f"LLDP: TLV of type {kind}: found twice, expected once")
        tlvs[kind] = value
    return _info(tlvs) if _SPECIFIC in tlvs else None


def _walk(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the (type, value) of each TLV before the end TLV; ProtocolError for a wrong length."""
    offset = 0
    while offset + _TLV.size <= len(payload):
        head = _TLV.unpack_from(payload, offset)[0]
        kind, size = head >> 9, head & 0x1FF
        offset += _TLV.size
        if kind == _END:
            return
        if offset + size > len(payload):
            raise ProtocolError(f"LLDP: length of TLV {kind}: {size}, expected at most {len(payload) - offset}")
        yield kind, payload[offset : offset + size]
        offset += size
    raise ProtocolError("LLDP: end of LLDPDU: missing, expected after the last TLV")


def _info(tlvs: dict[int, bytes]) -> LldpInfo:
    """Return the sender and the nonce of a discovery probe; ProtocolError if a TLV is not this controller's."""
    chassis, port = tlvs.get(_CHASSIS_ID, b""), tlvs.get(_PORT_ID, b"")
    nonce = tlvs[_SPECIFIC][len(_DETS_OUI) :]
    prefix = _LOCALLY_ASSIGNED + b"dpid:"
    digits = chassis.removeprefix(prefix)
    if not chassis.startswith(prefix) or len(digits) != 16 or not _is_hex(digits):
        raise ProtocolError(f"LLDP: chassis id: {chassis!r}, expected dpid: and 16 hexadecimal digits")
    number = port[1:]
    is_number = number.isdigit() and len(number) <= _MAX_DIGITS
    if not port.startswith(_LOCALLY_ASSIGNED) or not is_number or not 1 <= int(number) < 2**32:
        raise ProtocolError(f"LLDP: port id: {port!r}, expected a port number")
    if len(nonce) != NONCE_BYTES:
        raise ProtocolError(f"LLDP: authenticator: {len(nonce)} bytes, expected {NONCE_BYTES}")
    return LldpInfo(int(digits, 16), int(number), nonce)


def _is_hex(digits: bytes) -> bool:
    return all(digit in b"0123456789abcdef" for digit in digits)
