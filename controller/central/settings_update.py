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
    """Return the rows of VNs with another limit, ceiling or weight."""
    changed = np.zeros(len(after), dtype=np.bool_)
    for name in VN_FIELDS:
        old, new = getattr(before, name), getattr(after, name)
        changed |= (old != new) & ~(np.isnan(old) & np.isnan(new))
    return np.flatnonzero(changed)


def _set_vn_meters(fabric: FabricState, before: VnTable, before_flood_bps: FloatArray, now_s: float) -> None:
    """Queue meter-mods for changed send limits, flood limits and start rates of VNs, to switches with meters."""
    send_limits = before.send_max_bps != fabric.vns.send_max_bps
    floods = before_flood_bps != fabric.flood_limit_bps
    (old_bps, old_bits), (new_bps, new_bits) = new_pair_limits(before), new_pair_limits(fabric.vns)
    new_pairs = (old_bps != new_bps) | (old_bits != new_bits)
    # No packet-in meters: their settings do not depend on these values.
    _modify_vn_meters(fabric, send_limits, floods, new_pairs, np.zeros_like(new_pairs), now_s)


def follow_frame_sizes(fabric: FabricState, seen_bytes: FloatArray, now_s: float) -> None:
    """Raise the bursts of VNs' meters for larger frames, ``seen_bytes`` (vns,)."""
    rows = grown(fabric.frame_bytes, seen_bytes)
    if not len(rows):
        return
    fabric.frame_bytes = fabric.frame_bytes.copy()
    fabric.frame_bytes[rows] = seen_bytes[rows]
    fabric.follow_bounds()
    grew, none = np.zeros((2, len(fabric.vns)), dtype=np.bool_)
    grew[rows] = True
    _modify_vn_meters(fabric, grew, none, grew, grew, now_s)


def _modify_vn_meters(
    fabric: FabricState,
    send_limits: BoolArray,
    floods: BoolArray,
    new_pairs: BoolArray,
    packet_ins: BoolArray,
    now_s: float,
) -> None:
    """Queue meter-mods for the desired settings of VNs' meters; each kind of meter has the mask of its VNs, (vns,)."""
    fabric.send_limits = fabric.send_limits.modified(np.flatnonzero(send_limits), now_s)
    fabric.floods.modified(np.flatnonzero(floods), now_s)
    # ``packet_ins`` has no VN that the other masks lack.
    for dpid in np.unique(fabric.vns.dpid[send_limits | floods | new_pairs]).tolist():
        record = fabric.switches[dpid]
        if record.connected:
            rows, meter_id = record.vn_meter_columns()  # ``meter_id`` has a row for each field of VnMeters
            send_ids, flood_ids = meter_id[0, send_limits[rows]], meter_id[1:3, floods[rows]].ravel()
            other_ids = meter_id[_NEWCOMER, new_pairs[rows]], meter_id[_REPORT, packet_ins[rows]]
            modified_ids = np.concatenate([send_ids, flood_ids, *other_ids])
            desired = fabric.desired_meters(record)
            positions = np.flatnonzero(np.isin(desired.meter_id, modified_ids))
            settings = desired.rate_kbps[positions], desired.burst_kbits[positions]
            record.update.modify_meters(modifications(desired.meter_id[positions], *settings))


def _note_limits(fabric: FabricState, before: VnTable, now_s: float) -> None:
    """Note the VNs' new limits and weights; only their number if they are many."""
    rows = _changed_rows(before, fabric.vns)
    if len(rows) > _MAX_NAMED:
        fabric.note(EventKind.LIMIT_CHANGED, f"{len(rows)} VNs have new limits or weights", now_s)
        return
    for row in rows.tolist():
        changes = []
        for name in VN_FIELDS:
            old, new = getattr(before, name)[row], getattr(fabric.vns, name)[row]
            if old != new and not (np.isnan(old) and np.isnan(new)):
                changes.append(_value_text(name, new))
        fabric.note(EventKind.LIMIT_CHANGED, f"{fabric.vn_name(row)}: {', '.join(changes)}", now_s, vn=row)


def _value_text(field: str, number: float) -> str:
    """Return a VN's value with its name as text, such as ``send limit 40M``."""
    name, value = field.removesuffix("_bps").replace("_", " "), vn_value(field, number)
    if value is None:
        return f"{name} none"
    return f"{name} {exact_rate(int(value)) if field.endswith('_bps') else f'{value:g}'}"


def _policy_text(policy: PolicyChoice) -> str:
    """Return an algorithm and its parameters as text."""
    values = with_whole_numbers(policy.parameters)
    return " ".join([policy.algorithm, *(f"{name}={value}" for name, value in values.items())])


def _unused_values_text(fabric: FabricState, vid: int) -> str:
    """Return as text which values of a VLAN's VNs neither its algorithm nor its shadow uses; "" if none."""
    vns, control = fabric.vns, fabric.control
    in_vlan = vns.vlan_vid == vid
    unused = []
    if not (uses_ceilings(control.policies, vid) or uses_ceilings(control.shadow.policies, vid)):
        with_ceiling = ~np.isnan(vns.send_ceiling_bps) | ~np.isnan(vns.receive_ceiling_bps)
        unused.append(("ceilings", int((with_ceiling & in_vlan).sum())))
    if not (uses_weights(control.policies, vid) or uses_weights(control.shadow.policies, vid)):
        unused.append(("weights", int(((vns.weight != 1.0) & in_vlan).sum())))
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
