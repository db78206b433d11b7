"""The allocator of the whole network: one for all VLANs with ``max-min``, in place of one at each receiver.

It talks with the send-rate controllers in the same messages. It initializes traffic control at all senders of its
VLANs, congested or not, for it has to know what everybody wants; their Traffic Reports are its counters, and Set Rate
is its answer. What VLANs with other algorithms use of a link is taken off first, up to their limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.allocation.max_min import BY_DEMAND, FlowPaths
from controller.allocation.network_max_min import Constraints, FlowCounters, NetworkGrants, NetworkMaxMin, share_network
from controller.columns import BoolArray, FloatArray, IntArray
from controller.dets.messages import TrafficReport
from controller.fabric.entries import EntryTable
from controller.fabric.links import FabricLinks
from controller.fabric.vns import VnTable
from controller.units import MIN_RATE_BPS

# What an active sender is taken to want at least, so that probing can start from it.
LEAST_DEMAND_BPS = 1e6
# Choice: VLANs with other algorithms keep this part above what they send, so that they can show that they want more.
OTHERS_HEADROOM = 0.10


@dataclass(frozen=True)
class NetworkDecision:
    """What was decided in one interval, and on what: for the next interval to build on, and for explanations.

    ``rows`` (of ``entries``) are those that were decided on; all columns of ``grants`` and ``weight`` have their shape.
    """

    entries: EntryTable
    links: FabricLinks
    rows: IntArray
    paths: FlowPaths
    constraints: Constraints
    grants: NetworkGrants
    weight: FloatArray


def decide(
    before: NetworkDecision | None,
    algorithms: Sequence[tuple[NetworkMaxMin, BoolArray]],
    entries: EntryTable,
    vns: VnTable,
    links: FabricLinks,
    reports: TrafficReport,
    others_bps: FloatArray,
) -> NetworkDecision:
    """Decide on the entries of ``reports``.

    ``algorithms`` holds the parameters of each group of VLANs and which of the reports are theirs. ``others_bps``
    (links,) is what other VLANs use of the links.

    1. What each sender wants, by its own VLAN's parameters; who fills its grant wants its guarantee at least.
    2. What the links leave.
    3. Guarantees first, then the excess by weight up to the ceilings.
    4. Who does not want its standing rate has it all the same.

    Choice: 4. What a TCP sender sends is not what it wants. Held closely above what it sends it loses its bursts, backs
    off, and is held lower still: of a guarantee of 20 Mb/s two flows got 0.3 on Open vSwitch. A grant that is not used
    costs nothing; one that suddenly is counts as a demand from the next interval on, and until then the receiving
    queue decides, which serves guarantees first. Who is bound by a limit or a link gets no more than that.
    """
    sender, receiver = entries.sender[reports.entry], entries.receiver[reports.entry]
    counters = FlowCounters(reports.measured_bps, reports.limit_bps, reports.dropped_bps, reports.active)
    guaranteed_bps = np.minimum(vns.send_limit_bps[sender], vns.receive_limit_bps[receiver])
    demand_bps = np.zeros(len(reports.entry))
    for algorithm, mine in algorithms:  # 1
        wanted_bps = algorithm.demands(counters, LEAST_DEMAND_BPS, guaranteed_bps)
        demand_bps[mine] = wanted_bps[mine]
    constraints = Constraints.of(  # 2
        vns.send_limit_bps,
        vns.receive_limit_bps,
        np.maximum(links.capacity_bps - others_bps, MIN_RATE_BPS),
        vns.send_most_bps,
        vns.receive_most_bps,
    )
    paths = _paths(before, constraints, entries, links, reports.entry)
    weight = vns.weight[sender]
    grant_bps, within_bps, bound = share_network(paths, constraints, demand_bps, weight)  # 3
    bound = np.where(reports.active, bound, BY_DEMAND)
    standing_bps = np.where(bound == BY_DEMAND, standing_rates(entries, vns, reports), 0.0)  # 4
    grants = NetworkGrants(np.maximum(grant_bps, standing_bps), np.maximum(within_bps, standing_bps), demand_bps, bound)
    return NetworkDecision(entries, links, reports.entry, paths, constraints, grants, weight)


def _paths(
    before: NetworkDecision | None, constraints: Constraints, entries: EntryTable, links: FabricLinks, rows: IntArray
) -> FlowPaths:
    """Return the paths of the entries; most of the time they are those of the interval before."""
    same = before is not None and before.entries is entries and before.links is links
    if before is not None and same and np.array_equal(before.rows, rows):
        return before.paths
    return constraints.paths(entries.sender[rows], entries.receiver[rows], *links.of_entries(entries, rows))


def load_of_others(
    entries: EntryTable, vns: VnTable, links: FabricLinks, used_bps: FloatArray, limit_bps: FloatArray
) -> FloatArray:
    """Return what the VLANs that do not lend use of each link, shape (links,), with some headroom.

    ``used_bps`` and ``limit_bps`` (entries,) are what passes the meters and the limits in force. No VN is taken to
    receive more than its limit: its queue does not let it.
    """
    rows = np.flatnonzero(~vns.lends[entries.receiver])
    receiver = entries.receiver[rows]
    wanted_bps = np.minimum(used_bps[rows] * (1.0 + OTHERS_HEADROOM), limit_bps[rows])
    sums_bps = np.bincount(receiver, weights=wanted_bps, minlength=len(vns))
    part = np.minimum(vns.receive_limit_bps / np.maximum(sums_bps, 1.0), 1.0)
    offsets, link = links.of_entries(entries, rows)
    uses_bps = np.repeat(wanted_bps * part[receiver], np.diff(offsets))
    return np.bincount(link, weights=uses_bps, minlength=len(links.capacity_bps)).astype(np.float64)


def standing_rates(entries: EntryTable, vns: VnTable, reports: TrafficReport) -> FloatArray:
    """Return what senders may send whatever they want: an equal share of the guarantee among the others and themselves.

    An owner that lent all of its limit finds it all there when it comes back; the next grants take it from those who
    borrowed.
    """
    receiver = entries.receiver[reports.entry]
    active = np.bincount(receiver, weights=reports.active, minlength=len(vns))
    share_bps: FloatArray = vns.receive_limit_bps[receiver] / (active[receiver] - reports.active + 1.0)
    return np.minimum(share_bps, np.maximum(reports.available_bps, MIN_RATE_BPS))
