"""What others, who have the rest of a fabric, do of an interval: nothing here. ``controller.shards`` says what else."""

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
    """What receivers decide on: ``entries`` are the own senders' unless others report some, and so are all rows."""

    entries: PairTable
    vns: VnTable
    reports: TrafficReport
    seen: IntervalContext


class SenderMessages(NamedTuple):
    """What own senders are told, by rows of their table; those of ``forfeits`` lose the bursts that they have saved."""

    set_rate: SetRate
    keep_alive: KeepAlive
    forfeits: IntArray


class RemoteSide:
    """Nobody and nothing: all senders and all receivers are here."""

    def crosses(self, entries: PairTable) -> BoolArray | bool:
        """Return which entries, (entries,), lead to receivers that others decide for."""
        return False

    def with_loads(self, loads: ReceiverLoads) -> ReceiverLoads:
        """Return the loads with what others bring to receivers."""
        return loads

    def watched(self, receivers: ReceiverSide, now_s: float) -> ReceiverSide:
        """Return the receivers' side as it is where the decision is here, and as others have said where it is not."""
        return receivers

    def own(self, rows: IntArray) -> IntArray:
        """Return those of the rows of entries that lead to receivers for whom the decision is here."""
        return rows

    def view(self, senders: SenderSide, receivers: ReceiverSide, vns: VnTable, seen: IntervalContext) -> ReceiverInput:
        """Return what all senders report, and what policies see besides; ``seen`` is that of the own ones."""
        machines = senders.machines
        reports = traffic_reports(machines, machines.rows, senders.entries, vns, senders.seen.measured)
        return ReceiverInput(senders.entries, vns, reports, seen)

    def answered(
        self, view: ReceiverInput, receivers: ReceiverSide, set_rate: SetRate, keep_alive: KeepAlive
    ) -> tuple[ReceiverSide, SenderMessages]:
        """Return what the receivers' side keeps, and what own senders are told of what was decided on the ``view``."""
        return receivers, SenderMessages(set_rate, keep_alive, _forfeits(receivers.allocators.decisions))


NO_REMOTE_SIDE = RemoteSide()


def _forfeits(decisions: Iterable[Decision]) -> IntArray:
    lost = [one.view.rows[one.forfeits] for one in decisions if one.forfeits is not None]
    return np.concatenate([np.empty(0, dtype=np.int64), *lost])
