"""All policies by name. To add one: write its file, and add a line with its module and class here.

Policies of absent rooms are missing (``controller.rooms``); policies of plugins are included (``controller.plugins``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller import plugins, rooms
from controller.allocation.parameters import check_parameters, parameters_of
from controller.errors import InvalidValueError, near_name
from controller.policy.interface import Policy
from controller.policy.per_receiver import PerReceiverPolicy

CLASSES = {
    "fs": "controller.dets.fair_share:FairShare",
    "sp": "controller.dets.slow_probe:SlowProbe",
    "fp": "controller.dets.fast_probe:FastProbe",
    "fe": "controller.dets.forward_explicit:ForwardExplicit",
    "level": "controller.dets.fair_level:FairLevel",
    "max-min": "controller.policy.max_min:MaxMinPolicy",
    "seawall": "controller.seawall.policy:Seawall",
    "seawall-cubic": "controller.seawall.policy:SeawallCubic",
    "seawall-dctcp": "controller.seawall.policy:SeawallDctcp",
    "seawall-strawman": "controller.seawall.strawman:SeawallStrawman",
    "seawall-exact": "controller.seawall.exact_max_min:SeawallExact",
    "gatekeeper": "controller.gatekeeper.policy:Gatekeeper",
    "hygenicc": "controller.hygenicc.policy:HyGenICC",
}

policies: dict[str, type[Policy]] = {
    name: rooms.load(target) for name, target in CLASSES.items() if rooms.is_installed(rooms.room_of(target))
}
"""All policies by name."""


def _check_policy(name: str, found: Any, kind: type[Any] = Policy) -> None:
    """Raise an error if an object of another package cannot be used as a policy."""
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise TypeError(f"{found!r} is not a subclass of {kind.__name__}")
    policy: type[Policy] = found
    if policy.name != name:
        raise InvalidValueError("name", policy.name, f"must be {name!r}, as the entry point is called")
    policy.from_parameters(check_parameters(name, parameters_of(policy), {}))


def _check_algorithm(name: str, found: Any) -> None:
    _check_policy(name, found, PerReceiverPolicy)


for group, check in ((plugins.ALGORITHMS, _check_algorithm), (plugins.POLICIES, _check_policy)):
    policies |= plugins.loaded(group, policies | dict.fromkeys(CLASSES), check)


def make_policy(
    name: object,
    parameters: Mapping[str, object] | None = None,
    *,
    key: str = "algorithm",
    parameters_key: str = "parameters",
    interval_ms: int | None = None,
) -> Policy:
    """Return the policy of that name with these parameters, and defaults for the others.

    Raises InvalidValueError for an unknown name (naming ``key``), an unknown parameter or a value out of bounds (naming
    ``parameters_key.parameter``), with the accepted values; with ``interval_ms`` also for a value that is too slow at
    that control interval.
    """
    known = policies.get(name) if isinstance(name, str) else None
    if known is None:
        if isinstance(name, str) and name in CLASSES:
            rooms.check(rooms.room_of(CLASSES[name]), key, name)
        if isinstance(name, str) and (fault := plugins.fault_of(name, plugins.ALGORITHMS, plugins.POLICIES)):
            raise InvalidValueError(key, name, f"is not loaded: {fault}")
        near = near_name(name, policies) if isinstance(name, str) else ""
        raise InvalidValueError(key, name, f"is not an allocation algorithm{near}: write one of {', '.join(policies)}")
    policy = known.from_parameters(check_parameters(known.name, parameters_of(known), parameters or {}, parameters_key))
    if interval_ms is not None:
        try:
            policy.check_interval(interval_ms)
        except InvalidValueError as error:
            raise InvalidValueError(f"{parameters_key}.{error.key}", error.value, error.reason) from None
    return policy


def title_of(name: str) -> str:
    """Return a policy's title for people; for a policy that no longer exists, its name."""
    return policies[name].title if name in policies else name


def policies_with_ceilings() -> str:
    """Return the names of the policies that use ceilings, for messages."""
    return ", ".join(name for name, policy in policies.items() if policy.borrows)


def policies_with_weights() -> str:
    """Return the names of the policies that use weights, for messages."""
    return ", ".join(name for name, policy in policies.items() if policy.weighted)
