"""The fabric tier: real Open vSwitch in network namespaces. Skipped, loudly, where that cannot be."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from experiments.ovs.fabric import OvsFabric, OvsOptions
from experiments.ovs.ovs_vsctl import OvsError, vsctl
from topologies.builders import fig1

PROGRAMS = {"ovs-vsctl": "openvswitch-switch", "mnexec": "mininet", "tc": "iproute2"}
HERE = Path(__file__).parent
CONNECT = "import socket; socket.create_connection(('{}', 7), timeout={}); print('connected')"
SERVE = "import socket; s = socket.create_server(('', 7)); print('listening', flush=True); s.accept()"


def why_not() -> str | None:
    """Return what keeps this machine from running the fabric tier."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        return f"needs Debian's {', '.join(missing)}"
    try:
        vsctl("get", "Open_vSwitch", ".", "_uuid")
    except OvsError as error:
        return f"needs a running Open vSwitch: {error}"
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items = [item for item in items if item.path.parent == HERE]
    reason = why_not() if items else None
    for item in items:
        item.add_marker(pytest.mark.fabric)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"FABRIC TIER SKIPPED: {reason}"))


@pytest.fixture(scope="module")
def three_pns() -> Iterator[OvsFabric]:
    """Figure 1 with three PNs and 100 Mb/s links, switches forwarding by themselves, no queues on edge ports."""
    with OvsFabric(fig1(pns=3), OvsOptions()) as fabric:
        yield fabric


@pytest.fixture
def can_connect() -> Callable[..., bool]:
    """Return a function that tells whether a VN, by name, can open a TCP connection to another one."""
    return _can_connect


def _can_connect(fabric: OvsFabric, sender: str, receiver: str, timeout_s: float = 3) -> bool:
    vn = next(vn for vn in fabric.fabric.vns() if vn.name == receiver)
    server = fabric.host(receiver).popen(["timeout", "20", sys.executable, "-c", SERVE])
    try:
        assert server.stdout.readline() == b"listening\n"
        client = fabric.host(sender).popen([sys.executable, "-c", CONNECT.format(vn.ip, timeout_s)])
        output, _ = client.communicate(timeout=20)
        return bool(output == b"connected\n")
    finally:
        server.terminate()
        server.communicate(timeout=5)
