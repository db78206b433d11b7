"""Shadows: algorithms that decide on the same counters as the effective ones, and change nothing.

A shadow gets the Traffic Reports of its VLAN under the effective algorithm, and keeps its own state. Its grants are
what its algorithm would decide next, not what would follow if that algorithm were effective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.columns import NEW_ROW, BoolArray, FloatArray
from controller.dets.rate_allocator import IntervalContext, RateAllocators, answer_reports, received_rates
from controller.dets.send_rate_controller import traffic_reports
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable, find_pairs
from controller.fabric.vn_table import VnTable
from controller.loop import control_step
from controller.metering.fabric_readings import FabricReadings
from controller.policy.policy_groups import Choices, PolicyGroup, apply_choices, groups_of
from controller.policy.registry import make_policy


@dataclass(frozen=True)
class Shadow:
    """The shadows of all VLANs that have one; ``policies`` gives their algorithms by VLAN.

    ``shadowed`` (vns,) is the mask of the VNs of these VLANs. ``rate_bps`` (pairs,) are the limits in bit/s that the
    shadows would set for the pairs of ``entries``, NaN for pairs without a shadow.
    """

    policies: Choices
    groups: tuple[PolicyGroup, ...]
    shadowed: BoolArray
    allocators: RateAllocators
    entries: PairTable
    rate_bps: FloatArray

    @classmethod
    def build(cls, vns: VnTable, policies: Choices) -> Shadow:
        """Return shadows in their initial state.

        Raises InvalidValueError, naming ``shadow`` or ``shadow_parameters.NAME``, for an unknown algorithm or parameter
        and for a value out of bounds.
        """
        for policy in policies.values():
            make_policy(policy.algorithm, policy.parameters, key="shadow", parameters_key="shadow_parameters")
        groups = groups_of(vns, policies)
        shadowed = np.isin(vns.vlan_vid, list(policies))
        allocators = RateAllocators.initial(len(vns), groups)
        return cls(dict(policies), groups, shadowed, allocators, PairTable.empty(), np.empty(0))

    def changed(self, vns: VnTable, policies: Choices) -> Shadow:
        """Return the shadows after VLANs changed theirs; policies that stay keep their state. Raises as ``build``."""
        new = Shadow.build(vns, policies)
        kept = [vid for vid, policy in policies.items() if policy == self.policies.get(vid)]
        rate_bps = np.where(np.isin(vns.vlan_vid, kept)[self.entries.receiver], self.rate_bps, np.nan)
        allocators = self.allocators.with_groups(self.groups, new.groups)
        return replace(new, allocators=allocators, entries=self.entries, rate_bps=rate_bps)

    @property
    def names(self) -> dict[int, str]:
        """The algorithms' names by VLAN."""
        return {vid: policy.algorithm for vid, policy in self.policies.items()}

    def rates_of(self, entries: PairTable) -> FloatArray:
        """Return the shadows' limits of these pairs, shape (pairs,); NaN where unknown."""
        if self.entries is entries:
            return self.rate_bps
        own_rows = find_pairs(self.entries, entries.sender, entries.receiver)
        is_known = own_rows != NEW_ROW
        rates_bps = np.full(len(entries), np.nan)
        rates_bps[is_known] = self.rate_bps[own_rows[is_known]]
        return rates_bps


def shadow_step(
    shadow: Shadow,
    vns: VnTable,
    before: control_step.ControlState,
    after: control_step.ControlState,
    links: LinkTable | None,
    observed: FabricReadings | None = None,
) -> Shadow:
    """Return the shadows after the interval that led from one control state to the next.

    1) Policies that always control decide on all pairs of their VLANs, the others on pairs under control.
    2) The reports are those of the effective algorithm: measured after the step, limited as before it.
    3) A pair that no allocator would limit is limited by its ceiling.
    """
    entries = after.entries
    allocators = shadow.allocators
    if shadow.entries is not entries:
        allocators = allocators.reindexed(find_pairs(shadow.entries, entries.sender, entries.receiver))
    shadow_vns = apply_choices(vns, shadow.policies)
    is_shadowed = shadow.shadowed[entries.receiver]
    is_reported = is_shadowed & (after.machines.controlled | shadow_vns.always_controlled[entries.receiver])  # 1
    reports = traffic_reports(before.machines, np.flatnonzero(is_reported), entries, vns, after.measured)  # 2
    context = IntervalContext(
        after.decided_s,
        0.0 if np.isnan(before.decided_s) else after.decided_s - before.decided_s,
        links,
        after.measured.measured_bps,
        control_step.effective_limits_bps(before, vns),
        after.unread_intervals,
        received_rates(entries, after.measured.passed_bps, len(vns)),
        after.measured.passed_bps,
        observed,
    )
    allocators = allocators._replace(congested=after.allocators.congested)
    allocators, set_rate, keep_alive = answer_reports(allocators, shadow.groups, entries, shadow_vns, reports, context)
    ceilings_bps = control_step.ceilings(entries, shadow_vns)
    rate_bps = np.where(is_shadowed, ceilings_bps, np.nan)  # 3
    rate_bps[set_rate.entry] = np.minimum(set_rate.rate_bps, ceilings_bps[set_rate.entry])
    # Keep Alive: the shadow grants the limit that the pair had before this step.
    idle_share_bps = before.machines.limit_bps[keep_alive.entry]
    rate_bps[keep_alive.entry] = np.minimum(idle_share_bps, ceilings_bps[keep_alive.entry])
    return Shadow(shadow.policies, shadow.groups, shadow.shadowed, allocators, entries, rate_bps)
