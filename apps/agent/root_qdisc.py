"""The root qdisc of an agent's interface; removing it removes all of the agent's settings."""

from __future__ import annotations

import socket

from apps.agent.netlink import RTM_DELQDISC, TC_H_ROOT, Netlink, Request, tc_message
from controller.errors import InvalidValueError

MAJOR = 0xDE75
DIRECT_PRIORITY = MAJOR << 16
"""SO_PRIORITY of frames that go around all classes: the agent's own."""


def claim_root(netlink: Netlink, interface: str, *, replace: bool) -> int:
    """Return the index of an interface whose root qdisc an agent may set, after removing another agent's remains.

    Raises InvalidValueError if another program has set a root, unless ``replace``.
    """
    try:
        index = socket.if_nametoindex(interface)
    except OSError as error:
        raise InvalidValueError("interface", interface, "is not an interface of this host") from error
    handle, kind = netlink.root_qdisc(index)
    if handle and handle != MAJOR << 16:
        if not replace:
            found = f"has the root qdisc {kind} {handle >> 16:x}:, which another program has set"
            raise InvalidValueError("interface", interface, f"{found}; --replace-qdisc replaces it")
        netlink.change([_delete_root(index)])
    restore_root(netlink, index)
    return index


def restore_root(netlink: Netlink, index: int) -> None:
    """Remove an agent's root from an interface: the kernel's default is restored."""
    if netlink.root_qdisc(index)[0] == MAJOR << 16:
        netlink.change([_delete_root(index)])


def _delete_root(index: int) -> Request:
    """Return the request that deletes an interface's root qdisc."""
    return Request(RTM_DELQDISC, 0, tc_message(index, 0, TC_H_ROOT))
