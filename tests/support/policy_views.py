"""What a policy is given in an interval, with usual values for all that a test does not set."""

from __future__ import annotations

from typing import Any

import numpy as np

from controller.allocation.parameters import parameters_of
from controller.columns import FloatArray
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.gatekeeper.ingress_monitor import Pairs
from controller.policy.interface import PolicyView
from controller.policy.policy_state import PolicyState
from controller.policy.registry import make_policy


def policy_view(
    entries: PairTable, vns: VnTable, sent_bps: FloatArray, passed_bps: FloatArray, limit_bps: FloatArray, **given: Any
) -> PolicyView:
    """Return the view of all pairs of a table: what they sent, what of it their meters let through, and their limits.

    Nobody is congested, and no link carries other traffic, unless that is ``given``.
    """
    nothing = np.zeros(len(given["links"].capacity_bps)) if "links" in given else None
    usual = {
        "now_s": 0.0,
        "elapsed_s": 0.055,
        "in_group": np.ones(len(vns), dtype=np.bool_),
        "parameters": {},
        "received_bps": np.bincount(entries.receiver, passed_bps, minlength=len(vns)),
        "congested": np.zeros(len(vns), dtype=np.bool_),
        "dropped_bps": sent_bps - passed_bps,
        "drops": sent_bps > passed_bps,
        "active": sent_bps > 0,
        "unread_intervals": np.zeros(len(entries), dtype=np.int64),
        "cross_traffic_bps": nothing,
        "cross_guaranteed_bps": nothing,
    }
    rows = {"rows": np.arange(len(entries)), "sender": entries.sender, "receiver": entries.receiver}
    rates = {"measured_bps": passed_bps, "passed_bps": passed_bps, "limit_bps": limit_bps}
    return PolicyView(entries=entries, vns=vns, **(usual | rows | rates | given))


def pairs(sender: Any, receiver: Any, measured_bps: Any = None, active: Any = None, weight: Any = None) -> Pairs:
    """Return Gatekeeper's view of pairs: active and of one weight, and they send nothing, unless that is given."""
    count = len(sender)
    return Pairs(
        np.array(sender, dtype=np.int64),
        np.array(receiver, dtype=np.int64),
        np.ones(count, dtype=np.bool_) if active is None else np.array(active),
        np.zeros(count) if measured_bps is None else np.array(measured_bps, dtype=np.float64),
        np.ones(count) if weight is None else np.array(weight, dtype=np.float64),
    )


class PolicyWorld:
    """A policy with its memory, and pairs (sender, receiver) of VNs that all have the same limit at first."""

    def __init__(self, name: str, pairs: Any, vns: VnTable, first_bps: float, parameters: dict[str, float]) -> None:
        self.vns, self.policy = vns, make_policy(name, parameters)
        rows = sorted(pairs, key=lambda pair: (pair[1], pair[0]))
        ends = (np.array([pair[n] for pair in rows], dtype=np.int64) for n in range(2))
        self.entries = PairTable(*ends, np.arange(1, len(rows) + 1))
        values = {one: getattr(self.policy, one) for one in parameters_of(type(self.policy))}
        self.parameters = {one: np.full(len(vns), value) for one, value in values.items()}
        self.memory = PolicyState(len(vns), rows=np.arange(len(rows)))
        self.limit_bps = np.full(len(rows), first_bps)
        self.row = {pair: number for number, pair in enumerate(rows)}
        self.now_s: float = 100.0
        self.decision: Any = None

    def decide(self, view: PolicyView) -> None:
        """Decide on an interval; its grants are the limits of the next one."""
        self.decision = self.policy.decide(view, self.memory)
        self.memory, self.limit_bps = self.decision.memory, self.decision.grant_bps
