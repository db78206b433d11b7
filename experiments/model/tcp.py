"""TCP in slots of virtual time: window, losses, recovery and time-outs of one flow, in whole segments of 1448 bytes.

A slot delivers a run of segments. Their acknowledgements return a slot (and the links' delays) later and let the sender
send new segments. The network keeps the order of segments, so that a lost segment is detected as soon as a later one
is acknowledged (SACK and RACK, as in Linux). docs/experiments.md lists what is modelled and what is not.
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
SEND_BUFFER = 90  # segments; the initial send buffer of 128 KB
MAX_WINDOW = 4_000  # segments; a receive buffer of 6 MB (tcp_rmem)
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
    """The sender of one TCP flow. While it runs it always has data to send, unless ``transfer`` set an amount.

    ``law`` is reno, cubic or dctcp; with ``ecn`` reno and cubic react to ECN marks too. ``return_s`` is the sum of the
    link delays there and back. ``rate_bps`` is the rate at which the application writes (wire rate; None: as fast as
    TCP accepts data); data that TCP has not sent yet waits, at most SEND_BUFFER segments. Acknowledgements are late by
    up to ``jitter_s`` more, uniformly by ``rng``, but stay in order: software hosts and switches are not scheduled at
    all times.
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
        self._unsent: int | None = None  # segments of transfers not sent yet; None: unlimited
        self._to_resend = 0  # lost segments to be retransmitted
        self._acks: deque[_Ack] = deque()
        self._gaps: deque[tuple[int, int]] = deque()  # (segments delivered before the gap, segments lost)
        self._srtt_s, self._rttvar_s, self.min_rtt_s = 0.0, 0.0, float("inf")
        self._backoff = 1
        # Recovery ends when so many segments are acknowledged or lost; None: the flow is not in recovery.
        self._recovery_end: int | None = None
        self._prr_acked = self._prr_sent = 0  # segments acknowledged and sent in this recovery
        self._prr_window = 1.0  # the window when this recovery began
        self._reduced_until = 0  # marks reduce the window again when ``acked`` is at this value
        self._timer_s: float | None = None
        # Whether a tail loss probe was sent since the last acknowledgement, and retransmitted a lost segment.
        self._probed = self._repaired = False
        self._last_sent_s = 0.0
        self._transfers: list[tuple[int, int, float]] = []  # (value of acked at its end, segments, start)
        self.transfers: list[Transfer] = []

    # -- the application

    def start(self, slot: int) -> None:
        """Start to send. After an idle time longer than the retransmission time-out the window restarts (RFC 2861)."""
        super().start(slot)
        if not self.in_flight and slot * self._slot_s - self._last_sent_s > self._rto_s():
            self.window = min(self.window, float(INITIAL_WINDOW))

    def transfer(self, octets: int, slot: int) -> None:
        """Send ``octets`` bytes of payload, then stop; ``transfers`` gets an entry when all are acknowledged."""
        if octets < 1:
            raise InvalidValueError("octets", octets, "is not above 0")
        packets = -(-octets // TCP_PAYLOAD_BYTES)  # rounded up
        unsent = self._unsent or 0
        self._unsent = unsent + packets
        acked_at_end = self.acked + self.in_flight + self._to_resend + self._unsent
        self._transfers.append((acked_at_end, packets, slot * self._slot_s))
        self.start(slot)

    @property
    def transferring(self) -> bool:
        """Whether a transfer is not acknowledged completely yet."""
        return bool(self._transfers)

    # -- the network

    def arrive(self, packets: int, sent_slot: int, marked: int, slot: int) -> None:
        """Schedule the acknowledgement of segments that reached the receiver."""
        self.delivered += packets
        self.marked += marked
        due_slot = slot + self._return_slots
        if self._jitter_slots:
            due_slot = max(due_slot + round(self._rng.uniform(0.0, self._jitter_slots)), self._last_due_slot)
            self._last_due_slot = due_slot
        self._acks.append(_Ack(due_slot, packets, sent_slot, marked))

    def lose(self, packets: int, ahead: int) -> None:
        """Record dropped segments; the sender detects the loss once a segment sent later is acknowledged."""
        self.lost += packets
        gap = (self.delivered + ahead, packets)
        gaps = self._gaps
        if not gaps or gaps[-1][0] <= gap[0]:
            gaps.append(gap)
        else:  # two ports of the path dropped segments in one slot
            self._gaps = deque(sorted([*gaps, gap]))

    def offer(self, slot: int) -> int:
        """Process the acknowledgements that are due; return how many segments are sent in this slot."""
        acks = self._acks
        while acks and acks[0].due_slot <= slot:
            self._acknowledge(acks.popleft(), slot)
        if self._timer_s is not None and slot * self._slot_s >= self._timer_s:
            self._time_out(slot)
        if self._written_per_slot is not None and self.running:
            self._written = min(self._written + self._written_per_slot, float(SEND_BUFFER))
        free_window = int(self.window + 1e-9) - self.in_flight
        if free_window <= 0 or not (self._to_resend or (self.running and self._unsent != 0)):
            return 0
        return self._send(free_window, slot)

    # -- inside

    def _send(self, free_window: int, slot: int) -> int:
        """Return how many segments are sent: first retransmissions, then new data, as the free window allows."""
        resent = min(free_window, self._to_resend)
        new_segments = free_window - resent if self.running else 0
        if self._written_per_slot is not None:
            new_segments = min(new_segments, int(self._written))
            self._written -= new_segments
        if self._unsent is not None:
            new_segments = min(new_segments, self._unsent)
            self._unsent -= new_segments
            self.running = self.running and self._unsent > 0
        self._to_resend -= resent
        packets = resent + new_segments
        if packets:
            self.sent += packets
            self.in_flight += packets
            self._prr_sent += packets
            self._last_sent_s = slot * self._slot_s
            if self._timer_s is None:
                self._set_timer(slot)
        return packets

    def _acknowledge(self, ack: _Ack, slot: int) -> None:
        """Update window and state for one acknowledgement; every gap before ``acked`` is a detected loss."""
        self.acked += ack.packets
        self.in_flight -= ack.packets
        self._backoff = 1
        self._probed = False
        rtt_s = (slot - ack.sent_slot) * self._slot_s
        self._measure(rtt_s)
        lost = 0
        while self._gaps and self._gaps[0][0] < self.acked:
            lost += self._gaps.popleft()[1]
        self.in_flight -= lost
        self._to_resend += lost
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
        """Adjust the window outside of recovery: reduce it for ECN marks, or grow it by slow start or the law."""
        now_s = slot * self._slot_s
        if self.ecn:
            reduced = self.law.marked(self.window, ack.packets, ack.marked, self.acked >= self._reduced_until)
            # The next window begins: after a mark, and, for a law that counts marks, after every round trip.
            if self.acked >= self._reduced_until and (ack.marked or self.law.counts_marks):
                self._reduced_until = self.acked + self.in_flight
            if reduced is not None:
                self.threshold = self.window = max(2.0, reduced)
                return
        if self.window < self.threshold:
            if self.law.leaves_slow_start(self.window, rtt_s, self.min_rtt_s):
                self.threshold = self.window
            # Not beyond the threshold: if slow start has just ended, the window stays.
            self.window = min(self.window + ack.packets, max(self.threshold, self.window))
        else:
            self.window = self.law.grown(self.window, ack.packets, now_s, self._srtt_s)
        self.window = min(self.window, float(MAX_WINDOW))

    def _enter_recovery(self, lost: int, slot: int) -> None:
        """Enter fast recovery (RFC 6675); proportional rate reduction (RFC 6937) controls its window."""
        self._prr_window = max(self.window, 1.0)
        self.threshold = max(2.0, self.law.reduced(self.window, slot * self._slot_s))
        self._prr_acked = self._prr_sent = 0
        self._recovery_end = self.sent + lost
        self._repaired = False

    def _recover(self, packets: int, lost: int) -> None:
        """Set the window during recovery (RFC 6937); end recovery when all segments sent before it are resolved.

        ``packets`` were acknowledged and ``lost`` detected as lost now. ``resolved`` counts segments acknowledged or
        lost.
        """
        resolved = self.sent - self.in_flight
        assert self._recovery_end is not None
        # Losses found during recovery extend it until their retransmissions are resolved, too.
        if lost and resolved <= self._recovery_end:
            self._recovery_end = self.sent + self._to_resend
        if resolved >= self._recovery_end and not self._to_resend:
            self._recovery_end = None
            self.window = self.threshold
            return
        self._prr_acked += packets
        if self.in_flight > self.threshold:
            # The part of the acknowledged segments, rounded up, by which the window shrinks to the threshold.
            allowed = -int(-self._prr_acked * self.threshold // self._prr_window) - self._prr_sent
        else:
            allowed = max(self._prr_acked - self._prr_sent, packets) + (0 if lost or self._prr_sent else 1)
            allowed = min(allowed, int(self.threshold) - self.in_flight)
        # The first acknowledgement of a recovery allows one segment at least.
        self.window = float(self.in_flight + max(allowed, 0 if self._prr_sent else 1))

    def _time_out(self, slot: int) -> None:
        """First send a tail loss probe (RFC 8985, section 7); then do a retransmission time-out (RFC 6298)."""
        if not self._probed and self._recovery_end is None and self.in_flight > 0:
            self._probed = True
            if not self._to_resend and self._requeue_tail():
                self._to_resend, self._repaired = 1, True
            self.window = max(self.window, self.in_flight + 1.0)
            self._timer_s = slot * self._slot_s + self._rto_s()
            return
        lost = sum(count for _, count in self._gaps)
        self._gaps.clear()
        self._repaired = False
        if not lost and not self._to_resend:  # nothing was lost: acknowledgements are on their way
            self._set_timer(slot)
            return
        self.time_outs += 1
        self.in_flight -= lost
        self._to_resend += lost
        if self._backoff == 1:  # the first time-out in a row
            self.threshold = max(2.0, self.law.reduced(self.window, slot * self._slot_s))
        self._backoff *= 2
        self._recovery_end = None
        self.window = self.in_flight + 1.0
        self._timer_s = slot * self._slot_s + self._rto_s()

    def _requeue_tail(self) -> bool:
        """Take the last lost segment out of flight to retransmit it as the probe; False if nothing is lost."""
        if not self._gaps:
            return False
        delivered_before, lost = self._gaps.pop()
        if lost > 1:
            self._gaps.append((delivered_before, lost - 1))
        self.in_flight -= 1
        return True

    def _measure(self, rtt_s: float) -> None:
        """Update the smoothed round-trip time and its variation (RFC 6298, section 2)."""
        self.min_rtt_s = min(self.min_rtt_s, rtt_s)
        if not self._srtt_s:
            self._srtt_s, self._rttvar_s = rtt_s, rtt_s / 2
            return
        self._rttvar_s += (abs(self._srtt_s - rtt_s) - self._rttvar_s) / 4
        self._srtt_s += (rtt_s - self._srtt_s) / 8

    def _rto_s(self) -> float:
        """Return the retransmission time-out in seconds, doubled after each time-out in a row."""
        # Linux keeps the variation at 200 ms at least, so that the time-out is that much above the round trip.
        return min((self._srtt_s + max(4 * self._rttvar_s, MIN_RTO_S)) * self._backoff, MAX_RTO_S)

    def _set_timer(self, slot: int) -> None:
        """Restart the timer, for a tail loss probe if allowed, otherwise for a time-out.

        Stop it if nothing is in flight.
        """
        if not (self.in_flight or self._to_resend):
            self._timer_s = None
            return
        wait_s = self._rto_s()
        if not self._probed and self._recovery_end is None and self._srtt_s and self.in_flight > 1:
            wait_s = min(wait_s, max(PROBE_RTTS * self._srtt_s, MIN_PROBE_S))
        self._timer_s = slot * self._slot_s + wait_s
