"""Traffic control over rtnetlink: requests in batches, and the counters of all classes as columns.

``tc`` would need a process for each change, and pyroute2 takes 0.4 ms for each (docs/adr/0102).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_DELTCLASS, RTM_GETTCLASS = 40, 41, 42
RTM_NEWTFILTER = 44
TCA_KIND, TCA_OPTIONS, TCA_STATS2 = 1, 2, 7
_TCA_STATS_BASIC, _TCA_STATS_QUEUE = 1, 3
TC_H_ROOT = 0xFFFF_FFFF

REQUEST, ACK, DUMP, REPLACE, EXCL, CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_SOL_NETLINK, _NETLINK_CAP_ACK, _NETLINK_EXT_ACK = 270, 10, 11
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr
_DONE = struct.Struct("=IHHIIi")  # a header, and 0 or an error number
_TCMSG = struct.Struct("=BxxxiIII")
_ATTRIBUTE = struct.Struct("=HH")
# Requests in one write: their replies must fit the socket's buffer even if all are errors.
_BATCH_SIZE = 64
_BUFFER_BYTES = 4 << 20
_ANSWER_BYTES = 1 << 17


@dataclass(frozen=True, slots=True)
class Request:
    """One change of a qdisc, class or filter, in rtnetlink's form."""

    kind: int
    flags: int
    body: bytes


@dataclass(frozen=True, slots=True)
class ClassCounters:
    """Counts of the classes of an interface since they were created; columns of shape (classes,).

    ``octets`` and ``packets`` were sent, ``dropped`` counts packets, ``backlog_octets`` are queued.
    """

    minor: NDArray[np.int64]
    octets: NDArray[np.int64]
    packets: NDArray[np.int64]
    dropped: NDArray[np.int64]
    backlog_octets: NDArray[np.int64]


