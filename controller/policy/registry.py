"""All policies by name. To add one: write its file, and add a line with its module and class here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from controller.allocation.parameters import check_parameters, parameters_of
from controller.errors import InvalidValueError
from controller.policy.interface import Policy

CLASSES = (
    "controller.dets.fair_share:FairShare",
    "controller.dets.slow_probe:SlowProbe",
    "controller.dets.fast_probe:FastProbe",
    "controller.dets.forward_explicit:ForwardExplicit",
    "controller.dets.fair_level:FairLevel",
    "controller.policy.max_min:MaxMin",
    "controller.seawall.policy:Seawall",
    "controller.seawall.policy:SeawallCubic",
    "controller.seawall.policy:SeawallDctcp",
    "controller.seawall.strawman:SeawallStrawman",
    "controller.seawall.exact:SeawallExact",
    "controller.gatekeeper.policy:Gatekeeper",
    "controller.hygenicc.policy:HyGenICC",
)


def _load(target: str) -> type[Policy]:
    module, _, name = target.partition(":")
    found: type[Policy] = getattr(importlib.import_module(module), name)
    return found


policies: dict[str, type[Policy]] = {one.name: one for one in map(_load, CLASSES)}
"""All policies by name."""


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
    ``parameters_key.parameter``), with what would be accepted; with ``interval_ms`` also for a value with which it is
    too slow at that control interval.
    """
    known = policies.get(name) if isinstance(name, str) else None
    if known is None:
        raise InvalidValueError(key, name, f"is not an allocation algorithm: write one of {', '.join(policies)}")
    policy = known.of(check_parameters(known.name, parameters_of(known), parameters or {}, parameters_key))
    if interval_ms is not None:
        try:
            policy.check_interval(interval_ms)
        except InvalidValueError as error:
            raise InvalidValueError(f"{parameters_key}.{error.key}", error.value, error.reason) from None
    return policy


def title_of(name: str) -> str:
    """Return a policy's title for people; of one that is not there any more, its name."""
    return policies[name].title if name in policies else name


def borrowers() -> str:
    """Return the names of the policies under which ceilings count, for messages."""
    return ", ".join(name for name, policy in policies.items() if policy.borrows)


def weighers() -> str:
    """Return the names of the policies that use weights, for messages."""
    return ", ".join(name for name, policy in policies.items() if policy.weighted)
