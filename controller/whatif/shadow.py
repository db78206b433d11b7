"""Algorithms that are computed on the same counters as the ones in force, and change nothing.

A shadow sees the Traffic Reports of its VLAN as they are under the algorithm in force, and keeps its own memory. What
it would grant is therefore what it would set next if it took over now, not what would have come of it over time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from controller.allocation.registry import make_any_algorithm
from controller.columns import NEW_ROW, BoolArray, FloatArray, IntArray
from controller.dets.rate_allocator import AlgorithmGroup, NetworkView, RateAllocators, answer
from controller.dets.send_rate_controller import traffic_reports
from controller.fabric.entries import EntryTable
from controller.fabric.links import FabricLinks
from controller.fabric.vns import VnTable
from controller.loop import step
from controller.loop.policies import Policy, algorithm_groups, lending_vlans


@dataclass(frozen=True)
class Shadow:
    """The shadows of all VLANs that have one; ``policies`` gives their algorithms by VLAN.

    ``shadowed`` (vns,) marks their VNs. ``rate_bps`` (entries,) are the limits that they would put in force, NaN where
    there is no shadow, for the rows of ``entries``.
    """

    policies: Mapping[int, Policy]
    groups: tuple[AlgorithmGroup, ...]
    shadowed: BoolArray
    allocators: RateAllocators
    entries: EntryTable
    rate_bps: FloatArray

    @classmethod
    def of(cls, vns: VnTable, policies: Mapping[int, Policy]) -> Shadow:
        """Return shadows that have seen nothing yet.

        Raises InvalidValueError, naming ``shadow`` or ``shadow_parameters.NAME``, for an unknown algorithm or parameter
        and for a value out of bounds.
        """
        for policy in policies.values():
            make_any_algorithm(policy.algorithm, policy.parameters, key="shadow", parameters_key="shadow_parameters")
        groups = algorithm_groups(vns, policies)
        shadowed = np.isin(vns.vlan_vid, list(policies))
        calm = RateAllocators.calm(len(vns), groups)
        return cls(dict(policies), groups, shadowed, calm, EntryTable.empty(), np.empty(0))

    @property
    def names(self) -> dict[int, str]:
        """The algorithms' names by VLAN."""
        return {vid: policy.algorithm for vid, policy in self.policies.items()}

    def rates_of(self, entries: EntryTable) -> FloatArray:
        """Return what the shadows would limit these entries to, shape (entries,); NaN where it is not known."""
        if self.entries is entries:
            return self.rate_bps
        old = _old_rows(self.entries, entries)
        known = old != NEW_ROW
        rates_bps = np.full(len(entries), np.nan)
        rates_bps[known] = self.rate_bps[old[known]]
        return rates_bps


def shadow_step(
    shadow: Shadow,
    vns: VnTable,
    before: step.ControlState,
    after: step.ControlState,
    links: FabricLinks | None,
) -> Shadow:
    """Return the shadows after the interval that led from one control state to the next.

    1) ``max-min`` looks at all entries of its VLANs, the others at those under control, as they would in force.
    2) The reports are those that the algorithm in force had: measured after the step, limited as before it.
    3) An entry that no allocator would hold back is limited by its ceiling.
    """
    entries = after.entries
    allocators = shadow.allocators
    if shadow.entries is not entries:
        allocators = allocators.carried(_old_rows(shadow.entries, entries))
    theirs = vns.with_lending(lending_vlans(shadow.policies))
    of_shadow = shadow.shadowed[entries.receiver]
    chosen = of_shadow & (after.machines.controlled | theirs.lends[entries.receiver])  # 1
    reports = traffic_reports(before.machines, np.flatnonzero(chosen), entries, vns, after.measured)  # 2
    network = NetworkView(links, after.measured.measured_bps, step.limits_in_force_bps(before, vns))
    allocators, set_rate, keep_alive = answer(allocators, shadow.groups, entries, theirs, reports, network)
    ceilings_bps = step.ceilings(entries, theirs)
    rate_bps = np.where(of_shadow, ceilings_bps, np.nan)  # 3
    rate_bps[set_rate.entry] = np.minimum(set_rate.rate_bps, ceilings_bps[set_rate.entry])
    standing_bps = before.machines.limit_bps[keep_alive.entry]
    rate_bps[keep_alive.entry] = np.minimum(standing_bps, ceilings_bps[keep_alive.entry])
    return Shadow(shadow.policies, shadow.groups, shadow.shadowed, allocators, entries, rate_bps)


def _old_rows(old: EntryTable, new: EntryTable) -> IntArray:
    """Return for each row of the new table its row in the old one, NEW_ROW if it had none."""
    span = 1 + max(int(table.sender.max(initial=0)) for table in (old, new))
    old_keys, new_keys = (table.receiver * span + table.sender for table in (old, new))  # both are sorted
    at = np.searchsorted(old_keys, new_keys)
    inside = at < len(old_keys)
    same = np.zeros(len(new_keys), dtype=np.bool_)
    same[inside] = old_keys[at[inside]] == new_keys[inside]
    return np.where(same, at, NEW_ROW)
