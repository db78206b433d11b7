"""Packet by packet: senders with links of their own to one FIFO bottleneck; NewReno with SACK, DCTCP and UDP.

Time goes in slots of one frame on a link: in each the bottleneck sends one frame, and each sender one at most. So it
tells what slots of 1 ms cannot: what happens within a round trip of 100 us. Acknowledgements are not lost. What a
sender has more waits in a queue of its own link, ACCESS_FRAMES long.
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
    """The bottleneck. Frames that find more than ``mark_frames`` before them are marked, or lost without ECT.

    Choice: ns-2's RED with ECN drops what it cannot mark; the paper does not say what happens to TCP without ECN.
    """

    capacity_bps: float = 1e9
    buffer_frames: int = 100
    mark_frames: int = 20
    round_trip_s: float = 100e-6

    @property
    def slot_s(self) -> float:
        """The time of a frame."""
        return FRAME_BITS / self.capacity_bps


class Limiter(Protocol):
    """A token bucket at a source. With ``hides_marks`` every frame carries ECT, and no guest sees a mark.

    It drops what it does not let out, or keeps up to ``queue_frames`` for later.
    """

    hides_marks: bool
    queue_frames: int

    def consume(self, now_s: float) -> bool:
        """Return whether a frame may go out now."""

    def feedback(self, now_s: float) -> None:
        """A mark came back."""


class Unlimited:
    """No limiter."""

    hides_marks = False
    queue_frames = 0

    def consume(self, now_s: float) -> bool:
        """Return True."""
        return True

    def feedback(self, now_s: float) -> None:
        """Do nothing."""


class UdpFlow:
    """Sends a frame in every slot, whatever becomes of it."""

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
        """Return whether a frame is to go out."""
        return self.active and slot > self._last

    def send(self, slot: int) -> int:
        """Return the number of the frame that goes out."""
        self._last = slot
        self.sent += 1
        return self.sent

    def acknowledge(self, number: int, marked: bool, slot: int) -> None:
        """A frame was delivered."""
        self.delivered += 1


class TcpFlow:
    """A greedy TCP sender: NewReno with SACK, or DCTCP; it reacts to marks with ``ecn``.

    Frames are numbered as they are sent, a repeated one anew. The network keeps their order, so that a number that
    is skipped by acknowledgements was lost. As in ns-2 the loss of a repeated frame is found by a time-out only.
    """

    def __init__(self, law: str, ecn: bool, slot_s: float) -> None:
        self.ecn = ecn
        self.active = False
        self.sent = self.lost = self.delivered = 0
        self.window, self.threshold = INITIAL_WINDOW, 1e9
        self._law: Reno = make_law(law)
        self._slot_s = slot_s
        self._rto = round(MIN_RTO_S / slot_s)
        self._backoff = 1
        self._deadline = 0
        self._outstanding: deque[int] = deque()
        self._gaps: deque[tuple[int, int]] = deque()  # numbers skipped, and how many were acknowledged before
        self._repeats: set[int] = set()
        self._stuck = 0
        self._to_repeat = 0
        self._acknowledged = 0
        self._floor = 0
        self._recover = 0  # no growth, and no further reduction, until frames from this on are acknowledged
        self._window_end = 0

    def start(self, slot: int) -> None:
        """Begin to send."""
        self.active = True

    def stop(self) -> None:
        """Send no more."""
        self.active = False

    @property
    def in_flight(self) -> int:
        """How many frames were sent and neither acknowledged nor found lost."""
        return len(self._outstanding) + len(self._gaps) + self._stuck

    def wants(self, slot: int) -> bool:
        """Return whether a frame is to go out, after a time-out where that is due."""
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
        """A frame was delivered; ``marked`` says whether the receiver saw a mark on it."""
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
        """Return whether the window was reduced by marks."""
        passed = number > (self._window_end if self._law.counts_marks else self._recover)
        window = self._law.marked(self.window, 1, int(marked), passed)
        if passed:
            self._window_end = self.sent
        if window is None:
            return False
        self.window = self.threshold = max(window, MIN_WINDOW)
        if not self._law.counts_marks:
            self._recover = self.sent
        return True

    def _find_lost(self, number: int, slot: int) -> None:
        if number in self._repeats:
            self._stuck += 1
            return
        self._to_repeat += 1
        if number > self._recover:
            self.window = self.threshold = max(self._law.reduced(self.window, slot * self._slot_s), MIN_WINDOW)
            self._recover = self.sent

    def _time_out(self, slot: int) -> None:
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
    """Senders, each with its limiter and flows that take turns, and the bottleneck that they share."""

    def __init__(self, link: PacketLink, senders: list[tuple[Limiter, list[Flow]]], seed: int) -> None:
        self.link = link
        self.slot = 0
        self.dropped = 0
        self.queued = 0  # frames that wait, summed over slots
        self._senders = senders
        self._random = Random(seed)
        self._access: list[deque[tuple[Flow, int]]] = [deque() for _ in senders]
        self._queue: deque[tuple[int, Flow, int, bool]] = deque()
        self._returning: deque[tuple[int, int, Flow, int, bool]] = deque()
        self._return_slots = round(link.round_trip_s / link.slot_s)

    @property
    def now_s(self) -> float:
        """The time."""
        return self.slot * self.link.slot_s

    def delivered(self) -> list[int]:
        """Return how many frames of each sender were delivered."""
        return [sum(flow.delivered for flow in flows) for _, flows in self._senders]

    def run(self, end_s: float) -> None:
        """Go on until ``end_s``: what comes back, what each sender sends, in an order of chance, what goes out."""
        slot_s, senders, queue, returning = self.link.slot_s, self._senders, self._queue, self._returning
        count, end = len(senders), round(end_s / slot_s)
        while self.slot < end:
            slot, now_s = self.slot, self.slot * slot_s
            if returning and returning[0][0] <= slot:
                _, at, flow, number, marked = returning.popleft()
                if marked:
                    senders[at][0].feedback(now_s)
                flow.acknowledge(number, marked and not senders[at][0].hides_marks, slot)
            first = int(self._random.random() * count)
            for turn in range(count):
                at = (first + turn) % count
                limiter, flows = senders[at]
                waiting, queues = self._access[at], limiter.queue_frames > 0
                room = limiter.queue_frames or ACCESS_FRAMES
                for flow in flows:
                    while flow.wants(slot):
                        number = flow.send(slot)
                        if len(waiting) < room and (queues or limiter.consume(now_s)):
                            waiting.append((flow, number))
                        else:
                            flow.lost += 1
                if waiting and (not queues or limiter.consume(now_s)):
                    flow, number = waiting.popleft()
                    self._offer(at, flow, number, flow.ecn or limiter.hides_marks)
            self.queued += len(queue)
            if queue:
                at, flow, number, marked = queue.popleft()
                returning.append((slot + self._return_slots, at, flow, number, marked))
            self.slot += 1

    def _offer(self, at: int, flow: Flow, number: int, capable: bool) -> None:
        waiting = len(self._queue)
        marked = waiting > self.link.mark_frames
        if waiting >= self.link.buffer_frames or (marked and not capable):
            flow.lost += 1
            self.dropped += 1
        else:
            self._queue.append((at, flow, number, marked))
