"""TCP in slots of virtual time: window, losses, recovery and time-outs of one flow, in whole segments of 1448 bytes.

A slot delivers a run of segments; their acknowledgements come back a slot (and the links' delays) later and let new
segments out. Segments keep their order, so that a lost one is known as soon as a later one was acknowledged (SACK and
RACK, as Linux does it). What is modelled and what is not: docs/experiments.md.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import NamedTuple

from controller.errors import InvalidValueError
from experiments.measure.frame_sizes import TCP_PAYLOAD_BYTES, TCP_WIRE_BYTES
from experiments.model.sources import ModelSource
from experiments.model.tcp_congestion import make_law

INITIAL_WINDOW = 10  # RFC 6928
MIN_RTO_S = 0.200  # Linux, TCP_RTO_MIN; RFC 6298 has 1 s
MAX_RTO_S = 120.0
MIN_PROBE_S = 0.008  # two ticks of a kernel at 250 Hz
SEND_BUFFER = 90  # segments in the 128 KB that an application's writes find at first
MAX_WINDOW = 4_000  # what 6 MB of receive buffer (tcp_rmem) hold
PROBE_RTTS = 2.0


class _Ack(NamedTuple):
    due_slot: int
    packets: int
    sent_slot: int
    marked: int


class Transfer(NamedTuple):
    """A finite transfer: when it began, and when its last segment was acknowledged (None: not yet)."""

    packets: int
    began_s: float
    ended_s: float | None


class TcpSource(ModelSource):
    """One TCP flow; greedy while it runs, unless ``transfer`` gave it an end.

    ``law`` is reno, cubic or dctcp; ``ecn`` lets the first two answer marks as well. ``return_s`` is what the links'
    delays add to the way there and back. ``rate_bps`` is how fast its application writes (wire rate; None: as fast as
    TCP takes it); what it could not hand over waits, up to SEND_BUFFER segments. Acknowledgements are late by up to
    ``jitter_s`` more, uniformly by ``rng``, in order: hosts and switches that are programs are not always at work.
    """

    reliable = True

    def __init__(
        self,
        law: str,
        slot_s: float,
        *,
        ecn: bool = False,
        return_s: float = 0.0,
        rate_bps: float | None = None,
        jitter_s: float = 0.0,
        rng: Random | None = None,
    ) -> None:
        super().__init__(TCP_WIRE_BYTES)
        if rate_bps is not None and rate_bps <= 0:
            raise InvalidValueError("rate_bps", rate_bps, "is not above 0")
        self._written_per_slot = None if rate_bps is None else rate_bps * slot_s / self.frame_bits
        self._written = 0.0
        self.ecn = ecn or law == "dctcp"
        self.law = make_law(law)
        self._slot_s = slot_s
        self._return_slots = max(1, round(return_s / slot_s))
        self._jitter_slots, self._rng = jitter_s / slot_s, rng or Random(0)
        self._last_due_slot = 0
        self.window = float(INITIAL_WINDOW)
        self.threshold = float("inf")
        self.in_flight = 0
        self.acked = 0
        self.time_outs = 0
        self._left: int | None = None
        self._again = 0  # lost segments that wait to be sent again
        self._acks: deque[_Ack] = deque()
        self._holes: deque[tuple[int, int]] = deque()  # (segments delivered before it, segments lost)
        self._srtt_s, self._rttvar_s, self.min_rtt_s = 0.0, 0.0, float("inf")
        self._backoff = 1
        self._recovery_end: int | None = None
        self._prr_acked = self._prr_sent = 0
        self._prr_from = 1.0
        self._reduced_until = 0
        self._timer_s: float | None = None
        self._probed = self._repaired = False
        self._last_sent_s = 0.0
        self._transfers: list[tuple[int, int, float]] = []  # (acked at its end, segments, began)
        self.transfers: list[Transfer] = []

    # -- the application

    def start(self, slot: int) -> None:
        """Have something to say; after a pause longer than the time-out the window restarts (RFC 2861)."""
        super().start(slot)
        if not self.in_flight and slot * self._slot_s - self._last_sent_s > self._rto_s():
            self.window = min(self.window, float(INITIAL_WINDOW))

    def transfer(self, octets: int, slot: int) -> None:
        """Send so many bytes of payload, and stop; ``transfers`` tells when they had arrived."""
        if octets < 1:
            raise InvalidValueError("octets", octets, "is not above 0")
        packets = -(-octets // TCP_PAYLOAD_BYTES)
        unsent = self._left or 0
        self._left = unsent + packets
        self._transfers.append((self.acked + self.in_flight + self._again + self._left, packets, slot * self._slot_s))
        self.start(slot)

    @property
    def transferring(self) -> bool:
        """Whether a transfer has not arrived yet."""
        return bool(self._transfers)

    # -- the network

    def arrive(self, packets: int, sent_slot: int, marked: int, slot: int) -> None:
        """Segments arrived: they are acknowledged."""
        self.delivered += packets
        self.marked += marked
        due_slot = slot + self._return_slots
        if self._jitter_slots:
            due_slot = max(due_slot + round(self._rng.uniform(0.0, self._jitter_slots)), self._last_due_slot)
            self._last_due_slot = due_slot
        self._acks.append(_Ack(due_slot, packets, sent_slot, marked))

    def lose(self, packets: int, ahead: int) -> None:
        """Segments were dropped: the sender will know once something sent later has arrived."""
        self.lost += packets
        hole = (self.delivered + ahead, packets)
        holes = self._holes
        if not holes or holes[-1][0] <= hole[0]:
            holes.append(hole)
        else:  # two ports on its way drop in one slot
            self._holes = deque(sorted([*holes, hole]))

    def offer(self, slot: int) -> int:
        """Handle the acknowledgements that are due, then return what the window lets out."""
        acks = self._acks
        while acks and acks[0].due_slot <= slot:
            self._acknowledge(acks.popleft(), slot)
        if self._timer_s is not None and slot * self._slot_s >= self._timer_s:
            self._time_out(slot)
        if self._written_per_slot is not None and self.running:
            self._written = min(self._written + self._written_per_slot, float(SEND_BUFFER))
        room = int(self.window + 1e-9) - self.in_flight
        if room <= 0 or not (self._again or (self.running and self._left != 0)):
            return 0
        return self._send(room, slot)

    # -- inside

    def _send(self, room: int, slot: int) -> int:
        again = min(room, self._again)
        new = room - again if self.running else 0
        if self._written_per_slot is not None:
            new = min(new, int(self._written))
            self._written -= new
        if self._left is not None:
            new = min(new, self._left)
            self._left -= new
            self.running = self.running and self._left > 0
        self._again -= again
        packets = again + new
        if packets:
            self.sent += packets
            self.in_flight += packets
            self._prr_sent += packets
            self._last_sent_s = slot * self._slot_s
            if self._timer_s is None:
                self._set_timer(slot)
        return packets

    def _acknowledge(self, ack: _Ack, slot: int) -> None:
        self.acked += ack.packets
        self.in_flight -= ack.packets
        self._backoff = 1
        self._probed = False
        rtt_s = (slot - ack.sent_slot) * self._slot_s
        self._measure(rtt_s)
        lost = 0
        while self._holes and self._holes[0][0] < self.acked:
            lost += self._holes.popleft()[1]
        self.in_flight -= lost
        self._again += lost
        if self._recovery_end is None:
            if lost or self._repaired:
                self._enter_recovery(lost, slot)
            else:
                self._grow(ack, rtt_s, slot)
        if self._recovery_end is not None:
            self._recover(ack.packets, lost)
        if self._transfers and self.acked >= self._transfers[0][0]:
            _, packets, began_s = self._transfers.pop(0)
            self.transfers.append(Transfer(packets, began_s, slot * self._slot_s))
        self._set_timer(slot)

    def _grow(self, ack: _Ack, rtt_s: float, slot: int) -> None:
        now_s = slot * self._slot_s
        if self.ecn:
            reduced = self.law.marked(self.window, ack.packets, ack.marked, self.acked >= self._reduced_until)
            if self.acked >= self._reduced_until and (ack.marked or self.law.counts_marks):
                self._reduced_until = self.acked + self.in_flight
            if reduced is not None:
                self.threshold = self.window = max(2.0, reduced)
                return
        if self.window < self.threshold:
            if self.law.leaves_slow_start(self.window, rtt_s, self.min_rtt_s):
                self.threshold = self.window
            self.window = min(self.window + ack.packets, max(self.threshold, self.window))
        else:
            self.window = self.law.grown(self.window, ack.packets, now_s, self._srtt_s)
        self.window = min(self.window, float(MAX_WINDOW))

    def _enter_recovery(self, lost: int, slot: int) -> None:
        """Fast recovery (RFC 6675), its window steered by proportional rate reduction (RFC 6937)."""
        self._prr_from = max(self.window, 1.0)
        self.threshold = max(2.0, self.law.reduced(self.window, slot * self._slot_s))
        self._prr_acked = self._prr_sent = 0
        self._recovery_end = self.sent + lost
        self._repaired = False

    def _recover(self, packets: int, lost: int) -> None:
        resolved = self.sent - self.in_flight
        assert self._recovery_end is not None
        if lost and resolved <= self._recovery_end:
            self._recovery_end = self.sent + self._again
        if resolved >= self._recovery_end and not self._again:
            self._recovery_end = None
            self.window = self.threshold
            return
        self._prr_acked += packets
        if self.in_flight > self.threshold:
            allowed = -int(-self._prr_acked * self.threshold // self._prr_from) - self._prr_sent
        else:
            allowed = max(self._prr_acked - self._prr_sent, packets) + (0 if lost or self._prr_sent else 1)
            allowed = min(allowed, int(self.threshold) - self.in_flight)
        self.window = float(self.in_flight + max(allowed, 0 if self._prr_sent else 1))

    def _time_out(self, slot: int) -> None:
        """A tail loss probe first (RFC 8985, section 7), then the retransmission time-out (RFC 6298)."""
        if not self._probed and self._recovery_end is None and self.in_flight > 0:
            self._probed = True
            if not self._again and self._requeue_tail():
                self._again, self._repaired = 1, True
            self.window = max(self.window, self.in_flight + 1.0)
            self._timer_s = slot * self._slot_s + self._rto_s()
            return
        lost = sum(count for _, count in self._holes)
        self._holes.clear()
        self._repaired = False
        if not lost and not self._again:
            self._set_timer(slot)
            return
        self.time_outs += 1
        self.in_flight -= lost
        self._again += lost
        if self._backoff == 1:
            self.threshold = max(2.0, self.law.reduced(self.window, slot * self._slot_s))
        self._backoff *= 2
        self._recovery_end = None
        self.window = self.in_flight + 1.0
        self._timer_s = slot * self._slot_s + self._rto_s()

    def _requeue_tail(self) -> bool:
        """Take the last lost segment back to be sent again as the probe; with nothing lost the probe is new data."""
        if not self._holes:
            return False
        at, count = self._holes.pop()
        if count > 1:
            self._holes.append((at, count - 1))
        self.in_flight -= 1
        return True

    def _measure(self, rtt_s: float) -> None:
        """Smoothed round-trip time and its variation (RFC 6298, section 2)."""
        self.min_rtt_s = min(self.min_rtt_s, rtt_s)
        if not self._srtt_s:
            self._srtt_s, self._rttvar_s = rtt_s, rtt_s / 2
            return
        self._rttvar_s += (abs(self._srtt_s - rtt_s) - self._rttvar_s) / 4
        self._srtt_s += (rtt_s - self._srtt_s) / 8

    def _rto_s(self) -> float:
        # Linux keeps the variation at 200 ms at least, so that the time-out is that much above the round trip.
        return min((self._srtt_s + max(4 * self._rttvar_s, MIN_RTO_S)) * self._backoff, MAX_RTO_S)

    def _set_timer(self, slot: int) -> None:
        if not (self.in_flight or self._again):
            self._timer_s = None
            return
        wait_s = self._rto_s()
        if not self._probed and self._recovery_end is None and self._srtt_s and self.in_flight > 1:
            wait_s = min(wait_s, max(PROBE_RTTS * self._srtt_s, MIN_PROBE_S))
        self._timer_s = slot * self._slot_s + wait_s
