"""What a store holds over a configuration file, without a controller that runs: for ``dets check``."""

from __future__ import annotations

from pathlib import Path

from apps.settings.store import Store
from controller.fabric.description import Config
from controller.limits.admission import AdmittedLimits
from controller.limits.overrides import FileValues, Overrides
from controller.limits.precedence import lay


def overridden(config: Config) -> tuple[int, dict[str, str]]:
    """Return how many VLANs and VNs have other values in the store than in the file, and why which would not have them.

    Reads the store that the configuration names, if there is one; raises StoreError when that cannot be read.
    """
    path = config.rest.store
    if not Path(path).is_file():
        return 0, {}
    store = Store(path)
    try:
        standing = store.load()
    finally:
        store.close()
    overrides = Overrides.of(FileValues(config), standing.vlans, standing.vns)
    in_force = lay(overrides, AdmittedLimits(config).core_overload)
    inactive = {f"VLAN {vid}": reason for vid, reason in in_force.inactive_vlans.items()}
    inactive |= {str(name): reason for name, reason in in_force.inactive_vns.items()}
    return len([*overrides.standing_vlans(), *overrides.standing_vns()]), inactive