def attribute(kind: int, value: bytes) -> bytes:
    """Return one rtnetlink attribute, padded to a multiple of 4 bytes."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def tc_message(interface: int, handle: int, parent: int, info: int = 0) -> bytes:
    """Return struct tcmsg."""
    return _TCMSG.pack(socket.AF_UNSPEC, interface, handle, parent, info)


class Netlink:
    """One rtnetlink socket; a context manager."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        for option in (_NETLINK_CAP_ACK, _NETLINK_EXT_ACK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        self._socket.bind((0, 0))
        self._sequence = 0
        self._layouts: dict[int, tuple[int, int]] = {}  # by length of a message: the result of ``_counter_offsets``

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def change(self, requests: Sequence[Request]) -> None:
        """Execute all requests in order; then raise OSError with the kernel's message for the first rejected one.

        Each write asks for one acknowledgement, of its last request. The kernel reports rejections in any case.
        """
        first_error: OSError | None = None
        for start in range(0, len(requests), _BATCH_SIZE):
            batch = requests[start : start + _BATCH_SIZE]
            messages = bytearray()
            for number, request in enumerate(batch):
                self._sequence = (self._sequence + 1) % 2**32
                flags = request.flags | REQUEST | (ACK if number == len(batch) - 1 else 0)
                length = _HEADER.size + len(request.body)
                messages += _HEADER.pack(length, request.kind, flags, self._sequence, 0) + request.body
            self._socket.send(messages)
            error = self._await_acknowledgement(self._sequence)
            first_error = first_error or error
        if first_error is not None:
            raise first_error

    def _await_acknowledgement(self, last: int) -> OSError | None:
        """Wait for the acknowledgement of the request with sequence number ``last``; return the first error before it.

        An acknowledgement is an error message with the number 0.
        """
        first_error: OSError | None = None
        while True:
            for kind, sequence, body in _messages(memoryview(self._socket.recv(_ANSWER_BYTES))):
                if kind != _NLMSG_ERROR:
                    continue
                number = -struct.unpack_from("=i", body)[0]
                if number and first_error is None:
                    first_error = OSError(number, f"rtnetlink: {os.strerror(number)}{_kernel_text(body)}")
                if sequence == last:
                    return first_error

    def root_qdisc(self, interface: int) -> tuple[int, str]:
        """Return handle and kind of an interface's root qdisc; (0, kind) for the kernel's default."""
        for body in list(self._dump(RTM_GETQDISC, tc_message(interface, 0, 0))):  # the next dump needs an empty socket
            for kind, _, message in _messages(body):
                _, index, handle, parent, _ = _TCMSG.unpack_from(message)
                if kind == RTM_NEWQDISC and index == interface and parent == TC_H_ROOT:
                    return handle, _attributes(message[_TCMSG.size :])[TCA_KIND].tobytes().rstrip(b"\0").decode()
        return 0, "none"

    def class_counters(self, interface: int) -> ClassCounters:
        """Return the counters of all classes of an interface."""
        datagrams = self._dump(RTM_GETTCLASS, tc_message(interface, 0, 0))
        blocks = [block for datagram in datagrams for block in self._counter_blocks(datagram)]
        columns = np.concatenate([np.empty((5, 0), dtype=np.int64), *blocks], axis=1)
        return ClassCounters(*columns)

    def _dump(self, kind: int, body: bytes) -> Iterator[memoryview]:
        """Yield the datagrams of the reply to a dump request. Raises OSError, also for an error in the middle.

        The end of a dump is a message of its own, with 0 or an error number, or the last message of a datagram.
        """
        self._sequence = (self._sequence + 1) % 2**32
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, REQUEST | DUMP, self._sequence, 0) + body)
        while True:
            answer = memoryview(self._socket.recv(_ANSWER_BYTES))
            _, first, _, _, _ = _HEADER.unpack_from(answer)
            end = _DONE.unpack_from(answer, max(len(answer) - _DONE.size, 0))
            is_last = end[:2] == (_DONE.size, _NLMSG_DONE) and end[3] == self._sequence
            if first in (_NLMSG_DONE, _NLMSG_ERROR) or is_last:
                number = -(end[5] if is_last else struct.unpack_from("=i", answer, _HEADER.size)[0])
                if number:
                    raise OSError(number, f"rtnetlink: {os.strerror(number)}")
                if first not in (_NLMSG_DONE, _NLMSG_ERROR):
                    yield answer
                return
            yield answer

    def _counter_blocks(self, datagram: memoryview) -> Iterator[NDArray[np.int64]]:
        """Yield the counters in a datagram as blocks (5, classes), in the order of ClassCounters' columns.

        Successive messages of equal length have the same layout, and become one block without a loop over classes.
        """
        offset = 0
        while offset + _HEADER.size <= len(datagram):
            length, kind = struct.unpack_from("=IH", datagram, offset)
            if kind != RTM_NEWTCLASS or length < _HEADER.size + _TCMSG.size:
                return
            # Regard the rest as rows of this length; those up to the first other length are messages.
            rows = np.frombuffer(datagram[offset:], dtype=np.uint8)
            rows = rows[: len(rows) // length * length].reshape(-1, length)
            has_same_length = rows[:, :4].copy().view("=u4")[:, 0] == length
            # argmin finds the first row of another length.
            count = len(has_same_length) if has_same_length.all() else int(np.argmin(has_same_length))
            rows = rows[:count]
            if length not in self._layouts:
                self._layouts[length] = _counter_offsets(datagram[offset : offset + length])
            basic, queue = self._layouts[length]
            # Offsets in struct tcmsg (handle: 8), gnet_stats_basic (bytes: 0, packets: 8) and gnet_stats_queue.
            handle = _uint32_column(rows, _HEADER.size + 8)
            octets = rows[:, basic : basic + 8].copy().view("=i8")[:, 0]
            packets = _uint32_column(rows, basic + 8)
            dropped, backlog = _uint32_column(rows, queue + 8), _uint32_column(rows, queue + 4)
            yield np.stack([handle & 0xFFFF, octets, packets, dropped, backlog])
            offset += count * length


def _uint32_column(rows: NDArray[np.uint8], offset: int) -> NDArray[np.int64]:
    """Return the 32-bit number at an offset of each row (rows, bytes)."""
    return rows[:, offset : offset + 4].copy().view("=u4")[:, 0].astype(np.int64)


def _counter_offsets(message: memoryview) -> tuple[int, int]:
    """Return the offsets of struct gnet_stats_basic and struct gnet_stats_queue in a message about a class."""
    outer = dict(_attribute_ranges(message, _HEADER.size + _TCMSG.size, len(message)))
    start, end = outer[TCA_STATS2]
    inner = dict(_attribute_ranges(message, start, end))
    return inner[_TCA_STATS_BASIC][0], inner[_TCA_STATS_QUEUE][0]


def _attribute_ranges(message: memoryview, start: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield (type, (start, end) of the value) of each attribute between two offsets of a message."""
    while start + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(message, start)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, (start + _ATTRIBUTE.size, start + length)
        start += length + (-length % 4)


def _attributes(data: memoryview) -> dict[int, memoryview]:
    """Return the values of attributes by type."""
    return {kind: data[start:end] for kind, (start, end) in _attribute_ranges(data, 0, len(data))}


def _messages(datagram: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (type, sequence number, body) of each message in a datagram."""
    offset = 0
    while offset + _HEADER.size <= len(datagram):
        length, kind, _, sequence, _ = _HEADER.unpack_from(datagram, offset)
        if length < _HEADER.size:
            return
        yield kind, sequence, datagram[offset + _HEADER.size : offset + length]
        offset += length + (-length % 4)


def _kernel_text(error: memoryview) -> str:
    """Return the kernel's text in the body of an error message, as `` (TEXT)``; "" without a text."""
    text = _attributes(error[4 + _HEADER.size :]).get(1)  # NLMSGERR_ATTR_MSG, behind the header of the request
    return "" if text is None else f" ({text.tobytes().rstrip(bytes(1)).decode(errors='replace')})"
