"""Buffers of the packet sockets through which Open vSwitch's userspace datapath reads its ports.

ovs-vswitchd opens one socket per port when the port is added, with the kernel's default receive buffer: 208 kB, some 90
full frames or 12 ms of 90 Mb/s. Whenever another process keeps ovs-vswitchd from the processor for longer, frames of
every VLAN are lost there, outside of all queues and meters; a real switch does not lose them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

RECEIVE_BUFFER_BYTES = 8 << 20
MIN_SEND_BUFFER_BYTES = 8 << 20  # one socket carries all classes of all ports
ORDINARY_NICENESS = 0
_CORE = Path("/proc/sys/net/core")


@contextlib.contextmanager
def large_receive_buffers() -> Iterator[None]:
    """Inside, new sockets get at least ``RECEIVE_BUFFER_BYTES`` to receive in; afterwards the default is as before.

    The default is the machine's, not the namespace's. So it is changed only while ports are being added, and not at all
    if it is large enough (``scripts/ovs tune``): processes in another network may not change it.
    """
    setting = _CORE / "rmem_default"
    before = setting.read_text()
    if int(before) >= RECEIVE_BUFFER_BYTES:
        yield
        return
    setting.write_text(str(RECEIVE_BUFFER_BYTES))
    try:
        yield
    finally:
        setting.write_text(before)


def vswitchd_warnings() -> list[str]:
    """Return the reasons why a busy userspace datapath loses frames on this machine, with remedies."""
    warnings = []
    send_bytes = int((_CORE / "wmem_default").read_text())
    if send_bytes < MIN_SEND_BUFFER_BYTES:
        warnings.append(
            f"net.core.wmem_default is {send_bytes} bytes: one full queue of a port then stops its other queues. "
            "Set net.core.wmem_default=33554432 and net.core.wmem_max=67108864 and restart Open vSwitch"
        )
    niceness = _niceness_of_vswitchd()
    if niceness is not None and niceness >= ORDINARY_NICENESS:
        warnings.append(
            f"ovs-vswitchd runs with niceness {niceness}: other work on this machine delays its frames. "
            "Debian's service starts it with -10"
        )
    return warnings


def _niceness_of_vswitchd() -> int | None:
    """Return the niceness of ovs-vswitchd; None if it does not run here."""
    folder = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch"))
    try:
        return os.getpriority(os.PRIO_PROCESS, int((folder / "ovs-vswitchd.pid").read_text()))
    except (OSError, ValueError):
        return None
