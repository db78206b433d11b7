"""The end of a dump: in a datagram of its own, or behind the last classes; and its errors."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from apps.agent.netlink import RTM_NEWTCLASS, TCA_KIND, TCA_STATS2, Netlink, attribute, tc_message

DONE, ERROR, MULTI = 3, 2, 2
MINOR = 0x3001


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, MULTI, 1, 0) + body


def done(number: int = 0) -> bytes:
    return message(DONE, struct.pack("=i", -number))


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

    def reply(self, *datagrams: bytes) -> list[int]:
        """Let a dump have this reply; return the classes that were read."""
        for datagram in datagrams:
            self._socket.send(datagram)
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
        (message(ERROR, struct.pack("=i", -errno.ENODEV) + bytes(16)),),
        (class_of(MINOR), done(errno.ENODEV)),
        (class_of(MINOR) + done(errno.ENODEV),),
    ],
)
def test_an_error_of_a_dump_is_no_end(kernel: Kernel, end: tuple[bytes, ...]) -> None:
    with pytest.raises(OSError, match=f"rtnetlink: {os.strerror(errno.ENODEV)}"):
        kernel.reply(*end)


def test_a_dump_without_classes_has_none(kernel: Kernel) -> None:
    assert kernel.reply(done()) == []
