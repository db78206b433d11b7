"""How policies are sharded over nodes: each node decides for the receivers at its own switches, or one node for all."""

from __future__ import annotations

from controller.errors import InvalidValueError
from controller.policy.interface import Policy

DELAY_SENSITIVE = frozenset({"fe"})
"""RAA-FE is controlled by the received rate alone: with messages an interval late, its grants oscillated between zero
and 2.8 times the limit, for any gain."""


def is_network_wide(policy: Policy | type[Policy]) -> bool:
    """Return whether a policy uses more than a receiver's senders, so that one node must decide for all."""
    return bool(policy.required_readings) or policy.controls_uncongested


def check_shardable(policy: Policy | type[Policy]) -> None:
    """Raise InvalidValueError for a policy that cannot be sharded."""
    if policy.name in DELAY_SENSITIVE:
        raise InvalidValueError(
            "algorithm", policy.name, "oscillates when its grants take effect late, and cannot be sharded"
        )
