"""The core links that frames take from one switch to another."""

from __future__ import annotations

from collections.abc import Iterable

from controller.fabric.topology import Link, Paths, Port


def hops(paths: Paths, links: Iterable[Link], pairs: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[Port]]:
    """Return for each (from dpid, to dpid) the ports out of which frames leave on their way, in order.

    ``links`` are those that ``paths`` were found on. Pairs without a path, or of one switch, have no hops.
    """
    peer = {end: other for link in links for end, other in ((link.a, link.b), (link.b, link.a))}
    found: dict[tuple[int, int], list[Port]] = {}
    for start, target in pairs:
        way: list[Port] = []
        at = start
        while at != target:
            port_no = paths.next_port.get((at, target))
            if port_no is None:
                way = []
                break
            way.append(Port(at, port_no))
            at = peer[way[-1]].dpid
        found[start, target] = way
    return found
