"""Overrides in a store over a configuration file, with or without a running controller: for ``dets check``."""

from __future__ import annotations

from pathlib import Path

from controller.fabric.config_model import Config


def override_counts(config: Config) -> tuple[int, dict[str, str]]:
    """Return the number of overridden VLANs and VNs in the store, and the reason for each inactive override.

    Reads the store that the configuration names, if it exists; raises StoreError if it cannot be read. A cluster's
    store in etcd is not read.
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
    in_force = resolve(overrides, AdmittedLimits(config).core_overload)
    inactive = {f"VLAN {vid}": reason for vid, reason in in_force.inactive_vlans.items()}
    unfit = {**in_force.inactive_vns, **in_force.unused_vns}
    inactive |= {overrides.file.describe(name): reason for name, reason in unfit.items()}
    return len([*overrides.vlan_overrides(), *overrides.vn_overrides()]), inactive
