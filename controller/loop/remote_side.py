"""The interface to other nodes in an interval: here it does nothing. ``controller.shards`` has the sharded form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from controller.columns import BoolArray, IntArray
from controller.dets.messages import KeepAlive, ReceiverLoads, SetRate, TrafficReport
from controller.dets.rate_allocator import IntervalContext
from controller.dets.send_rate_controller import traffic_reports
from controller.fabric.pair_table import PairTable
from controller.fabric.vn_table import VnTable
from controller.loop.receiver_side import ReceiverSide
from controller.loop.sender_side import SenderSide
from controller.policy.interface import Decision


class ReceiverInput(NamedTuple):
    """Input of the receivers' decision: ``entries`` and all rows are local pairs, and pairs of other nodes."""

    entries: PairTable
    vns: VnTable
    reports: TrafficReport
    seen: IntervalContext


class SenderMessages(NamedTuple):
    """Messages to local senders, by rows of their table; the pairs of ``forfeits`` lose their saved bursts."""

    set_rate: SetRate
    keep_alive: KeepAlive
    forfeits: IntArray


class RemoteSide:
    """Without other nodes: all senders and all receivers are local."""

    def crosses(self, entries: PairTable) -> BoolArray | bool:
        """Return the mask of the pairs with receivers that other nodes decide for, (pairs,); False: no pair has one."""
        return False

    def with_loads(self, loads: ReceiverLoads) -> ReceiverLoads:
        """Return the loads, plus other nodes' loads on receivers."""
        return loads

    def watched(self, receivers: ReceiverSide, now_s: float) -> ReceiverSide:
        """Return the receivers' side with the peers' state at VNs that peers decide for."""
        return receivers

    def local_rows(self, rows: IntArray) -> IntArray:
        """Return the rows of pairs with receivers that this node decides for."""
        return rows

    def view(self, senders: SenderSide, receivers: ReceiverSide, vns: VnTable, seen: IntervalContext) -> ReceiverInput:
        """Return what the receivers decide from: the reports of all senders, and the other readings.

        ``seen`` are these readings for local pairs alone.
        """
        machines = senders.machines
        reports = traffic_reports(machines, machines.rows, senders.entries, vns, senders.seen.measured)
        return ReceiverInput(senders.entries, vns, reports, seen)

    def answered(
        self, view: ReceiverInput, receivers: ReceiverSide, set_rate: SetRate, keep_alive: KeepAlive
    ) -> tuple[ReceiverSide, SenderMessages]:
        """Return the receivers' side and the messages to local senders, after a decision on the ``view``."""
        return receivers, SenderMessages(set_rate, keep_alive, _forfeits(receivers.allocators.decisions))


NO_REMOTE_SIDE = RemoteSide()


def _forfeits(decisions: Iterable[Decision]) -> IntArray:
    """Return the rows of the pairs that lose their saved bursts by these decisions."""
    rows = [decision.view.rows[decision.forfeits] for decision in decisions if decision.forfeits is not None]
    return np.concatenate([np.empty(0, dtype=np.int64), *rows])
