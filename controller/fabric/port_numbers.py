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
        # By dpid: the number on the switch by the number inside the controller.
        self._numbers: defaultdict[int, dict[int, int]] = defaultdict(dict)

    def inherit(self, before: PortNumbers) -> None:
        """Take over the numbers of ``before``."""
        for dpid, numbers in before._numbers.items():
            self._numbers[dpid] = dict(numbers)

    def bind(self, port: PortId, number: int | None) -> None:
        """Set the number of a port by name, or None. The previous holder of the number must have lost it."""
        self._numbers[port.dpid].pop(port.port_no, None)
        if number is not None:
            self._numbers[port.dpid][port.port_no] = number

    def bound(self, dpid: int) -> dict[int, int]:
        """Return the numbers on a switch of its bound ports by name, by their number inside the controller."""
        return dict(self._numbers.get(dpid, {}))

    def number(self, port: PortId) -> int:
        """Return the switch's number of a port; an unbound port by name returns a number that no switch uses."""
        return self._numbers.get(port.dpid, {}).get(port.port_no, port.port_no)

    def on_switch(self, dpid: int, port: EdgePort) -> EdgePort:
        """Return a port with the switch's number."""
        number = self.number(PortId(dpid, port.port_no))
        return port if number == port.port_no else replace(port, port_no=number)

    def port(self, dpid: int, number: int) -> PortId:
        """Return the port with this number on a switch."""
        bound = self._numbers.get(dpid, {}).items()
        return PortId(dpid, next((port_no for port_no, switch_no in bound if switch_no == number), number))

    def numbers(self, dpid: int, port_no: IntArray) -> IntArray:
        """Return the switch's numbers of several ports, as ``number`` does for one."""
        numbers = port_no
        for named_port, number in self._numbers.get(dpid, {}).items():
            numbers = numbers.copy() if numbers is port_no else numbers
            numbers[port_no == named_port] = number
        return numbers

    def ports(self, dpid: int, number: IntArray) -> IntArray:
        """Return the ports with these numbers on a switch, as ``port`` does for one."""
        ports = number
        for named_port, switch_no in self._numbers.get(dpid, {}).items():
            ports = ports.copy() if ports is number else ports
            ports[number == switch_no] = named_port
        return ports


def is_nowhere(number: int | None) -> bool:
    """Return whether a number is one that unbound ports by name have: no switch uses it."""
    return number is not None and FIRST_NAMED <= number <= LAST_NAMED
