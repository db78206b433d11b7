"""Undo of a change: the previous effective values, as overrides over the present ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from apps.settings.store import Item, StoredChange
from controller.errors import InvalidValueError
from controller.fabric.value_checks import check_vlan_values
from controller.limits.change_validation import check_vn, complete_vlan
from controller.limits.effective_settings import EffectiveSettings
from controller.limits.overrides import VLAN_LIMITS, Override, Overrides, VnName, vn_value

_PAIRED = (("algorithm", "parameters"), ("shadow", "shadow_parameters"))


def undo_key(target: int | VnName, field: str) -> str:
    """Return the key of a value in errors, such as ``vns.10/s1/3.receive_limit_bps`` or ``vlans.10.weight``."""
    return f"vlans.{target}.{field}" if isinstance(target, int) else f"vns.{'/'.join(map(str, target))}.{field}"


def undoing_overrides(
    change: StoredChange, overrides: Overrides, values: EffectiveSettings, revision: int
) -> tuple[dict[int, Override], dict[VnName, Override]]:
    """Return the overrides of VLANs and of VNs that restore the values before ``change``.

    ``overrides`` and ``values`` are the present overrides and effective values; the returned overrides get the revision
    ``revision``. A value that would be the same without an override gets none. Raises InvalidValueError if ``change``
    is a change of the configuration file, and if a value was changed again since or is no longer valid.
    """
    if not change.items:
        reason = "has changed no value; what the configuration file changed is undone there, and reloaded"
        raise InvalidValueError("revision", change.revision, reason)
    restored: dict[int | VnName, dict[str, Any]] = {}
    for item in change.items:
        target = _target(item)
        if _needs_undo(item, target, overrides, values, change.revision):
            restored.setdefault(target, {})[item.field] = item.before
    vlans = {vid: fields for vid, fields in restored.items() if isinstance(vid, int)}
    vlan_overrides = {vid: _vlan_override(vid, fields, overrides, values, revision) for vid, fields in vlans.items()}
    vns = {name: fields for name, fields in restored.items() if isinstance(name, VnName)}
    return vlan_overrides, _vn_overrides(vns, overrides.with_vlans(vlan_overrides), values, revision)


def _target(item: Item) -> int | VnName:
    """Return the VLAN id or the VN of a changed value."""
    if item.switch is None or item.port_no is None:
        return item.vlan_vid
    return VnName(item.vlan_vid, item.switch, item.port_no)


def _needs_undo(
    item: Item, target: int | VnName, overrides: Overrides, values: EffectiveSettings, changed_by: int
) -> bool:
    """Return whether a value must be restored; False if it already equals the value before the change.

    Raises InvalidValueError if it was changed again after the change, or if the VLAN or VN no longer exists.
    """
    file, key = overrides.file, undo_key(target, item.field)
    if isinstance(target, int):
        if target not in file.config.vlans:
            raise InvalidValueError(key, item.before, "cannot be set: the configuration has no such VLAN any more")
        now = getattr(values.vlans[target], item.field)
    else:
        row = file.row_of.get(target)
        if row is None:
            raise InvalidValueError(key, item.before, "cannot be set: the configuration has no such VN any more")
        now = vn_value(item.field, getattr(values.vns, item.field)[row].item())
    if now == item.before:
        return False
    if now != item.after:
        reason = f"cannot be set: it is {now!r}, not {item.after!r} as revision {changed_by} left it; dets history"
        raise InvalidValueError(key, item.before, f"{reason} names later changes")
    return True


def _vlan_override(
    vid: int, restored: dict[str, Any], overrides: Overrides, values: EffectiveSettings, revision: int
) -> Override:
    """Return a VLAN's override with the restored values, without those that equal the file's values.

    An algorithm and its parameters (_PAIRED) are overridden both or not at all.
    """
    stored, file = overrides.vlans.get(vid, Override({}, 0)), overrides.file.config.vlans[vid]
    effective = values.vlans[vid]
    for pair in _PAIRED:
        if restored.keys() & set(pair):
            restored |= {name: restored.get(name, getattr(effective, name)) for name in pair}
    unneeded = {name for name in restored if restored[name] == getattr(file, name)}
    # If one value of a pair is needed, the other one is, too.
    unneeded -= {name for pair in _PAIRED if not unneeded.issuperset(pair) for name in pair}
    fields = {name: value for name, value in {**stored.values, **restored}.items() if name not in unneeded}
    try:
        complete_vlan(effective, restored, overrides.file.config.interval_ms)  # for its checks only
        check_vlan_values(fields)
    except InvalidValueError as error:
        raise InvalidValueError(undo_key(vid, error.key), error.value, error.reason) from error
    return Override(fields, revision, revision if restored.keys() & set(VLAN_LIMITS) else stored.limits_revision)


def _vn_overrides(
    vns: dict[VnName, dict[str, Any]], overrides: Overrides, values: EffectiveSettings, revision: int
) -> dict[VnName, Override]:
    """Return the overrides of VNs with the restored values, without those that equal the VLAN's or file's values.

    ``vns`` are the restored values by VN and field. ``overrides`` include the restored ones of the VLANs.
    """
    file, vlans = overrides.file, overrides.effective_vlans()
    rows = np.array([file.row_of[name] for name in vns], dtype=np.int64)
    vn_mask = np.zeros(len(file.vns), dtype=np.bool_)
    vn_mask[rows] = True
    # The values that these VNs would have without overrides of their own.
    inherited = overrides.without_vlans(values.inactive_vlans).without_vns(vn_mask).vns()
    result = {}
    for (name, fields), row, stored in zip(vns.items(), rows.tolist(), overrides.vn_overrides_of(rows), strict=True):
        # The last argument is the prefix of the fields' keys.
        check_vn(values.vns, vlans[name.vlan_vid], row, fields, undo_key(name, ""))
        inherited_fields = {field: vn_value(field, getattr(inherited, field)[row].item()) for field in fields}
        unneeded = {field for field in fields if inherited_fields[field] == fields[field]}
        kept = {field: value for field, value in {**stored.values, **fields}.items() if field not in unneeded}
        result[name] = Override(kept, revision)
    return result
