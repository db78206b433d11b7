"""The names of the policies that share out each receiver's limit by itself: the algorithms of DETS and their like."""

from controller.policy.per_receiver import PerReceiverPolicy
from controller.policy.registry import policies

ALGORITHMS = [name for name, policy in policies.items() if issubclass(policy, PerReceiverPolicy)]
