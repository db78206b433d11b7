"""What stands behind a port: finite queues of whole packets, served as HTB serves its classes; and meters' buckets.

Packets move as runs, ``(source, packets, sent_slot, marked)``: those of one source in one slot. Work is per run and
slot, whatever the speed of the link.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, Protocol, TypeAlias

from experiments.ovs.queue_classifier import leaf_packets
from experiments.switch.ports import SwitchPort

BITS_PER_BYTE = 8


class Sender(Protocol):
    """What ports and links have to know of the source of packets.

    ``reliable`` ones learn how many packets were ahead of lost ones. ``hops`` is the way of its packets.
    """

    frame_bytes: int
    frame_bits: int
    reliable: bool
    hops: list[Hop]

    def markable(self, port: OutPort) -> bool:
        """Return whether its packets may be marked at a port on their way (ECN-capable there)."""
        ...

    def hop_after(self, port: OutPort) -> Hop | None:
        """Return what follows a port on its way; None where that is the receiver."""

    def port_after(self, port: OutPort) -> OutPort | None:
        """Return the port that follows another on its way; None at the receiver."""

    def lose(self, packets: int, ahead: int) -> None:
        """Packets of it were dropped while ``ahead`` earlier ones were still under way (0 unless it is reliable)."""

    def arrive(self, packets: int, sent_slot: int, marked: int, slot: int) -> None:
        """Packets of it reached the receiver."""


Run: TypeAlias = tuple[Sender, int, int, int]
"""A source, how many of its packets, the slot they were sent in, and how many of them are ECN-marked."""


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """How queues overflow and mark. ``limit_packets`` None: as deep as the emulated fabric makes them, 30 ms at most.

    ``head_drop`` drops the oldest packet (``pfifo_head_drop``, what the fabric on Open vSwitch has), otherwise those
    that arrive (drop-tail). ECN-capable packets that find ``ecn_packets`` waiting are marked; None marks nothing.
    """

    limit_packets: int | None = None
    head_drop: bool = True
    ecn_packets: int | None = None


class ModelQueue:
    """One class: a FIFO of runs. ``sent``, ``sent_bytes`` and ``dropped`` count since they were last told."""

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
        """Let a run wait; overflow is settled by ``drop``, once the slot's service is known."""
        source, packets, sent_slot, marked = run
        mark_at = self._options.ecn_packets
        if mark_at is not None and markable and self.packets + packets > mark_at:
            marked = max(marked, min(packets, self.packets + packets - mark_at))
        self.runs.append((source, packets, sent_slot, marked))
        self.packets += packets
        self.waiting_bytes += packets * source.frame_bytes

    def pop(self, service_bytes: float, out: list[Run], rng: Random) -> list[tuple[Sender, int, int]]:
        """Send what ``service_bytes`` allow, in whole packets; what a packet lacks is carried on.

        A queue that drops at its head does so all along while it sends: each packet that comes to the head has the same
        chance. Return (source, packets dropped, packets of it in ``out`` before those).
        """
        credit = self.credit_bytes + service_bytes
        runs, losses, first = self.runs, [], len(out)
        share = self._head_share(credit)
        while runs:
            source, packets, sent_slot, marked = runs[0]
            size = source.frame_bytes
            if share:
                lost = min(int(packets * share + rng.random()), packets)
                if lost:
                    losses.append((source, lost, _of(out[first:], source)))
                    self._forget(source, lost)
                    packets -= lost
            fits = min(packets, int((credit + 1e-6) // size))
            taken = min(marked, fits)
            credit -= fits * size
            self.packets -= fits
            self.waiting_bytes -= fits * size
            self.sent += fits
            self.sent_bytes += fits * size
            if fits:
                out.append((source, fits, sent_slot, taken))
            if fits < packets:
                runs[0] = (source, packets - fits, sent_slot, min(marked - taken, packets - fits))
                break
            runs.popleft()
        self.credit_bytes = credit if runs else 0.0
        return losses

    def drop(self, new_runs: int, rng: Random) -> list[tuple[Sender, int, int]]:
        """Drop what is still beyond the limit: from the head, or by chance among the last ``new_runs`` runs.

        Return (source, packets dropped, packets of it that wait here before those).
        """
        if self.packets <= self.limit:
            return []
        excess = self.packets - self.limit
        return self._drop_head(excess) if self._options.head_drop else self._drop_tail(excess, new_runs, rng)

    def waiting_packets(self, source: Sender) -> int:
        """Return how many packets of a source wait here."""
        return _of(self.runs, source)

    def _head_share(self, credit_bytes: float) -> float:
        """Return the part of the packets at the head that is dropped in this slot."""
        if not self._options.head_drop or self.packets <= self.limit:
            return 0.0
        served = credit_bytes * self.packets / self.waiting_bytes
        excess = self.packets - served - self.limit
        return excess / (excess + served) if excess > 0 else 0.0

    def _drop_head(self, excess: int) -> list[tuple[Sender, int, int]]:
        losses = []
        while excess > 0:
            source, packets, sent_slot, marked = self.runs.popleft()
            lost = min(packets, excess)
            losses.append((source, lost, 0))
            self._forget(source, lost)
            excess -= lost
            if lost < packets:
                self.runs.appendleft((source, packets - lost, sent_slot, min(marked, packets - lost)))
        return losses

    def _drop_tail(self, excess: int, new_runs: int, rng: Random) -> list[tuple[Sender, int, int]]:
        """Arrivals of one slot are mixed on the wire: each packet of them is as likely to find no room as any other."""
        losses = []
        recent = [self.runs.pop() for _ in range(min(new_runs, len(self.runs)))]
        lost = [0] * len(recent)
        weights = [run[1] for run in recent]
        for _ in range(min(excess, sum(weights))):
            number = rng.choices(range(len(recent)), [w - n for w, n in zip(weights, lost, strict=True)])[0]
            lost[number] += 1
        for (source, packets, sent_slot, marked), gone in zip(reversed(recent), reversed(lost), strict=True):
            if gone < packets:
                self.runs.append((source, packets - gone, sent_slot, min(marked, packets - gone)))
            if gone:
                losses.append((source, gone, self.waiting_packets(source)))
                self._forget(source, gone)
        return losses

    def _forget(self, source: Sender, lost: int) -> None:
        self.packets -= lost
        self.waiting_bytes -= lost * source.frame_bytes
        self.dropped += lost


def _of(runs: Iterable[Run], source: Sender) -> int:
    """Return how many packets of a source are in these runs."""
    return sum(run[1] for run in runs if run[0] is source)


class OutPort:
    """A port towards a link: its classes, and how they share it in each slot (``SwitchPort.serve``: minimum first)."""

    def __init__(self, port: SwitchPort, slot_s: float, options: QueueOptions, rng: Random) -> None:
        self.port = port
        self._slot_s = slot_s
        self._options = options
        self._rng = rng
        self.queues: dict[int, ModelQueue] = {}
        self.arrived: list[tuple[int, Run]] = []
        self.waiting = False
        self.on_count: Callable[[int, int, int], None] = lambda _queue_id, _octets, _dropped: None
        self._capacity_bytes = port.rate_bps * slot_s / 8

    def configure(self, queues: dict[int, tuple[int, int]], now_s: float) -> None:
        """Give the port these classes, (min, max) rates in bit/s by queue id; what waits in others is dropped."""
        for queue_id in self.port.queues.keys() - queues.keys():
            self.port.remove_queue(queue_id)
            self.queues.pop(queue_id, None)
        for queue_id, (min_rate_bps, max_rate_bps) in queues.items():
            self.port.set_queue(queue_id, min_rate_bps, max_rate_bps, now_s)
            if queue_id in self.queues:
                self.queues[queue_id].limit = self._options.limit_packets or leaf_packets(max_rate_bps)

    def queue(self, queue_id: int) -> ModelQueue:
        """Return a class; without one of that number, the port's plain queue."""
        found = self.queues.get(queue_id)
        if found is None:
            setting = self.port.queues.get(queue_id)
            rate_bps = self.port.rate_bps if setting is None else setting.max_rate_bps
            found = self.queues[queue_id] = ModelQueue(rate_bps, self._options)
        return found

    def drain_sent(self) -> tuple[int, int]:
        """Return (bytes, packets) sent since the last call, all classes together."""
        octets, packets = 0, 0
        for queue_id, queue in self.queues.items():
            octets, packets = octets + queue.sent_bytes, packets + queue.sent
            self.on_count(queue_id, queue.sent_bytes, queue.dropped)
            queue.sent_bytes = queue.sent = queue.dropped = 0
        return octets, packets

    def count(self) -> tuple[int, int]:
        """Bring the counters of the port and of its queues up to date; return (bytes, packets) sent meanwhile."""
        for queue_id, queue in self.queues.items():
            self.port.send(queue_id, queue.sent_bytes, queue.sent, queue.dropped)
            queue.dropped = 0
        return self.drain_sent()

    def beyond(self, source: Sender) -> int:
        """Return how many packets of a source are at this port and at those after it on its way."""
        here = sum(queue.waiting_packets(source) for queue in self.queues.values())
        here += _of((run for _, run in self.arrived), source)
        later = source.port_after(self)
        return here if later is None else here + later.beyond(source)

    def serve(self, out: list[Run]) -> None:
        """Let one slot pass: take what arrived, append what leaves to ``out``."""
        arrived, self.arrived = self.arrived, []
        if not self.waiting and self._all_fits(arrived):
            out.extend(run for _, run in arrived)
            return
        self._rng.shuffle(arrived)  # packets of a slot mix: nobody's come always first
        touched: dict[int, int] = {}
        marks = self._options.ecn_packets is not None
        for queue_id, run in arrived:
            self.queue(queue_id).push(run, marks and run[0].markable(self))
            touched[queue_id] = touched.get(queue_id, 0) + 1
        busy = {number: queue for number, queue in self.queues.items() if queue.runs}
        self.waiting = False
        for number, octets in self._shares(busy).items():
            queue, first = busy[number], len(out)
            for source, lost, before in queue.pop(octets, out, self._rng):
                self._lose(source, lost, before)
            for source, lost, before in queue.drop(touched.get(number, 0), self._rng):
                self._lose(source, lost, before + _of(out[first:], source))
            self.waiting = self.waiting or bool(queue.runs)

    def _lose(self, source: Sender, lost: int, before: int) -> None:
        later = source.port_after(self) if source.reliable else None
        source.lose(lost, before if later is None else before + later.beyond(source))

    def _all_fits(self, arrived: list[tuple[int, Run]]) -> bool:
        """Whether nothing of it has to wait; its bytes are counted then."""
        octets: dict[int, int] = {}
        count: dict[int, int] = {}
        for queue_id, (source, packets, _, _) in arrived:
            octets[queue_id] = octets.get(queue_id, 0) + packets * source.frame_bytes
            count[queue_id] = count.get(queue_id, 0) + packets
        if sum(octets.values()) > self._capacity_bytes:
            return False
        for queue_id, wanted in octets.items():
            setting = self.port.queues.get(queue_id)
            if setting is not None and wanted > setting.max_rate_bps * self._slot_s / 8:
                return False
        for queue_id, wanted in octets.items():
            queue = self.queue(queue_id)
            queue.sent_bytes += wanted
            queue.sent += count[queue_id]
        return True

    def _shares(self, busy: dict[int, ModelQueue]) -> dict[int, float]:
        """Return how many bytes each class may send in this slot."""
        if not self.port.queues:
            return dict.fromkeys(busy, self._capacity_bytes / max(len(busy), 1))
        scale = 8 / self._slot_s
        wanted: dict[int | None, float] = {n: (q.waiting_bytes - q.credit_bytes) * scale for n, q in busy.items()}
        return {n: rate_bps / scale for n, rate_bps in self.port.serve(wanted).items() if n is not None}


class Bucket:
    """The token bucket and the counters of one meter.

    A slot offers a handful of packets to a few dozen meters one after the other; on so little, plain numbers are
    several times as quick as columns.

    Open vSwitch keeps time for meters in whole milliseconds, and so does this.
    """

    __slots__ = ("band_bytes", "band_packets", "bytes_in", "depth_bits", "filled_ms", "packets_in", "rate", "tokens")

    def __init__(self) -> None:
        self.set(1, 0.0, 0)

    def set(self, rate_kbps: int, depth_bits: float, now_ms: int) -> None:
        """Take a new rate (1 kb/s is 1 bit/ms) and depth: full again, and counting from zero."""
        self.rate, self.depth_bits, self.tokens, self.filled_ms = rate_kbps, depth_bits, depth_bits, now_ms
        self.packets_in = self.bytes_in = self.band_packets = self.band_bytes = 0

    def consume(self, packets: int, packet_bits: int, now_ms: int) -> int:
        """Return how many of ``packets`` that arrive now pass; all are counted."""
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
    """Return the time as whole milliseconds, not thrown off by what floating point lacks."""
    return int(now_s * 1000.0 + 1e-6)


class Hop(NamedTuple):
    """Meters to pass, then a class of a port to wait in; the meters ``behind`` the output count and hold nothing up.

    ``markable``: packets leave here ECN-capable, as the tables have it. Those that came with a mark pass ``counting``
    meters as well, and go on without it if the entry ``clears`` it.
    """

    meters: tuple[Bucket, ...]
    port: OutPort
    queue_id: int
    behind: tuple[Bucket, ...] = ()
    markable: bool = False
    counting: tuple[Bucket, ...] = ()
    clears: bool = False
