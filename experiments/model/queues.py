"""The queues behind an output port, finite and of whole packets, served as HTB serves its classes; meters' buckets.

Packets move as runs, ``(source, packets, sent_slot, marked)``: the packets that one source sent in one slot. So the
work grows with the number of runs and slots, not with the speed of the link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from controller.units import BITS_PER_BYTE
from experiments.ovs.queue_classifier import leaf_packets
from experiments.switch.ports import SwitchPort


class Sender(Protocol):
    """The source of packets, as ports and links use it.

    ``reliable`` sources must learn how many of their packets were ahead of lost ones. ``hops`` is the path of the
    packets from the uplink to the receiver.
    """

    frame_bytes: int
    frame_bits: int
    reliable: bool
    hops: list[Hop]

    def markable(self, port: OutPort) -> bool:
        """Return whether a port on the path may mark the packets (whether they are ECN-capable there)."""
        ...

    def hop_after(self, port: OutPort) -> Hop | None:
        """Return the hop that follows a port on the path; None if the receiver follows."""

    def port_after(self, port: OutPort) -> OutPort | None:
        """Return the port that follows another port on the path; None if the receiver follows."""

    def lose(self, packets: int, ahead: int) -> None:
        """Count dropped packets; ``ahead`` earlier packets were still in the network (0 unless ``reliable``)."""

    def arrive(self, packets: int, sent_slot: int, marked: int, slot: int) -> None:
        """Count packets that reached the receiver in ``slot``; ``marked`` of them are ECN-marked."""


Run: TypeAlias = tuple[Sender, int, int, int]
"""(source, number of packets, slot in which they were sent, how many of them are ECN-marked)"""


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The depth of queues, and how they drop and mark.

    ``limit_packets`` is the depth; None: as deep as on Open vSwitch, at most 30 ms of the queue's rate. ``head_drop``
    drops the oldest packets (``pfifo_head_drop``, as on Open vSwitch), otherwise arriving packets are dropped
    (drop-tail). ECN-capable packets that find ``ecn_packets`` waiting are marked; None: no packet is marked.
    """

    limit_packets: int | None = None
    head_drop: bool = True
    ecn_packets: int | None = None


