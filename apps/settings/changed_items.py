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
    rest_after: Callable[[int], None],
) -> list[Item]:
    """Return every value that a change of these VLANs and VNs changes, with its old and new effective value.

    ``rest_after`` is called with the number of items so far.
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
        was, after = (getattr(vns, name)[rows] for vns in (vns_before, values.vns))
        changed = np.flatnonzero((was != after) & ~(np.isnan(was) & np.isnan(after)))
        pairs = zip(was[changed].tolist(), after[changed].tolist(), strict=True)
        for count, (row, (old, new)) in enumerate(zip(rows[changed].tolist(), pairs, strict=True), 1):
            vid, switch, port_no = file.names[row]
            items.append(Item(vid, switch, port_no, name, vn_value(name, old), vn_value(name, new)))
            rest_after(count)
    return items


def digest_of(file: FileValues) -> str:
    """Return a digest that is equal for files with the same values."""
    digest = hashlib.sha256(repr(sorted(file.config.vlans.items())).encode())
    digest.update(repr(file.names).encode())
    for name in VN_FIELDS:
        digest.update(getattr(file.vns, name).tobytes())
    return digest.hexdigest()
