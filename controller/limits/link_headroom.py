"""Link headroom: finds ports where guarantees fill the link before the switch, so that drops happen before its queues.

A policy that acts on the drops of receivers' queues cannot see drops before them. So a part of the link stays unused
(Gatekeeper, section 2): 5 % (section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.columns import BoolArray
from controller.fabric.config_model import CoreLink
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable

MAX_PROMISED = 0.95
"""Maximum share of a link for guarantees, from the paper (section 3.1)."""


@dataclass(frozen=True, slots=True, order=True)
class HeadroomShortage:
    """An edge port whose guarantees, plus headroom, do not fit the only link before its switch."""

    port: PortId
    promised_bps: int
    link_bps: int


def headroom_shortages(vns: VnTable, links: tuple[CoreLink, ...], needing: BoolArray) -> list[HeadroomShortage]:
    """Return the ports that lack headroom, in the order of dpid and port.

    ``needing`` (vns,) is the mask of the VNs with policies that need headroom before the switch (``need_headroom``).

    A switch with several links, or with a link that is faster than the port by the headroom, has enough.
    """
    only_bps: dict[int, int | None] = {}  # the capacity of a switch's only link by dpid; None: it has several
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
