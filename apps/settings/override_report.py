"""What a store holds over a configuration file, whether or not a controller runs on it: for ``dets check``."""

from __future__ import annotations

from pathlib import Path

from apps.settings.store import read_state
from controller.fabric.config_model import Config
from controller.limits.admission import AdmittedLimits
from controller.limits.effective_settings import resolve
from controller.limits.overrides import FileValues, Overrides


def override_counts(config: Config) -> tuple[int, dict[str, str]]:
    """Return how many VLANs and VNs are overridden in the store, and the reason for each override that is inactive.

    Reads the store that the configuration names, if there is one; raises StoreError when that cannot be read. Of a
    cluster's, which is in etcd, nothing is said.
    """
    path = config.rest.store
    if config.cluster is not None or not Path(path).is_file():
        return 0, {}
    standing = read_state(path)
    overrides = Overrides.build(FileValues(config), standing.vlans, standing.vns)
    in_force = resolve(overrides, AdmittedLimits(config).core_overload)
    inactive = {f"VLAN {vid}": reason for vid, reason in in_force.inactive_vlans.items()}
    inactive |= {str(name): reason for name, reason in {**in_force.inactive_vns, **in_force.unused_vns}.items()}
    return len([*overrides.vlan_overrides(), *overrides.vn_overrides()]), inactive
