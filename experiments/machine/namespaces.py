"""Network namespaces for processes of one experiment: a bridge, a veth pair to each namespace, nft cuts (root)."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self

from controller.errors import InvalidValueError

PROCESSES = 60_000  # processes with their own networks, from 10.200.0.0 to 10.214.255.255
FIRST_ADDRESS, HOST_BITS = IPv4Address("10.200.0.0"), 4
# Of the addresses of a network, the first and the last one are reserved, and one is this machine's.
PREFIX_BITS, MAX_HOSTS = 32 - HOST_BITS, (1 << HOST_BITS) - 3
_TABLE = "inet cut"


class Namespaces:
    """``count`` namespaces for one ``with``, numbered from 0. ``host`` is this machine's address for them.

    ``more_hosts`` are ``more`` addresses of this machine, for processes that are to be cut off one by one.

    Names and network depend on this process's id, so that several experiments may run at the same time. Raises
    InvalidValueError for more than MAX_HOSTS of both, OSError without root, and subprocess.CalledProcessError if ip or
    nft fail.
    """

    def __init__(self, count: int, more: int = 0) -> None:
        if count + more > MAX_HOSTS:
            raise InvalidValueError("count", count + more, f"is above {MAX_HOSTS}, more hosts included")
        self._id = os.getpid() % PROCESSES
        self._names = [f"dets-{self._id}-{number}" for number in range(count)]
        addresses = [str(FIRST_ADDRESS + (self._id << HOST_BITS) + number) for number in range(1, count + more + 2)]
        self.host, self.hosts, self.more_hosts = addresses[0], addresses[1 : count + 1], addresses[count + 1 :]

    def __enter__(self) -> Self:
        bridge = self._bridge
        # This fails if the name exists: a foreign bridge must not be removed.
        _run("ip", "link", "add", bridge, "type", "bridge")
        try:
            for host in (self.host, *self.more_hosts):
                _run("ip", "addr", "add", f"{host}/{PREFIX_BITS}", "dev", bridge)
            _run("ip", "link", "set", bridge, "up")
            for number, (name, host) in enumerate(zip(self._names, self.hosts, strict=True)):
                outer = self._outer(number)
                _run("ip", "netns", "add", name)
                _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
                _run("ip", "link", "set", outer, "master", bridge, "up")
                _run("ip", "-n", name, "addr", "add", f"{host}/{PREFIX_BITS}", "dev", "eth0")
                for device in ("lo", "eth0"):
                    _run("ip", "-n", name, "link", "set", device, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for name in self._names:
            with suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "del", name)
        with suppress(subprocess.CalledProcessError):
            _run("ip", "link", "del", self._bridge)

    def command(self, number: int) -> tuple[str, ...]:
        """Return the beginning of a command that runs in a namespace; its process keeps the id."""
        return ("ip", "netns", "exec", self._names[number])

    @contextmanager
    def inside(self, number: int) -> Iterator[None]:
        """Let this thread open sockets in a namespace."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(Path("/run/netns") / self._names[number])
            yield
        finally:
            _set_namespace(own)
            os.close(own)

    def cut(self, number: int, incoming: str = "", outgoing: str = "") -> None:
        """Drop packets that match, until ``heal``: nft's conditions, such as ``tcp dport 2379``; "" drops none."""
        rules = [f"add table {_TABLE}"]
        for hook, condition in (("input", incoming), ("output", outgoing)):
            if condition:
                rules.append(f"add chain {_TABLE} {hook} {{ type filter hook {hook} priority 0; }}")
                rules.append(f"add rule {_TABLE} {hook} {condition} drop")
        _run(*self.command(number), "nft", "-f", "-", text="\n".join(rules))

    def heal(self, number: int) -> None:
        """Let all packets pass again."""
        _run(*self.command(number), "nft", "delete", "table", *_TABLE.split())

    def link(self, number: int, up: bool) -> None:
        """Set a namespace's only link up or down, as if its cable were pulled."""
        _run("ip", "link", "set", self._outer(number), "up" if up else "down")

    @property
    def _bridge(self) -> str:
        return f"dets{self._id}"

    def _outer(self, number: int) -> str:
        """Return the name of the end of a namespace's veth pair that is outside."""
        return f"dets{self._id}v{number}"


def _enter(path: Path) -> None:
    """Move this thread into the network namespace of a path."""
    namespace = os.open(path, os.O_RDONLY)
    try:
        _set_namespace(namespace)
    finally:
        os.close(namespace)


def _set_namespace(namespace: int) -> None:
    """Call setns(2), which Python has from 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns(2) failed")


def _run(*words: str, text: str | None = None) -> None:
    """Run a command with ``text`` as its input; CalledProcessError if it fails."""
    subprocess.run(words, check=True, capture_output=True, timeout=10, input=text, text=True)
