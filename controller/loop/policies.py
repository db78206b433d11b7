"""Which VLAN is shared out by which algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from controller.allocation.network_max_min import NetworkMaxMin
from controller.allocation.registry import make_any_algorithm
from controller.dets.rate_allocator import AlgorithmGroup
from controller.fabric.description import Config
from controller.fabric.vns import VnTable


@dataclass(frozen=True)
class Policy:
    """A VLAN's algorithm and its parameters, as configured."""

    algorithm: str
    parameters: Mapping[str, object] = field(default_factory=dict)


def policies_of(config: Config) -> dict[int, Policy]:
    """Return the policy of each VLAN by its id."""
    return {vid: Policy(vlan.algorithm, vlan.parameters) for vid, vlan in config.vlans.items()}


def shadows_of(config: Config) -> dict[int, Policy]:
    """Return the policies of the shadows by the VLANs that have one."""
    return {
        vid: Policy(vlan.shadow, vlan.shadow_parameters)
        for vid, vlan in config.vlans.items()
        if vlan.shadow is not None
    }


def algorithm_groups(vns: VnTable, policies: Mapping[int, Policy]) -> tuple[AlgorithmGroup, ...]:
    """Return one group for each algorithm with its parameters, so that VLANs with equal policies are one call."""
    vids_of: dict[str, list[int]] = {}
    policy_of: dict[str, Policy] = {}
    for vid, policy in sorted(policies.items()):
        name = repr((policy.algorithm, sorted(policy.parameters.items())))
        vids_of.setdefault(name, []).append(vid)
        policy_of[name] = policy
    return tuple(
        AlgorithmGroup(
            make_any_algorithm(policy_of[name].algorithm, policy_of[name].parameters),
            np.flatnonzero(np.isin(vns.vlan_vid, vids)),
        )
        for name, vids in vids_of.items()
    )


def lending_vlans(policies: Mapping[int, Policy]) -> list[int]:
    """Return the VLANs whose VNs lend what they leave idle, and borrow: those that are shared out together."""
    return [vid for vid, policy in policies.items() if policy.algorithm == NetworkMaxMin.name]
