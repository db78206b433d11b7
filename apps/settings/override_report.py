"""Overrides in a store over a configuration file, with or without a running controller: for ``dets check``."""

from __future__ import annotations

from pathlib import Path

from controller.fabric.config_model import Config


def override_counts(config: Config) -> tuple[int, dict[str, str]]:
    """Return the number of overridden VLANs and VNs in the store, and by name the reason for each inactive override.

    The store is the one that the configuration names; (0, {}) if it does not exist. A cluster's store in etcd is not
    read. Raises StoreError for an unreadable store.
    """
    path = config.rest.store
    if config.cluster is not None or not Path(path).is_file():
        return 0, {}
    # Not at the top: without a store, these imports would take a twentieth of dets check's time.
    from apps.settings.store import read_state
    from controller.limits.admission import AdmittedLimits
    from controller.limits.effective_settings import resolve
    from controller.limits.overrides import FileValues, Overrides

    stored = read_state(path)
    overrides = Overrides.build(FileValues(config), stored.vlans, stored.vns)
    effective = resolve(overrides, AdmittedLimits(config).core_overload)
    inactive = {f"VLAN {vid}": reason for vid, reason in effective.inactive_vlans.items()}
    inactive_vns = {**effective.inactive_vns, **effective.unused_vns}
    inactive |= {overrides.file.describe(name): reason for name, reason in inactive_vns.items()}
    return len([*overrides.vlan_overrides(), *overrides.vn_overrides()]), inactive
