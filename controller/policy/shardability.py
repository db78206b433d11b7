"""How policies are cut over several controllers: each decides for the receivers at its own switches, or one for all."""

from __future__ import annotations

from controller.errors import InvalidValueError
from controller.policy.interface import Policy

DELAY_SENSITIVE = frozenset({"fe"})
"""RAA-FE steers by what is received alone: when frames came an interval late, its grants swung between nothing and 2.8
times the limit, whatever its gain was."""


def is_network_wide(policy: Policy | type[Policy]) -> bool:
    """Return whether a policy sees more than a receiver's senders, so that one controller has to decide for all."""
    return bool(policy.required_readings) or policy.controls_uncongested


def check_shardable(policy: Policy | type[Policy]) -> None:
    """Raise InvalidValueError for a policy that cannot be cut."""
    if policy.name in DELAY_SENSITIVE:
        raise InvalidValueError(
            "algorithm", policy.name, "swings when its grants work intervals later, and cannot be cut into shards"
        )
