"""Why an entry has the limit it has, in words: what binds it, and what would bind it next.

``controller.allocation.explain`` knows the arithmetic; here it is asked about the state of a running controller, and
its answer is put into the names that operators use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.allocation import Requests
from controller.allocation.explain import DEMAND, STANDING, Explanation, explain_network, explain_receiver
from controller.central.state import FabricState
from controller.dets.send_rate_controller import Control, traffic_reports
from controller.loop import step
from controller.metering.enforcement import RATE_STEP_BPS

STARTING = "the equal share with which a sender that was silent may start"
_UNITS = ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"))


@dataclass(frozen=True, slots=True)
class EntryExplanation:
    """What binds the limit of one entry. Rates in bits per second; ``str`` makes a sentence of it."""

    vlan_vid: int
    sender: str
    receiver: str
    """the two VNs as ``SWITCH:PORT``"""
    limit_bps: float
    """the limit in force"""
    bound: str
    """the constraint that binds it, in words"""
    place: int
    """1 if no other sharer of the constraint is granted more, and so on; 0 when nobody shares it"""
    sharers: int
    next_bound: str
    """what would bind it if that constraint were lifted, all else equal"""
    next_limit_bps: float
    """the limit that would be in force then"""
    sent_bps: float
    """what the sender sends in all, before its send limit; NaN: unknown"""
    send_limit_dropped_bps: float
    """what its send limit drops of that; NaN: unknown"""

    def __str__(self) -> str:
        share = f", share {self.place} of {self.sharers}" if self.sharers else ""
        return (
            f"VLAN {self.vlan_vid}, {self.sender} to {self.receiver}: {rate_in_words(self.limit_bps)}; "
            f"bound by {self.bound}{share}; next bound: {self.next_bound} at {rate_in_words(self.next_limit_bps)}"
            f"{self._drops()}"
        )

    def _drops(self) -> str:
        if not self.send_limit_dropped_bps >= RATE_STEP_BPS:
            return ""
        dropped, sent = rate_in_words(self.send_limit_dropped_bps), rate_in_words(self.sent_bps)
        return f"; {self.sender}'s send limit drops {dropped} of the {sent} that it sends in all"


def rate_in_words(rate_bps: float) -> str:
    """Return a rate with one decimal in the unit that suits it: ``37.0 Mb/s``."""
    for scale, unit in _UNITS:
        if rate_bps >= scale:
            return f"{rate_bps / scale:.1f} {unit}"
    return f"{rate_bps:.0f} b/s"


def explain_entry(fabric: FabricState, row: int) -> EntryExplanation:
    """Explain the limit that entry ``row`` of the entry table has since the last interval."""
    state, vns = fabric.state, fabric.vns
    sender, receiver = int(state.entries.sender[row]), int(state.entries.receiver[row])
    from_place, to_place = fabric.place_name(sender), fabric.place_name(receiver)
    vlan_vid = int(vns.vlan_vid[sender])
    if state.machines.control[row] == Control.LIMITED and vns.lends[receiver]:
        found = _explain_network_grant(fabric, row, sender, receiver)
    elif state.machines.control[row] == Control.LIMITED:
        found = _explain_grant(fabric, row, receiver)
    else:
        found = _explain_limits(fabric, row, sender, receiver)
    elsewhere = ""
    if state.machines.control[row] == Control.LIMITED and not vns.lends[receiver]:
        elsewhere_bps = float(vns.send_limit_bps[sender]) - _available_bps(fabric, row)
        if elsewhere_bps >= RATE_STEP_BPS:
            elsewhere = f", of which it sends {rate_in_words(elsewhere_bps)} elsewhere"
    own = "its own send limit"
    words = {
        own: own + elsewhere,
        "the receive limit": f"{to_place}'s receive limit of VLAN {vlan_vid}",
        "the fair rate in force": f"the fair rate of {to_place}'s allocator",
    }
    return EntryExplanation(
        vlan_vid,
        from_place,
        to_place,
        float(step.limits_in_force_bps(state, vns)[row]),
        words.get(found.bound, found.bound),
        found.place,
        found.sharers,
        words.get(found.next_bound, found.next_bound),
        found.lifted_bps,
        float(fabric.send_limits.offered_bps[sender]),
        float(fabric.send_limits.dropped_bps[sender]),
    )


def _explain_network_grant(fabric: FabricState, row: int, sender: int, receiver: int) -> Explanation:
    """The allocator of the whole network has granted a rate: explain it by the problem that it solved."""
    state = fabric.state
    decision = state.allocators.network
    rows = decision.rows if decision is not None and decision.entries is state.entries else np.empty(0, dtype=np.int64)
    at = int(np.searchsorted(rows, row))
    if decision is None or at == len(rows) or rows[at] != row:  # it came, or got its algorithm, since the last interval
        return _explain_limits(fabric, row, sender, receiver)
    if not state.measured.active[row]:
        limits = _explain_limits(fabric, row, sender, receiver)
        return replace(limits, bound=STARTING, next_bound=limits.bound, lifted_bps=limits.grant_bps)
    found = explain_network(
        decision.paths,
        decision.constraints,
        decision.grants,
        decision.weight,
        at,
        fabric.place_name,
        decision.links.names.__getitem__,
    )
    own, vlan_vid = f"{fabric.place_name(sender)}'s send", int(fabric.vns.vlan_vid[sender])

    def in_words(bound: str) -> str:
        if bound.startswith(own):
            return bound.replace(own, "its own send", 1)
        return bound if bound in (DEMAND, STANDING) or bound.startswith("link ") else f"{bound} of VLAN {vlan_vid}"

    return replace(found, bound=in_words(found.bound), next_bound=in_words(found.next_bound))


def _available_bps(fabric: FabricState, row: int) -> float:
    state = fabric.state
    report = traffic_reports(state.machines, np.array([row]), state.entries, fabric.vns, state.measured)
    return float(report.available_bps[0])


def _explain_limits(fabric: FabricState, row: int, sender: int, receiver: int) -> Explanation:
    """Nobody holds the entry back: the lower of its two limits (or ceilings) binds it, then the other one."""
    send_bps, receive_bps = float(fabric.vns.send_most_bps[sender]), float(fabric.vns.receive_most_bps[receiver])
    bounds = [(send_bps, "its own send limit"), (receive_bps, "the receive limit")]
    (limit_bps, bound), (next_bps, next_bound) = sorted(bounds, key=lambda one: one[0])
    return Explanation(row, limit_bps, bound, 0, 0, next_bps, next_bound)


def _explain_grant(fabric: FabricState, row: int, receiver: int) -> Explanation:
    """The receiver's allocator has granted a rate: explain it by what the allocator saw."""
    state, vns = fabric.state, fabric.vns
    first, last = np.searchsorted(state.entries.receiver, [receiver, receiver + 1])
    rows = np.arange(first, last)
    rows = rows[state.machines.controlled[rows]]
    reports = traffic_reports(state.machines, rows, state.entries, vns, state.measured)
    requests = Requests(
        offsets=np.array([0, len(rows)], dtype=np.int64),
        limit_bps=vns.receive_limit_bps[[receiver]],
        received_bps=np.array([reports.measured_bps.sum()]),
        measured_bps=reports.measured_bps,
        granted_bps=reports.limit_bps,
        available_bps=reports.available_bps,
        dropped_bps=reports.dropped_bps,
        weight=vns.weight[state.entries.sender[rows]],
        active=reports.active,
    )
    at = int(np.searchsorted(rows, row))
    if not reports.active[at]:
        limits_bps = (float(reports.available_bps[at]), float(vns.receive_limit_bps[receiver]))
        next_bound = "its own send limit" if limits_bps[0] <= limits_bps[1] else "the receive limit"
        return Explanation(row, float(state.machines.limit_bps[row]), STARTING, 0, 0, min(limits_bps), next_bound)
    return explain_receiver(requests, state.machines.limit_bps[rows], at)
