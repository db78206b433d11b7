"""The interface of a policy: its input, state, decision and explanation.

A policy decides the rates of the pairs of its VLANs.

The controller measures, stores the policies' states, and applies their decisions: meters, queues, messages, shadows,
recordings and explanations work for every policy alike. Pairs, VNs and links are rows of tables; columns hold one value
per row. A policy is pure: it reads no clock, and the same view and state give the same decision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple, Self

import numpy as np

from controller.allocation.explanation import Explanation
from controller.columns import BoolArray, FloatArray, Int16Array, IntArray
from controller.fabric.link_table import LinkTable
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.metering.fabric_readings import ReadingKind
from controller.metering.mark_readings import MarkReadings
from controller.metering.port_readings import PortReadings
from controller.metering.queue_readings import QueueReadings
from controller.policy.feedback import CongestionFeedback
from controller.policy.policy_state import PolicyState


class StaleMode(Enum):
    """The grant of a pair whose meter is not read."""

    LAST_KNOWN = "the policy decides on what was read last"
    FREE = "after KEEP_ALIVE_INTERVALS without a reading the entry goes to its ceiling (fail open)"
    HOLD = "without a reading its limit does not rise (fail closed)"


class PolicyView(NamedTuple):
    """A policy's input in one interval. Rates in bits per second.

    ``rows`` (rows,) are the rows of ``entries`` to decide on, ascending: the pairs of the policy's VLANs that are under
    control. All columns of shape (rows,) belong to them.
    """

    now_s: float
    elapsed_s: float
    """since the previous interval; 0 in the first"""
    entries: PairTable
    vns: VnTable
    in_group: BoolArray
    """(vns,) whether a VN's VLAN is under this policy"""
    parameters: Mapping[str, FloatArray]
    """(vns,) each, the parameters of the VN's VLAN, for policies that are decided together; NaN for VNs of other
    policies"""
    received_bps: FloatArray
    """(vns,) the rate through the meters of a VN's senders"""
    passed_bps: FloatArray
    """(pairs,) the rate through each meter in the last interval, of all policies; ``passed_bps[rows]`` is this
    policy's"""
    congested: BoolArray
    """(vns,) whether a VN is sent more than its limit (DETS, section II)"""
    rows: IntArray
    sender: IntArray
    """(rows,) the row of the sending VN"""
    receiver: IntArray
    measured_bps: FloatArray
    """(rows,) the rate through the meter: it rises at once and fades over some intervals; at most ``limit_bps``"""
    dropped_bps: FloatArray
    """(rows,) the drops at the meter; in sharded mode only the allocator has them, at other nodes they are 0"""
    drops: BoolArray
    """(rows,) whether the meter dropped frames"""
    limit_bps: FloatArray
    """(rows,) the effective limit; infinite before the first grant"""
    available_bps: FloatArray
    """(rows,) the sender's limit less what it sends to other receivers"""
    active: BoolArray
    """(rows,) whether the sender has traffic for this receiver"""
    unread_intervals: IntArray | Int16Array
    """(rows,) intervals since the meter was read, 0: in this one"""
    links: LinkTable | None = None
    """with ReadingKind.LINKS"""
    cross_traffic_bps: FloatArray | None = None
    """(links,) the cross traffic on a link, plus 10 %, up to limits or ceilings"""
    cross_guaranteed_bps: FloatArray | None = None
    """(links,) the part of it within limits: the rest is borrowed, and this policy's guarantees take it back"""
    queues: QueueReadings | None = None
    """with ReadingKind.QUEUES: sent and dropped by the VNs' receiving queues; None if not read"""
    ports: PortReadings | None = None
    """with ReadingKind.PORTS: the traffic of links, rows as in ``links``; None if not read"""
    marks: MarkReadings | None = None
    """with ReadingKind.MARKS: by row of ``entries`` and by VN; None if not read"""

    @property
    def ceiling_bps(self) -> FloatArray:
        """Return the most that a pair may carry, (rows,): no grant above it has an effect."""
        return np.minimum(self.vns.send_max_bps[self.sender], self.vns.receive_max_bps[self.receiver])


LocationName = Callable[[int], str]
"""Returns the location of the VN of a row as text: ``s1:3``."""


