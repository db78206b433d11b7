"""What a policy sees, remembers, decides and explains. A policy decides the rates of the entries of its VLANs.

The controller measures, keeps what policies remember, and puts in force what they decide: meters, queues, messages,
shadows, recordings and explanations work for every policy alike. Entries, VNs and links are rows of tables; columns
hold one value per row. A policy is pure: it reads no clock, and the same view and memory give the same decision.
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
    """What holds for an entry whose meter is not read."""

    LAST_KNOWN = "the policy decides on what was read last"
    FREE = "after KEEP_ALIVE_INTERVALS without a reading the entry goes to its ceiling (fail open)"
    HOLD = "without a reading its limit does not rise (fail closed)"


class PolicyView(NamedTuple):
    """What a policy sees in one interval. Rates in bits per second.

    ``rows`` (rows,) are the rows of ``entries`` to decide on, ascending: those of the policy's VLANs that are under
    control. All columns of shape (rows,) are theirs.
    """

    now_s: float
    elapsed_s: float
    """since the interval before; 0 in the first"""
    entries: PairTable
    vns: VnTable
    in_group: BoolArray
    """(vns,) whether a VN's VLAN is under this policy"""
    parameters: Mapping[str, FloatArray]
    """(vns,) each, the parameters of the VN's VLAN, for policies that are decided together; NaN where it is not mine"""
    received_bps: FloatArray
    """(vns,) what passes the meters of a VN's senders"""
    passed_bps: FloatArray
    """(entries,) what passed each meter in the last interval, others' too; ``passed_bps[rows]`` is mine"""
    congested: BoolArray
    """(vns,) whether more than its limit is sent to a VN (DETS, section II)"""
    rows: IntArray
    sender: IntArray
    """(rows,) the row of the VN that sends"""
    receiver: IntArray
    measured_bps: FloatArray
    """(rows,) what passes the meter: it rises at once and fades over some intervals; never above ``limit_bps``"""
    dropped_bps: FloatArray
    """(rows,) what the meter dropped; among several controllers the allocator alone knows it, for others it is 0"""
    drops: BoolArray
    """(rows,) whether the meter dropped something"""
    limit_bps: FloatArray
    """(rows,) the limit in force; infinite where none was granted yet"""
    available_bps: FloatArray
    """(rows,) the sender's limit less what it sends elsewhere"""
    active: BoolArray
    """(rows,) whether the sender has traffic for this receiver"""
    unread_intervals: IntArray | Int16Array
    """(rows,) for how many intervals the meter was not read, 0: just now"""
    links: LinkTable | None = None
    """with Reading.LINKS"""
    cross_traffic_bps: FloatArray | None = None
    """(links,) what VLANs under other policies use of a link, and 10 % more, up to limits or ceilings"""
    cross_guaranteed_bps: FloatArray | None = None
    """(links,) of that what is within their limits: the rest is borrowed, and what is mine is taken back from it"""
    queues: QueueReadings | None = None
    """with Reading.QUEUES: what the receiving queues of VNs sent and dropped; None where nobody read them"""
    ports: PortReadings | None = None
    """with Reading.PORTS: what went over links, rows as in ``links``; None where nobody read them"""
    marks: MarkReadings | None = None
    """with Reading.MARKS: by row of ``entries`` and by VN; None where nobody read them"""

    @property
    def ceiling_bps(self) -> FloatArray:
        """What an entry may carry at most, (rows,): no grant above it has an effect."""
        return np.minimum(self.vns.send_max_bps[self.sender], self.vns.receive_max_bps[self.receiver])


LocationName = Callable[[int], str]
"""Where the VN of a row is, as people write it: ``s1:3``."""


