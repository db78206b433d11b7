"""The present numbers, on their switches, of edge ports that are configured by name.

Inside the controller such a port has a fixed number, derived from its name and used on no switch: VNs, limits, hosts
and meters stay with it when the switch renumbers the port. Flow entries and messages have the switch's numbers. A port
without such a number has no flow entries.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from controller.columns import IntArray
from controller.fabric.config_model import FIRST_NAMED, LAST_NAMED, EdgePort
from controller.fabric.topology import PortId


class PortNumbers:
    """The numbers of ports by name, by dpid; all other ports keep their configured number."""

    def __init__(self) -> None:
        self._of: defaultdict[int, dict[int, int]] = defaultdict(dict)

    def inherit(self, before: PortNumbers) -> None:
        """Take over the numbers of ``before``."""
        for dpid, numbers in before._of.items():
            self._of[dpid] = dict(numbers)

    def bind(self, port: PortId, number: int | None) -> None:
        """Set the number of a port by name, or None. The previous holder of the number must have lost it."""
        self._of[port.dpid].pop(port.port_no, None)
        if number is not None:
            self._of[port.dpid][port.port_no] = number

    def bound(self, dpid: int) -> dict[int, int]:
        """Return the ports by name with a number on a switch, and that number."""
        return dict(self._of.get(dpid, {}))

    def number(self, port: PortId) -> int:
        """Return the switch's number of a port; an unbound port by name returns a number that no switch uses."""
        return self._of.get(port.dpid, {}).get(port.port_no, port.port_no)

    def on_switch(self, dpid: int, port: EdgePort) -> EdgePort:
        """Return a port with the switch's number."""
        number = self.number(PortId(dpid, port.port_no))
        return port if number == port.port_no else replace(port, port_no=number)

    def port(self, dpid: int, number: int) -> PortId:
        """Return the port with this number on a switch."""
        named = self._of.get(dpid, {}).items()
        return PortId(dpid, next((port_no for port_no, its in named if its == number), number))

    def numbers(self, dpid: int, port_no: IntArray) -> IntArray:
        """Return the switch's numbers of several ports, as ``number`` does for one."""
        found = port_no
        for one, number in self._of.get(dpid, {}).items():
            found = found.copy() if found is port_no else found
            found[port_no == one] = number
        return found

    def ports(self, dpid: int, number: IntArray) -> IntArray:
        """Return the ports with these numbers on a switch, as ``port`` does for one."""
        found = number
        for one, its in self._of.get(dpid, {}).items():
            found = found.copy() if found is number else found
            found[number == its] = one
        return found


def is_nowhere(number: int | None) -> bool:
    """Return whether a number is that of an unbound port by name."""
    return number is not None and FIRST_NAMED <= number <= LAST_NAMED
