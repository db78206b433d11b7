"""Puts other limits, ceilings, weights, algorithms and shadows in force in a running controller: all, at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from controller.central.controller import CentralController
from controller.columns import IntArray
from controller.events import EventKind
from controller.fabric.vns import VnTable
from controller.limits.overrides import VN_FIELDS
from controller.limits.precedence import LimitsInForce
from controller.loop import step
from controller.loop.policies import Policy, algorithm_groups, lending_vlans
from controller.whatif.shadow import Shadow

# Of a change to more VNs one event tells how many they are.
_MOST_NAMED = 20


def put_in_force(fabric: CentralController, values: LimitsInForce, now_s: float) -> IntArray:
    """Let ``values``, which must fit the fabric, hold from the next interval on; return the rows of VNs that changed.

    What is as before is not touched: no message is sent for it, and algorithms go on with what they remember.
    """
    policies = {vid: Policy(vlan.algorithm, vlan.parameters) for vid, vlan in values.vlans.items()}
    shadows = {
        vid: Policy(vlan.shadow, vlan.shadow_parameters)
        for vid, vlan in values.vlans.items()
        if vlan.shadow is not None
    }
    before = fabric.vns
    columns = {name: getattr(values.vns, name) for name in (*VN_FIELDS, "weight")}
    fabric.config = replace(fabric.config, vlans=values.vlans)
    fabric.vns = before.with_columns(**columns).with_lending(lending_vlans(policies))
    changed_vlans = [vid for vid, policy in policies.items() if policy != fabric.policies.get(vid)]
    if changed_vlans:
        groups, fabric.policies = fabric.groups, policies
        fabric.groups = algorithm_groups(fabric.vns, policies)
        fabric.state = step.with_groups(fabric.state, groups, fabric.groups)
    if shadows != fabric.shadow.policies:
        changed_vlans += [vid for vid in values.vlans if shadows.get(vid) != fabric.shadow.policies.get(vid)]
        fabric.shadow = Shadow.of(fabric.vns, shadows)
    _set_send_meters(fabric, np.flatnonzero(before.send_most_bps != fabric.vns.send_most_bps))
    rows = _changed_rows(before, fabric.vns)
    _note_limits(fabric, before, rows, now_s)
    _note_vlans(fabric, sorted(set(changed_vlans)), now_s)
    return rows


def _changed_rows(before: VnTable, after: VnTable) -> IntArray:
    unlike = np.zeros(len(after), dtype=np.bool_)
    for name in VN_FIELDS:
        old, new = getattr(before, name), getattr(after, name)
        unlike |= (old != new) & ~(np.isnan(old) & np.isnan(new))
    return np.flatnonzero(unlike)


def _set_send_meters(fabric: CentralController, rows: IntArray) -> None:
    """Queue meter-mods for what these VNs may send, where their switches are connected and have such meters."""
    dpids = fabric.vns.dpid[rows]
    for dpid in np.unique(dpids).tolist():
        record = fabric.switches[dpid]
        if record.connected:
            wanted = fabric.wanted_meters(record)
            mine = [record.send_meter[row] for row in rows[dpids == dpid].tolist() if row in record.send_meter]
            at = np.flatnonzero(np.isin(wanted.meter_id, mine))
            record.update.modify_meters(wanted.meter_id[at], wanted.rate_kbps[at], wanted.burst_kbits[at])


def _note_limits(fabric: CentralController, before: VnTable, rows: IntArray, now_s: float) -> None:
    if len(rows) > _MOST_NAMED:
        fabric.note(EventKind.LIMIT_CHANGED, f"{len(rows)} VNs have new limits", now_s)
        return
    for row in rows.tolist():
        words = []
        for name in VN_FIELDS:
            old, new = getattr(before, name)[row], getattr(fabric.vns, name)[row]
            if old != new and not (np.isnan(old) and np.isnan(new)):
                shown = "none" if np.isnan(new) else f"{new:.0f} bit/s"
                words.append(f"{name.removesuffix('_bps').replace('_', ' ')} {shown}")
        fabric.note(EventKind.LIMIT_CHANGED, f"{fabric.vn_name(row)}: {', '.join(words)}", now_s)


def _note_vlans(fabric: CentralController, vids: list[int], now_s: float) -> None:
    if len(vids) > _MOST_NAMED:
        fabric.note(EventKind.ALGORITHM_CHANGED, f"{len(vids)} VLANs have another algorithm or shadow", now_s)
        return
    for vid in vids:
        policy, shadow = fabric.policies[vid], fabric.shadow.policies.get(vid)
        text = f"VLAN {vid}: {policy.algorithm} {dict(policy.parameters) or ''}".rstrip()
        if shadow is not None:
            text += f", shadow {shadow.algorithm} {dict(shadow.parameters) or ''}".rstrip()
        fabric.note(EventKind.ALGORITHM_CHANGED, text, now_s)