@dataclass(frozen=True)
class Decision:
    """What was decided in one interval, and on what. A policy may add, in a class of its own, what it explains by.

    ``grant_bps`` has shape (rows,). ``congested`` (vns,) is for policies that always control and say by themselves
    which of their VNs are congested; None: the controller tells by what is sent to a VN, or held back at its senders.
    """

    view: PolicyView
    grant_bps: FloatArray
    memory: PolicyState
    congested: BoolArray | None = field(default=None, kw_only=True)
    feedback: CongestionFeedback | None = field(default=None, kw_only=True)
    """the messages of receivers to senders that decide by themselves; None: the policy has none"""
    final_bps: FloatArray | None = field(default=None, kw_only=True)
    """(rows,) what stays in force when the controller stops and nobody decides any more; None: the grants"""
    forfeits: BoolArray | None = field(default=None, kw_only=True)
    """(rows,) whose senders lose the bursts that they have saved, so that the grant holds at once; None: nobody"""

    @property
    def egress_limit_bps(self) -> FloatArray | None:
        """The limits that senders set themselves by these messages, (rows,); None: they set none."""
        return None

    @property
    def notified_s(self) -> FloatArray | None:
        """When senders got the last message, (rows,), NaN: never; None: there are none."""
        return None

    @property
    def marked(self) -> FloatArray | None:
        """What share of an entry's traffic counts as marked, (rows,), NaN: unknown; None: the policy has no marks."""
        return None

    @property
    def lost(self) -> FloatArray | None:
        """What share of it is lost at its bottleneck, (rows,), NaN: unknown; None: the policy has no losses."""
        return None

    @property
    def bottlenecks(self) -> IntArray | None:
        """Where each entry is held back, (rows,), as numbers of the policy's own; below 0: nowhere; None: not known."""
        return None

    def bottleneck_name(self, number: int, format_location: LocationName) -> str:
        """Return one of the places of ``bottlenecks`` in words."""
        raise NotImplementedError


def notifications(decisions: Iterable[Decision], receiver: IntArray, vns: int) -> IntArray:
    """Return how many of its senders each VN sent a message, (vns,). ``receiver`` (entries,) is that of each entry."""
    told = np.zeros(vns, dtype=np.int64)
    for decision in decisions:
        if decision.feedback is not None:
            told += np.bincount(receiver[decision.feedback.entry], minlength=vns)
    return told


@dataclass(frozen=True)
class NewPairs:
    """Entries that are about to be added, in VLANs of one policy; all columns of shape (new,)."""

    vns: VnTable
    sender: IntArray
    receiver: IntArray
    senders: IntArray
    """how many entries the receiver will have, these included"""
    congested: BoolArray
    """whether the receiver is congested"""
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)
    """(vns,) each, as in a view"""


class Policy(ABC):
    """A policy with its parameters, which are given by name to its constructor.

    It is a frozen dataclass; a field that is made by ``allocation.parameters.parameter`` is one that users can set.
    """

    name: ClassVar[str]
    """what configurations call it"""
    title: ClassVar[str]
    """what people call it"""
    borrows: ClassVar[bool] = False
    """whether ceilings count: an entry, and a queue, may go above the limits of its VNs, up to their ceilings"""
    port_ceilings: ClassVar[bool] = False
    """whether a VN without a ceiling may borrow up to its port's capacity, and not only up to its limit"""
    weighted: ClassVar[bool] = False
    """whether VNs' weights count"""
    controls_uncongested: ClassVar[bool] = True
    """whether senders are under control even while their receiver is not congested"""
    needs_headroom: ClassVar[bool] = False
    """whether it acts on what receivers' queues drop, so that the links before them must not drop instead"""
    declares_congestion: ClassVar[bool] = False
    """whether its decisions say which of its VNs are congested (``Decision.congested``)"""
    joint: ClassVar[bool] = False
    """whether all VLANs under this policy are decided in one call, whatever their parameters"""
    silence: ClassVar[StaleMode] = StaleMode.LAST_KNOWN
    required_readings: ClassVar[frozenset[ReadingKind]] = frozenset()

    @classmethod
    def from_parameters(cls, values: Mapping[str, float]) -> Self:
        """Return the policy with these values, one for every parameter."""
        return cls(**values)

    def check_interval(self, interval_ms: int) -> None:
        """Raise InvalidValueError, naming the parameter, where the policy is too slow at a control interval."""
        return

    @abstractmethod
    def decide(self, view: PolicyView, memory: PolicyState) -> Decision:
        """Return grants and what to remember. ``memory`` is that of the last decision, aligned with the view."""

    @abstractmethod
    def explain(self, decision: Decision, at: int, format_location: LocationName) -> Explanation:
        """Return what binds the entry ``decision.view.rows[at]``, and what would bind it next."""

    def first_bps(self, newcomers: NewPairs) -> FloatArray:
        """Return the rates at which new entries start, (new,).

        Choice: senders that join a congested receiver start at an equal share among all that it then has; any other at
        the lower of the two limits.
        """
        vns, limit_bps = newcomers.vns, newcomers.vns.receive_limit_bps[newcomers.receiver]
        share_bps = np.where(newcomers.congested, limit_bps / newcomers.senders, limit_bps)
        first_bps: FloatArray = np.minimum(vns.send_limit_bps[newcomers.sender], share_bps)
        return first_bps
