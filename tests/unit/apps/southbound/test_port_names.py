"""The names of a switch's ports: which former ports to other switches are other ports now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from apps.southbound.edge_ports import EdgePorts


def test_former_links_are_ports_of_the_switch_with_another_name_or_none() -> None:
    switch = SimpleNamespace(name="s1", ports={1: None})
    central = SimpleNamespace(
        fabric=SimpleNamespace(switch_name={1: "s1", 2: "s2"}.get), switches={1: SimpleNamespace(switch=switch)}
    )
    peers: Any = SimpleNamespace(central=central)
    edge_ports = EdgePorts(peers)
    edge_ports.restore({("s1", 1): "eth1", ("s1", 7): "eth7", ("s1", 8): "eth8", ("s1", 9): "eth9", ("s2", 6): "eth6"})
    names = {1: "eth0", 8: "eth88", 9: "eth9"}
    peer: Any = SimpleNamespace(
        connection=SimpleNamespace(dpid=1),
        ports={port_no: SimpleNamespace(name=name) for port_no, name in names.items()},
    )
    assert edge_ports.former_links(peer) == {7, 8}
