"""Port-status messages of a switch that is being brought up: how many ports a switch may have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import support.framework  # noqa: F401

from apps.runtime.connection.connection_limits import MAX_PORTS, EvictionReason
from apps.southbound.async_messages import AsyncMessageHandler
from controller.openflow.constants import PortReason
from controller.openflow.messages import PortStatus
from controller.openflow.multipart import PortDesc


@pytest.fixture
def cut_off() -> list[EvictionReason]:
    return []


@pytest.fixture
def peer(cut_off: list[EvictionReason]) -> Any:
    """A switch that is being brought up, with as many ports as a switch may have."""
    connection = SimpleNamespace(dpid=1, disconnect=cut_off.append)
    ports = {number: port(number) for number in range(1, MAX_PORTS + 1)}
    return SimpleNamespace(connection=connection, ports=ports, early_port_status={})


@pytest.fixture
def handler() -> AsyncMessageHandler:
    central = SimpleNamespace(switches={1: SimpleNamespace(connected=False)})
    peers: Any = SimpleNamespace(central=central, clock=lambda: 0.0)
    nothing: Any = SimpleNamespace()
    return AsyncMessageHandler(peers, nothing, nothing, nothing, lambda: None, lambda dpid: None)


def port(number: int) -> PortDesc:
    return PortDesc(number, f"eth{number}", hw_addr=number, config=0, state=0, curr_speed_kbps=0, max_speed_kbps=0)


def test_all_ports_of_the_largest_switch_may_change_while_it_comes_up(
    handler: AsyncMessageHandler, peer: Any, cut_off: list[EvictionReason]
) -> None:
    for reason in (PortReason.MODIFY, PortReason.DELETE, PortReason.ADD):
        for number in range(1, MAX_PORTS + 1):
            handler._port_changed(peer, PortStatus(reason, port(number)))
    assert (cut_off, len(peer.early_port_status)) == ([], MAX_PORTS)


def test_one_port_more_is_too_many(handler: AsyncMessageHandler, peer: Any, cut_off: list[EvictionReason]) -> None:
    handler._port_changed(peer, PortStatus(PortReason.MODIFY, port(1)))
    handler._port_changed(peer, PortStatus(PortReason.ADD, port(MAX_PORTS + 1)))
    assert (cut_off, len(peer.early_port_status)) == ([EvictionReason.PORTS], 1)