@dataclass(frozen=True)
class Decision:
    """A decision of one interval, and its input. A policy may add data for its explanations in a subclass.

    ``grant_bps`` has shape (rows,). ``congested`` (vns,) is for policies that always control and declare congestion
    themselves; None: the controller decides by what is sent to a VN, or dropped at its senders' meters.
    """

    view: PolicyView
    grant_bps: FloatArray
    memory: PolicyState
    congested: BoolArray | None = field(default=None, kw_only=True)
    feedback: CongestionFeedback | None = field(default=None, kw_only=True)
    """the messages of receivers to senders that decide on their own; None: the policy has none"""
    final_bps: FloatArray | None = field(default=None, kw_only=True)
    """(rows,) the limits that stay when the controller stops; None: the grants"""
    forfeits: BoolArray | None = field(default=None, kw_only=True)
    """(rows,) the pairs that lose their saved bursts, so that the grant holds at once; None: none"""

    @property
    def egress_limit_bps(self) -> FloatArray | None:
        """Return the limits that senders set themselves by these messages, (rows,); None: they set none."""
        return None

    @property
    def notified_s(self) -> FloatArray | None:
        """Return the time of each sender's last message, (rows,), NaN: never; None: the policy has no messages."""
        return None

    @property
    def marked(self) -> FloatArray | None:
        """Return the marked share of each pair's traffic, (rows,), NaN: unknown; None: the policy has no marks."""
        return None

    @property
    def lost(self) -> FloatArray | None:
        """Return each pair's lost share at its bottleneck, (rows,), NaN: unknown; None: no such report."""
        return None

    @property
    def bottlenecks(self) -> IntArray | None:
        """Return the bottleneck of each pair, (rows,), by the policy's own numbers.

        Below 0: no bottleneck; None: unknown.
        """
        return None

    def bottleneck_name(self, number: int, format_location: LocationName) -> str:
        """Return the text for one of the numbers of ``bottlenecks``."""
        raise NotImplementedError


def notifications(decisions: Iterable[Decision], receiver: IntArray, vns: int) -> IntArray | None:
    """Return the number of senders that each VN sent a message, (vns,); None if no policy has messages.

    ``receiver`` (pairs,) is each pair's receiver.
    """
    senders_at = [receiver[decision.feedback.entry] for decision in decisions if decision.feedback is not None]
    return np.bincount(np.concatenate(senders_at), minlength=vns) if senders_at else None


@dataclass(frozen=True)
class NewPairs:
    """Pairs that are about to be added, in VLANs of one policy; all columns of shape (new,)."""

    vns: VnTable
    sender: IntArray
    receiver: IntArray
    senders: IntArray
    """the number of senders that the receiver will have, these included"""
    congested: BoolArray
    """whether the receiver is congested"""
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)
    """(vns,) each, as in a view"""


class Policy(ABC):
    """A policy with its parameters, which its constructor takes by name.

    It is a frozen dataclass; users can set the fields made by ``allocation.parameters.parameter``.
    """

    name: ClassVar[str]
    """its name in configurations"""
    title: ClassVar[str]
    """its name for people"""
    borrows: ClassVar[bool] = False
    """whether ceilings are used: a pair, and a queue, may exceed the limits of its VNs, up to their ceilings"""
    port_ceilings: ClassVar[bool] = False
    """whether a VN without a ceiling may borrow up to its port's capacity, instead of its limit"""
    weighted: ClassVar[bool] = False
    """whether VNs' weights are used"""
    controls_uncongested: ClassVar[bool] = True
    """whether senders are under control without congestion"""
    needs_headroom: ClassVar[bool] = False
    """whether it acts on the drops of receivers' queues, so that the links before them must not drop"""
    declares_congestion: ClassVar[bool] = False
    """whether its decisions declare congestion (``Decision.congested``)"""
    joint: ClassVar[bool] = False
    """whether all VLANs under this policy are decided in one call, whatever their parameters"""
    silence: ClassVar[StaleMode] = StaleMode.LAST_KNOWN
    required_readings: ClassVar[frozenset[ReadingKind]] = frozenset()

    @classmethod
    def from_parameters(cls, values: Mapping[str, float]) -> Self:
        """Return the policy with these values, one for every parameter."""
        return cls(**values)

    def check_interval(self, interval_ms: int) -> None:
        """Raise InvalidValueError, naming the parameter, if the policy is too slow at a control interval."""
        return

    @abstractmethod
    def decide(self, view: PolicyView, memory: PolicyState) -> Decision:
        """Return grants and the next state. ``memory`` is the state of the last decision, aligned with the view."""

    @abstractmethod
    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the pair ``decision.view.rows[at]``, and what would bind it next."""

    def first_bps(self, new_pairs: NewPairs) -> FloatArray:
        """Return the rates at which new pairs start, (new,).

        Choice: a sender that joins a congested receiver starts at an equal share among all its senders; any other at
        the lower of the two limits.
        """
        vns, limit_bps = new_pairs.vns, new_pairs.vns.receive_limit_bps[new_pairs.receiver]
        share_bps = np.where(new_pairs.congested, limit_bps / new_pairs.senders, limit_bps)
        first_bps: FloatArray = np.minimum(vns.send_limit_bps[new_pairs.sender], share_bps)
        return first_bps
