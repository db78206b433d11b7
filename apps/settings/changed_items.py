"""The items of a change, value by value, and the digest of a configuration file's values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

import numpy as np

from apps.settings.store import Item
from controller.fabric.config_model import Config
from controller.fabric.vn_table import VnTable
from controller.limits.effective_settings import EffectiveSettings
from controller.limits.overrides import VLAN_FIELDS, VN_FIELDS, FileValues, VnName, vn_value


def changed_items(
    file: FileValues,
    vids: Collection[int],
    names: Collection[VnName],
    before: tuple[Config, VnTable],
    values: EffectiveSettings,
    yield_after: Callable[[int], None],
) -> list[Item]:
    """Return every effective value that a change of VLANs (``vids``) and VNs (``names``) changes, old and new.

    ``before`` are the configuration and the table of VNs with the old values, ``values`` the new ones. ``yield_after``
    is called after each item of a VN with the number of items of the same field so far, to let other greenlets run.
    """
    items = []
    config, vns_before = before
    for vid in values.vlans.keys() & set(vids):
        for name in VLAN_FIELDS:
            old, new = getattr(config.vlans[vid], name), getattr(values.vlans[vid], name)
            if old != new:
                items.append(Item(vid, None, None, name, old, new))
    rows = np.array([row for vn in names if (row := file.row_of.get(vn)) is not None], dtype=np.int64)
    for name in VN_FIELDS:
        old_values, new_values = (getattr(vns, name)[rows] for vns in (vns_before, values.vns))
        both_unset = np.isnan(old_values) & np.isnan(new_values)
        changed = np.flatnonzero((old_values != new_values) & ~both_unset)
        changes = zip(rows[changed].tolist(), old_values[changed].tolist(), new_values[changed].tolist(), strict=True)
        for count, (row, old, new) in enumerate(changes, 1):
            vid, switch, port_no = file.names[row]
            items.append(Item(vid, switch, port_no, name, vn_value(name, old), vn_value(name, new)))
            yield_after(count)
    return items


def digest_of(file: FileValues) -> str:
    """Return a hexadecimal SHA-256 that is equal for configuration files with the same values."""
    digest = hashlib.sha256(repr(sorted(file.config.vlans.items())).encode())
    digest.update(repr(file.names).encode())
    for name in VN_FIELDS:
        digest.update(getattr(file.vns, name).tobytes())
    return digest.hexdigest()
