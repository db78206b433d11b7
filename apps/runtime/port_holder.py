"""Finds the process that listens on a TCP port, from Linux's ``/proc`` (proc(5))."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from controller.printable import printable

_LISTEN = "0A"  # TCP_LISTEN in the column "st"
_CONTROLLER = b"apps.runtime.launcher"


def port_holder(host: str, port: int, proc: Path = Path("/proc")) -> str:
    """Return, as a text for people, the process that listens on an address that conflicts with ``host:port``.

    The text names the process, or its user id if the process is another user's. It is "another program" if ``/proc``
    does not list the socket.
    """
    user_of = dict(_listening(host, port, proc / "net"))
    for folder in proc.glob("[0-9]*/fd") if user_of else ():
        with suppress(OSError):  # another user's process, or one that has ended
            if any(os.readlink(link) in user_of for link in folder.iterdir()):
                return f"{_name(folder.parent)} (process {folder.parent.name})"
    users = sorted(set(user_of.values()))
    return f"a process of user {', '.join(users)}" if users else "another program"


def _listening(host: str, port: int, net: Path) -> Iterator[tuple[str, str]]:
    """Yield (link target in /proc/PID/fd, user id) of each socket that listens at an address in conflict with ``host``.

    Addresses conflict if they are equal, or if one of them is the wildcard address.
    """
    own_address = ip_address(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (net / table).read_text(encoding="ascii").splitlines()[1:]:
                columns = line.split()  # 1: local address and port, 3: state, 7: user id, 9: inode of the socket
                address, _, hex_port = columns[1].partition(":")
                if columns[3] != _LISTEN or int(hex_port, 16) != port:
                    continue
                # The address is in words of 32 bits, 8 hexadecimal digits each, in the machine's byte order.
                words = [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
                used_address = ip_address(struct.pack(f"={len(words)}I", *words))
                if isinstance(used_address, IPv6Address):
                    used_address = used_address.ipv4_mapped or used_address
                if used_address == own_address or used_address.is_unspecified or own_address.is_unspecified:
                    yield f"socket:[{columns[9]}]", columns[7]


def _name(process: Path) -> str:
    """Return a process's name for people; ``process`` is its folder in ``/proc``."""
    if _CONTROLLER in (process / "cmdline").read_bytes().split(b"\0"):
        return "another DETS controller"
    return printable((process / "comm").read_text(encoding="utf-8", errors="replace").strip())
