"""DETS's policy: each receiver's limit is shared among its senders by an algorithm of ``controller.dets``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from controller.allocation import native
from controller.allocation.explanation import SEND_LIMIT, Explanation, explain_receiver
from controller.allocation.interface import AllocationInput, State
from controller.columns import FloatArray, IntArray
from controller.fabric.vn_table import VnTable
from controller.metering.enforcement import RATE_STEP_BPS
from controller.metering.measurement import sum_by_row
from controller.policy.explanation_text import explain_idle_share, explain_lower_limit, format_rate_text
from controller.policy.interface import Decision, LocationName, Policy, PolicyView
from controller.policy.policy_state import PolicyState


@dataclass(frozen=True)
class ReceiverDecision(Decision):
    """The input of an algorithm's decision. ``receivers`` are rows of VNs, ascending, as in ``requests``.

    ``state`` is the algorithm's previous state.
    """

    receivers: IntArray
    requests: AllocationInput
    state: State

    def of_receiver(self, number: int) -> tuple[AllocationInput, State, int]:
        """Return input and state of one receiver, by its index in ``receivers``, and the start of its rows."""
        one = slice(number, number + 1)
        first, last = self.requests.offsets[number : number + 2].tolist()
        rows, requests = slice(first, last), self.requests
        alone = AllocationInput(
            np.array([0, last - first], dtype=np.int64),
            requests.limit_bps[one],
            requests.received_bps[one],
            requests.measured_bps[rows],
            requests.granted_bps[rows],
            requests.available_bps[rows],
            requests.drops[rows],
            requests.weight[rows],
            requests.active[rows],
        )
        return alone, {name: column[one] for name, column in self.state.items()}, first


@dataclass(frozen=True)
class ReceiverRows:
    """The columns of AllocationInput that change only with the pairs or the VNs' settings: they are computed once.

    ``receivers`` are rows of ``vns``, ascending: the receivers of AllocationInput.
    """

    vns: VnTable
    receivers: IntArray
    offsets: IntArray
    limit_bps: FloatArray
    weight: FloatArray

    @classmethod
    def from_view(cls, view: PolicyView) -> ReceiverRows:
        """Return the rows of the receivers that have senders under control."""
        senders = np.bincount(view.receiver, minlength=len(view.vns))
        receivers = np.flatnonzero(senders)
        offsets = np.concatenate([[0], np.cumsum(senders[receivers])]).astype(np.int64)
        limit_bps = view.vns.receive_limit_bps[receivers]
        return cls(view.vns, receivers, offsets, limit_bps, view.vns.weight[view.sender])


class PerReceiverPolicy(Policy):
    """Senders are under control while their receiver is congested, and share its limit (DETS, II and III.A).

    A subclass is a rate allocation algorithm. ``weighted`` tells whether it uses the senders' weights.
    """

    controls_uncongested: ClassVar[bool] = False
    sums_within_limit: ClassVar[bool] = True
    """whether a receiver's grants sum to at most its limit, to within rounding, 1e-12 of it"""
    remembers: ClassVar[tuple[str, ...]] = ()
    """the names of the columns of its state for each receiver"""

    @abstractmethod
    def allocate(self, requests: AllocationInput, state: State) -> tuple[FloatArray, State]:
        """Return grants (pairs,) in bits per second and the state for the next interval; no argument is changed.

        An inactive pair is granted 0: ``decide`` adds the idle share. No grant is above ``available_bps``. Rate that no
        sender can use is not allocated.
        """

    def first_state(self, receivers: int) -> State:
        """Return the initial state for ``receivers`` receivers: nothing is known."""
        return {name: np.full(receivers, np.nan) for name in self.remembers}

    def decide(self, view: PolicyView, memory: PolicyState) -> ReceiverDecision:
        """Run the algorithm for all receivers with senders under control.

        A receiver's rate is the sum of its senders' reports, each at most its limit: the passed rate of one interval
        varies as meters follow the grants (docs/enforcement.md), and an algorithm controlled by it would oscillate.
        """
        rows = memory.derived
        if not isinstance(rows, ReceiverRows) or rows.vns is not view.vns:
            rows = ReceiverRows.from_view(view)
        (received_bps,) = sum_by_row(view.receiver, (view.measured_bps,), len(view.vns))
        receivers = rows.receivers
        requests = AllocationInput(
            offsets=rows.offsets,
            limit_bps=rows.limit_bps,
            received_bps=received_bps[receivers],
            measured_bps=view.measured_bps,
            granted_bps=view.limit_bps,
            available_bps=view.available_bps,
            drops=view.drops,
            weight=rows.weight,
            active=view.active,
            check=rows is not memory.derived,  # the first input with these rows
        )
        state = {name: memory.vn_column(name)[receivers] for name in self.remembers}
        granted_bps, after = self.allocate(requests, state)
        grants_bps = native.with_idle_share(requests, granted_bps)
        if grants_bps is None:
            silent = not requests.active.all()
            grants_bps = np.where(requests.active, granted_bps, _idle_share_bps(requests)) if silent else granted_bps
        by_vn = {name: _spread(column, receivers, memory.vns) for name, column in after.items()}
        next_state = memory.updated(by_vn=by_vn, derived=rows)
        return ReceiverDecision(view, grants_bps, next_state, receivers, requests, state)

    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the pair, by its receiver alone: other receivers have no effect on it."""
        assert isinstance(decision, ReceiverDecision)
        view = decision.view
        number = int(np.searchsorted(decision.receivers, view.receiver[at]))
        requests, state, first = decision.of_receiver(number)
        available_bps = float(view.available_bps[at])
        if view.active[at]:
            explanation = explain_receiver(self.allocate, requests, state, at - first)
        else:
            lower = explain_lower_limit(at, available_bps, float(requests.limit_bps[0]))
            explanation = explain_idle_share(lower, float(decision.grant_bps[at]))
        other_receivers_bps = float(view.vns.send_limit_bps[view.sender[at]]) - available_bps
        if other_receivers_bps < RATE_STEP_BPS:
            return explanation
        send_limit_text = f"{SEND_LIMIT}, of which it sends {format_rate_text(other_receivers_bps)} elsewhere"
        return replace(
            explanation,
            constraint=explanation.constraint.replace(SEND_LIMIT, send_limit_text),
            next_constraint=explanation.next_constraint.replace(SEND_LIMIT, send_limit_text),
        )


def _spread(column: FloatArray, receivers: IntArray, vns: int) -> FloatArray:
    """Return a column of receivers by VN; a VN without senders under control loses its state."""
    by_vn = np.empty(vns)
    by_vn.fill(np.nan)
    by_vn[receivers] = column
    return by_vn


def _idle_share_bps(requests: AllocationInput) -> FloatArray:
    """Return each pair's rate if its sender is idle, (pairs,): an equal share, as if it were one more active sender.

    Choice: the paper shares among active nodes and does not define the limit of the others. Without a limit, a sender
    that starts would be unlimited for an interval; with zero, it could not show that it has traffic.
    """
    counts = np.diff(requests.offsets)
    starts = requests.offsets[:-1]
    # The appended value lets the last receivers have no pairs; reduceat gives no 0 for a receiver without pairs.
    active = np.add.reduceat(np.append(requests.active, False).astype(np.int64), starts) if len(starts) else counts
    share_bps = requests.limit_bps / (np.where(counts > 0, active, 0) + 1)
    idle_share_bps: FloatArray = np.minimum(np.repeat(share_bps, counts), requests.available_bps)
    return idle_share_bps
