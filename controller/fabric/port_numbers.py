"""Which numbers edge ports that are configured by name have on their switches now.

Inside the controller such a port has a number of its own, that follows from its name and is on no switch: VNs, limits,
hosts and meters stay with it when the switch gives it another one. Flow entries, and all that switches say, have the
switch's numbers. A port that has none has no entries.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from controller.columns import IntArray
from controller.fabric.config_model import FIRST_NAMED, LAST_NAMED, EdgePort
from controller.fabric.topology import PortId


class PortNumbers:
    """The numbers of ports by name, by dpid; all other ports have their own."""

    def __init__(self) -> None:
        self._of: defaultdict[int, dict[int, int]] = defaultdict(dict)

    def inherit(self, before: PortNumbers) -> None:
        """Know what ``before`` knows."""
        for dpid, numbers in before._of.items():
            self._of[dpid] = dict(numbers)

    def bind(self, port: PortId, number: int | None) -> None:
        """A port by name has this number now, or none. Whoever had it before must have lost it."""
        self._of[port.dpid].pop(port.port_no, None)
        if number is not None:
            self._of[port.dpid][port.port_no] = number

    def bound(self, dpid: int) -> dict[int, int]:
        """Return the ports by name that have a number on a switch, and that number."""
        return dict(self._of.get(dpid, {}))

    def number(self, port: PortId) -> int:
        """Return the number that a switch knows a port by; that of a port by name is on no switch while it has none."""
        return self._of.get(port.dpid, {}).get(port.port_no, port.port_no)

    def on_switch(self, dpid: int, port: EdgePort) -> EdgePort:
        """Return a port with the number that its switch knows it by."""
        number = self.number(PortId(dpid, port.port_no))
        return port if number == port.port_no else replace(port, port_no=number)

    def port(self, dpid: int, number: int) -> PortId:
        """Return the port that has a number on a switch."""
        named = self._of.get(dpid, {}).items()
        return PortId(dpid, next((port_no for port_no, its in named if its == number), number))

    def numbers(self, dpid: int, port_no: IntArray) -> IntArray:
        """Return the same as ``number`` of ports of a switch."""
        found = port_no
        for one, number in self._of.get(dpid, {}).items():
            found = found.copy() if found is port_no else found
            found[port_no == one] = number
        return found

    def ports(self, dpid: int, number: IntArray) -> IntArray:
        """Return the same as ``port`` of numbers on a switch."""
        found = number
        for one, its in self._of.get(dpid, {}).items():
            found = found.copy() if found is number else found
            found[number == its] = one
        return found


def is_nowhere(number: int | None) -> bool:
    """Whether a number is that of a port by name that has none on its switch."""
    return number is not None and FIRST_NAMED <= number <= LAST_NAMED
