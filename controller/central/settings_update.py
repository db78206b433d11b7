"""Applies other limits, ceilings, weights, algorithms and shadows to a running controller, all at once."""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from controller.central.fabric_state import ControlContext, FabricState
from controller.columns import BoolArray, FloatArray, IntArray
from controller.events import EventKind
from controller.fabric.vn_table import VnTable
from controller.forwarding.pipeline import VnMeters
from controller.limits.effective_settings import EffectiveSettings
from controller.limits.new_pair_limits import new_pair_limits
from controller.limits.overrides import VN_FIELDS, vn_value
from controller.policy.policy_groups import PolicyChoice, uses_ceilings, uses_weights
from controller.switch.frame_sizes import grown
from controller.switch.meters.meter_mods import modifications
from controller.units import exact_rate, with_whole_numbers

# A change of more VNs or VLANs than this causes one event with their number.
_MAX_NAMED = 20
_NEWCOMER, _REPORT = map(VnMeters._fields.index, ("newcomer", "report"))


def apply_settings(fabric: FabricState, values: EffectiveSettings, now_s: float) -> None:
    """Apply ``values``, which must fit the fabric, from the next interval on.

    Unchanged values cause no message, and algorithms keep their state.
    """
    before, before_flood_bps = fabric.control, fabric.flood_limit_bps
    fabric.control = before.with_values(values)
    _set_vn_meters(fabric, before.vns, before_flood_bps, now_s)
    _note_limits(fabric, before.vns, now_s)
    _note_vlans(fabric, before, now_s)


def _changed_rows(before: VnTable, after: VnTable) -> IntArray:
    unlike = np.zeros(len(after), dtype=np.bool_)
    for name in VN_FIELDS:
        old, new = getattr(before, name), getattr(after, name)
        unlike |= (old != new) & ~(np.isnan(old) & np.isnan(new))
    return np.flatnonzero(unlike)


def _set_vn_meters(fabric: FabricState, before: VnTable, before_flood_bps: FloatArray, now_s: float) -> None:
    """Queue meter-mods for changed send limits, flood limits and start rates of VNs, to switches with meters."""
    sending = before.send_max_bps != fabric.vns.send_max_bps
    flooding = before_flood_bps != fabric.flood_limit_bps
    first, first_now = new_pair_limits(before), new_pair_limits(fabric.vns)
    beginning = (first[0] != first_now[0]) | (first[1] != first_now[1])
    _modify_vn_meters(fabric, sending, flooding, beginning, np.zeros_like(beginning), now_s)


def follow_frame_sizes(fabric: FabricState, seen_bytes: FloatArray, now_s: float) -> None:
    """Raise the bursts of VNs' meters for larger frames, ``seen_bytes`` (vns,)."""
    rows = grown(fabric.frame_bytes, seen_bytes)
    if not len(rows):
        return
    fabric.frame_bytes = fabric.frame_bytes.copy()
    fabric.frame_bytes[rows] = seen_bytes[rows]
    fabric.follow_bounds()
    large, none = np.zeros((2, len(fabric.vns)), dtype=np.bool_)
    large[rows] = True
    _modify_vn_meters(fabric, large, none, large, large, now_s)


def _modify_vn_meters(
    fabric: FabricState,
    sending: BoolArray,
    flooding: BoolArray,
    beginning: BoolArray,
    reporting: BoolArray,
    now_s: float,
) -> None:
    """Queue meter-mods of the masked VNs (vns,) for send limits, floods, new pairs and packet-ins."""
    fabric.send_limits = fabric.send_limits.modified(np.flatnonzero(sending), now_s)
    fabric.floods.modified(np.flatnonzero(flooding), now_s)
    for dpid in np.unique(fabric.vns.dpid[sending | flooding | beginning]).tolist():
        record = fabric.switches[dpid]
        if record.connected:
            rows, meter_id = record.vn_meter_columns()
            of_floods, of_newcomers = meter_id[1:3, flooding[rows]].ravel(), meter_id[_NEWCOMER, beginning[rows]]
            of_reports = meter_id[_REPORT, reporting[rows]]
            mine = np.concatenate([meter_id[0, sending[rows]], of_floods, of_newcomers, of_reports])
            desired = fabric.desired_meters(record)
            at = np.flatnonzero(np.isin(desired.meter_id, mine))
            mods = modifications(desired.meter_id[at], desired.rate_kbps[at], desired.burst_kbits[at])
            record.update.modify_meters(mods)


def _note_limits(fabric: FabricState, before: VnTable, now_s: float) -> None:
    """Note the VNs' new limits and weights; only their number if they are many."""
    rows = _changed_rows(before, fabric.vns)
    if len(rows) > _MAX_NAMED:
        fabric.note(EventKind.LIMIT_CHANGED, f"{len(rows)} VNs have new limits or weights", now_s)
        return
    for row in rows.tolist():
        words = []
        for name in VN_FIELDS:
            old, new = getattr(before, name)[row], getattr(fabric.vns, name)[row]
            if old != new and not (np.isnan(old) and np.isnan(new)):
                words.append(_shown(name, new))
        fabric.note(EventKind.LIMIT_CHANGED, f"{fabric.vn_name(row)}: {', '.join(words)}", now_s, vn=row)


def _shown(field: str, number: float) -> str:
    value, words = vn_value(field, number), field.removesuffix("_bps").replace("_", " ")
    return f"{words} {'none' if value is None else exact_rate(int(value)) if field.endswith('_bps') else f'{value:g}'}"


def _policy_text(policy: PolicyChoice) -> str:
    values = with_whole_numbers(policy.parameters)
    return " ".join([policy.algorithm, *(f"{name}={value}" for name, value in values.items())])


def _unused_values_text(fabric: FabricState, vid: int) -> str:
    """Return as text which values of a VLAN's VNs neither its algorithm nor its shadow uses; "" if none."""
    vns, control = fabric.vns, fabric.control
    mine = vns.vlan_vid == vid
    unused = []
    if not (uses_ceilings(control.policies, vid) or uses_ceilings(control.shadow.policies, vid)):
        with_ceiling = ~np.isnan(vns.send_ceiling_bps) | ~np.isnan(vns.receive_ceiling_bps)
        unused.append(("ceilings", int((with_ceiling & mine).sum())))
    if not (uses_weights(control.policies, vid) or uses_weights(control.shadow.policies, vid)):
        unused.append(("weights", int(((vns.weight != 1.0) & mine).sum())))
    return "".join(f"; the {what} of {count} VNs are stored and not used" for what, count in unused if count)


def _note_vlans(fabric: FabricState, before: ControlContext, now_s: float) -> None:
    """Note the VLANs that have another algorithm or shadow; only their number if they are many."""
    policies, shadows = fabric.control.policies, fabric.control.shadow.policies
    vids = [
        vid
        for vid, policy in sorted(policies.items(), key=itemgetter(0))
        if policy != before.policies[vid] or shadows.get(vid) != before.shadow.policies.get(vid)
    ]
    if len(vids) > _MAX_NAMED:
        fabric.note(EventKind.ALGORITHM_CHANGED, f"{len(vids)} VLANs have another algorithm or shadow", now_s)
        return
    for vid in vids:
        policy, shadow = policies[vid], shadows.get(vid)
        text = f"VLAN {vid}: {_policy_text(policy)}"
        if shadow is not None:
            text += f", shadow {_policy_text(shadow)}"
        fabric.note(EventKind.ALGORITHM_CHANGED, text + _unused_values_text(fabric, vid), now_s, vlan_vid=vid)
