"""The southbound driver's view of connected switches: their replies, pending requests, and faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apps.runtime.ryu_adapter import BULK_BARRIER, Reply, SwitchConnection
from apps.southbound.reply_timeouts import await_reply
from controller.capability.bound_search import BoundTest
from controller.capability.meter_monitor import MeterMonitor
from controller.capability.meter_probe import MeterProbe
from controller.capability.queue_monitor import QueueMonitor
from controller.central.controller import CentralController
from controller.errors import ProtocolError, SwitchReplyError
from controller.events import EventKind
from controller.openflow.bounded_reader import Buffer
from controller.openflow.flows import FlowStats, decode_flow_stats
from controller.openflow.messages import PortStatus
from controller.openflow.multipart import PortDesc
from controller.switch.flow_stats_meters import FlowStatsMeters
from controller.switch.flow_stats_reader import InstalledFlows

AUDIT_INTERVAL_S = 10.0
# Minimum time between two events with the same text about a switch, and between two requested audits of a switch.
REPEAT_S = 10.0
# Greatest length of a reply that is accepted: 37,000 meters, 18,000 ports or 52,000 queues.
MAX_QUEUED_BYTES = 2 << 20
# A switch's state was read when it connected. It is not read again for this time while other switches are awaited.
FIRST_AUDIT_S = 30.0
MAX_COMPLAINTS = 100  # texts of error replies that are remembered for each switch
# A switch that has not sent its counters for this time is polled again.
POLL_TIMEOUT_S = 1.0


class SwitchState(StrEnum):
    """The state of a configured switch."""

    DISCONNECTED = "disconnected"
    STANDBY = "standby"  # connected; the other node of the cluster controls it
    CONNECTING = "connecting"
    READY = "ready"
    FAILED = "failed"


class Poll(NamedTuple):
    """The pending replies to a poll of one switch, requested at ``requested_s``; None: not requested this time."""

    requested_s: float
    meters: Reply
    ports: Reply | None = None
    queues: Reply | None = None


@dataclass(eq=False)
class ConnectedSwitch:
    """One connected switch: its pending replies, its latest counters, and the state of its audits.

    ``counting`` derives meter-stats from flow-stats; it is None if the meters count. ``early_port_status`` has the last
    port-status of each port that arrived during bring-up. ``reported_errors`` has the time of the last report of each
    error text. ``known_flows`` are the flow-stats of the last reply, which make decoding the next one fast.
    ``unfinished`` are the barrier requests without a reply, with their sending times.
    """

    connection: SwitchConnection
    meters: MeterMonitor
    queues: QueueMonitor
    listing: InstalledFlows  # its flow entries at the last request
    state: SwitchState = SwitchState.CONNECTING
    ports: dict[int, PortDesc] = field(default_factory=dict)
    counting: FlowStatsMeters | None = None
    poll: Poll | None = None
    # A poll of ports and queues alone, after a bulk request. Its ``meters`` is the reply that arrives last.
    port_queue_poll: Poll | None = None
    # Ids of the meters that were modified since ``poll``: the counters in its reply may be older than the modify.
    stale_meter_ids: list[NDArray[np.int64]] = field(default_factory=list)
    probe: MeterProbe | BoundTest | None = None  # the running test of its meters
    unfinished: list[tuple[float, Reply]] = field(default_factory=list)
    early_port_status: dict[int, PortStatus] = field(default_factory=dict)
    reported_errors: dict[str, float] = field(default_factory=dict)
    barrier_requested_s: float = -math.inf  # time of the last barrier request
    confirmed_until_s: float = -math.inf  # messages sent until then are confirmed
    port_queue_polled_s: float = -math.inf  # time of the last poll of its ports and queues
    # The barrier after the meters of the last interval's modifies, unless a bulk request awaits it.
    meters_set: Reply | None = None
    confirmed_s: float | None = None  # time at which a bulk request confirmed these meters
    meters_listed: int = 0  # the number of meters in the last reply
    known_flows: FlowStats = field(default_factory=lambda: decode_flow_stats(b""))
    compared: bool = False  # whether all tables have been compared with the desired state
    cleaned_up: bool = False  # whether no other switch was awaited at the last comparison
    counted_s: float = math.inf  # time of its last counters
    meters_refused_s: float = -math.inf  # time of its last rejected meter
    unreadable_s: float = -math.inf  # time of the last report of unreadable counters
    audit_requested: bool = False
    in_audit: bool = False
    early_audit_s: float = -math.inf  # time of the last audit because of a rejection

    def faults(self, now_s: float) -> list[str]:
        """Return the faults of a switch that is ready, each as a predicate without subject; [] for another switch."""
        if self.state != SwitchState.READY:
            return []
        faults = []
        if now_s - self.counted_s > POLL_TIMEOUT_S:
            faults.append(f"has not sent its counters for {now_s - self.counted_s:.0f} s")
        if self.refuses_meters(now_s):
            faults.append("refuses meters")
        return faults

    def refuses_meters(self, now_s: float) -> bool:
        """Return whether the switch rejected a meter since the last audit, which sends rejected meters again."""
        return now_s - self.meters_refused_s < AUDIT_INTERVAL_S + REPEAT_S

    def extend_timeouts(self, seconds: float) -> None:
        """Extend timeouts by ``seconds``, in which the controller did not read its sockets."""
        self.unfinished = [(sent_s + seconds, reply) for sent_s, reply in self.unfinished]
        self.counted_s += seconds
        self.barrier_requested_s += seconds

    def await_barrier(self, reply: Reply, now_s: float) -> None:
        """Record that a barrier was requested just now; ``reply`` is its pending reply."""
        self.barrier_requested_s = now_s
        self.unfinished.append((now_s, reply))
        if self.lacks_confirmation:
            self.meters_set = reply

    def unconfirmed(self) -> list[tuple[float, Reply]]:
        """Return the unconfirmed barriers with their sending times, and delete the confirmed ones from ``unfinished``.

        An error reply confirms nothing: a rejected barrier stays until a barrier that was sent later is answered.
        """
        answered_s = [sent_s for sent_s, reply in self.unfinished if reply.done and reply.error is None]
        self.confirmed_until_s = max(self.confirmed_until_s, *answered_s, -math.inf)  # inf: ``answered_s`` may be empty
        self.unfinished = [
            (sent_s, reply)
            for sent_s, reply in self.unfinished
            if not reply.done or (reply.error is not None and sent_s > self.confirmed_until_s)
        ]
        return self.unfinished

    @property
    def lacks_confirmation(self) -> bool:
        """Whether the barrier behind the meters that an interval modified last was refused."""
        return self.meters_set is not None and self.meters_set.error is not None

    def meters_set_s(self) -> float | None:
        """Return when the switch confirmed the meters that an interval modified last; None before that."""
        if self.meters_set is None:
            return self.confirmed_s
        return self.meters_set.received_s if self.meters_set.done and not self.lacks_confirmation else None

    def count_by_flows(self, enabled: bool) -> None:
        """Compute rates from flow-stats if ``enabled``, otherwise from meter-stats."""
        self.counting = FlowStatsMeters(self.meters.settings) if enabled else None


def check_size(subject: str, octets: int, max_bytes: int = MAX_QUEUED_BYTES) -> None:
    """Raise ProtocolError for a reply longer than ``max_bytes``, which no correct switch sends."""
    if octets > max_bytes:
        raise ProtocolError(f"reply of {subject}: {octets} bytes, expected {max_bytes} at most")


class Batch(NamedTuple):
    """Encoded messages for a switch. The last is a barrier request, which has ``xid``.

    ``restarts_counts`` is whether the meters of pairs are modified, so that their rates are measured anew.
    """

    peer: ConnectedSwitch
    data: Buffer
    messages: int
    xid: int
    restarts_counts: bool


class ConnectedSwitches(dict[int, ConnectedSwitch]):
    """The switches that are connected, by dpid. ``clock`` is monotonic."""

    def __init__(self, central: CentralController, clock: Callable[[], float]) -> None:
        super().__init__()
        self.central, self.clock = central, clock
        # The switches in the running bulk request for barriers: (switch, sending time, whether its counts restart).
        self._in_bulk_barrier: list[tuple[ConnectedSwitch, float, bool]] = []

    def send_all(self, batches: list[Batch]) -> None:
        """Send each switch its messages; the barrier replies are awaited by a bulk request, or one by one."""
        if not batches:
            return
        self.collect_confirmations()
        filenos, xids = [], []
        for peer, data, messages, xid, modifies_pairs in batches:
            # If the last barrier behind modified meters was refused, this one confirms these meters instead.
            restarts_counts = modifies_pairs or peer.lacks_confirmation
            fileno, barrier = peer.connection.call(BULK_BARRIER, data, xid, messages), None
            if fileno is None:  # this connection cannot take part in a bulk request now
                barrier = peer.connection.request(data, xid, messages)
                peer.await_barrier(barrier, self.clock())
            else:
                peer.barrier_requested_s = self.clock()
                self._in_bulk_barrier.append((peer, peer.barrier_requested_s, restarts_counts))
                filenos.append(fileno)
                xids.append(xid)
            if restarts_counts:
                peer.meters_set, peer.confirmed_s = barrier, None  # no barrier: ``collect_confirmations`` sets one
        BULK_BARRIER.start(filenos, xids)

    def collect_confirmations(self) -> None:
        """End the bulk request for barriers: record its replies; those still missing are awaited one by one.

        For a switch whose counts restart, record also when the switch confirmed its modified meters: as a time if the
        reply has arrived (``confirmed_s``), otherwise as the pending reply (``meters_set``).
        """
        if not self._in_bulk_barrier:
            return
        awaited, self._in_bulk_barrier = self._in_bulk_barrier, []
        for (peer, sent_s, restarts_counts), confirmed_s in zip(awaited, BULK_BARRIER.at_s.tolist(), strict=True):
            if math.isnan(confirmed_s):
                barrier = peer.connection.fall_back(BULK_BARRIER)
                peer.unfinished.append((sent_s, barrier))
                if restarts_counts:
                    peer.meters_set = barrier
            else:
                peer.connection.count.received += 1
                peer.confirmed_until_s = max(peer.confirmed_until_s, sent_s)
                if restarts_counts:
                    peer.meters_set, peer.confirmed_s = None, confirmed_s

    def is_current(self, peer: ConnectedSwitch) -> bool:
        """Return whether the switch still uses this connection. Callers must check it after each wait."""
        return self.get(peer.connection.dpid) is peer and not peer.connection.closed

    def current(self, peers: Iterable[ConnectedSwitch]) -> list[ConnectedSwitch]:
        """Return those of these switches that ``is_current``."""
        return [peer for peer in peers if self.is_current(peer)]

    def ready(self) -> dict[int, ConnectedSwitch]:
        """Return the switches under control."""
        is_ready = SwitchState.READY
        return {dpid: peer for dpid, peer in self.items() if peer.state is is_ready}

    def report_fault(self, dpid: int, text: str) -> None:
        """Record a fault of a configured switch."""
        name = self.central.switches[dpid].switch.name
        self.central.note(EventKind.SWITCH_ERROR, f"switch {name} ({dpid:016x}) {text}", self.clock(), dpid=dpid)

    def answer(self, reply: Reply) -> bytes:
        """Wait for a reply; raises ProtocolError if it is missing or malformed (``await_reply``)."""
        return await_reply(reply, self.clock)

    def answer_or_refusal(self, reply: Reply) -> bytes | None:
        """Wait for a reply, as ``answer`` does, but return None for an error reply."""
        try:
            return self.answer(reply)
        except SwitchReplyError:
            return None
