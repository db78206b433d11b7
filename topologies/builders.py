"""The papers' fabrics as descriptions, parametrised by size and rates.

The papers' links carry 1 Gb/s. The default here is a tenth of it: userspace Open vSwitch on two cores carries about 1
Gb/s in total, so experiments on it are scaled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

from controller import plugins
from topologies.fabric import MAX_MININET_RATE_BPS, Fabric, PhysicalNode, TopoLink, TopoSwitch

LINK_RATE_BPS = 100_000_000
VLANS = (1, 2)
FIRST_UPLINK_PORT_NO = 1001  # of every edge switch; its PNs are at the ports from 1 on
CORE_DPID_BASE = 0x1000


def fig1(pns: int = 5, link_rate_bps: int = LINK_RATE_BPS, vlans: tuple[int, ...] = VLANS) -> Fabric:
    """Return DETS, figure 1: one edge switch s1 with PN i at port i; each PN has a VN in every VLAN."""
    return _star("dets-fig1", pns, link_rate_bps, vlans)


def fig5(pns: int = 11, link_rate_bps: int = LINK_RATE_BPS, vlans: tuple[int, ...] = VLANS) -> Fabric:
    """Return DETS, section IV, figure 5: figure 1 with eleven PNs; the last PN is the receiver."""
    return _star("dets-fig5", pns, link_rate_bps, vlans)


def fig7(
    pns: int = 11,
    link_rate_bps: int = LINK_RATE_BPS,
    vlans: tuple[int, ...] = VLANS,
    edges: int = 4,
    cores: int = 1,
    core_rate_bps: int | None = None,
) -> Fabric:
    """Return DETS, figure 7: ``edges`` edge switches s1.. and ``cores`` core switches c1.., all of them linked.

    The last PN, the receiver, is alone behind the last edge switch; the others are distributed in turn to the edge
    switches before it. Core links carry ten times an access link, at most 1 Gb/s, unless ``core_rate_bps`` is given.
    Choice: the paper's figure shows three edge switches and no rates.
    """
    _at_least("pns", pns, 2)
    _at_least("edges", edges, 2)
    _at_least("cores", cores, 1)
    rate_bps = core_rate_bps if core_rate_bps is not None else min(10 * link_rate_bps, MAX_MININET_RATE_BPS)
    sender_edges = edges - 1
    senders = [
        PhysicalNode(i + 1, f"s{i % sender_edges + 1}", i // sender_edges + 1, vlans, link_rate_bps)
        for i in range(pns - 1)
    ]
    receiver = PhysicalNode(pns, f"s{edges}", 1, vlans, link_rate_bps)
    switches = [TopoSwitch(f"s{i}", i) for i in range(1, edges + 1)]
    switches += [TopoSwitch(f"c{i}", CORE_DPID_BASE + i, "core") for i in range(1, cores + 1)]
    links = [
        TopoLink(f"s{edge}", FIRST_UPLINK_PORT_NO - 1 + core, f"c{core}", edge, rate_bps)  # sN at port N
        for core in range(1, cores + 1)
        for edge in range(1, edges + 1)
    ]
    return Fabric("dets-fig7", tuple(switches), (*senders, receiver), vlans, tuple(links))


def gatekeeper_hosts(
    pns: int = 11,
    link_rate_bps: int = LINK_RATE_BPS,
    vlans: tuple[int, ...] = VLANS,
    access_rates_bps: Mapping[int, int] | None = None,
) -> Fabric:
    """Return Gatekeeper's fabric with a scheduler on every host (HPL-2010-151, section 2).

    PN i is alone behind edge switch si, which stands for the host's scheduler; all edge switches are linked to c1. All
    links carry ``link_rate_bps``, so the traffic to a PN queues in c1. ``access_rates_bps`` are other rates between
    edge switch and PN, by the PN's number: a receiver's rate below its link's is the paper's headroom.
    """
    _at_least("pns", pns, 2)
    access_rates_bps = access_rates_bps or {}
    for number in access_rates_bps:
        if not 1 <= number <= pns:
            raise ValueError(f"access_rates_bps: {number!r} is outside 1 to {pns}, the numbers of the PNs")
    numbers = range(1, pns + 1)
    nodes = [PhysicalNode(i, f"s{i}", 1, vlans, access_rates_bps.get(i, link_rate_bps)) for i in numbers]
    switches = [*(TopoSwitch(f"s{i}", i) for i in numbers), TopoSwitch("c1", CORE_DPID_BASE + 1, "core")]
    links = [TopoLink(f"s{i}", FIRST_UPLINK_PORT_NO, "c1", i, link_rate_bps) for i in numbers]
    return Fabric("gatekeeper-hosts", tuple(switches), tuple(nodes), vlans, tuple(links))


def dumbbell(
    pns: int = 4,
    link_rate_bps: int = LINK_RATE_BPS,
    vlans: tuple[int, ...] = VLANS,
    core_rate_bps: int | None = None,
    receivers: int = 1,
) -> Fabric:
    """Return two edge switches with one link between them: the last ``receivers`` PNs behind s2, the others behind s1.

    The link carries ``core_rate_bps``, by default as much as one PN's link, so that the senders together fill it.
    """
    _at_least("receivers", receivers, 1)
    _at_least("pns", pns, receivers + 1)
    rate_bps = core_rate_bps if core_rate_bps is not None else link_rate_bps
    senders = pns - receivers
    nodes = [PhysicalNode(i, "s1", i, vlans, link_rate_bps) for i in range(1, senders + 1)]
    nodes += [PhysicalNode(senders + i, "s2", i, vlans, link_rate_bps) for i in range(1, receivers + 1)]
    link = TopoLink("s1", FIRST_UPLINK_PORT_NO, "s2", FIRST_UPLINK_PORT_NO, rate_bps)
    return Fabric("dumbbell", (TopoSwitch("s1", 1), TopoSwitch("s2", 2)), tuple(nodes), vlans, (link,))


def _star(name: str, pns: int, link_rate_bps: int, vlans: tuple[int, ...]) -> Fabric:
    """Return a fabric of one edge switch s1 with PN i at port i."""
    _at_least("pns", pns, 2)
    nodes = tuple(PhysicalNode(i, "s1", i, vlans, link_rate_bps) for i in range(1, pns + 1))
    return Fabric(name, (TopoSwitch("s1", 1),), nodes, vlans)


def _at_least(key: str, value: int, limit: int) -> None:
    if value < limit:
        raise ValueError(f"{key}: {value!r} is below {limit}")


OWN: dict[str, Callable[..., Fabric]] = {
    "dets-fig1": fig1,
    "dets-fig5": fig5,
    "dets-fig7": fig7,
    "gatekeeper-hosts": gatekeeper_hosts,
    "dumbbell": dumbbell,
}


def _check_builder(name: str, builder: object) -> None:
    """Raise TypeError for a plugin that is no builder."""
    if not callable(builder):
        raise TypeError(f"{builder!r} is not a function that makes a Fabric")


fabrics: Mapping[str, Callable[..., Fabric]] = plugins.Extended(OWN, plugins.TOPOLOGIES, _check_builder)
"""All builders by name: those above, and those of other packages."""


def build(words: str) -> Fabric:
    """Return the fabric of a text ``NAME,KEY=VALUE,...``, as for ``mn --topo``. Raises ValueError for users to read."""
    name, *settings = words.split(",")
    if name not in fabrics:
        raise ValueError(f"{name!r} is no topology; there are {', '.join(fabrics)}")
    parameters = inspect.signature(fabrics[name]).parameters
    values: dict[str, object] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"{name}: {setting!r} has no name: write KEY=VALUE, as in {name},pns=4")
        if key not in parameters:
            raise ValueError(f"{name}: there is no parameter {key}; there are {', '.join(parameters)}")
        try:
            values[key] = _value(str(parameters[key].annotation), text)
        except ValueError as error:
            raise ValueError(f"{name}: {key}: {text!r} {error}") from None
    try:
        return fabrics[name](**values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _value(annotation: str, text: str) -> object:
    """Return a text as the value of a parameter with this annotation; raise ValueError with the rule for its values."""
    if annotation.startswith("tuple"):
        return tuple(_whole(one, "must be VLAN ids joined by +, such as 10+20") for one in text.split("+"))
    if annotation in ("int", "int | None"):
        return _whole(text, "must be a whole number, of a rate in bit/s, such as 50000000")
    return text


def _whole(text: str, rule: str) -> int:
    """Return a text of decimal digits as a number; raise ValueError with ``rule`` for any other text."""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(rule)
    return int(text)
