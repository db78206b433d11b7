"""The DETS paper's fabrics (figures 1, 5 and 7) as descriptions, parametrised by size and rates.

The paper's links carry 1 Gb/s. The default here is a tenth of it: userspace Open vSwitch on two cores carries about
1 Gb/s in all, so that the experiments on it are scaled.
"""

from __future__ import annotations

from collections.abc import Callable

from topologies.fabric import MAX_MININET_RATE_BPS, Fabric, PhysicalNode, TopoLink, TopoSwitch

LINK_RATE_BPS = 100_000_000
VLANS = (1, 2)
FIRST_UPLINK_PORT_NO = 1001  # of every edge switch in figure 7; its PNs have the ports from 1 on
CORE_DPID_BASE = 0x1000


def fig1(pns: int = 5, link_rate_bps: int = LINK_RATE_BPS, vlans: tuple[int, ...] = VLANS) -> Fabric:
    """Figure 1: ``pns`` PNs with a VN per VLAN each, PN i at port i of the one edge switch s1."""
    return _star("dets-fig1", pns, link_rate_bps, vlans)


def fig5(pns: int = 11, link_rate_bps: int = LINK_RATE_BPS, vlans: tuple[int, ...] = VLANS) -> Fabric:
    """Section IV, figure 5: the same with eleven PNs, of which the last one is the receiver."""
    return _star("dets-fig5", pns, link_rate_bps, vlans)


def fig7(
    pns: int = 11,
    link_rate_bps: int = LINK_RATE_BPS,
    vlans: tuple[int, ...] = VLANS,
    edges: int = 4,
    cores: int = 1,
    core_rate_bps: int | None = None,
) -> Fabric:
    """Figure 7: edge switches s1.. linked by core switches c1..; each edge switch has a link to each core switch.

    The last PN, the receiver, is alone behind the last edge switch; the others are dealt out to the edge switches
    before it in turn. Core links carry ten times an access link, at most 1 Gb/s, unless ``core_rate_bps`` is given.
    Choice: the paper's figure shows three edge switches and no rates.
    """
    _at_least("pns", pns, 2)
    _at_least("edges", edges, 2)
    _at_least("cores", cores, 1)
    rate_bps = core_rate_bps if core_rate_bps is not None else min(10 * link_rate_bps, MAX_MININET_RATE_BPS)
    senders = [
        PhysicalNode(i + 1, f"s{i % (edges - 1) + 1}", i // (edges - 1) + 1, vlans, link_rate_bps)
        for i in range(pns - 1)
    ]
    receiver = PhysicalNode(pns, f"s{edges}", 1, vlans, link_rate_bps)
    switches = [TopoSwitch(f"s{i}", i) for i in range(1, edges + 1)]
    switches += [TopoSwitch(f"c{i}", CORE_DPID_BASE + i, "core") for i in range(1, cores + 1)]
    links = [
        TopoLink(f"s{edge}", FIRST_UPLINK_PORT_NO - 1 + core, f"c{core}", edge, rate_bps)
        for core in range(1, cores + 1)
        for edge in range(1, edges + 1)
    ]
    return Fabric("dets-fig7", tuple(switches), (*senders, receiver), vlans, tuple(links))


def _star(name: str, pns: int, link_rate_bps: int, vlans: tuple[int, ...]) -> Fabric:
    _at_least("pns", pns, 2)
    nodes = tuple(PhysicalNode(i, "s1", i, vlans, link_rate_bps) for i in range(1, pns + 1))
    return Fabric(name, (TopoSwitch("s1", 1),), nodes, vlans)


def _at_least(key: str, value: int, limit: int) -> None:
    if value < limit:
        raise ValueError(f"{key}: {value!r} is below {limit}")


fabrics: dict[str, Callable[..., Fabric]] = {
    "dets-fig1": fig1,
    "dets-fig5": fig5,
    "dets-fig7": fig7,
}
