"""Packet by packet: senders with links of their own to one FIFO bottleneck; NewReno with SACK, DCTCP and UDP.

A slot is the time of one frame on a link: in a slot the bottleneck sends one frame, and each sender at most one. So
this model resolves a round trip of 100 us, which slots of 1 ms cannot. Acknowledgements are not lost. Further frames
of a sender wait in the queue of the sender's own link, ACCESS_FRAMES long.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Protocol

from experiments.model.tcp_congestion import Reno, make_law

FRAME_BITS = 1500 * 8
DUPLICATES = 3  # later frames acknowledged until one counts as lost (RFC 6675)
MIN_RTO_S, MAX_BACKOFF = 0.2, 64
# Choice: a sender's own link keeps as many frames as the threshold. With 100 the sender that comes first keeps the
# bottleneck: it halves a window that fills its own queue.
ACCESS_FRAMES = 20
INITIAL_WINDOW, MIN_WINDOW = 2.0, 2.0


@dataclass(frozen=True)
class PacketLink:
    """The bottleneck. A frame that finds more than ``mark_frames`` in the queue is marked, or dropped without ECT.

    The defaults are HyGenICC's: 1 Gb/s, 100 frames and 100 us (section V.A), marks above 20 % of the buffer (V).

    Choice: ns-2's RED with ECN drops frames that it cannot mark; the paper does not specify TCP without ECN.
    """

    capacity_bps: float = 1e9
    buffer_frames: int = 100
    mark_frames: int = 20
    round_trip_s: float = 100e-6

    @property
    def slot_s(self) -> float:
        """The transmission time of a frame in seconds."""
        return FRAME_BITS / self.capacity_bps


class Limiter(Protocol):
    """A token bucket at a source. With ``hides_marks`` every frame carries ECT, and guests receive no marks.

    A frame without a token is dropped, or kept for later if fewer than ``queue_frames`` wait.
    """

    hides_marks: bool
    queue_frames: int

    def consume(self, now_s: float) -> bool:
        """Take a token; return whether there was one, so that a frame may be sent now."""

    def feedback(self, now_s: float) -> None:
        """Process a congestion mark that returned to the source."""


class Unlimited:
    """A limiter that never limits."""

    hides_marks = False
    queue_frames = 0

    def consume(self, now_s: float) -> bool:
        """Return True."""
        return True

    def feedback(self, now_s: float) -> None:
        """Do nothing."""


class UdpFlow:
    """A flow that sends a frame in every slot, whether frames arrive or not."""

    ecn = False

    def __init__(self) -> None:
        self.active = False
        self.sent = self.lost = self.delivered = 0
        self._last = -1

    def start(self, slot: int) -> None:
        """Begin to send."""
        self.active = True

    def stop(self) -> None:
        """Send no more."""
        self.active = False

    def wants(self, slot: int) -> bool:
        """Return whether the flow has a frame to send in this slot."""
        return self.active and slot > self._last

    def send(self, slot: int) -> int:
        """Return the number of the frame that goes out."""
        self._last = slot
        self.sent += 1
        return self.sent

    def acknowledge(self, number: int, marked: bool, slot: int) -> None:
        """Count a delivered frame."""
        self.delivered += 1


class TcpFlow:
    """A TCP flow that always has data: NewReno with SACK, or DCTCP. With ``ecn`` it reacts to marks.

    Every frame gets the next number when it is sent, a retransmitted frame too. The network keeps the order of frames,
    so that a number which acknowledgements skip was lost. As in ns-2, only a time-out detects the loss of a
    retransmission.
    """

    def __init__(self, law: str, ecn: bool, slot_s: float) -> None:
        self.ecn = ecn
        self.active = False
        self.sent = self.lost = self.delivered = 0
        self.window, self.threshold = INITIAL_WINDOW, 1e9
        self._law: Reno = make_law(law)
        self._slot_s = slot_s
        self._rto = round(MIN_RTO_S / slot_s)  # in slots
        self._backoff = 1
        self._deadline = 0  # the slot of the next time-out
        self._outstanding: deque[int] = deque()  # numbers in flight, without the skipped ones
        self._gaps: deque[tuple[int, int]] = deque()  # numbers skipped, and how many were acknowledged before
        self._repeats: set[int] = set()  # the numbers of retransmitted frames in flight
        self._stuck = 0  # lost retransmissions, which only a time-out resolves
        self._to_repeat = 0  # lost frames that are to be retransmitted
        self._acknowledged = 0
        self._floor = 0  # the last number that was sent before the last time-out
        self._recover = 0  # no growth, and no further reduction, until frames from this on are acknowledged
        self._window_end = 0  # DCTCP: the window ends when a number above this one is acknowledged

    def start(self, slot: int) -> None:
        """Begin to send."""
        self.active = True

    def stop(self) -> None:
        """Send no more."""
        self.active = False

    @property
    def in_flight(self) -> int:
        """The number of frames that were sent, and are neither acknowledged nor detected as lost."""
        return len(self._outstanding) + len(self._gaps) + self._stuck

    def wants(self, slot: int) -> bool:
        """Do a time-out if one is due; return whether the window allows a frame now."""
        in_flight = self.in_flight
        if in_flight and slot >= self._deadline:
            self._time_out(slot)
            in_flight = 0
        return self.active and in_flight < int(self.window)

    def send(self, slot: int) -> int:
        """Return the number of the frame that goes out."""
        if not self.in_flight:
            self._deadline = slot + self._rto * self._backoff
        self.sent += 1
        if self._to_repeat:
            self._to_repeat -= 1
            self._repeats.add(self.sent)
        self._outstanding.append(self.sent)
        return self.sent

    def acknowledge(self, number: int, marked: bool, slot: int) -> None:
        """Process the acknowledgement of a frame; ``marked``: the receiver found a congestion mark on the frame."""
        self.delivered += 1
        if number <= self._floor:
            return  # sent before the last time-out
        while self._outstanding[0] < number:
            self._gaps.append((self._outstanding.popleft(), self._acknowledged))
        self._outstanding.popleft()
        self._acknowledged += 1
        while self._gaps and self._acknowledged - self._gaps[0][1] >= DUPLICATES:
            self._find_lost(self._gaps.popleft()[0], slot)
        if number in self._repeats:
            self._repeats.remove(number)
        else:
            self._backoff = 1
        if not self._stuck:
            self._deadline = slot + self._rto * self._backoff
        reduced = self._react(number, marked) if self.ecn else False
        if not reduced and number > self._recover:
            if self.window < self.threshold:
                self.window += 1.0
            else:
                self.window = self._law.grown(self.window, 1, slot * self._slot_s, 0.0)

    def _react(self, number: int, marked: bool) -> bool:
        """Apply the law to a mark, or to its absence; return whether the window was reduced."""
        window_passed = number > (self._window_end if self._law.counts_marks else self._recover)
        reduced_window = self._law.marked(self.window, 1, int(marked), window_passed)
        if window_passed:
            self._window_end = self.sent
        if reduced_window is None:
            return False
        self.window = self.threshold = max(reduced_window, MIN_WINDOW)
        if not self._law.counts_marks:
            self._recover = self.sent
        return True

    def _find_lost(self, number: int, slot: int) -> None:
        """Retransmit a lost frame, and reduce the window once per window; a lost retransmission needs a time-out."""
        if number in self._repeats:
            self._stuck += 1
            return
        self._to_repeat += 1
        if number > self._recover:
            self.window = self.threshold = max(self._law.reduced(self.window, slot * self._slot_s), MIN_WINDOW)
            self._recover = self.sent

    def _time_out(self, slot: int) -> None:
        """Retransmit all frames in flight from a window of one frame (RFC 5681), with doubled time-out."""
        self.threshold = max(self.in_flight / 2, MIN_WINDOW)
        self.window = 1.0
        self._to_repeat += self.in_flight
        self._outstanding.clear()
        self._gaps.clear()
        self._repeats.clear()
        self._stuck = 0
        self._floor = self._recover = self.sent
        self._backoff = min(2 * self._backoff, MAX_BACKOFF)
        self._deadline = slot + self._rto * self._backoff


Flow = UdpFlow | TcpFlow


class PacketNetwork:
    """The senders, each with its limiter and flows, and the bottleneck that the senders share."""

    def __init__(self, link: PacketLink, senders: list[tuple[Limiter, list[Flow]]], seed: int) -> None:
        self.link = link
        self.slot = 0
        self.dropped = 0
        self.queued = 0  # sum over slots of the frames that wait at the bottleneck
        self._senders = senders
        self._random = Random(seed)
        # Frames: (flow, number) in each sender's own queue; (sender, flow, number, marked) at the bottleneck; and with
        # the slot of arrival in front as acknowledgements on their way back.
        self._access: list[deque[tuple[Flow, int]]] = [deque() for _ in senders]
        self._queue: deque[tuple[int, Flow, int, bool]] = deque()
        self._returning: deque[tuple[int, int, Flow, int, bool]] = deque()
        self._return_slots = round(link.round_trip_s / link.slot_s)

    @property
    def now_s(self) -> float:
        """The time."""
        return self.slot * self.link.slot_s

    def delivered(self) -> list[int]:
        """Return the number of delivered frames of each sender."""
        return [sum(flow.delivered for flow in flows) for _, flows in self._senders]

    def run(self, end_s: float) -> None:
        """Simulate slots until ``end_s`` (seconds).

        In each slot: an acknowledgement returns; each sender, from a random first one, puts frames into its own queue
        and sends one to the bottleneck; the bottleneck sends one.
        """
        slot_s, senders, queue, returning = self.link.slot_s, self._senders, self._queue, self._returning
        count, end = len(senders), round(end_s / slot_s)
        while self.slot < end:
            slot, now_s = self.slot, self.slot * slot_s
            if returning and returning[0][0] <= slot:
                _, sender, flow, number, marked = returning.popleft()
                if marked:
                    senders[sender][0].feedback(now_s)
                flow.acknowledge(number, marked and not senders[sender][0].hides_marks, slot)
            first = int(self._random.random() * count)
            for turn in range(count):
                sender = (first + turn) % count
                limiter, flows = senders[sender]
                waiting, keeps_frames = self._access[sender], limiter.queue_frames > 0
                max_waiting = limiter.queue_frames or ACCESS_FRAMES
                # A limiter that keeps frames takes a token when a frame leaves, any other one when a frame is made.
                for flow in flows:
                    while flow.wants(slot):
                        number = flow.send(slot)
                        if len(waiting) < max_waiting and (keeps_frames or limiter.consume(now_s)):
                            waiting.append((flow, number))
                        else:
                            flow.lost += 1
                if waiting and (not keeps_frames or limiter.consume(now_s)):
                    flow, number = waiting.popleft()
                    self._offer(sender, flow, number, flow.ecn or limiter.hides_marks)
            self.queued += len(queue)
            if queue:
                sender, flow, number, marked = queue.popleft()
                returning.append((slot + self._return_slots, sender, flow, number, marked))
            self.slot += 1

    def _offer(self, sender: int, flow: Flow, number: int, ecn_capable: bool) -> None:
        """Queue a frame at the bottleneck; mark the frame in a long queue, drop it if full or not ECN-capable."""
        queue_length = len(self._queue)
        marked = queue_length > self.link.mark_frames
        if queue_length >= self.link.buffer_frames or (marked and not ecn_capable):
            flow.lost += 1
            self.dropped += 1
        else:
            self._queue.append((sender, flow, number, marked))
