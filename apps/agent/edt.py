"""The EDT build: each frame gets its earliest departure time at the egress hook, and ``fq`` holds it until then.

A program adds each frame's time at the rate to the next departure of its pair, and to that of its VLAN (what its VN may
send). The frame goes at the later of the two. What would have to wait for more than HORIZON_S is dropped. There are no
classes: state is a record for each pair, in memory that the program and this process share. The times are added up
atomically, so that processors do not wait for each other. Two that find a pair idle at once may send a frame too much.

Needs ``fq`` and Linux 5.12 (atomic instructions). Frames of one VLAN that wait for what its VN may send leave in the
order in which they came, while HTB lets its destinations take turns.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Sequence

import numpy as np

from apps.agent import classifier
from apps.agent.netlink import (
    CREATE,
    EXCL,
    RTM_NEWQDISC,
    RTM_NEWTFILTER,
    TC_H_ROOT,
    TCA_KIND,
    TCA_OPTIONS,
    Netlink,
    Request,
    attribute,
    tc_message,
)
from apps.agent.shaper import OWN, PairCounters, ShapedPair
from apps.agent.uplink import DIRECT_PRIORITY, FILTER, MAJOR, give_back, take_root
from controller.errors import InvalidValueError
from topologies import bpf

HORIZON_S, BURST_S = 0.200, 0.001
LEAST_BPS = 8_000
_HORIZON_NS, _BURST_NS = round(HORIZON_S * 1e9), round(BURST_S * 1e9)
_COST_BITS = 16
_RECORD = np.dtype([("next_ns", "u8"), ("cost", "u8"), ("octets", "u8"), ("dropped", "u8")])
"""``cost`` is how long an octet takes at the rate, in ns / 2**16; ``octets`` were let in, ``dropped`` were not."""
_NEXT, _COST, _OCTETS, _DROPPED = range(0, 32, 8)
_NUMBER_AT, _STAMP_AT = -12, -24  # on the stack, below the key
_LEAST_QUEUE, _MOST_QUEUE = 10_000, 200_000  # of all frames that wait
_NAME = b"dets_edt"
_TCA_FQ_PLIMIT, _TCA_FQ_FLOW_PLIMIT = 1, 2


def program(numbers: int, records: int) -> bytes:
    """Return the program; ``numbers`` is the map from keys to numbers of records, ``records`` the array of these."""
    pass_on, refuse = bpf.leave(bpf.TC_ACT_OK), bpf.leave(bpf.TC_ACT_SHOT)
    record = (
        bpf.load_word(bpf.R1, bpf.R0, 0),
        bpf.store_word(bpf.R10, _NUMBER_AT, bpf.R1),
        *bpf.load_map(bpf.R1, records),
        bpf.move(bpf.R2, bpf.R10),
        bpf.add_to(bpf.R2, _NUMBER_AT),
        bpf.call(bpf.MAP_LOOKUP),
    )
    look_up = (*classifier.look_up(numbers), bpf.jump_if_equal(bpf.R0, 0, len(record)), *record)

    def depart(state: int, took: int, free: int) -> tuple[bytes, ...]:
        """R3 becomes when the frame may go, ``took`` how long it takes; R1 is the earliest that counts, R9 octets."""
        idle = (
            bpf.move(bpf.R3, bpf.R1),
            bpf.move(free, bpf.R1),
            bpf.add(free, took),
            bpf.store_double(state, _NEXT, free),
        )
        return (
            bpf.load_double(took, state, _COST),
            bpf.multiply(took, bpf.R9),
            bpf.shift_right(took, _COST_BITS),
            bpf.move(bpf.R3, took),
            bpf.atomic_exchange_add(state, _NEXT, bpf.R3),
            bpf.jump_unless_below(bpf.R3, bpf.R1, len(idle)),
            *idle,
        )

    of_pair = (
        bpf.store_double(bpf.R10, _STAMP_AT, bpf.R4),
        *depart(bpf.R8, bpf.R5, bpf.R4),
        bpf.load_double(bpf.R4, bpf.R10, _STAMP_AT),
        bpf.jump_unless_below(bpf.R4, bpf.R3, 1),
        bpf.move(bpf.R4, bpf.R3),
    )
    drop_of_pair = (
        bpf.negate(bpf.R5),
        bpf.atomic_add(bpf.R8, _NEXT, bpf.R5),
        bpf.atomic_add(bpf.R8, _DROPPED, bpf.R9),
    )
    drop = (
        bpf.negate(bpf.R2),
        bpf.atomic_add(bpf.R7, _NEXT, bpf.R2),
        bpf.atomic_add(bpf.R7, _DROPPED, bpf.R9),
        bpf.jump_if_equal(bpf.R8, 0, len(drop_of_pair)),
        *drop_of_pair,
        *refuse,
    )
    return b"".join(
        (
            bpf.move(bpf.R6, bpf.R1),
            bpf.load_word(bpf.R7, bpf.R6, bpf.SKB_PRIORITY),
            bpf.jump_if_word_equal(bpf.R7, DIRECT_PRIORITY, 1),
            bpf.jump(len(pass_on)),
            *pass_on,
            *classifier.read_header(),
            *look_up,
            bpf.move(bpf.R8, bpf.R0),  # the pair's record, if it has one
            *classifier.to_rest(),
            *look_up,
            bpf.jump_unless_equal(bpf.R0, 0, len(pass_on)),
            *pass_on,
            bpf.move(bpf.R7, bpf.R0),  # the VLAN's
            bpf.load_word(bpf.R1, bpf.R6, bpf.SKB_WIRE_LEN),
            bpf.add(bpf.R9, bpf.R1),
            bpf.call(bpf.KTIME_GET_NS),
            bpf.move(bpf.R1, bpf.R0),
            bpf.add_to(bpf.R1, -_BURST_NS),
            *depart(bpf.R7, bpf.R2, bpf.R4),
            bpf.move(bpf.R4, bpf.R3),
            bpf.jump_if_equal(bpf.R8, 0, len(of_pair)),
            *of_pair,
            bpf.add_to(bpf.R0, _HORIZON_NS),
            bpf.jump_unless_below(bpf.R0, bpf.R4, len(drop)),
            *drop,
            bpf.atomic_add(bpf.R7, _OCTETS, bpf.R9),
            bpf.jump_if_equal(bpf.R8, 0, 1),
            bpf.atomic_add(bpf.R8, _OCTETS, bpf.R9),
            bpf.store_double(bpf.R6, bpf.SKB_TSTAMP, bpf.R4),
            *pass_on,
        )
    )


class EdtShaper:
    """Shapes on one interface. ``vlans`` are those that the host has VNs in; 0 stands for untagged frames.

    Raises InvalidValueError where the kernel has no ``fq``, or the interface a root qdisc of somebody else.
    """

    most_pairs = 50_000

    def __init__(self, interface: str, vlans: Sequence[int], link_rate_bps: int, *, replace: bool = False) -> None:
        self._netlink = Netlink()
        self._link_rate_bps = link_rate_bps
        self._index = take_root(self._netlink, interface, replace=replace)
        self._numbers = bpf.HashMap(8, self.most_pairs + len(vlans))
        self._records = bpf.Records(_RECORD.itemsize, self.most_pairs + len(vlans))
        self._rows = np.frombuffer(self._records.memory, dtype=_RECORD, count=self.most_pairs + len(vlans))
        self._row_of: dict[ShapedPair, int] = {}
        self._next_row, self._free = 0, list[int]()
        try:
            self.set_rates([(ShapedPair(vid, OWN), link_rate_bps) for vid in vlans])
            self._build()
        except BaseException:
            self.close(keep=False)
            raise

    def _build(self) -> None:
        waiting = round(self._link_rate_bps * HORIZON_S / 8 / 1518)
        frames = struct.pack("=I", min(max(waiting, _LEAST_QUEUE), _MOST_QUEUE))
        options = attribute(_TCA_FQ_PLIMIT, frames) + attribute(_TCA_FQ_FLOW_PLIMIT, frames)
        root = tc_message(self._index, MAJOR << 16, TC_H_ROOT) + attribute(TCA_KIND, b"fq\0")
        try:
            self._netlink.change([Request(RTM_NEWQDISC, CREATE | EXCL, root + attribute(TCA_OPTIONS, options))])
        except OSError as error:
            if error.errno == errno.ENOENT:
                needs = "needs the queueing discipline fq, which this kernel does not have (sch_fq); htb works without"
                raise InvalidValueError("shaper", "edt", needs) from None
            raise
        hook = tc_message(self._index, bpf.HOOKS, bpf.HOOKS_PARENT) + attribute(TCA_KIND, bpf.EGRESS.qdisc)
        try:
            self._netlink.change([Request(RTM_NEWQDISC, CREATE | EXCL, hook)])
        except OSError as error:
            if error.errno != errno.EEXIST:  # somebody else's filters may be there: they stay
                raise
        descriptor = bpf.load_program(program(self._numbers.descriptor, self._records.descriptor), _NAME)
        try:
            options = bpf.filter_options(descriptor, _NAME)
            where = tc_message(self._index, 0, bpf.EGRESS.parent, FILTER) + attribute(TCA_KIND, b"bpf\0")
            self._netlink.change([Request(RTM_NEWTFILTER, CREATE | EXCL, where + attribute(TCA_OPTIONS, options))])
        finally:
            os.close(descriptor)

    def set_rates(self, rates: Sequence[tuple[ShapedPair, int]]) -> None:
        """Put rates (bit/s) in force; a pair that has none yet gets its own record."""
        for pair, rate_bps in rates:
            row = self._row_of.get(pair)
            new = row is None
            if row is None:
                row = self._row_of[pair] = self._take_row()
                self._rows[row] = 0
            self._rows["cost"][row] = _cost(min(rate_bps, self._link_rate_bps))
            if new:
                self._numbers.put(classifier.key_of(*pair), row)

    def remove(self, pairs: Sequence[ShapedPair]) -> None:
        """Let pairs go back to what their VN sends elsewhere, and a VN to what the link carries."""
        for pair in pairs:
            if pair.destination == OWN:
                self.set_rates([(pair, self._link_rate_bps)])
            elif (row := self._row_of.pop(pair, None)) is not None:
                self._numbers.delete(classifier.key_of(*pair))
                self._free.append(row)

    def counters(self, pairs: Sequence[ShapedPair]) -> PairCounters:
        """Return what pairs have counted since they got their records; one without has counted nothing."""
        at = np.array([self._row_of.get(pair, -1) for pair in pairs], dtype=np.int64)
        rows = self._rows[at]  # a copy
        rows[at < 0] = 0
        ahead_ns = np.maximum(rows["next_ns"].astype(np.int64) - time.clock_gettime_ns(time.CLOCK_MONOTONIC), 0)
        waiting = np.minimum(ahead_ns * 2.0**_COST_BITS / np.maximum(rows["cost"], 1), rows["octets"])
        backlog = np.rint(waiting).astype(np.int64)
        return PairCounters(rows["octets"].astype(np.int64) - backlog, rows["dropped"].astype(np.int64), backlog)

    def close(self, *, keep: bool) -> None:
        """Stop; rates stay in force with ``keep``, otherwise the kernel's own qdisc is back."""
        if not keep:
            give_back(self._netlink, self._index)
        self._numbers.close()
        self._records.close()
        self._netlink.close()

    def _take_row(self) -> int:
        if self._free:
            return self._free.pop()
        if self._next_row >= len(self._rows):
            raise InvalidValueError("pairs", self.most_pairs + 1, f"are more than {self.most_pairs} records")
        self._next_row += 1
        return self._next_row - 1


def _cost(rate_bps: int) -> int:
    cost: int = round(8e9 * 2**_COST_BITS / max(rate_bps, LEAST_BPS))
    return cost
