"""Where guarantees leave the link before a switch so little that it drops what the switch's queues should drop.

A policy that acts on the drops of receivers' queues hears of none that happen before them (Gatekeeper, section 2: 5 %
of the link stay unused).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray
from controller.fabric.config_model import CoreLink
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable

MAX_PROMISED = 0.95
"""Of the link: what the paper leaves to be guaranteed."""


@dataclass(frozen=True, slots=True, order=True)
class HeadroomShortage:
    """An edge port whose guarantees do not fit the only link before its switch with headroom."""

    port: PortId
    promised_bps: int
    link_bps: int


def headroom_shortages(vns: VnTable, links: tuple[CoreLink, ...], needing: BoolArray) -> list[HeadroomShortage]:
    """Return the ports where headroom is missing, by dpid and port; ``needing`` (vns,) are VNs that need it there.

    A switch with several links, or with one that is faster than the port by as much, has headroom.
    """
    only_bps: dict[int, int | None] = {}
    for link in links:
        for end in link.ends:
            only_bps[end.dpid] = None if end.dpid in only_bps else link.capacity_bps
    switch = np.unique(vns.dpid, return_inverse=True)[1]
    _, first, port = np.unique(np.column_stack([switch, vns.port_no]), axis=0, return_index=True, return_inverse=True)
    needed = np.bincount(port.ravel(), needing) > 0
    promised_bps = np.bincount(port.ravel(), vns.receive_limit_bps)
    found = []
    for at in np.flatnonzero(needed).tolist():
        dpid, port_no, capacity_bps = (column[first[at]].item() for column in (vns.dpid, vns.port_no, vns.capacity_bps))
        link_bps = only_bps.get(dpid)
        if link_bps is not None and min(capacity_bps, promised_bps[at]) > MAX_PROMISED * link_bps:
            found.append(HeadroomShortage(PortId(dpid, port_no), int(promised_bps[at]), link_bps))
    return found