class ModelQueue:
    """One class of a port: a FIFO of runs.

    ``packets`` and ``waiting_bytes`` are what waits, ``limit`` is in packets. ``credit_bytes`` is the service that was
    too little for the packet at the head. ``sent``, ``sent_bytes`` and ``dropped`` count since the port last read them.
    """

    __slots__ = (
        "_options",
        "credit_bytes",
        "dropped",
        "limit",
        "packets",
        "runs",
        "sent",
        "sent_bytes",
        "waiting_bytes",
    )

    def __init__(self, rate_bps: float, options: QueueOptions) -> None:
        self.runs: deque[Run] = deque()
        self._options = options
        self.limit = options.limit_packets or leaf_packets(rate_bps)
        self.packets = self.waiting_bytes = self.dropped = self.sent = self.sent_bytes = 0
        self.credit_bytes = 0.0

    def push(self, run: Run, markable: bool = False) -> None:
        """Append a run, marked as ``ecn_packets`` demands; overflow is left to ``pop`` and ``drop``."""
        source, packets, sent_slot, marked = run
        mark_threshold = self._options.ecn_packets
        if mark_threshold is not None and markable and self.packets + packets > mark_threshold:
            marked = max(marked, min(packets, self.packets + packets - mark_threshold))
        self.runs.append((source, packets, sent_slot, marked))
        self.packets += packets
        self.waiting_bytes += packets * source.frame_bytes

    def pop(self, service_bytes: float, out: list[Run], rng: Random) -> list[tuple[Sender, int, int]]:
        """Move as many whole packets to ``out`` as ``service_bytes`` allow; the remainder becomes credit.

        A head-drop queue drops while it sends, and each packet that comes to the head has the same chance to be
        dropped. Return the losses as (source, packets dropped, packets of that source sent in this call before the
        dropped ones).
        """
        credit = self.credit_bytes + service_bytes
        runs, losses, first_out = self.runs, [], len(out)
        drop_share = self._head_share(credit)
        while runs:
            source, packets, sent_slot, marked = runs[0]
            frame_bytes = source.frame_bytes
            if drop_share:
                dropped = min(int(packets * drop_share + rng.random()), packets)
                if dropped:
                    losses.append((source, dropped, _packets_of(out[first_out:], source)))
                    self._remove(source, dropped)
                    packets -= dropped
            sent_packets = min(packets, int((credit + 1e-6) // frame_bytes))
            sent_marked = min(marked, sent_packets)
            credit -= sent_packets * frame_bytes
            self.packets -= sent_packets
            self.waiting_bytes -= sent_packets * frame_bytes
            self.sent += sent_packets
            self.sent_bytes += sent_packets * frame_bytes
            if sent_packets:
                out.append((source, sent_packets, sent_slot, sent_marked))
            if sent_packets < packets:
                runs[0] = (source, packets - sent_packets, sent_slot, min(marked - sent_marked, packets - sent_packets))
                break
            runs.popleft()
        self.credit_bytes = credit if runs else 0.0
        return losses

    def drop(self, new_runs: int, rng: Random) -> list[tuple[Sender, int, int]]:
        """Drop the packets beyond the limit: from the head, or at random among the last ``new_runs`` runs.

        Return the losses as (source, packets dropped, packets of that source that wait in this queue before the dropped
        ones).
        """
        if self.packets <= self.limit:
            return []
        excess = self.packets - self.limit
        return self._drop_head(excess) if self._options.head_drop else self._drop_tail(excess, new_runs, rng)

    def waiting_packets(self, source: Sender) -> int:
        """Return how many packets of a source wait in this queue."""
        return _packets_of(self.runs, source)

    def _head_share(self, credit_bytes: float) -> float:
        """Return the part, 0 to 1, of the packets coming to the head that must be dropped in this slot.

        ``served`` is the number of packets that the service sends; the excess over the limit is dropped evenly among
        both.
        """
        if not self._options.head_drop or self.packets <= self.limit:
            return 0.0
        served = credit_bytes * self.packets / self.waiting_bytes
        excess = self.packets - served - self.limit
        return excess / (excess + served) if excess > 0 else 0.0

    def _drop_head(self, excess: int) -> list[tuple[Sender, int, int]]:
        """Drop ``excess`` packets, the oldest first; return the losses as ``drop`` does."""
        losses = []
        while excess > 0:
            source, packets, sent_slot, marked = self.runs.popleft()
            dropped = min(packets, excess)
            losses.append((source, dropped, 0))  # no packet waits before the head
            self._remove(source, dropped)
            excess -= dropped
            if dropped < packets:
                self.runs.appendleft((source, packets - dropped, sent_slot, min(marked, packets - dropped)))
        return losses

    def _drop_tail(self, excess: int, new_runs: int, rng: Random) -> list[tuple[Sender, int, int]]:
        """Drop ``excess`` packets at random among the arrivals of this slot; return the losses as ``drop`` does.

        Arrivals of one slot are interleaved on the wire, so that each of their packets is dropped with the same
        probability.
        """
        losses = []
        recent = [self.runs.pop() for _ in range(min(new_runs, len(self.runs)))]
        drop_counts = [0] * len(recent)
        weights = [run[1] for run in recent]
        for _ in range(min(excess, sum(weights))):
            remaining = [weight - dropped for weight, dropped in zip(weights, drop_counts, strict=True)]
            chosen = rng.choices(range(len(recent)), remaining)[0]
            drop_counts[chosen] += 1
        for (source, packets, sent_slot, marked), dropped in zip(reversed(recent), reversed(drop_counts), strict=True):
            if dropped < packets:
                self.runs.append((source, packets - dropped, sent_slot, min(marked, packets - dropped)))
            if dropped:
                losses.append((source, dropped, self.waiting_packets(source)))
                self._remove(source, dropped)
        return losses

    def _remove(self, source: Sender, dropped: int) -> None:
        """Subtract dropped packets of a source from what waits, and count them."""
        self.packets -= dropped
        self.waiting_bytes -= dropped * source.frame_bytes
        self.dropped += dropped


def _packets_of(runs: Iterable[Run], source: Sender) -> int:
    """Return how many packets of a source are in these runs."""
    return sum(run[1] for run in runs if run[0] is source)


class OutPort:
    """The output port of a link, with its queues by queue id (``queues``).

    In each slot the queues share the link as HTB's classes do: minimum rates first (``SwitchPort.serve``). ``arrived``
    holds the (queue id, run) of this slot, ``waiting`` is whether any packet waits. ``on_count`` is called with the id
    of a queue, and the bytes sent and packets dropped since the last call.
    """

    def __init__(self, port: SwitchPort, slot_s: float, options: QueueOptions, rng: Random) -> None:
        self.port = port
        self._slot_s = slot_s
        self._options = options
        self._rng = rng
        self.queues: dict[int, ModelQueue] = {}
        self.arrived: list[tuple[int, Run]] = []
        self.waiting = False
        self.on_count: Callable[[int, int, int], None] = lambda _queue_id, _octets, _dropped: None
        self._capacity_bytes = port.rate_bps * slot_s / BITS_PER_BYTE

    def configure(self, queues: dict[int, tuple[int, int]], now_s: float) -> None:
        """Replace the port's queues by these (min, max) rates in bit/s, by queue id.

        Packets that wait in queues which no longer exist are dropped.
        """
        for queue_id in self.port.queues.keys() - queues.keys():
            self.port.remove_queue(queue_id)
            self.queues.pop(queue_id, None)
        for queue_id, (min_rate_bps, max_rate_bps) in queues.items():
            self.port.set_queue(queue_id, min_rate_bps, max_rate_bps, now_s)
            if queue_id in self.queues:
                self.queues[queue_id].limit = self._options.limit_packets or leaf_packets(max_rate_bps)

    def queue(self, queue_id: int) -> ModelQueue:
        """Return the queue of an id, made if needed; without such a class, one at the rate of the port."""
        found = self.queues.get(queue_id)
        if found is None:
            setting = self.port.queues.get(queue_id)
            rate_bps = self.port.rate_bps if setting is None else setting.max_rate_bps
            found = self.queues[queue_id] = ModelQueue(rate_bps, self._options)
        return found

    def drain_sent(self) -> tuple[int, int]:
        """Return (bytes, packets) sent by all queues since the last call, and set their counters to zero."""
        octets, packets = 0, 0
        for queue_id, queue in self.queues.items():
            octets, packets = octets + queue.sent_bytes, packets + queue.sent
            self.on_count(queue_id, queue.sent_bytes, queue.dropped)
            queue.sent_bytes = queue.sent = queue.dropped = 0
        return octets, packets

    def count(self) -> tuple[int, int]:
        """Update the counters of the port and its queues; return (bytes, packets) sent since the last call."""
        for queue_id, queue in self.queues.items():
            self.port.send(queue_id, queue.sent_bytes, queue.sent, queue.dropped)
            queue.dropped = 0
        return self.drain_sent()

    def beyond(self, source: Sender) -> int:
        """Return how many packets of a source are at this port and at the later ports of its path."""
        at_port = sum(queue.waiting_packets(source) for queue in self.queues.values())
        at_port += _packets_of((run for _, run in self.arrived), source)
        next_port = source.port_after(self)
        return at_port if next_port is None else at_port + next_port.beyond(source)

    def serve(self, out: list[Run]) -> None:
        """Let one slot pass: queue the runs that arrived, and append the runs that leave to ``out``."""
        arrived, self.arrived = self.arrived, []
        if not self.waiting and self._all_fits(arrived):
            out.extend(run for _, run in arrived)
            return
        self._rng.shuffle(arrived)  # packets of a slot are interleaved: no source is always first
        run_counts: dict[int, int] = {}
        may_mark = self._options.ecn_packets is not None
        for queue_id, run in arrived:
            self.queue(queue_id).push(run, may_mark and run[0].markable(self))
            run_counts[queue_id] = run_counts.get(queue_id, 0) + 1
        busy_queues = {queue_id: queue for queue_id, queue in self.queues.items() if queue.runs}
        self.waiting = False
        for queue_id, service_bytes in self._shares(busy_queues).items():
            queue, first_out = busy_queues[queue_id], len(out)
            for source, dropped, ahead in queue.pop(service_bytes, out, self._rng):
                self._lose(source, dropped, ahead)
            for source, dropped, ahead in queue.drop(run_counts.get(queue_id, 0), self._rng):
                self._lose(source, dropped, ahead + _packets_of(out[first_out:], source))
            self.waiting = self.waiting or bool(queue.runs)

    def _lose(self, source: Sender, dropped: int, ahead: int) -> None:
        """Report dropped packets to their source; ``ahead`` of its packets at this port came before them."""
        next_port = source.port_after(self) if source.reliable else None
        source.lose(dropped, ahead if next_port is None else ahead + next_port.beyond(source))

    def _all_fits(self, arrived: list[tuple[int, Run]]) -> bool:
        """Return whether this slot's arrivals can all leave at once, within the port's and each queue's maximum rate.

        If so, they are counted as sent: the fast path, without queueing.
        """
        bytes_by_queue: dict[int, int] = {}
        packets_by_queue: dict[int, int] = {}
        for queue_id, (source, packets, _, _) in arrived:
            bytes_by_queue[queue_id] = bytes_by_queue.get(queue_id, 0) + packets * source.frame_bytes
            packets_by_queue[queue_id] = packets_by_queue.get(queue_id, 0) + packets
        if sum(bytes_by_queue.values()) > self._capacity_bytes:
            return False
        for queue_id, queue_bytes in bytes_by_queue.items():
            setting = self.port.queues.get(queue_id)
            if setting is not None and queue_bytes > setting.max_rate_bps * self._slot_s / BITS_PER_BYTE:
                return False
        for queue_id, queue_bytes in bytes_by_queue.items():
            queue = self.queue(queue_id)
            queue.sent_bytes += queue_bytes
            queue.sent += packets_by_queue[queue_id]
        return True

    def _shares(self, busy: dict[int, ModelQueue]) -> dict[int, float]:
        """Return the bytes that each busy queue may send in this slot, by queue id.

        Without classes the busy queues share the link equally; otherwise as the port's HTB classes do.
        """
        if not self.port.queues:
            return dict.fromkeys(busy, self._capacity_bytes / max(len(busy), 1))
        bits_per_s = 8 / self._slot_s
        offered_bps: dict[int | None, float] = {
            queue_id: (queue.waiting_bytes - queue.credit_bytes) * bits_per_s for queue_id, queue in busy.items()
        }
        served_bps = self.port.serve(offered_bps)
        return {queue_id: rate_bps / bits_per_s for queue_id, rate_bps in served_bps.items() if queue_id is not None}


class Bucket:
    """The token bucket and the counters of one meter; ``tokens`` and ``depth_bits`` are bits, ``rate`` is kb/s.

    Plain numbers, not columns: a slot offers a handful of packets to a few dozen meters one after the other, and on so
    little, plain numbers are several times as fast. Time is in whole milliseconds, as Open vSwitch keeps it for meters.
    """

    __slots__ = ("band_bytes", "band_packets", "bytes_in", "depth_bits", "filled_ms", "packets_in", "rate", "tokens")

    def __init__(self) -> None:
        self.set(1, 0.0, 0)

    def set(self, rate_kbps: int, depth_bits: float, now_ms: int) -> None:
        """Set rate (1 kb/s is 1 bit/ms) and depth; the bucket is full and the counters are zero afterwards."""
        self.rate, self.depth_bits, self.tokens, self.filled_ms = rate_kbps, depth_bits, depth_bits, now_ms
        self.packets_in = self.bytes_in = self.band_packets = self.band_bytes = 0

    def consume(self, packets: int, packet_bits: int, now_ms: int) -> int:
        """Return how many of the ``packets`` that arrive now pass the meter; passed and dropped ones are counted."""
        tokens = self.tokens
        if now_ms > self.filled_ms:
            tokens = min(tokens + (now_ms - self.filled_ms) * self.rate, self.depth_bits)
            self.filled_ms = now_ms
        passed = min(packets, int(tokens // packet_bits))
        self.tokens = tokens - passed * packet_bits
        self.packets_in += packets
        self.bytes_in += packets * packet_bits // BITS_PER_BYTE
        if passed < packets:
            self.band_packets += packets - passed
            self.band_bytes += (packets - passed) * packet_bits // BITS_PER_BYTE
        return passed


def whole_ms(now_s: float) -> int:
    """Return a time as whole milliseconds, rounded down; a rounding error of floating point costs no millisecond."""
    return int(now_s * 1000.0 + 1e-6)


class Hop(NamedTuple):
    """One step of a path: ``meters`` to pass, then a queue of a port to wait in.

    Packets pass the meters ``behind`` after the output: these count, and drop nothing. ``markable``: the packets are
    ECN-capable at this port. Packets that arrive with a mark also pass the ``counting`` meters, and lose the mark if
    the flow entry ``clears`` it.
    """

    meters: tuple[Bucket, ...]
    port: OutPort
    queue_id: int
    behind: tuple[Bucket, ...] = ()
    markable: bool = False
    counting: tuple[Bucket, ...] = ()
    clears: bool = False
