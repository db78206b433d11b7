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
    """Return as text who listens on an address that conflicts with ``host:port``.

    It is the process if that can be read, otherwise the user; "another program" if ``/proc`` does not tell.
    """
    found = dict(_listening(host, port, proc / "net"))
    for folder in proc.glob("[0-9]*/fd") if found else ():
        with suppress(OSError):  # of another user, or ended
            if any(os.readlink(link) in found for link in folder.iterdir()):
                return f"{_name(folder.parent)} (process {folder.parent.name})"
    users = sorted(set(found.values()))
    return f"a process of user {', '.join(users)}" if users else "another program"


def _listening(host: str, port: int, net: Path) -> Iterator[tuple[str, str]]:
    """Yield the link name and the user of each socket that listens on ``port`` at an address that matches ``host``."""
    wanted = ip_address(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (net / table).read_text(encoding="ascii").splitlines()[1:]:
                columns = line.split()
                address, _, hex_port = columns[1].partition(":")
                if columns[3] != _LISTEN or int(hex_port, 16) != port:
                    continue
                words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
                held = ip_address(struct.pack(f"={len(words)}I", *words))
                if isinstance(held, IPv6Address):
                    held = held.ipv4_mapped or held
                if held == wanted or held.is_unspecified or wanted.is_unspecified:
                    yield f"socket:[{columns[9]}]", columns[7]


def _name(process: Path) -> str:
    if _CONTROLLER in (process / "cmdline").read_bytes().split(b"\0"):
        return "another DETS controller"
    return printable((process / "comm").read_text(encoding="utf-8", errors="replace").strip())
