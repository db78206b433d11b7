"""Active pairs and their meters: new, metered, aged, or adopted from an earlier run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from controller.central.fabric_state import FabricState
from controller.central.mark_meters import MarkMeterManager
from controller.central.no_agents import NoAgents
from controller.columns import BoolArray, FloatArray, IntArray
from controller.events import EventKind
from controller.fabric.meter_bounds import Kilos
from controller.fabric.pair_table import NO_METER, find_pairs
from controller.forwarding.pairs import Pair
from controller.loop import control_step, pair_changes
from controller.metering.enforcement import RATE_STEP_BPS, from_kilo, to_kilo, whole_rates
from controller.switch.adoption import InstalledPairs
from controller.switch.meters.meter_settings import MeterSetting
from controller.switch.switch_record import SwitchRecord
from controller.units import format_rate

ALL_IN_USE = "all meters of its switch are in use"
# Pairs per batch of an adoption: _BATCH_SIZE, times the switch's flow entries in units of _FLOWS_PER_BATCH, since each
# batch rebuilds the switch's table.
_BATCH_SIZE, _FLOWS_PER_BATCH = 1_000, 8_000


class PairMeterManager:
    """Adds and removes the meters of pairs of VNs."""

    def __init__(self, fabric: FabricState, agents: NoAgents) -> None:
        self._fabric, self._agents = fabric, agents
        self._marks = MarkMeterManager(fabric)
        self._pairs_to_meter: dict[Pair, None] = {}
        self._last_new_s = 0.0
        self._pairs_to_remove: set[Pair] = set()
        self._unmetered: dict[Pair, None] = {}  # active pairs without a meter, in the order in which they get one
        self._without_meter: set[int] = set()  # switches (dpid) that had no meter left, as an event has reported
        self._refused: dict[Pair, str] = {}  # pairs whose meters a switch rejected, and why
        self._changed_at: set[int] = set()  # switches at which the set of pairs without meters has changed

    def on_pair_seen(self, pair: Pair, now_s: float) -> None:
        """Record an active pair without a flow entry; its meter may have been queued already."""
        if not self.metered(pair):
            self._pairs_to_meter[pair] = None
            self._last_new_s = now_s

    def on_pair_aged(self, pair: Pair) -> None:
        """Record that a pair is no longer active."""
        self._pairs_to_remove.add(pair)

    def inherit(self, unmetered: Iterable[Pair]) -> None:
        """Take over the active pairs without meters; the network holds those with meters."""
        self._unmetered = dict.fromkeys(unmetered)
        self._fabric.network.pairs.add(self._unmetered)
        self._changed_at |= self._fabric.switches.keys()
        self._map_meters()

    def metered(self, pair: Pair) -> bool:
        """Return whether a pair has a meter."""
        return self._fabric.network.pairs.has(pair) and pair not in self._unmetered

    def metered_mask(self, sender: IntArray, receiver: IntArray) -> BoolArray:
        """Return the mask of the pairs that have a meter, shape of ``sender``."""
        metered = self._fabric.network.pairs.has_each(sender, receiver)
        if self._unmetered:
            ends = zip(sender.tolist(), receiver.tolist(), strict=True)
            metered &= np.array([Pair(*pair) not in self._unmetered for pair in ends], dtype=np.bool_)
        return metered

    @property
    def unmetered(self) -> list[Pair]:
        """The active pairs without a meter: they are not limited, and their rates are unknown."""
        return list(self._unmetered)

    def why_unmetered(self, pair: Pair) -> str:
        """Return why an active pair has no meter."""
        capabilities = self._fabric.record_of_sender(pair.sender).capabilities
        without_reason = ALL_IN_USE if capabilities.uses_meters else "no-meters"
        return self._refused.get(pair) or capabilities.meters_unused or without_reason

    def refuse(self, rows: Iterable[int], why: str, *, installed: bool = False) -> None:
        """Remove the meters of the pairs of ``rows``, for the reason ``why``; they get no others until ``retry``.

        ``installed``: the meters may be installed, and must be deleted.
        """
        entries = self._fabric.state.entries
        pairs = {Pair(int(entries.sender[row]), int(entries.receiver[row])) for row in rows}
        if pairs:
            self._refused |= dict.fromkeys(pairs, why)
            self._go_without(pairs, installed=installed)

    def drain_changed(self) -> set[int]:
        """Return the switches (dpid) at which the set of pairs without meters may have changed, and clear them."""
        changed, self._changed_at = self._changed_at, set()
        return changed

    def retry(self, dpid: int) -> None:
        """Request again the meters that a switch rejected."""
        vns = self._fabric.vns
        self._refused = {pair: why for pair, why in self._refused.items() if vns.key(pair.sender).dpid != dpid}

    def lacking_at(self, dpid: int) -> dict[str, int]:
        """Return the number of pairs without a meter that send at a switch with meters, by reason."""
        vns = self._fabric.vns
        lacking = [pair for pair in self._unmetered if vns.key(pair.sender).dpid == dpid]
        return Counter(self._refused.get(pair, ALL_IN_USE) for pair in lacking)

    def waiting(self) -> list[Pair]:
        """Return the pairs that have no meter because all ids are in use."""
        return [pair for pair in self._unmetered if pair not in self._refused]

    def pass_on(self, holder: Pair, waiting: Pair) -> None:
        """Remove the meter of the pair ``holder``; the next free id goes to the pair ``waiting``."""
        self._remove({holder})
        # The order is that in which pairs get a meter: ``waiting`` is now first, ``holder`` last.
        self._unmetered = {waiting: None, **self._unmetered, holder: None}
        self._fabric.network.pairs.add({holder: None})

    def _go_without(self, pairs: set[Pair], *, installed: bool = False) -> None:
        """Remove the pairs' meters, and let their traffic pass without one."""
        # ``_remove`` forgets the reasons.
        refused = {pair: self._refused[pair] for pair in pairs if pair in self._refused}
        self._remove(pairs, installed=installed)
        without_meter = dict.fromkeys(sorted(pairs))
        self._refused |= refused
        self._unmetered |= without_meter
        self._fabric.network.pairs.add(without_meter)
        self._changed_at |= {self._fabric.vns.key(pair.sender).dpid for pair in without_meter}

    def remove_switch_meters(self, dpid: int) -> None:
        """Remove all pair meters of a switch, because they are unusable; its pairs go on without meters."""
        fabric = self._fabric
        entries = fabric.state.entries
        present = fabric.vns.dpid[entries.sender] == dpid
        self._go_without(set(map(Pair, entries.sender[present].tolist(), entries.receiver[present].tolist())))

    def release_switch(self, dpid: int) -> None:
        """Forget the pairs that send at a switch that another node owns now; their meters stay installed."""
        fabric = self._fabric
        entries = fabric.state.entries
        present = fabric.vns.dpid[entries.sender] == dpid
        pairs = set(map(Pair, entries.sender[present].tolist(), entries.receiver[present].tolist()))
        for without_meter in (self._unmetered, self._pairs_to_meter):
            for pair in [pair for pair in without_meter if fabric.vns.key(pair.sender).dpid == dpid]:
                del without_meter[pair]
                pairs.add(pair)
        self._remove(pairs, installed=False)
        self._marks.release_switch(dpid)

    def flush(self) -> None:
        """Give meters to new pairs, and remove those of aged pairs; counting meters follow.

        Pairs without a meter get one if their switch now has a free id, or NO_METER if an agent now covers them.
        """
        fabric = self._fabric
        self._pairs_to_remove |= fabric.network.pairs.drain_unused()
        if self._pairs_to_remove:
            self._remove(self._pairs_to_remove)
            self._pairs_to_remove = set()
        for pair in self._unmetered:
            available = pair not in self._refused and fabric.record_of_sender(pair.sender).meter_ids.available
            if available or self._agents.is_covered(pair.sender):
                self._pairs_to_meter[pair] = None
        if self._pairs_to_meter:
            pairs, self._pairs_to_meter = list(self._pairs_to_meter), {}
            self._meter(pairs, self._last_new_s)
        self._marks.flush(self._last_new_s)

    def _meter(self, pairs: list[Pair], now_s: float) -> None:
        """Give new pairs a meter and flow entries; without a free meter, flow entries alone.

        A pair with NO_METER counts as metered: its agent alone shapes it.
        """
        fabric = self._fabric
        metered: dict[Pair, int] = {}
        without_meter: dict[Pair, None] = {}
        for pair in pairs:
            record = fabric.record_of_sender(pair.sender)
            # Where no queue holds the receiver, a meter bounds the pair until its agent has a rate for it.
            if self._agents.is_sole_shaper(pair.sender) and fabric.vns.has_queue[pair.receiver]:
                meter_id: int | None = NO_METER
            else:
                meter_id = None if self._exceeds_meters(pair, record) else record.meter_ids.allocate()
            if meter_id is None and self._agents.is_covered(pair.sender):
                meter_id = NO_METER
            if meter_id is not None:
                metered[pair] = meter_id
                if pair in self._unmetered:
                    del self._unmetered[pair]
                    self._changed_at.add(record.switch.dpid)
            elif pair not in self._unmetered:
                self._unmetered[pair] = None
                without_meter[pair] = None
                self._changed_at.add(record.switch.dpid)
                if record.capabilities.uses_meters and pair not in self._refused:
                    self._out_of_meters(record, now_s)
        # Flow entries without a meter; otherwise every frame of these pairs would cause a packet-in.
        fabric.network.pairs.add(without_meter)
        if not metered:
            return
        sender, receiver, meters = _columns(metered)
        ends, remote_senders = (sender, receiver), fabric.share.remote_senders
        first = pair_changes.first_settings(fabric.state, fabric.vns, fabric.control.groups, *ends, remote_senders)
        rate_bps, burst_bits = fabric.fitted(sender, *first)
        self._add_entries(*ends, meters, rate_bps, burst_bits, now_s, added_now=True)
        settings = map(MeterSetting, to_kilo(rate_bps).tolist(), to_kilo(burst_bits).tolist())
        for (pair, meter_id), setting in zip(metered.items(), settings, strict=True):
            record = fabric.record_of_sender(pair.sender)
            if record.connected and meter_id:
                record.update.put_meters({meter_id: setting}, [])
        fabric.network.pairs.add({pair: meter_id or None for pair, meter_id in metered.items()})

    def _exceeds_meters(self, pair: Pair, record: SwitchRecord) -> bool:
        """Return whether a pair's limit is above all meters of its switch; if so, record that as the reason."""
        vns = self._fabric.vns
        limit_kbps = min(vns.send_max_bps[pair.sender], vns.receive_max_bps[pair.receiver]) / RATE_STEP_BPS
        if limit_kbps < record.capabilities.bounds.max_rate_kbps + 1:
            return False
        self._refused[pair] = beyond_text(record.capabilities.bounds.max_rate_kbps)
        self._changed_at.add(record.switch.dpid)
        return True

    def _out_of_meters(self, record: SwitchRecord, now_s: float) -> None:
        """Note once that a switch has no meter left for a pair."""
        if record.switch.dpid in self._without_meter:
            return
        self._without_meter.add(record.switch.dpid)
        self._changed_at.add(record.switch.dpid)
        record.capabilities.short_of_meters = True
        text = f"switch {record.switch.name}: all of its meters, or all ids for them, are in use"
        text += "; further pairs have only the send limit and their queue"
        self._fabric.note(EventKind.OUT_OF_METERS, text, now_s, dpid=record.switch.dpid)

    def swap_shapers(self, shaped: list[Pair], bare: list[Pair], now_s: float) -> None:
        """Remove the meters of ``shaped`` pairs, which agents alone shape now, and give meters to ``bare`` pairs.

        ``bare`` are the pairs that have lost their agents.

        In a switch's update, meters are added before the flow entries that name them, and deleted after them: there is
        no gap. A pair that gets no meter is not limited from then on.
        """
        if shaped:
            self._set_meters(dict.fromkeys(shaped, NO_METER), now_s)
        new_ids: dict[Pair, int] = {}
        for pair in bare:
            meter_id = self._fabric.record_of_sender(pair.sender).meter_ids.allocate()
            if meter_id is not None:
                new_ids[pair] = meter_id
        if new_ids:
            self._set_meters(new_ids, now_s)
        remaining = set(bare) - new_ids.keys()
        if remaining:
            self._remove(remaining)
            without_meter = dict.fromkeys(sorted(remaining))
            self._unmetered |= without_meter
            self._fabric.network.pairs.add(without_meter)

    def _set_meters(self, meter_of: Mapping[Pair, int], now_s: float) -> None:
        """Replace the meters of existing pairs, or remove them (NO_METER), at the rates of their limits."""
        fabric = self._fabric
        state = fabric.state
        rows = find_pairs(state.entries, *_columns(meter_of)[:2])
        rate_bps = whole_rates(control_step.effective_limits_bps(state, fabric.shared_vns))[rows]
        rate_bps, burst_bits = fabric.fitted(state.entries.sender[rows], rate_bps, pair_changes.first_bursts(rate_bps))
        settings = map(MeterSetting, to_kilo(rate_bps).tolist(), to_kilo(burst_bits).tolist())
        meter_ids = state.entries.meter_id.copy()
        for row, (pair, meter_id), setting in zip(rows.tolist(), meter_of.items(), settings, strict=True):
            record = fabric.record_of_sender(pair.sender)
            before, meter_ids[row] = int(meter_ids[row]), meter_id
            if record.connected and meter_id:
                record.update.put_meters({meter_id: setting}, [])
            if before and record.connected:
                record.update.meter_deletes.append(before)
            elif before:
                record.meter_ids.release(before)
        fabric.network.pairs.add({pair: meter_id or None for pair, meter_id in meter_of.items()})
        fabric.state = pair_changes.with_meters(state, rows, meter_ids, rate_bps, burst_bits, now_s)
        self._map_meters()

    def adopt(self, found: InstalledPairs, now_s: float) -> Iterator[None]:
        """Adopt pairs whose meters are installed and were claimed; yield after each batch.

        All pairs are added at once, their flow entries in batches. A pair that has got another meter since keeps the
        other one. Of several meters of a pair, the first is adopted. The meters that are not adopted are released.
        """
        fabric, active_pairs = self._fabric, self._fabric.network.pairs
        # One number for each pair.
        _, first_of_pair = np.unique(found.receiver << 32 | found.sender, return_index=True)
        is_new = np.zeros(len(found.sender), dtype=np.bool_)
        is_new[first_of_pair] = True
        is_new &= ~self.metered_mask(found.sender, found.receiver)
        self.release_claimed(found.only(~is_new))
        found = found.only(is_new)
        if not len(found.sender):
            return
        ends = found.sender, found.receiver
        rate_bps, burst_bits = map(from_kilo, found[3:])  # the installed settings
        self._add_entries(*ends, found.meter_id, rate_bps, burst_bits, now_s, added_now=False)
        active_pairs.add_columns(*ends, found.meter_id)
        for without_meter in filter(None, (self._pairs_to_meter, self._unmetered)):
            for pair in zip(found.sender.tolist(), found.receiver.tolist(), strict=True):
                without_meter.pop(Pair(*pair), None)
        yield
        order, parts = fabric.vns.by_switch(found.sender)
        for dpid, start, end in parts:
            while start < end:
                table_size = len(fabric.network.desired.flows_at(dpid))
                # A larger table costs more for each batch, so it gets fewer and larger ones.
                batch_size = _BATCH_SIZE * max(1, table_size // _FLOWS_PER_BATCH)
                rows = order[start : min(start + batch_size, end)]
                active_pairs.put_all(found.sender[rows], found.receiver[rows])
                start += batch_size
                yield

    def release_claimed(self, claimed: InstalledPairs) -> None:
        """Release the claimed meters of pairs that are not adopted, such as those of a switch that disconnected."""
        for sender, meter_id in zip(claimed.sender.tolist(), claimed.meter_id.tolist(), strict=True):
            self._fabric.record_of_sender(sender).meter_ids.release(meter_id)

    def _add_entries(
        self,
        sender: IntArray,
        receiver: IntArray,
        meter_id: IntArray,
        rate_bps: FloatArray,
        burst_bits: FloatArray,
        now_s: float,
        *,
        added_now: bool,
    ) -> None:
        """Add pairs with their meters to the control state; ``added_now`` is as in ``pair_changes.add_entries``."""
        fabric = self._fabric
        fabric.state = pair_changes.add_entries(
            fabric.state, fabric.vns, sender, receiver, meter_id, rate_bps, burst_bits, now_s, added_now=added_now
        )
        self._map_meters()

    def _remove(self, pairs: set[Pair], *, installed: bool = True) -> None:
        """Remove pairs; also delete their meters where they may be installed (``installed``)."""
        fabric = self._fabric
        entries = fabric.state.entries
        vns = len(fabric.vns)
        # One number for each pair.
        leaving = np.array([pair.sender * vns + pair.receiver for pair in pairs], dtype=np.int64)
        removed = np.flatnonzero(np.isin(entries.sender * vns + entries.receiver, leaving))
        for pair in pairs:
            fabric.network.pairs.remove(pair)
            self._unmetered.pop(pair, None)
            self._refused.pop(pair, None)
            self._changed_at.add(fabric.vns.key(pair.sender).dpid)
        for row in removed.tolist():
            pair = Pair(int(entries.sender[row]), int(entries.receiver[row]))
            record = fabric.record_of_sender(pair.sender)
            meter_id = int(entries.meter_id[row])
            # An id may become free: the next shortage is a new event.
            self._without_meter.discard(record.switch.dpid)
            record.capabilities.short_of_meters = False
            if not meter_id:
                continue
            if record.connected and installed:
                record.update.meter_deletes.append(meter_id)
            else:
                record.meter_ids.release(meter_id)
        fabric.state = pair_changes.remove_entries(fabric.state, removed)
        self._map_meters()

    def _map_meters(self) -> None:
        """Set in each switch's record which row of the pair table each of its meters limits."""
        fabric = self._fabric
        entries = fabric.state.entries
        order, parts = fabric.vns.by_switch(entries.sender)
        rows_of = {dpid: order[start:end] for dpid, start, end in parts}
        for dpid, record in fabric.switches.items():
            rows = rows_of.get(dpid, order[:0])
            rows = rows[entries.meter_id[rows] > 0]
            record.map_meters(entries.meter_id[rows], rows)


def beyond_text(most_kbps: Kilos) -> str:
    """Return the reason why a limit above the largest meter rate has no meter."""
    return f"its limit is above {format_rate(int(most_kbps) * 1000)}, the largest rate of its switch's meters"


def _columns(meter_of: Mapping[Pair, int]) -> tuple[IntArray, IntArray, IntArray]:
    """Return the pairs as columns (sender, receiver, meter id), each (pairs,)."""
    sender = np.array([pair.sender for pair in meter_of], dtype=np.int64)
    receiver = np.array([pair.receiver for pair in meter_of], dtype=np.int64)
    return sender, receiver, np.array(list(meter_of.values()), dtype=np.int64)
