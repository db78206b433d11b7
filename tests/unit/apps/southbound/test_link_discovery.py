"""Links are found by the probes of this process alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import support.framework  # noqa: F401

from apps.southbound.link_discovery import LinkDiscovery
from controller.fabric.topology import PortId
from controller.openflow import lldp


def test_a_probe_signed_with_another_key_makes_no_link() -> None:
    found: list[tuple[PortId, PortId]] = []
    central: Any = SimpleNamespace(network=SimpleNamespace(topology=SimpleNamespace(is_linked=lambda port: True)))
    central.on_discovery_frame = lambda sender, receiver, now_s: found.append((sender, receiver))
    peers: Any = SimpleNamespace(central=central, clock=lambda: 5.0)
    discovery = LinkDiscovery(peers, lambda: None)
    for key, port_no in ((b"of another controller", 8), (discovery.key, 9)):
        packet: Any = SimpleNamespace(data=lldp.build(1, port_no, lldp.authenticator(key, 1, port_no)), in_port=7)
        discovery.on_packet_in(2, packet)
    assert found == [(PortId(1, 9), PortId(2, 7))]
