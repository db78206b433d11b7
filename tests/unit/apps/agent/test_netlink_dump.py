"""The end of a dump: in a datagram of its own, or behind the last classes; and the errors of dumps and changes."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from apps.agent.netlink import RTM_NEWTCLASS, TCA_KIND, TCA_STATS2, Netlink, Request, attribute, tc_message

DONE, ERROR, MULTI = 3, 2, 2
MINOR = 0x3001


def message(kind: int, body: bytes, sequence: int = 1) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, MULTI, sequence, 0) + body


def result(number: int, sequence: int = 1) -> bytes:
    return message(ERROR, struct.pack("=i", -number) + bytes(16), sequence)


def done(number: int = 0, sequence: int = 1) -> bytes:
    return message(DONE, struct.pack("=i", -number), sequence)


def class_of(minor: int) -> bytes:
    basic, queue = struct.pack("=QIxxxx", 3000, 3), bytes(20)
    counters = attribute(TCA_STATS2, attribute(1, basic) + attribute(3, queue))
    return message(RTM_NEWTCLASS, tc_message(1, minor, 0) + attribute(TCA_KIND, b"htb\0") + counters)


class Kernel:
    """The other end of an agent's rtnetlink socket."""

    def __init__(self) -> None:
        self._socket, agents_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        agents_end.settimeout(1.0)  # where the kernel's would wait for ever
        self.netlink = Netlink()
        self.netlink.close()
        self.netlink._socket = agents_end

    def send(self, *datagrams: bytes) -> None:
        for datagram in datagrams:
            self._socket.send(datagram)

    def reply(self, *datagrams: bytes) -> list[int]:
        """Let a dump have this reply; return the classes that were read."""
        self.send(*datagrams)
        return self.netlink.class_counters(1).minor.tolist()

    def close(self) -> None:
        self._socket.close()
        self.netlink.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    one = Kernel()
    yield one
    one.close()


@pytest.mark.parametrize("end", [(class_of(MINOR) + done(),), (class_of(MINOR), done())])
def test_a_dump_ends_wherever_its_end_stands(kernel: Kernel, end: tuple[bytes, ...]) -> None:
    assert kernel.reply(class_of(MINOR - 1), *end) == [MINOR - 1, MINOR]


@pytest.mark.parametrize(
    "end",
    [
        (result(errno.ENODEV),),
        (class_of(MINOR), done(errno.ENODEV)),
        (class_of(MINOR) + done(errno.ENODEV),),
    ],
)
def test_an_error_of_a_dump_is_no_end(kernel: Kernel, end: tuple[bytes, ...]) -> None:
    with pytest.raises(OSError, match=f"rtnetlink: {os.strerror(errno.ENODEV)}"):
        kernel.reply(*end)


def test_a_dump_without_classes_has_none(kernel: Kernel) -> None:
    assert kernel.reply(done()) == []


@pytest.mark.parametrize("last", [0, errno.ENODEV])
def test_the_first_rejection_of_a_change_is_raised_when_all_were_tried(kernel: Kernel, last: int) -> None:
    kernel.send(result(errno.ENOENT, 2) + result(errno.EINVAL, 3), result(last, 4))
    with pytest.raises(OSError, match=f"rtnetlink: {os.strerror(errno.ENOENT)}"):
        kernel.netlink.change([Request(RTM_NEWTCLASS, 0, b"")] * 4)
    assert kernel.reply(done(sequence=5)) == []  # the change's replies have been read
