"""Port-status messages of a switch that is being brought up: how many ports a switch may have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import support.framework  # noqa: F401

from apps.runtime.connection.connection_limits import MAX_PORTS, EvictionReason
from apps.southbound.async_messages import AsyncMessageHandler
from controller.openflow.constants import PortReason
from controller.openflow.messages import PortStatus
from controller.openflow.multipart import PortDesc


def port(number: int) -> PortDesc:
    return PortDesc(number, f"eth{number}", hw_addr=number, config=0, state=0, curr_speed_kbps=0, max_speed_kbps=0)


def test_all_ports_of_the_largest_switch_may_change_while_it_comes_up_and_one_more_is_too_many() -> None:
    cut_off: list[EvictionReason] = []
    ports = {number: port(number) for number in range(1, MAX_PORTS + 1)}
    connection = SimpleNamespace(dpid=1, disconnect=cut_off.append)
    peer: Any = SimpleNamespace(connection=connection, ports=ports, early_port_status={})
    peers: Any = SimpleNamespace(
        central=SimpleNamespace(switches={1: SimpleNamespace(connected=False)}), clock=lambda: 0.0
    )
    nothing: Any = SimpleNamespace()
    handler = AsyncMessageHandler(peers, nothing, nothing, nothing, lambda: None, lambda dpid: None)
    for reason in (PortReason.MODIFY, PortReason.DELETE, PortReason.ADD):
        for one in ports.values():
            handler._port_changed(peer, PortStatus(reason, one))
    assert (cut_off, len(peer.early_port_status)) == ([], MAX_PORTS)
    peer.early_port_status = {1: peer.early_port_status[1]}
    handler._port_changed(peer, PortStatus(PortReason.ADD, port(MAX_PORTS + 1)))
    assert (cut_off, len(peer.early_port_status)) == ([EvictionReason.PORTS], 1)
