"""Max-min fairness between entities on links: what Seawall (NSDI 2011, section 4) promises, with known demands.

An *entity* is a sender with a weight, whatever the number of its flows. On each link the entities that use it have
shares in proportion to their weights, and what an entity cannot use goes to the others of that link.

Choice: not ``controller.seawall.entity_max_min``, which a policy decides with: a law must not judge itself. This one is
plain and slow; tests compare the two. If step 4 leaves capacity of a link, the law shares it as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_SAME = 1e-9  # relative difference that may come from rounding


def entity_rates(
    links: Sequence[IntArray], entity: IntArray, weight: FloatArray, capacity_bps: FloatArray, demand_bps: FloatArray
) -> FloatArray:
    """Return the rates of flows, (flows,): weighted max-min over the entities on each link, not over flows.

    ``links[f]`` are the links of flow ``f``, ``entity`` (flows,) its entity, ``weight`` (entities,), ``capacity_bps``
    (links,). A flow needs a finite demand or a link.

    1. The level of a link is its capacity per unit of weight: an entity with open flows gets level x weight of the
       link, its closed flows included; entities without open flows keep their rates. Open flows share their entity's
       part equally. The share of a flow is the smallest on its links.
    2. Flows that demand no more than their share get their demand, and are closed. This only raises levels: repeat.
    3. If there are none: a link on which each open flow has its smallest share is a bottleneck. Its flows get these
       shares, and are closed: repeat.
    4. If there is no such link either (two links, each the tighter one for another flow of the other), the flow with
       the least rate per weight is closed.
    """
    flows = len(links)
    uses = np.zeros((flows, len(capacity_bps)), dtype=np.bool_)
    for flow, links_of_flow in enumerate(links):
        uses[flow, links_of_flow] = True
    rate_bps, is_open = np.zeros(flows), np.ones(flows, dtype=np.bool_)
    while is_open.any():
        share_bps = np.full(uses.shape, np.inf)
        for link in np.flatnonzero(uses[is_open].any(axis=0)).tolist():
            _share_link(link, uses, entity, weight, capacity_bps, rate_bps, is_open, share_bps)  # 1
        flow_share_bps = share_bps.min(axis=1)
        satisfied = is_open & (demand_bps <= flow_share_bps * (1 + _SAME))
        if satisfied.any():  # 2
            rate_bps[satisfied] = demand_bps[satisfied]
            is_open &= ~satisfied
            continue
        is_smallest = share_bps <= flow_share_bps[:, None] * (1 + _SAME)
        users = uses & is_open[:, None]
        bottleneck = users.any(axis=0) & (is_smallest | ~users).all(axis=0)
        closed = is_open & (uses & bottleneck).any(axis=1)  # 3
        if not closed.any():  # 4
            per_weight = np.where(is_open, flow_share_bps / weight[entity], np.inf)
            closed = np.arange(flows) == per_weight.argmin()
        rate_bps[closed] = flow_share_bps[closed]
        is_open &= ~closed
    return rate_bps


def _share_link(
    link: int,
    uses: NDArray[np.bool_],
    entity: IntArray,
    weight: FloatArray,
    capacity_bps: FloatArray,
    rate_bps: FloatArray,
    is_open: NDArray[np.bool_],
    share_bps: FloatArray,
) -> None:
    """Write the shares of a link's open flows into the link's column of ``share_bps`` (flows, links).

    ``uses`` (flows, links); ``entity``, ``rate_bps`` and ``is_open`` (flows,); ``weight`` (entities,); ``capacity_bps``
    (links,). Step 1 of ``entity_rates``.
    """
    on_link = uses[:, link]
    closed_bps = np.bincount(entity[on_link & ~is_open], rate_bps[on_link & ~is_open], minlength=len(weight))
    open_flows = np.bincount(entity[on_link & is_open], minlength=len(weight))
    has_open_flow = open_flows > 0
    free_bps = max(float(capacity_bps[link] - closed_bps[~has_open_flow].sum()), 0.0)
    # The open flows of an entity get nothing if its closed flows already have more than level x weight.
    below_share = has_open_flow.copy()
    while True:
        level = 0.0
        if below_share.any():
            level = (free_bps - closed_bps[has_open_flow & ~below_share].sum()) / weight[below_share].sum()
        above_share = below_share & (closed_bps > level * weight * (1 + _SAME))
        if not above_share.any():
            break
        below_share &= ~above_share
    open_part_bps = np.where(below_share, np.maximum(level * weight - closed_bps, 0.0), 0.0)
    rows = np.flatnonzero(on_link & is_open)
    share_bps[rows, link] = (open_part_bps / np.maximum(open_flows, 1))[entity[rows]]
