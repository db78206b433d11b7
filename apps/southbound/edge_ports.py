"""Identity of edge ports: the names that switches report, compared with the expected or the first names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from controller.switch.port_states import port_states

if TYPE_CHECKING:  # these need the framework, names do not
    from apps.southbound.connected_switches import ConnectedSwitch, ConnectedSwitches

PortName = tuple[str, int]
"""A port of the configuration: switch and number."""


class EdgePorts:
    """Checks whether each switch's edge ports are the intended ones.

    A port is the intended one while the switch reports the interface name that the port had first. ``names`` are these
    first names. ``changed`` are the ones that are not stored yet.
    """

    def __init__(self, peers: ConnectedSwitches) -> None:
        self._peers = peers
        self.names: dict[PortName, str] = {}
        self.changed: dict[PortName, str] = {}
        self._touched: dict[ConnectedSwitch, None] = {}

    def restore(self, names: Mapping[PortName, str]) -> None:
        """Restore the stored names. Names that are not stored yet stay."""
        self.names |= {**names, **self.changed}

    def encode(self, dpid: int) -> dict[str, str]:
        """Return the names of a switch's edge ports by port number (as text), for another node's ``import_names``."""
        switch = self._peers.central.switches[dpid].switch
        names = {str(port_no): self.names.get((switch.name, port_no)) for port_no in switch.ports}
        return {port_no: name for port_no, name in names.items() if name is not None}

    def import_names(self, dpid: int, names: Mapping[str, str]) -> None:
        """Import the names from the switch's previous owner."""
        switch = self._peers.central.switches[dpid].switch
        for port_no in switch.ports:
            name = names.get(str(port_no))
            if isinstance(name, str):
                self.names[switch.name, port_no] = name

    def drain_changed(self) -> dict[PortName, str]:
        """Return the names to store, and clear them."""
        changed, self.changed = self.changed, {}
        return changed

    def note_links(self) -> None:
        """Record the names of ports to other switches.

        If a switch reconnects with a different port of such a number, ``former_links`` finds the number.
        """
        central = self._peers.central
        for dpid, peer in self._peers.ready().items():
            name = central.switches[dpid].switch.name
            for port_no in central.network.topology.fabric_ports(dpid) & peer.ports.keys():
                if self.names.get((name, port_no)) != peer.ports[port_no].name:
                    self.names[name, port_no] = self.changed[name, port_no] = peer.ports[port_no].name

    def former_links(self, peer: ConnectedSwitch) -> set[int]:
        """Return the numbers of a switch's former link ports that now belong to a port with another name, or to none.

        Numbers of edge ports are left out.
        """
        central, dpid = self._peers.central, peer.connection.dpid
        switch_name, edge_ports = central.fabric.switch_name(dpid), central.switches[dpid].switch.ports
        first_names = {port_no: name for (switch, port_no), name in self.names.items() if switch == switch_name}
        names_now = {port_no: port.name for port_no, port in peer.ports.items()}
        return {
            port_no
            for port_no, name in first_names.items()
            if names_now.get(port_no) != name and port_no not in edge_ports
        }

    def touch(self, peer: ConnectedSwitch) -> None:
        """Record that a port of a switch has changed; ``check_touched`` checks its edge ports before the next push.

        A switch may report thousands of ports at once, and each check reads all of them.
        """
        self._touched[peer] = None

    def check_touched(self) -> None:
        """Check the edge ports of the switches with changed ports."""
        touched, self._touched = self._touched, {}
        for peer in touched:
            if self._peers.is_current(peer) and peer.connection.dpid in self._peers.central.switches:
                self.check(peer)

    def check(self, peer: ConnectedSwitch) -> None:
        """Check a configured switch's edge ports, record new names, and pass the ports' states to the controller.

        Call it after the switch's ports, or the configuration, changed. Only ports that the configuration gives by
        number have a first name; others are given by their interface name.
        """
        central, dpid = self._peers.central, peer.connection.dpid
        switch = central.switches[dpid].switch
        first_names = {port_no: name for port_no in switch.ports if (name := self.names.get((switch.name, port_no)))}
        states = port_states(switch, peer.ports, first_names)  # with a ``fence`` if a port is not the intended one
        for port_no, state in states.items():
            is_by_number = switch.ports[port_no].interface is None
            if is_by_number and not state.fence and state.name and state.name != first_names.get(port_no):
                self.names[switch.name, port_no] = self.changed[switch.name, port_no] = state.name
        central.ports_known(dpid, states, self._peers.clock())
