"""Control frames on an interface: a packet socket that receives them with their tags."""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Self

from controller.agents.control_frames import ControlFrame, FrameRejectCause, FrameRejection, Opcode, decode
from controller.openflow.ethernet import ETH_TYPE_LOCAL_EXPERIMENT, ETH_TYPE_MAC_CONTROL

_ETH_P_ALL = 0x0003
_SOL_PACKET, _PACKET_AUXDATA, _PACKET_IGNORE_OUTGOING = 263, 8, 23
_SO_ATTACH_FILTER, _SO_PRIORITY = 26, 12
_VLAN_VALID = 1 << 4
_AUXDATA = struct.Struct("=IIIHHHH")  # struct tpacket_auxdata
_TAG = struct.Struct("!HH")
_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter
_MAX_FRAME_BYTES = 2048
_BUFFER_BYTES = 1 << 20


def socket_filter() -> bytes:
    """Return cBPF (linux/filter.h) that passes control frames only; the kernel has removed their tag before."""
    first, last = min(Opcode), max(Opcode)
    # Each instruction: operation, instructions to skip if its condition holds and if not, constant.
    program = (
        (0x28, 0, 0, 12),  # A = EtherType
        (0x15, 1, 0, ETH_TYPE_MAC_CONTROL),
        (0x15, 0, 4, ETH_TYPE_LOCAL_EXPERIMENT),
        (0x28, 0, 0, 14),  # A = opcode
        (0x35, 0, 2, first),
        (0x25, 1, 0, last),
        (0x06, 0, 0, _MAX_FRAME_BYTES),
        (0x06, 0, 0, 0),
    )
    return b"".join(_INSTRUCTION.pack(*line) for line in program)


class FrameSocket:
    """Sends and receives control frames on one interface; a context manager.

    ``priority`` is the class of sent frames. ``refused`` counts invalid frames, by cause.
    """

    def __init__(self, interface: str, priority: int) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        program = socket_filter()
        code = ctypes.create_string_buffer(program, len(program))
        lines = len(program) // _INSTRUCTION.size
        attached = struct.pack("=HxxxxxxQ", lines, ctypes.addressof(code))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, attached)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_PRIORITY, struct.pack("=I", priority))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.bind((interface, _ETH_P_ALL))
        self.address = int.from_bytes(self._socket.getsockname()[4])
        self.refused: dict[FrameRejectCause, int] = {}
        self.unsent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the file descriptor, to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, frames: list[bytes]) -> None:
        """Send frames; those that the interface does not accept now are lost, and counted."""
        for frame in frames:
            try:
                self._socket.send(frame)
            except OSError:
                self.unsent += 1

    def receive(self, max_frames: int) -> list[ControlFrame]:
        """Return the received frames, at most ``max_frames``."""
        frames = []
        for _ in range(max_frames):
            try:
                data, ancillary_data, _, _ = self._socket.recvmsg(_MAX_FRAME_BYTES, 64)
            except OSError:  # nothing more, or the interface is down
                break
            frame = decode(_with_tag(data, ancillary_data))
            if isinstance(frame, FrameRejection):
                self.refused[frame.cause] = self.refused.get(frame.cause, 0) + 1
            else:
                frames.append(frame)
        return frames


def _with_tag(data: bytes, ancillary_data: list[tuple[int, int, bytes]]) -> bytes:
    """Return a frame with the VLAN tag that the kernel has moved to the ancillary data (PACKET_AUXDATA), if any."""
    for level, kind, value in ancillary_data:
        if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA) and len(value) >= _AUXDATA.size:
            status, _, _, _, _, tci, _ = _AUXDATA.unpack_from(value)
            if status & _VLAN_VALID:
                return data[:12] + _TAG.pack(0x8100, tci) + data[12:]
    return data
