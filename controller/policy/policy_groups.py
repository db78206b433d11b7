"""The policy of each VLAN, and the groups of VNs that are decided in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from controller.allocation.parameters import check_parameters, parameters_of
from controller.columns import BoolArray, FloatArray, IntArray
from controller.fabric.config_model import Config
from controller.fabric.vn_table import VnTable
from controller.metering.fabric_readings import ReadingKind
from controller.policy.interface import Policy, StaleMode
from controller.policy.registry import make_policy, policies


@dataclass(frozen=True)
class PolicyChoice:
    """A VLAN's policy by name, and its parameters, as configured."""

    algorithm: str
    parameters: Mapping[str, object] = field(default_factory=dict)


Choices = Mapping[int, PolicyChoice]
"""The choice of each VLAN by its id."""


@dataclass(frozen=True)
class PolicyGroup:
    """VNs that one policy decides in one call: ``vns`` holds their rows, in ascending order.

    ``key`` names the policy with its parameters, or the policy alone if it is ``joint``: then all its VLANs are decided
    together. A group with the same key keeps its state when VLANs change. ``parameters`` are empty unless the policy is
    joint: then each is a column (vns,) with the values of the VNs' VLANs, NaN for VNs of other policies.
    """

    key: str
    policy: Policy
    vns: IntArray
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)

    def member_mask(self, vns: int) -> BoolArray:
        """Return the cached, read-only mask (vns,) of the group's VNs."""
        # ``next_state`` is the mask.
        next_state: BoolArray | None = self.__dict__.get("_mine")
        if next_state is None or len(next_state) != vns:
            next_state = np.zeros(vns, dtype=np.bool_)
            next_state[self.vns] = True
            self.__dict__["_mine"] = next_state
        return next_state


def choices_of(config: Config) -> dict[int, PolicyChoice]:
    """Return the policy of each VLAN by its id."""
    return {vid: PolicyChoice(vlan.algorithm, vlan.parameters) for vid, vlan in config.vlans.items()}


def shadows_of(config: Config) -> dict[int, PolicyChoice]:
    """Return the shadow policy of each VLAN that has one."""
    return {
        vid: PolicyChoice(vlan.shadow, vlan.shadow_parameters)
        for vid, vlan in config.vlans.items()
        if vlan.shadow is not None
    }


def groups_of(vns: VnTable, choices: Choices) -> tuple[PolicyGroup, ...]:
    """Return one group for each policy with its parameters, or one for each policy whose VLANs are decided together.

    Raises InvalidValueError as ``make_policy`` does.
    """
    made: dict[str, Policy] = {}
    values_of: dict[str, dict[int, dict[str, float]]] = {}
    for vid, choice in sorted(choices.items()):
        policy = make_policy(choice.algorithm, choice.parameters)
        values = check_parameters(policy.name, parameters_of(type(policy)), choice.parameters)
        key = policy.name if policy.joint else repr((policy.name, sorted(values.items())))
        made.setdefault(key, policy)
        values_of.setdefault(key, {})[vid] = values
    return tuple(
        PolicyGroup(
            key,
            policy,
            np.flatnonzero(np.isin(vns.vlan_vid, list(values_of[key]))),
            _by_vn(vns, values_of[key]) if policy.joint else {},
        )
        for key, policy in made.items()
    )


def apply_choices(vns: VnTable, choices: Choices) -> VnTable:
    """Return the VNs with the columns that depend on policies: use of ceilings, defaults, permanent control.

    VLANs without a choice stay unchanged.
    """
    chosen = np.isin(vns.vlan_vid, list(choices))

    def column(which: Callable[[type[Policy]], bool], before: BoolArray) -> BoolArray:
        vids = [vid for vid, one in choices.items() if which(policies[one.algorithm])]
        return np.where(chosen, np.isin(vns.vlan_vid, vids), before)

    return vns.with_columns(
        uses_ceiling=column(lambda policy: policy.borrows, vns.uses_ceiling),
        port_ceilings=column(lambda policy: policy.port_ceilings, vns.port_ceilings),
        always_controlled=column(lambda policy: policy.controls_uncongested, vns.always_controlled),
    )


def uses_ceilings(choices: Choices, vid: int) -> bool:
    """Return whether a VLAN uses ceilings."""
    return vid in choices and policies[choices[vid].algorithm].borrows


def uses_weights(choices: Choices, vid: int) -> bool:
    """Return whether a VLAN uses VNs' weights."""
    return vid in choices and policies[choices[vid].algorithm].weighted


def need_headroom(groups: Iterable[PolicyGroup], vns: int) -> BoolArray:
    """Return the mask of the VNs under a policy that acts on the drops of receivers' queues, (vns,)."""
    needing = np.zeros(vns, dtype=np.bool_)
    for group in groups:
        needing[group.vns] |= group.policy.needs_headroom
    return needing


def declare_congestion(groups: Iterable[PolicyGroup], vns: int) -> BoolArray:
    """Return the mask of the VNs under a policy that declares congestion itself, (vns,)."""
    declared = np.zeros(vns, dtype=np.bool_)
    for group in groups:
        declared[group.vns] |= group.policy.declares_congestion
    return declared


def required_readings(groups: Iterable[PolicyGroup]) -> frozenset[ReadingKind]:
    """Return the readings that these policies use."""
    groups = tuple(groups)
    if len(groups) == 1:
        return groups[0].policy.required_readings
    return frozenset[ReadingKind]().union(*(group.policy.required_readings for group in groups))


def held_while_stale(groups: Iterable[PolicyGroup], receiver: IntArray, vns: int) -> BoolArray | bool:
    """Return the mask (pairs,) of pairs that keep their limits without messages (fail closed); False: no pair does.

    ``receiver`` (pairs,) are rows of VNs, whose number is ``vns``; the policy of a pair is its receiver's.
    """
    holding = [group.vns for group in groups if group.policy.silence is StaleMode.HOLD]
    if not holding:
        return False
    holds = np.zeros(vns, dtype=np.bool_)
    holds[np.concatenate(holding)] = True
    return holds[receiver]


def _by_vn(vns: VnTable, values_of: Mapping[int, Mapping[str, float]]) -> dict[str, FloatArray]:
    # Return each parameter as a column (vns,): the value of the VN's VLAN, NaN for VLANs without values.
    columns: dict[str, FloatArray] = {}
    for vid, values in values_of.items():
        for name, value in values.items():
            columns.setdefault(name, np.full(len(vns), np.nan))[vns.vlan_vid == vid] = value
    return columns
