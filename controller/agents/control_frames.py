"""DETS's messages as Ethernet control frames (DETS, section V): columns to bytes and back.

| octet | field | octets | meaning |
|---|---|---|---|
| 0 | destination | 6 | the addressed VN's MAC address, unicast |
| 6 | source | 6 | the sending VN's MAC address, or the controller's |
| 12 | 802.1Q tag | 4 | the VN's VLAN, PCP 7; omitted at access ports; the port's VLAN applies |
| 16 | EtherType | 2 | 0x8808 (MAC control, IEEE 802.3 clause 31), or 0x88b5 (local experiments) |
| 18 | opcode | 2 | ``Opcode`` |
| 20 | version | 1 | 1 |
| 21 | count | 1 | entries that follow, 1 to 255 |
| 22 | sequence | 2 | plus 1 for each frame of a sender; wraps |
| 24 | clock_ms | 4 | the sender's own clock; wraps |
| 28 | epoch | 4 | random at the sender's start; a new one voids all earlier frames |
| 32 | entries | .. | one layout per opcode, then zeros up to 44 octets of parameters |

Offsets are those of a tagged frame; all numbers are big-endian. Rates are whole kb/s at layer 2, NO_RATE for no limit.
The bytes after the opcode are its *parameters*.

Choice: the paper says "other free opcodes" than PAUSE. 0x0001 to 0x0006 and 0x0101 are taken by IEEE 802.3, 0xFFFE is
for registered organizations. 0xDE01 to 0xDE06 are unregistered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from controller.columns import IntArray
from controller.errors import InvalidValueError
from controller.openflow.actions import ETH_TYPE_VLAN
from controller.openflow.bounded_reader import Buffer
from controller.openflow.ethernet import CONTROL_ETH_TYPES, ETH_TYPE_MAC_CONTROL

CONTROLLER_MAC = 0x02DE_7500_0001
VERSION = 1
PRIORITY_CODE_POINT = 7
# Bytes of parameters: a MAC control frame has exactly 44; longer ones need both ends' consent (LONG_FRAMES).
SHORT_PARAMETER_BYTES = 44
LONG_PARAMETER_BYTES = 1498
MAX_COUNT = 255
NO_RATE = 0xFFFF_FFFF
MIN_RATE_KBPS = 1
SEQUENCE_WINDOW = 32_768

_ADDRESSES = Struct("!6s6sH")
_TAG = Struct("!HH")
_OPCODE = Struct("!H")
_HEAD = Struct("!BBHII")
_SEQUENCES = 2**16


class Opcode(IntEnum):
    """The message in a frame. The first five are the paper's messages (section II.A)."""

    TRAFFIC_REPORT = 0xDE01
    INITIALIZE = 0xDE02
    SET_RATE = 0xDE03
    KEEP_ALIVE = 0xDE04
    DEACTIVATE = 0xDE05
    HELLO = 0xDE06


class ReportFlag(IntEnum):
    """Bits of a Traffic Report's ``flags``."""

    ACTIVE = 1
    SHAPED_HERE = 2
    BACKLOG = 4
    RATE_UNKNOWN = 8


class Feature(IntEnum):
    """Bits of a Hello's ``features``."""

    SHAPES = 1
    REPORTS = 2
    LONG_FRAMES = 4


_MAC = (np.uint8, (6,))
_PAIR = [("sender", *_MAC), ("receiver", *_MAC)]
_PAIR_LAYOUT = np.dtype(_PAIR)
LAYOUTS: dict[Opcode, np.dtype[np.void]] = {
    Opcode.TRAFFIC_REPORT: np.dtype(
        [
            *_PAIR,
            ("measured_kbps", ">u4"),
            ("dropped_kbps", ">u4"),
            ("limit_kbps", ">u4"),
            ("available_kbps", ">u4"),
            ("flags", ">u4"),
        ]
    ),
    Opcode.INITIALIZE: _PAIR_LAYOUT,
    Opcode.SET_RATE: np.dtype([*_PAIR, ("rate_kbps", ">u4")]),
    Opcode.KEEP_ALIVE: _PAIR_LAYOUT,
    Opcode.DEACTIVATE: _PAIR_LAYOUT,
    Opcode.HELLO: np.dtype(
        [("features", ">u4"), ("interval_ms", ">u2"), ("most_classes", ">u2"), ("link_rate_kbps", ">u4")]
    ),
}
"""The layout of a record by opcode; MAC addresses are six bytes each."""


