"""Checks of an operator's change before it becomes an override: rates, ceilings, weights, algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.errors import InvalidValueError
from controller.fabric.config_model import DIRECTIONS, Config, Vlan
from controller.fabric.value_checks import check_vn_value
from controller.fabric.vn_table import VnTable, check_ceiling
from controller.limits.overrides import VN_FIELDS
from controller.policy.registry import make_policy, policies, policies_with_ceilings, policies_with_weights
from controller.policy.shardability import check_shardable

_USERS = {"ceilings": ("borrows", policies_with_ceilings), "weights": ("weighted", policies_with_weights)}


def check_used(what: str, key: str, value: float, algorithm: str, shadow: str | None) -> None:
    """Raise InvalidValueError for ceilings or weights (``what``) that a VLAN's algorithm and shadow do not use."""
    reason = unused_reason(what, algorithm, shadow)
    if reason:
        raise InvalidValueError(key, value, f"has no effect: {reason}")


def unused_reason(what: str, algorithm: str, shadow: str | None) -> str:
    """Return why ceilings or weights have no effect in a VLAN with this algorithm and shadow; "" if they have one."""
    flag, users = _USERS[what]
    known = [policies[name] for name in (algorithm, shadow) if name in policies]
    if algorithm not in policies or any(getattr(policy, flag) for policy in known):
        return ""
    return f"the VLAN's algorithm is {algorithm}, and only {users()} use {what}"


def check_vn(vns: VnTable, vlan: Vlan, row: int, values: Mapping[str, float | None], prefix: str = "") -> None:
    """Check new values (``VN_FIELDS``) of the VN of a row; ``prefix`` comes before the keys in errors.

    Absent keys do not change, and a ceiling of None removes the ceiling.

    ``vlan`` is the VN's VLAN, with its effective values. Raises InvalidValueError for a rate that no meter can carry,
    for a weight out of bounds, for a ceiling outside the range from the VN's limit to its port's capacity, and for a
    ceiling or weight that the VLAN does not use.
    """
    for key in VN_FIELDS:
        value = check_vn_value(key, values[key], key=f"{prefix}{key}") if key in values else None
        if key == "weight" and value is not None:
            check_used("weights", f"{prefix}{key}", value, vlan.algorithm, vlan.shadow)
    for direction in DIRECTIONS:
        ceiling_bps = values.get(f"{direction}_ceiling_bps")
        if ceiling_bps is not None:
            check_used("ceilings", f"{prefix}{direction}_ceiling_bps", int(ceiling_bps), vlan.algorithm, vlan.shadow)
            limit_bps = int(values.get(f"{direction}_limit_bps") or getattr(vns, f"{direction}_limit_bps")[row])
            check_ceiling(f"{prefix}{direction}_ceiling_bps", int(ceiling_bps), limit_bps, int(vns.capacity_bps[row]))


def check_sharding(config: Config, vlan: Mapping[str, Any]) -> None:
    """Check values of a VLAN against ``cluster.mode``. Raises InvalidValueError for values that cannot be sharded."""
    if config.cluster is None or config.cluster.mode == "active-standby":
        return
    if vlan.get("algorithm") in policies:
        check_shardable(policies[vlan["algorithm"]])
    if vlan.get("shadow") is not None:
        reason = "is not possible with cluster.mode: sharded: a shadow sees the whole fabric"
        raise InvalidValueError("shadow", vlan["shadow"], reason)


def complete_vlan(before: Vlan, changes: Mapping[str, Any], interval_ms: int) -> dict[str, Any]:
    """Return new values of a VLAN, completed by their consequences: a new algorithm also resets its parameters.

    Another algorithm starts with its default parameters if none are given. Raises InvalidValueError for an unknown
    algorithm or parameter, for a value out of bounds, and for one that is too slow at the control interval.
    """
    values = dict(changes)
    for key, parameters_key in (("algorithm", "parameters"), ("shadow", "shadow_parameters")):
        if not changes.keys() & {key, parameters_key}:
            continue
        present = getattr(before, key)
        name = changes.get(key, present)
        kept = getattr(before, parameters_key) if name == present else {}
        values[key] = name
        values[parameters_key] = dict(changes.get(parameters_key, kept))
        if key == "algorithm" or name is not None:
            parameters = values[parameters_key]
            make_policy(name, parameters, key=key, parameters_key=parameters_key, interval_ms=interval_ms)
        elif values[parameters_key]:
            raise InvalidValueError(parameters_key, values[parameters_key], f"stands without a {key}")
    return values
