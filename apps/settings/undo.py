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
    """Return the overrides of VLANs and of VNs, made at ``revision``, that restore the values before ``change``.

    ``values`` are effective now. A value that would be the same without an override gets none. Raises InvalidValueError
    for a change of the file, and for a value that was changed again since or is no longer valid.
    """
    if not change.items:
        reason = "has changed no value; what the configuration file changed is undone there, and reloaded"
        raise InvalidValueError("revision", change.revision, reason)
    given: dict[int | VnName, dict[str, Any]] = {}
    for item in change.items:
        place = _place(item)
        if _needs_undo(item, place, overrides, values, change.revision):
            given.setdefault(place, {})[item.field] = item.before
    vlans = {vid: fields for vid, fields in given.items() if isinstance(vid, int)}
    new_vlans = {vid: _vlan_override(vid, vlan, overrides, values, revision) for vid, vlan in vlans.items()}
    over = overrides.with_vlans(new_vlans)
    vns = {name: fields for name, fields in given.items() if isinstance(name, VnName)}
    return new_vlans, _vn_overrides(vns, over, values, revision)


def _place(item: Item) -> int | VnName:
    if item.switch is None or item.port_no is None:
        return item.vlan_vid
    return VnName(item.vlan_vid, item.switch, item.port_no)


def _needs_undo(
    item: Item, target: int | VnName, overrides: Overrides, values: EffectiveSettings, changed_by: int
) -> bool:
    """Return whether a value is as the change left it; False also if it already equals the previous one."""
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
    """Return a VLAN's override with the restored values; values equal to the file's need none."""
    stored, file = overrides.vlans.get(vid, Override({}, 0)), overrides.file.config.vlans[vid]
    now = values.vlans[vid]
    for pair in _PAIRED:
        if restored.keys() & set(pair):
            restored |= {name: restored.get(name, getattr(now, name)) for name in pair}
    of_file = {name for name in restored if restored[name] == getattr(file, name)}
    of_file -= {name for pair in _PAIRED if not of_file.issuperset(pair) for name in pair}
    new = {name: value for name, value in {**stored.values, **restored}.items() if name not in of_file}
    try:
        complete_vlan(now, restored, overrides.file.config.interval_ms)
        check_vlan_values(new)
    except InvalidValueError as error:
        raise InvalidValueError(undo_key(vid, error.key), error.value, error.reason) from error
    return Override(new, revision, revision if restored.keys() & set(VLAN_LIMITS) else stored.limits_revision)


def _vn_overrides(
    vns: dict[VnName, dict[str, Any]], overrides: Overrides, values: EffectiveSettings, revision: int
) -> dict[VnName, Override]:
    """Return the overrides of VNs; ``overrides`` include those of their VLANs."""
    file, vlans = overrides.file, overrides.effective_vlans()
    rows = np.array([file.row_of[name] for name in vns], dtype=np.int64)
    off = np.zeros(len(file.vns), dtype=np.bool_)
    off[rows] = True
    without = overrides.without_vlans(values.inactive_vlans).without_vns(off).vns()
    found = {}
    for (name, given), row, stored in zip(vns.items(), rows.tolist(), overrides.vn_overrides_of(rows), strict=True):
        check_vn(values.vns, vlans[name.vlan_vid], row, given, undo_key(name, ""))
        inherited = {field for field in given if vn_value(field, getattr(without, field)[row].item()) == given[field]}
        stored_values = {field: value for field, value in {**stored.values, **given}.items() if field not in inherited}
        found[name] = Override(stored_values, revision)
    return found