class FrameRejectCause(StrEnum):
    """Why a frame is rejected; each cause is counted."""

    NOT_CONTROL = "not-control"
    SHORT = "short"
    LONG = "long"
    OPCODE = "opcode"
    VERSION = "version"
    COUNT = "count"
    PADDING = "padding"
    ADDRESS = "address"
    RATE = "rate"


class FrameRejection(NamedTuple):
    """A rejected frame: the cause, and one line with the value found and the value expected."""

    cause: FrameRejectCause
    detail: str


@dataclass(frozen=True, slots=True)
class FrameAddress:
    """Source and destination: MAC addresses (48 bits), the VLAN of the tag (None: untagged), the sender's epoch."""

    destination: int
    source: int
    vlan_vid: int | None
    epoch: int
    ethertype: int = ETH_TYPE_MAC_CONTROL


@dataclass(frozen=True, slots=True)
class ControlFrame:
    """One decoded frame; ``entries`` are records of ``LAYOUTS[opcode]``."""

    speaker: FrameAddress
    opcode: Opcode
    sequence: int
    clock_ms: int
    entries: npt.NDArray[np.void]


def capacity(opcode: Opcode, octets: int = SHORT_PARAMETER_BYTES) -> int:
    """Return how many records a frame with this many bytes of parameters holds; a Hello holds one."""
    maximum = 1 if opcode is Opcode.HELLO else MAX_COUNT
    return min((octets - _HEAD.size) // LAYOUTS[opcode].itemsize, maximum)


def mac_octets(addresses: IntArray) -> npt.NDArray[np.uint8]:
    """Return addresses of 48 bits, shape (n,), as octets, shape (n, 6)."""
    return np.asarray(addresses, dtype=">u8").view(np.uint8).reshape(-1, 8)[:, 2:]


def mac_numbers(octets: npt.NDArray[np.uint8]) -> IntArray:
    """Return addresses as octets, shape (n, 6), as numbers of 48 bits, shape (n,)."""
    padded = np.zeros((len(octets), 8), dtype=np.uint8)
    padded[:, 2:] = octets
    return padded.view(">u8").reshape(-1).astype(np.int64)


def encode(
    speaker: FrameAddress,
    opcode: Opcode,
    entries: npt.NDArray[np.void],
    sequence: int,
    clock_ms: int,
    longest_octets: int = SHORT_PARAMETER_BYTES,
) -> list[bytes]:
    """Return frames with the records ``entries``; a frame has at most ``longest_octets`` bytes of parameters.

    ``sequence`` is that of the first frame; each next one has one more, modulo 2^16. Without records there are no
    frames. Raises InvalidValueError for entries of another layout, a Set Rate of 0, and values that do not fit their
    field.
    """
    if entries.dtype != LAYOUTS[opcode]:
        raise InvalidValueError("entries", entries.dtype, f"must be records of {opcode.name}: {LAYOUTS[opcode]}")
    if not SHORT_PARAMETER_BYTES <= longest_octets <= LONG_PARAMETER_BYTES:
        raise InvalidValueError(
            "longest_octets", longest_octets, f"is outside {SHORT_PARAMETER_BYTES} to {LONG_PARAMETER_BYTES}"
        )
    if opcode is Opcode.SET_RATE and not entries["rate_kbps"].all():
        raise InvalidValueError("rate_kbps", 0, f"is below {MIN_RATE_KBPS}")
    header = _header(speaker)
    maximum = capacity(opcode, longest_octets)
    frames: list[bytes] = []
    for first in range(0, len(entries), maximum):
        part = entries[first : first + maximum]
        number = (sequence + len(frames)) % _SEQUENCES
        head = _HEAD.pack(VERSION, len(part), number, clock_ms % 2**32, speaker.epoch)
        frames.append(header + _OPCODE.pack(opcode) + (head + part.tobytes()).ljust(SHORT_PARAMETER_BYTES, b"\0"))
    return frames


def _header(speaker: FrameAddress) -> bytes:
    """Return the bytes before the opcode: addresses, VLAN tag (if any) and EtherType."""
    for key in ("destination", "source"):
        address = getattr(speaker, key)
        if not 0 <= address < 2**48 or address >> 40 & 1:
            raise InvalidValueError(key, f"{address:012x}", "must be a unicast address of 48 bits")
    if not 0 <= speaker.epoch < 2**32:
        raise InvalidValueError("epoch", speaker.epoch, "is outside 0 to 4294967295")
    tag = b""
    if speaker.vlan_vid is not None:
        if not 1 <= speaker.vlan_vid <= 4094:
            raise InvalidValueError("vlan_vid", speaker.vlan_vid, "is outside 1 to 4094")
        tag = _TAG.pack(ETH_TYPE_VLAN, PRIORITY_CODE_POINT << 13 | speaker.vlan_vid)
    addresses = speaker.destination.to_bytes(6) + speaker.source.to_bytes(6)
    return addresses + tag + speaker.ethertype.to_bytes(2)


def decode(frame: Buffer) -> ControlFrame | FrameRejection:
    """Return the decoded frame, or why it is rejected; never raises, whatever the bytes.

    ``frame`` begins with the destination address; an 802.1Q tag is optional.
    """
    view = memoryview(frame)
    if len(view) < _ADDRESSES.size:
        return FrameRejection(FrameRejectCause.SHORT, f"{len(view)} octets, expected at least {_ADDRESSES.size}")
    destination, source, ethertype = _ADDRESSES.unpack_from(view)
    at, vlan_vid = _ADDRESSES.size, None
    if ethertype == ETH_TYPE_VLAN:
        if len(view) < at + _TAG.size:
            return FrameRejection(FrameRejectCause.SHORT, f"{len(view)} octets, expected an 802.1Q tag")
        tci, ethertype = _TAG.unpack_from(view, at)
        vlan_vid, at = tci & 0x0FFF, at + _TAG.size
    if ethertype not in CONTROL_ETH_TYPES:
        return FrameRejection(FrameRejectCause.NOT_CONTROL, f"EtherType {ethertype:04x}")
    # The epoch is among the parameters: ``_read`` replaces the 0.
    speaker = FrameAddress(int.from_bytes(destination), int.from_bytes(source), vlan_vid, 0, ethertype)
    if len(view) < at + _OPCODE.size + SHORT_PARAMETER_BYTES:
        return FrameRejection(
            FrameRejectCause.SHORT, f"{len(view)} octets, expected at least {at + _OPCODE.size + SHORT_PARAMETER_BYTES}"
        )
    (number,) = _OPCODE.unpack_from(view, at)
    if number not in LAYOUTS:
        return FrameRejection(FrameRejectCause.OPCODE, f"opcode {number:04x}")
    return _read(speaker, Opcode(number), view[at + _OPCODE.size :])


def _read(speaker: FrameAddress, opcode: Opcode, body: memoryview) -> ControlFrame | FrameRejection:
    """Return the decoded control frame, or the cause of its rejection; ``body`` begins after the opcode."""
    if len(body) > LONG_PARAMETER_BYTES:
        return FrameRejection(
            FrameRejectCause.LONG, f"{len(body)} octets of parameters, expected at most {LONG_PARAMETER_BYTES}"
        )
    version, count, sequence, clock_ms, epoch = _HEAD.unpack_from(body)
    if version != VERSION:
        return FrameRejection(FrameRejectCause.VERSION, f"version {version}, expected {VERSION}")
    maximum, size = capacity(opcode, len(body)), LAYOUTS[opcode].itemsize
    if not 1 <= count <= maximum:
        return FrameRejection(FrameRejectCause.COUNT, f"count {count}, expected 1 to {maximum}")
    end = _HEAD.size + count * size
    if any(body[end:]):
        return FrameRejection(FrameRejectCause.PADDING, "octets other than zero behind the entries")
    if _is_group(speaker.destination) or _is_group(speaker.source):
        return FrameRejection(FrameRejectCause.ADDRESS, "a group address in the header")
    entries = np.frombuffer(body[_HEAD.size : end], dtype=LAYOUTS[opcode])
    if opcode is not Opcode.HELLO and ((entries["sender"][:, 0] | entries["receiver"][:, 0]) & 1).any():
        return FrameRejection(FrameRejectCause.ADDRESS, "a group address in an entry")
    if opcode is Opcode.SET_RATE and not entries["rate_kbps"].all():
        return FrameRejection(FrameRejectCause.RATE, f"rate 0, expected at least {MIN_RATE_KBPS} kb/s")
    reported = FrameAddress(speaker.destination, speaker.source, speaker.vlan_vid, epoch, speaker.ethertype)
    return ControlFrame(reported, opcode, sequence, clock_ms, entries)


def _is_group(address: int) -> bool:
    return bool(address >> 40 & 1)


@dataclass(slots=True)
class SequenceWindow:
    """The sequence numbers of one sender: a frame is new if its number is ahead in its epoch, or the epoch is new."""

    epoch: int | None = None
    sequence: int = 0

    def accept(self, frame: ControlFrame) -> bool:
        """Return whether ``frame`` is ahead of all earlier frames; if so, store its number."""
        same = frame.speaker.epoch == self.epoch
        ahead = (frame.sequence - self.sequence) % _SEQUENCES
        if same and not 0 < ahead < SEQUENCE_WINDOW:
            return False
        self.epoch, self.sequence = frame.speaker.epoch, frame.sequence
        return True


def records(opcode: Opcode, **columns: npt.ArrayLike) -> npt.NDArray[np.void]:
    """Return columns of equal length as records of ``LAYOUTS[opcode]``; ``sender`` and ``receiver`` as 48-bit numbers.

    Raises InvalidValueError, naming the column, when one is missing, unknown, of another length or does not fit.
    """
    layout = LAYOUTS[opcode]
    if set(columns) != set(layout.names or ()):
        raise InvalidValueError("columns", sorted(columns), f"must be {', '.join(layout.names or ())}")
    arrays = dict(_fitting(layout, columns))
    found = np.zeros(max((len(one) for one in arrays.values()), default=0), dtype=layout)
    for name, values in arrays.items():
        if len(values) != len(found):
            raise InvalidValueError(name, len(values), f"must have {len(found)} values, as the others")
        found[name] = mac_octets(values) if name in ("sender", "receiver") else values
    return found


def _fitting(layout: np.dtype[np.void], columns: dict[str, npt.ArrayLike]) -> Iterator[tuple[str, IntArray]]:
    """Yield each column as (name, integers); InvalidValueError for a value that its field cannot hold."""
    for name, values in columns.items():
        array = np.asarray(values, dtype=np.int64)
        maximum = 2**48 - 1 if name in ("sender", "receiver") else 2 ** (8 * layout[name].itemsize) - 1
        bad = (array < 0) | (array > maximum)
        if bad.any():
            raise InvalidValueError(name, int(array[bad][0]), f"is outside 0 to {maximum}")
        yield name, array
