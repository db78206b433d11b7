"""All messages from one shard to another in an interval, as one bundle: each after its length, 4 bytes."""

from __future__ import annotations

from struct import Struct

import numpy as np
from numpy.typing import NDArray

from controller.node_protocol.header import Octets
from controller.node_protocol.rejection import MessageRejectedError, RejectCause

MAX_FRAMES = 8
"""messages in a bundle: one of each kind"""
_LENGTH = Struct("<I")


class Bundle:
    """Messages to one peer, written into the buffer that is sent.

    The buffer begins with ``octets`` bytes, and grows when necessary.
    """

    def __init__(self, octets: int = 0) -> None:
        self._whole, self._end = np.empty(octets, np.uint8), 0

    def __len__(self) -> int:
        return self._end

    @property
    def data(self) -> memoryview:
        """Return the bundle so far."""
        return self._whole[: self._end].data

    def allocate(self, octets: int) -> NDArray[np.uint8]:
        """Return the buffer for the next message, of ``octets`` bytes; it must be filled before the next call."""
        start, end = self._end + _LENGTH.size, self._end + _LENGTH.size + octets
        if end > len(self._whole):
            before, self._whole = self._whole, np.empty(max(end, 2 * len(self._whole)), np.uint8)
            self._whole[: self._end] = before[: self._end]
        _LENGTH.pack_into(self._whole.data, self._end, octets)
        self._end = end
        return self._whole[start:end]

    def put(self, frame: Octets) -> None:
        """Add an encoded message."""
        self.allocate(len(frame))[:] = np.frombuffer(frame, np.uint8)


def unbundle(data: Octets) -> list[Octets]:
    """Return the messages of a bundle, at most MAX_FRAMES; raise MessageRejectedError if it is malformed."""
    frames, at, data = list[Octets](), 0, memoryview(data)
    while at < len(data):
        if at + _LENGTH.size > len(data) or len(frames) == MAX_FRAMES:
            raise MessageRejectedError(
                RejectCause.LENGTH, f"{len(data)} octets are not a message of {MAX_FRAMES} frames at most"
            )
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + length
        if at > len(data):
            raise MessageRejectedError(RejectCause.LENGTH, f"a frame of {length} octets ends beyond its message")
        frames.append(data[at - length : at])
    return frames
