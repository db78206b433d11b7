"""An agent's decisions, without I/O: the rate of each pair, and its reports.

Each pair under control has a send-rate controller, the same code as in the controller
(``controller.dets.send_rate_controller``): IDLE, REPORTING, LIMITED, and IDLE again after KEEP_ALIVE_INTERVALS without
a message. A message about a pair of a VN with itself concerns all traffic that the VN sends: its rate is the send
limit.

Deviation: the paper's sender is unlimited after a time without messages of its receiver. Here the rate stays for
another KEPT_INTERVALS: the loss of a controller must not cause a surge.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apps.agent.shaper import VN_AGGREGATE, PairCounters, ShapedPair
from controller.agents.control_frames import LAYOUTS, NO_RATE, ControlFrame, Opcode, ReportFlag
from controller.columns import NEW_ROW, FloatArray, IntArray, reindex
from controller.dets.messages import DeactivateTrafficControl, InitializeTrafficControl, KeepAlive, SetRate
from controller.dets.send_rate_controller import SendRateControllers
from controller.metering.measurement import IDLE_INTERVALS

KEPT_INTERVALS = 20
KBPS = 1000


class AgentPairs:
    """The pairs of one interface that a controller has initialized, in columns of shape (pairs,).

    The controller may control the VLANs ``vlans``. ``refused`` counts rejected pairs: beyond ``most_pairs``, or of
    other VLANs.
    """

    def __init__(self, vlans: Sequence[int], most_pairs: int) -> None:
        self.vlans, self.most_pairs, self.refused = tuple(vlans), most_pairs, 0
        self.pairs: list[ShapedPair] = []
        self._row_of: dict[ShapedPair, int] = {}
        self._ends: list[tuple[bytes, bytes]] = []  # sender and receiver, as in the controller's frames
        self._machines = SendRateControllers.initial(0)
        self._rate_kbps = np.empty(0, dtype=np.int64)
        self._idle_intervals = np.empty(0, dtype=np.int64)  # since the pair was last under control
        self._silent_intervals = np.empty(0, dtype=np.int64)  # since the pair last had traffic
        # At the last interval: sent, dropped and queued bytes.
        self._counters: tuple[IntArray, IntArray, IntArray] = (self._rate_kbps,) * 3
        self._has_reading = np.empty(0, dtype=np.bool_)  # whether the pair's counters were read before
        # Changes that ``drain_changes`` returns: rates in kbit/s, and pairs to remove.
        self._set: dict[ShapedPair, int] = {}
        self._removed: dict[ShapedPair, None] = {}

    @property
    def rate_kbps(self) -> dict[ShapedPair, int]:
        """The pairs' rates, NO_RATE for a pair without one."""
        return dict(zip(self.pairs, self._rate_kbps.tolist(), strict=True))

    def on_frame(self, frame: ControlFrame) -> None:
        """Process a control frame; frames that are not new must not be passed."""
        vid = frame.speaker.vlan_vid or 0
        if frame.opcode in (Opcode.HELLO, Opcode.TRAFFIC_REPORT):
            return
        if vid not in self.vlans:
            self.refused += len(frame.entries)
            return
        ends = [(record["sender"].tobytes(), record["receiver"].tobytes()) for record in frame.entries]
        pairs = [ShapedPair(vid, VN_AGGREGATE if sender == receiver else receiver) for sender, receiver in ends]
        if frame.opcode is Opcode.INITIALIZE:
            self._add(pairs, ends)
        known = [index for index, pair in enumerate(pairs) if pair in self._row_of]  # indices of records
        rows = np.array([self._row_of[pairs[index]] for index in known], dtype=np.int64)
        if frame.opcode is Opcode.INITIALIZE:
            self._machines = self._machines.on_initialize(InitializeTrafficControl(rows))
            self._idle_intervals[rows] = 0
        elif frame.opcode is Opcode.SET_RATE:
            self._set_rates(rows, frame.entries["rate_kbps"][known].astype(np.int64))
        elif frame.opcode is Opcode.KEEP_ALIVE:
            self._machines = self._machines.on_keep_alive(KeepAlive(rows))
        else:
            self._machines = self._machines.on_deactivate(DeactivateTrafficControl(rows))
            self._remove(rows)

    def drain_changes(self) -> tuple[list[tuple[ShapedPair, int]], list[ShapedPair]]:
        """Return the rates (bit/s) to apply, and the pairs to remove, since the last call."""
        changes = [(pair, rate_kbps * KBPS) for pair, rate_kbps in self._set.items()], list(self._removed)
        self._set, self._removed = {}, {}
        return changes

    def restore_rates(self, rates: Sequence[tuple[ShapedPair, int]]) -> None:
        """Let ``drain_changes`` return these rates (bit/s) again: the kernel has rejected some of them."""
        self._set |= {pair: rate_bps // KBPS for pair, rate_bps in rates}

    def interval(self, counters: PairCounters, elapsed_s: float) -> dict[int, NDArray[np.void]]:
        """Count an interval of ``elapsed_s``; return the Traffic Reports by VLAN, for the pairs under control.

        ``counters`` are those of ``pairs``.

        1) Machines without messages of the controller go back to idle.
        2) Sent, dropped and queued bytes since the last call become rates. A longer queue counts as dropped: the sender
           offers that much more than its rate.
        3) Each machine under control reports. Pairs that have been idle for KEPT_INTERVALS lose their rates.
        """
        # 1
        self._machines = self._machines.on_interval()
        controlled = self._machines.controlled
        self._idle_intervals = np.where(controlled, 0, self._idle_intervals + 1)
        # 2
        sent, dropped, backlog = self._counters
        growth = np.maximum(counters.backlog_octets - backlog, 0)
        measured_bps = (counters.sent_octets - sent) * 8 / elapsed_s
        dropped_bps = (counters.dropped_octets - dropped + growth) * 8 / elapsed_s
        used = (measured_bps > 0) | (dropped_bps > 0) | (counters.backlog_octets > 0)
        self._silent_intervals = np.where(used, 0, self._silent_intervals + 1)
        was_read, self._has_reading = self._has_reading, np.ones(len(self.pairs), dtype=np.bool_)
        self._counters = (counters.sent_octets, counters.dropped_octets, counters.backlog_octets)
        # 3
        reports = self._reports(measured_bps, dropped_bps, counters.backlog_octets > 0, was_read)
        rows = np.flatnonzero(controlled)
        vids = np.array([self.pairs[row].vlan_vid for row in rows.tolist()], dtype=np.int64)
        reports_by_vlan = {vid: reports[rows[vids == vid]] for vid in np.unique(vids).tolist()}
        self._remove(np.flatnonzero(self._idle_intervals > KEPT_INTERVALS))
        return reports_by_vlan

    def _reports(
        self, measured_bps: FloatArray, dropped_bps: FloatArray, queued: NDArray[np.bool_], was_read: NDArray[np.bool_]
    ) -> NDArray[np.void]:
        """Return the records of a Traffic Report, one for each pair; all arguments are columns (pairs,).

        ``queued`` is whether frames of the pair wait in its queue, ``was_read`` whether its rates are known.
        """
        reports = np.zeros(len(self.pairs), dtype=LAYOUTS[Opcode.TRAFFIC_REPORT])
        if not len(reports):
            return reports
        addresses = np.frombuffer(b"".join(sender + receiver for sender, receiver in self._ends), dtype=np.uint8)
        # From (pairs, 2, 6 bytes) to all senders, then all receivers.
        reports["sender"], reports["receiver"] = addresses.reshape(-1, 2, 6).transpose(1, 0, 2)
        reports["measured_kbps"] = _kbps(measured_bps)
        reports["dropped_kbps"] = _kbps(dropped_bps)
        reports["limit_kbps"] = self._rate_kbps
        reports["available_kbps"] = self._available_kbps(measured_bps)
        active = self._silent_intervals < IDLE_INTERVALS
        shaped = self._rate_kbps != NO_RATE
        shaped[[self._row_of[pair] for pair in self._set]] = False  # rates that are not applied
        for flag, is_set in (
            (ReportFlag.ACTIVE, active),
            (ReportFlag.SHAPED_HERE, shaped),
            (ReportFlag.BACKLOG, queued),
            (ReportFlag.RATE_UNKNOWN, ~was_read),
        ):
            reports["flags"] |= np.where(is_set, flag, 0).astype(np.uint32)
        return reports

    def _available_kbps(self, measured_bps: FloatArray) -> IntArray:
        """Return each pair's available rate: its VN's send limit less what the VN sends to other destinations.

        NO_RATE if the VN has no send limit.
        """
        available_kbps = np.full(len(self.pairs), NO_RATE, dtype=np.int64)
        for row, pair in enumerate(self.pairs):
            vn_row = self._row_of.get(ShapedPair(pair.vlan_vid, VN_AGGREGATE))
            if vn_row is None or self._rate_kbps[vn_row] == NO_RATE:
                continue
            to_others_bps = 0.0 if vn_row == row else max(measured_bps[vn_row] - measured_bps[row], 0.0)
            available_kbps[row] = max(int(self._rate_kbps[vn_row] - to_others_bps / KBPS), 0)
        return available_kbps

    def _add(self, pairs: list[ShapedPair], ends: list[tuple[bytes, bytes]]) -> None:
        """Add new pairs with their (sender, receiver) addresses, up to ``most_pairs``; count the rest as refused."""
        new = {pair: end for pair, end in zip(pairs, ends, strict=True) if pair not in self._row_of}
        free_rows = self.most_pairs - len(self.pairs)
        self.refused += max(len(new) - free_rows, 0)
        added = list(new.items())[:free_rows]
        if not added:
            return
        for pair, _ in added:
            self._row_of[pair] = len(self.pairs)
            self.pairs.append(pair)
        self._ends += [end for _, end in added]
        count = len(self.pairs)
        self._reindex(np.concatenate([np.arange(count - len(added)), np.full(len(added), NEW_ROW)]))

    def _set_rates(self, rows: IntArray, rate_kbps: IntArray) -> None:
        """Set the rates of pairs under control, and record which classes must be set or removed."""
        controlled = self._machines.controlled[rows]  # an idle machine ignores a rate without Initialize
        rows, rate_kbps = rows[controlled], rate_kbps[controlled]
        limit_bps = np.where(rate_kbps == NO_RATE, np.inf, rate_kbps * float(KBPS))
        self._machines = self._machines.on_set_rate(SetRate(rows, limit_bps))
        changed = rows[self._rate_kbps[rows] != rate_kbps]
        self._rate_kbps[rows] = rate_kbps
        for row in changed.tolist():
            pair = self.pairs[row]
            self._removed.pop(pair, None)
            if self._rate_kbps[row] == NO_RATE:
                self._set.pop(pair, None)
                self._removed[pair] = None
            else:
                self._set[pair] = int(self._rate_kbps[row])

    def _remove(self, rows: IntArray) -> None:
        """Remove the pairs of these rows, and record that their classes must be removed."""
        if not len(rows):
            return
        removed_rows = set(rows.tolist())
        for row in removed_rows:
            self._set.pop(self.pairs[row], None)
            self._removed[self.pairs[row]] = None
        kept = np.array([row for row in range(len(self.pairs)) if row not in removed_rows], dtype=np.int64)
        self.pairs = [self.pairs[row] for row in kept.tolist()]
        self._ends = [self._ends[row] for row in kept.tolist()]
        self._row_of = {pair: row for row, pair in enumerate(self.pairs)}
        self._reindex(kept)

    def _reindex(self, old_row: IntArray) -> None:
        """Rearrange all columns: new row i is the old row ``old_row[i]``, or a new pair for NEW_ROW."""
        self._machines = self._machines.reindexed(old_row)
        self._rate_kbps = reindex(self._rate_kbps, old_row, NO_RATE)
        self._idle_intervals = reindex(self._idle_intervals, old_row, 0)
        self._silent_intervals = reindex(self._silent_intervals, old_row, IDLE_INTERVALS)
        self._has_reading = reindex(self._has_reading, old_row, False)
        sent, dropped, backlog = (reindex(column, old_row, 0) for column in self._counters)
        self._counters = sent, dropped, backlog


def _kbps(rate_bps: FloatArray) -> IntArray:
    """Return rates in whole kbit/s, below NO_RATE."""
    return np.clip(np.rint(rate_bps / KBPS), 0, NO_RATE - 1).astype(np.int64)
