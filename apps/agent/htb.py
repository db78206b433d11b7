"""The HTB shaper: a class for the link, a class in it for each VLAN, a class in that for each destination.

    de75: root handle 0xDE75: an agent's, of this or an earlier run
    |- :1 the link rate and ceil: the link's
       |- :2 frames of other VLANs
       |- :1vvv VLAN vvv (hex) rate and ceil: the VN's send limit
          |- :2vvv destinations without a class of their own
          |- :3000.. a destination ceil: the rate set; all but MIN_BPS is borrowed from the VLAN's

Changing a class's rate does not fill its bucket (``dets bench agent``). The classes of destinations borrow, so that
together they send at most the VN's limit: VNs of one host cannot use each other's limits.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

import numpy as np

from apps.agent import classifier
from apps.agent.classifier import TAG_BYTES
from apps.agent.ebpf import HashMap
from apps.agent.netlink import (
    CREATE,
    EXCL,
    REPLACE,
    RTM_DELTCLASS,
    RTM_NEWQDISC,
    RTM_NEWTCLASS,
    TC_H_ROOT,
    TCA_KIND,
    TCA_OPTIONS,
    Netlink,
    Request,
    attribute,
    tc_message,
)
from apps.agent.root_qdisc import MAJOR, claim_root, restore_root
from apps.agent.shaper import VN_AGGREGATE, PairCounters, ShapedPair
from controller.errors import InvalidValueError

LINK, OTHERS, VLAN, REST, FIRST_PAIR, LAST_PAIR = 0x1, 0x2, 0x1000, 0x2000, 0x3000, 0xFFFE
MIN_BPS = 8_000
# A burst is one frame and the bits of a millisecond: a shaper queues what a meter would drop.
FRAME_BYTES, BURST_S = 1_600, 0.001
QUANTUM_BYTES = 3_044  # sent by a class before the next one's turn: two frames
QUEUE_S, MIN_QUEUE, MAX_QUEUE = 0.030, 30, 1000  # leaf queues, in time at the rate and in frames
_TCA_HTB_PARMS, _TCA_HTB_INIT, _TCA_HTB_RATE64, _TCA_HTB_CEIL64 = 1, 2, 6, 7
_RATESPEC = struct.Struct("=BBHhHI")  # struct tc_ratespec
_OPTIONS = struct.Struct("=IIIII")  # the end of struct tc_htb_opt: both bursts, quantum, level, priority
_GLOBAL = struct.Struct("=IIIII")  # struct tc_htb_glob: version, rate2quantum, default class, debug, direct packets
_LINKLAYER_ETHERNET = 1
_TICK_NS = 64  # linux/pkt_sched.h: PSCHED_SHIFT
_MAX_RATE = 2**32 - 1


class HtbShaper:
    """Shapes on one interface. ``vlans`` are the VLANs of the host's VNs; 0 is for untagged frames."""

    most_pairs = LAST_PAIR - FIRST_PAIR + 1

    def __init__(self, interface: str, vlans: Sequence[int], link_rate_bps: int, *, replace: bool = False) -> None:
        self._netlink = Netlink()
        self._link_rate_bps = link_rate_bps
        self._index = claim_root(self._netlink, interface, replace=replace)
        self._minor_of: dict[ShapedPair, int] = {ShapedPair(vid, VN_AGGREGATE): VLAN + vid for vid in vlans}
        self._overhead = {vid: TAG_BYTES if vid else 0 for vid in vlans}
        self._queue: dict[int, int] = {}  # by minor number of a leaf class: the length of its queue in frames
        self._next_minor, self._free = FIRST_PAIR, list[int]()
        self._unmapped: dict[ShapedPair, int] = {}  # the classes that the classifier does not use yet
        # By minor number: bytes, packets and dropped packets as last read; packets, dropped packets and dropped bytes,
        # summed; queued bytes. The classes that were read last.
        self._counted = np.zeros((7, 0x10000), dtype=np.int64)
        self._listed = np.empty(0, dtype=np.int64)
        self._map = HashMap(8, self.most_pairs + len(vlans))
        try:
            self._build(vlans)
        except BaseException:
            self.close(keep=False)
            raise

    def _build(self, vlans: Sequence[int]) -> None:
        """Create the qdisc, the classes of the link and of each VLAN, and the classifier."""
        options = attribute(TCA_OPTIONS, attribute(_TCA_HTB_INIT, _GLOBAL.pack(3, 10, OTHERS, 0, 0)))
        root = tc_message(self._index, MAJOR << 16, TC_H_ROOT)
        requests = [
            Request(RTM_NEWQDISC, CREATE | EXCL, root + attribute(TCA_KIND, b"htb\0") + options),
            self._class(LINK, 0, self._link_rate_bps, self._link_rate_bps),
            self._class(OTHERS, LINK, MIN_BPS, self._link_rate_bps),
            *self._queue_of(OTHERS, self._link_rate_bps),
        ]
        for vid in vlans:
            overhead = self._overhead[vid]
            requests += [
                self._class(VLAN + vid, LINK, MIN_BPS, self._link_rate_bps, overhead),
                self._class(REST + vid, VLAN + vid, MIN_BPS, self._link_rate_bps, overhead),
                *self._queue_of(REST + vid, self._link_rate_bps),
            ]
            self._map.put(classifier.key_of(vid, classifier.DEFAULT_DESTINATION), REST + vid)
        descriptor = classifier.load(self._map.descriptor, OTHERS)
        try:
            self._netlink.change([*requests, classifier.attach(self._index, MAJOR, descriptor)])
        finally:
            os.close(descriptor)

    def set_rates(self, rates: Sequence[tuple[ShapedPair, int]]) -> None:
        """Apply rates (bit/s); create class and queue of a pair without one.

        The kernel may reject some of them. Then OSError is raised, and all of them must be applied again.
        """
        requests: list[Request] = []
        for pair, rate_bps in rates:
            minor, overhead = self._minor_of.get(pair), self._overhead[pair.vlan_vid]
            ceil_bps = min(rate_bps, self._link_rate_bps)
            if pair.destination == VN_AGGREGATE:
                assert minor is not None, "the classes of VLANs are there from the start"
                requests.append(self._class(minor, LINK, ceil_bps, ceil_bps, overhead))
                continue
            if minor is None:
                minor = self._minor_of[pair] = self._unmapped[pair] = self._allocate_minor()
            requests.append(self._class(minor, VLAN + pair.vlan_vid, MIN_BPS, ceil_bps, overhead))
            requests += self._queue_of(minor, ceil_bps)
        try:
            self._netlink.change(requests)
        except OSError:
            self._queue.clear()  # some queues may not have been set
            raise
        for pair, minor in self._unmapped.items():
            self._map.put(classifier.key_of(*pair), minor)
        self._unmapped.clear()

    def remove(self, pairs: Sequence[ShapedPair]) -> None:
        """Remove the limits of pairs: the class of a destination is deleted, a VN may use the whole link again."""
        requests, removed = [], []
        for pair in pairs:
            if pair.destination == VN_AGGREGATE:
                requests.append(
                    self._class(VLAN + pair.vlan_vid, LINK, MIN_BPS, self._link_rate_bps, self._overhead[pair[0]])
                )
            elif (minor := self._minor_of.pop(pair, None)) is not None:
                self._unmapped.pop(pair, None)
                self._map.delete(classifier.key_of(*pair))
                self._queue.pop(minor, None)
                removed.append(minor)
                requests.append(Request(RTM_DELTCLASS, 0, tc_message(self._index, MAJOR << 16 | minor, 0)))
        self._netlink.change(requests)
        self._free += removed  # a class that still exists would keep its parent, which may be of another VLAN

    def counters(self, pairs: Sequence[ShapedPair]) -> PairCounters:
        """Return the pairs' counts since their classes exist; 0 for a pair without a class.

        HTB counts dropped packets, not bytes: their assumed size is the mean of the packets that the class sent in the
        same time. It counts packets in 32 bits.
        """
        classes = self._netlink.class_counters(self._index)
        minors, now = classes.minor, np.stack([classes.octets, classes.packets, classes.dropped])
        before, sums = self._counted[:3, minors], self._counted[3:6, minors]
        is_new = now[0] < before[0]  # another class with this number
        before, sums = np.where(is_new, 0, before), np.where(is_new, 0, sums)
        octets, packets, dropped = now - before
        packets, dropped = packets % 2**32, dropped % 2**32
        mean_octets = np.where(packets > 0, octets / np.maximum(packets, 1), FRAME_BYTES)
        sums += np.stack([packets, dropped, np.rint(dropped * mean_octets).astype(np.int64)])
        self._counted[:, self._listed] = 0  # some of these classes may be gone
        self._counted[:, minors], self._listed = np.vstack([now, sums, classes.backlog_octets]), minors
        minors = np.array([self._minor_of.get(pair, 0) for pair in pairs], dtype=np.int64)  # no class has the number 0
        overhead_bytes = np.array([self._overhead[pair.vlan_vid] for pair in pairs], dtype=np.int64)
        sent_octets, _, _, sent_packets, dropped_packets, dropped_octets, backlog = self._counted[:, minors]
        # HTB counts frames without their tag.
        return PairCounters(
            sent_octets + overhead_bytes * sent_packets,
            dropped_octets + overhead_bytes * dropped_packets,
            backlog,
        )

    def close(self, *, keep: bool) -> None:
        """Stop; with ``keep`` the rates stay, otherwise the kernel's default qdisc is restored."""
        if not keep:
            restore_root(self._netlink, self._index)
        self._map.close()
        self._netlink.close()

    def _allocate_minor(self) -> int:
        """Return a free class number for a pair. Raises InvalidValueError if there is none."""
        if self._free:
            return self._free.pop()
        if self._next_minor > LAST_PAIR:
            raise InvalidValueError("pairs", self.most_pairs + 1, f"are more than {self.most_pairs} classes")
        self._next_minor += 1
        return self._next_minor - 1

    def _class(self, minor: int, parent: int, rate_bps: int, ceil_bps: int, overhead: int = 0) -> Request:
        """Return the request that creates or changes a class.

        ``parent`` is the minor number of its parent class, 0 for the qdisc; ``overhead`` is in bytes per packet.
        """
        rate, ceil = max(rate_bps // 8, 1), max(ceil_bps // 8, 1)  # byte/s
        parts = (
            _ratespec(rate, overhead),
            _ratespec(ceil, overhead),
            _OPTIONS.pack(_burst_ticks(rate), _burst_ticks(ceil), QUANTUM_BYTES, 0, 0),
        )
        options = attribute(_TCA_HTB_PARMS, b"".join(parts))
        if ceil > _MAX_RATE:
            options += attribute(_TCA_HTB_CEIL64, struct.pack("=Q", ceil))
            options += attribute(_TCA_HTB_RATE64, struct.pack("=Q", rate))
        message = tc_message(self._index, MAJOR << 16 | minor, MAJOR << 16 | parent)
        return Request(RTM_NEWTCLASS, CREATE, message + attribute(TCA_KIND, b"htb\0") + attribute(TCA_OPTIONS, options))

    def _queue_of(self, minor: int, rate_bps: int) -> list[Request]:
        """Return the request that makes a leaf's queue; none if its queue has half to twice the right length."""
        frames = min(max(round(rate_bps * QUEUE_S / 8 / 1518), MIN_QUEUE), MAX_QUEUE)  # of 1518 bytes, the longest
        frames_now = self._queue.get(minor)
        if frames_now is not None and frames <= 2 * frames_now and frames_now <= 2 * frames:
            return []
        self._queue[minor] = frames
        message = tc_message(self._index, 0, MAJOR << 16 | minor)
        options = attribute(TCA_KIND, b"pfifo_head_drop\0") + attribute(TCA_OPTIONS, struct.pack("=I", frames))
        return [Request(RTM_NEWQDISC, CREATE | REPLACE, message + options)]


def _ratespec(octets_per_s: int, overhead: int) -> bytes:
    """Return struct tc_ratespec; ``overhead`` is in bytes per packet."""
    return _RATESPEC.pack(0, _LINKLAYER_ETHERNET, overhead, -1, 0, min(octets_per_s, _MAX_RATE))


def _burst_ticks(octets_per_s: int) -> int:
    """Return the burst of a class, a frame and BURST_S, as the time to send it in the kernel's ticks of 64 ns."""
    burst_s = FRAME_BYTES / octets_per_s + BURST_S
    return min(round(burst_s * 1e9 / _TICK_NS), 2**32 - 1)
