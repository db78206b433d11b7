"""Why an entry has the limit it has, in words: what binds it, and what would bind it next.

``controller.allocation.explain`` knows the arithmetic; here it is asked about the state of a running controller, and
its answer is put into the names that operators use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.allocation.explain import (
    DEMAND,
    FAIR_RATE,
    LIFTED_BPS,
    NO_OTHER,
    RECEIVE_LIMIT,
    SEND_LIMIT,
    Explanation,
    constraint_name,
    explain_network,
    explain_receiver,
)
from controller.central.state import FabricState
from controller.dets.send_rate_controller import Control
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
    state, vns = fabric.state, fabric.shared_vns
    sender, receiver = int(state.entries.sender[row]), int(state.entries.receiver[row])
    from_place, to_place = fabric.place_name(sender), fabric.place_name(receiver)
    vlan_vid = int(vns.vlan_vid[sender])
    if state.machines.control[row] != Control.LIMITED:
        found = _explain_limits(fabric, row, sender, receiver)
    elif vns.lends[receiver]:
        found = _explain_network_grant(fabric, row, sender, receiver)
    else:
        found = _explain_grant(fabric, row, sender, receiver)
    capacity_bps = float(vns.capacity_bps[sender])
    if found.lifted_bps > capacity_bps:
        found = replace(found, lifted_bps=capacity_bps, next_bound=f"the capacity of port {from_place}")
    receive = f"{to_place}'s receive limit of VLAN {vlan_vid}{_less_floods(fabric, receiver)}"
    fair = f"the fair rate of {to_place}'s allocator"

    def in_words(bound: str) -> str:
        return bound.replace(RECEIVE_LIMIT, receive).replace(FAIR_RATE, fair)

    return EntryExplanation(
        vlan_vid,
        from_place,
        to_place,
        float(step.limits_in_force_bps(state, vns)[row]),
        in_words(found.bound),
        found.place,
        found.sharers,
        in_words(found.next_bound),
        found.lifted_bps,
        float(fabric.send_limits.offered_bps[sender]),
        float(fabric.send_limits.dropped_bps[sender]),
    )


def _less_floods(fabric: FabricState, receiver: int) -> str:
    taken_bps = float(fabric.floods.taken_bps[receiver])
    return f", of which floods take {rate_in_words(taken_bps)}" if taken_bps else ""


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
    own, vlan_vid = f"{fabric.place_name(sender)}'s send", int(fabric.vns.vlan_vid[sender])
    links = decision.links.names

    def name(bound: int) -> str:
        words = constraint_name(decision.constraints, fabric.place_name, links.__getitem__, bound)
        if words.startswith(own):
            return words.replace(own, "its own send", 1)
        return words if words == DEMAND or words.startswith("link ") else f"{words} of VLAN {vlan_vid}"

    return explain_network(decision.paths, decision.constraints, decision.grants, decision.weight, at, name)


def _explain_limits(fabric: FabricState, row: int, sender: int, receiver: int) -> Explanation:
    """Nobody holds the entry back: the lower of its two limits (or ceilings) binds it, then the other one."""
    send_bps, receive_bps = fabric.vns.send_most_bps[sender], fabric.shared_vns.receive_most_bps[receiver]
    return _lower(row, float(send_bps), float(receive_bps))


def _lower(row: int, send_bps: float, receive_bps: float) -> Explanation:
    """Explain the lower of two rates; where they are equal both bind, and then nothing that is configured."""
    if send_bps == receive_bps:
        return Explanation(row, send_bps, f"{SEND_LIMIT} and {RECEIVE_LIMIT}", 0, 0, LIFTED_BPS, NO_OTHER)
    bounds = [(send_bps, SEND_LIMIT), (receive_bps, RECEIVE_LIMIT)]
    (limit_bps, bound), (next_bps, next_bound) = sorted(bounds)
    return Explanation(row, limit_bps, bound, 0, 0, next_bps, next_bound)


def _explain_grant(fabric: FabricState, row: int, sender: int, receiver: int) -> Explanation:
    """The receiver's allocator has granted a rate: explain it by what the allocator decided on."""
    for decision in fabric.state.allocators.decisions:
        number = int(np.searchsorted(decision.receivers, receiver))
        if number == len(decision.receivers) or decision.receivers[number] != receiver:
            continue
        requests, memory, rows = decision.of_receiver(number)
        at = int(np.searchsorted(rows, row))
        if at == len(rows) or rows[at] != row:
            break
        available_bps = float(requests.available_bps[at])
        if requests.active[at]:
            found = explain_receiver(decision.algorithm, requests, memory, at)
        else:
            lower = _lower(row, available_bps, float(requests.limit_bps[0]))
            limit_bps = float(fabric.state.machines.limit_bps[row])
            found = replace(
                lower, bound=STARTING, next_bound=lower.bound, lifted_bps=lower.grant_bps, grant_bps=limit_bps
            )
        elsewhere_bps = float(decision.vns.send_limit_bps[sender]) - available_bps
        if elsewhere_bps < RATE_STEP_BPS:
            return found
        own = f"{SEND_LIMIT}, of which it sends {rate_in_words(elsewhere_bps)} elsewhere"
        return replace(
            found, bound=found.bound.replace(SEND_LIMIT, own), next_bound=found.next_bound.replace(SEND_LIMIT, own)
        )
    return _explain_limits(fabric, row, sender, receiver)  # it came, or got its algorithm, since the last interval
