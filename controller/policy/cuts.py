"""Which policies can be cut over several controllers, each of which decides for the receivers at its own switches."""

from __future__ import annotations

from controller.errors import InvalidValueError
from controller.policy.interface import Policy

SWINGING = frozenset({"fe"})
"""RAA-FE steers by what is received alone: when frames came an interval late, its grants swung between nothing and 2.8
times the limit, whatever its gain was."""


def check_cut(policy: Policy | type[Policy], key: str = "algorithm") -> None:
    """Raise InvalidValueError for a policy that cannot be cut."""
    if policy.reads or policy.always_controls:
        raise InvalidValueError(key, policy.name, "sees more than a receiver's senders, and cannot be cut into shards")
    if policy.name in SWINGING:
        raise InvalidValueError(
            key, policy.name, "swings when its grants work intervals later, and cannot be cut into shards"
        )
