"""Meters that switches reject: their pairs and VNs go on without a meter, and no traffic stops.

A switch rejects a flow entry that names a missing meter. So the flow entry must lose the meter as soon as the rejection
is known: by an error that identifies the meter, or, where errors do not, by an audit that does not find it.

1) A rejected rate or burst gives a bound, and the meter is requested again within it: the bound is halved, or doubled,
   until the switch accepts.
2) If the switch is out of meters, no more are used than are installed.
3) A pair without a meter shares the meter of its VN's send limit; discovery and packet-ins share the flood meter. A VN
   without a meter for its send limit sends unlimited, or not at all (``meters.fail``).
4) After RETRY_S, and then at growing intervals, rejected meters are requested again.
5) If meters are scarce, pairs to congested receivers get them first, then the largest pairs. The rate of a single pair
   without a meter is not counted. The sum over all such pairs of a VN is known, from the meter of the VN's send limit
   less the meters of its other pairs. Each pair is assumed to send an equal part of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from controller.central.fabric_state import FabricState
from controller.central.pair_meters import PairMeterManager, beyond_text
from controller.events import EventKind
from controller.fabric.meter_bounds import MAX_KILO, MeterBounds
from controller.forwarding.pairs import Pair
from controller.forwarding.pipeline import VnMeters
from controller.metering.enforcement import MIN_BURST_BITS, RATE_STEP_BPS
from controller.openflow.constants import MeterModCommand
from controller.openflow.meters import decode_meter_mod
from controller.switch.switch_record import NO_ENTRY, SwitchRecord

RETRY_S = 10.0
MAX_RETRY_S = 640.0
TURN_S = 1.0
MAX_RETRIES_PER_TURN = 4  # per switch and turn: a pair with a new meter must be measured first
# Two pairs count as equally large unless their rates differ by this factor, and by this amount.
LARGER, LARGER_BPS = 2.0, 100_000.0
NOT_THERE = "it is not installed, though it was sent"
ENTRIES_REJECTED = "the switch rejects flow entries that name it"
# Up to this rate, a rejected rate is assumed to be too low.
_LOW_KBPS = 1_000
_MIN_BURST_KBITS = int(MIN_BURST_BITS // RATE_STEP_BPS) + 1
_OF_BOUNDS = ("BAD_BURST", "BAD_RATE")
_KINDS = {
    "send": "send limit",
    "flood": "floods",
    "discovery": "discovery",
    "report": "reports",
    "newcomer": "new pairs",
    "agent": "agents",
}


class _Refusal(NamedTuple):
    """A rejected meter-mod."""

    command: int
    rate_kbps: int
    burst_kbits: int
    code: str


@dataclass
class _Refusals:
    """The rejections of one switch: the cause by (VN row, kind of meter), and the next attempt's time."""

    vns: dict[tuple[int, str], str] = field(default_factory=dict)
    retry_s: float = np.inf
    wait_s: float = RETRY_S


class RefusedMeters:
    """Handles meter-mods that switches rejected."""

    def __init__(self, fabric: FabricState, pairs: PairMeterManager) -> None:
        self._fabric, self._pairs = fabric, pairs
        self._of: dict[int, _Refusals] = {}
        self._noted: dict[int, dict[int, _Refusal]] = {}  # by switch and meter, since the last ``process``
        self._unreported: set[int] = set()  # switches with unreported changes
        self._reported: dict[int, set[str]] = {}  # by switch: the reported reasons

    def note(self, dpid: int, message: bytes, code: str) -> bool:
        """Record that a switch rejected this meter-mod; return whether ``process`` handles it completely."""
        record, meter_mod = self._fabric.switches[dpid], decode_meter_mod(message)
        if meter_mod is None or not record.capabilities.uses_meters:
            record.unidentified_error |= meter_mod is None
            return False
        command, meter_id, rate_kbps, burst_kbits = meter_mod
        if command != MeterModCommand.ADD and code not in _OF_BOUNDS:
            return False
        self._noted.setdefault(dpid, {})[meter_id] = _Refusal(command, rate_kbps, burst_kbits, code)
        return True

    def process(self, now_s: float) -> None:
        """Handle the recorded rejections, steps 1 to 3: learn bounds, request meters again, or go on without them."""
        noted, self._noted = self._noted, {}
        for dpid, refusals in noted.items():
            record = self._fabric.switches[dpid]
            desired = self._fabric.desired_meters(record)
            refused = {meter_id: refusal for meter_id, refusal in refusals.items() if meter_id in desired}
            given_up: defaultdict[str, list[int]] = defaultdict(list)  # by code
            retried: list[int] = []
            for meter_id, refusal in refused.items():
                has_new_bound = refusal.code in _OF_BOUNDS and self._learn(record, refusal)
                if has_new_bound or refusal.code == "METER_EXISTS":
                    retried.append(meter_id)
                elif refusal.command == MeterModCommand.ADD:  # after a rejected MODIFY the meter stays as it was
                    given_up[refusal.code].append(meter_id)
            self._fabric.follow_bounds()
            for code, meter_ids in given_up.items():
                self.release_meters(record, meter_ids, f"the switch rejects it: METER_MOD_FAILED / {code}", now_s)
            if "OUT_OF_METERS" in given_up:
                record.meter_ids.most_used = record.meter_ids.used
                self._pairs.retry(dpid)  # the reason is from now on that ids are in use, not the rejection
            self.leave_out(record, now_s)
            desired = self._fabric.desired_meters(record)
            # A meter is installed if the rejected message modified it, or could not add it again.
            installed = {i for i in retried if refused[i].command != MeterModCommand.ADD}
            installed |= {i for i in retried if refused[i].code == "METER_EXISTS"}
            record.update.put_meters({i: desired[i] for i in retried if i in desired}, installed)

    def release_meters(
        self, record: SwitchRecord, meter_ids: Collection[int], why: str, now_s: float, *, installed: bool = False
    ) -> None:
        """Remove these meters of a switch from their pairs and VNs, for the reason ``why``.

        ``installed``: the meters may be installed, and are deleted.
        """
        fabric, refusals = self._fabric, self._of.setdefault(record.switch.dpid, _Refusals())
        rows, ids = record.vn_meter_columns()  # ids: (kinds of meters, rows)
        changed: dict[int, VnMeters] = {}
        for kind, column in np.argwhere(np.isin(ids, list(meter_ids)) & (ids > 0)).tolist():
            row, name, meter_id = int(rows[column]), VnMeters._fields[kind], int(ids[kind, column])
            refusals.vns[row, name] = why
            changed[row] = changed.get(row, record.vn_meters[row])._replace(**{name: None})
            if installed:
                record.update.meter_deletes.append(meter_id)
            else:
                record.meter_ids.release(meter_id)
        if changed:
            record.set_vn_meters(changed)
            for row, meters in changed.items():
                fabric.network.put_sender(row, meters)
        pair_rows = record.rows_of(np.array(sorted(meter_ids), dtype=np.int64))
        self._pairs.refuse(pair_rows[pair_rows != NO_ENTRY].tolist(), why, installed=installed)
        if refusals.retry_s == np.inf:
            refusals.retry_s = now_s + refusals.wait_s
        self._unreported.add(record.switch.dpid)

    def leave_out(self, record: SwitchRecord, now_s: float) -> None:
        """Remove meters for limits above all meters of the switch: VNs' send limits, and pairs."""
        too_high = self._above_max_rate(record)
        if too_high:
            why = beyond_text(record.capabilities.bounds.max_rate_kbps)
            self.release_meters(record, too_high, why, now_s, installed=True)

    def _above_max_rate(self, record: SwitchRecord) -> list[int]:
        """Return the ids of meters of a switch, of send limits and pairs, for limits above its maximum meter rate."""
        fabric, max_kbps = self._fabric, record.capabilities.bounds.max_rate_kbps
        if max_kbps == MAX_KILO or not record.capabilities.uses_meters:
            return []
        too_high_bps = (max_kbps + 1) * RATE_STEP_BPS
        rows, ids = record.vn_meter_columns()
        send_limit_ids = ids[0, (ids[0] > 0) & (fabric.vns.send_max_bps[rows] >= too_high_bps)]
        pair_rows, pairs = record.metered_rows(), fabric.state.entries
        send_max_bps = fabric.vns.send_max_bps[pairs.sender[pair_rows]]
        receive_max_bps = fabric.vns.receive_max_bps[pairs.receiver[pair_rows]]
        is_too_high = np.minimum(send_max_bps, receive_max_bps) >= too_high_bps
        return [*send_limit_ids.tolist(), *pairs.meter_id[pair_rows[is_too_high]].tolist()]

    def begin(self, record: SwitchRecord) -> None:
        """Prepare a switch that connected: meters that it rejected on an earlier connection are requested again."""
        self._of.pop(record.switch.dpid, None)
        self._pairs.retry(record.switch.dpid)
        record.capabilities.lacking, record.thrifty = (), False

    def limits_changed(self, now_s: float) -> None:
        """Reconsider which limits fit meters, because the effective limits changed."""
        for dpid, record in self._fabric.switches.items():
            if dpid in self._of:
                self._of[dpid].retry_s = now_s
            if record.connected:
                self.leave_out(record, now_s)

    def tick(self, now_s: float) -> None:
        """Handle rejections, retry what is due, and record what has no meter; call it every interval."""
        self.process(now_s)
        for dpid, refusals in self._of.items():
            record = self._fabric.switches[dpid]
            if now_s >= refusals.retry_s and record.connected:
                self._request_again(record, refusals, now_s)
        changed = self._unreported | self._pairs.drain_changed()
        self._unreported = set()
        for dpid in changed:
            self._spare(self._fabric.switches[dpid])
            self._report(self._fabric.switches[dpid], now_s)

    def _spare(self, record: SwitchRecord) -> None:
        """If meters are too few for pairs, remove those VN meters that can be spared."""
        full = record.capabilities.short_of_meters or record.meter_ids.most_used is not None
        if full and record.connected and not record.thrifty:
            for row in record.spare_meters():
                self._fabric.network.put_sender(row, record.vn_meters[row])

    def _request_again(self, record: SwitchRecord, refusals: _Refusals, now_s: float) -> None:
        """Request rejected meters again; limits beyond the bounds then lose their meters again."""
        still_lacking = bool(refusals.vns or self._pairs.lacking_at(record.switch.dpid))
        refusals.wait_s = min(2.0 * refusals.wait_s, MAX_RETRY_S) if still_lacking else RETRY_S
        rows = sorted({row for row, _ in refusals.vns})
        refusals.vns, refusals.retry_s = {}, np.inf
        record.meter_ids.most_used = record.capabilities.configured_bounds.count
        self._pairs.retry(record.switch.dpid)
        self._unreported.add(record.switch.dpid)
        if not rows:
            return
        before = {row: record.vn_meters[row] for row in rows}
        record.complete_vn_meters()
        self.leave_out(record, now_s)
        desired = self._fabric.desired_meters(record)
        for row in rows:
            new = set(record.vn_meters[row]) - set(before[row])  # the ids that the VN lacked
            record.update.put_meters({meter_id: desired[meter_id] for meter_id in sorted(filter(None, new))}, [])
            self._fabric.network.put_sender(row, record.vn_meters[row])

    def _learn(self, record: SwitchRecord, refused: _Refusal) -> bool:
        """Learn a bound from a rejected setting (step 1); return whether another setting can be tried."""
        capabilities, bounds = record.capabilities, record.capabilities.bounds
        rate_kbps, burst_kbits = setting = refused.rate_kbps, refused.burst_kbits
        if _fitted(bounds, setting) != setting:
            return True  # the setting was sent before the bound was learned
        if refused.code == "BAD_BURST":
            learned = bounds._replace(max_burst_kbits=max(burst_kbits // 2, _MIN_BURST_KBITS))
        elif rate_kbps <= max(_LOW_KBPS, int(bounds.min_rate_kbps)):
            learned = bounds._replace(min_rate_kbps=2 * rate_kbps)
        else:
            learned = bounds._replace(max_rate_kbps=rate_kbps // 2)
        capabilities.learn_bounds(learned)
        return _fitted(capabilities.bounds, setting) != setting

    def _report(self, record: SwitchRecord, now_s: float) -> None:
        """Record an event for pairs and VNs without a meter, once for each reason."""
        dpid, capabilities = record.switch.dpid, record.capabilities
        lacking = {}
        pairs = self._pairs.lacking_at(dpid) if capabilities.uses_meters else {}
        refused = self._of[dpid].vns if dpid in self._of else {}
        counts = Counter((why, kind) for (_, kind), why in refused.items())
        for why in sorted({*pairs, *(why for why, _ in counts)}):
            subjects = [f"{pairs[why]} pairs"] if why in pairs else []
            subjects += [f"{counts[why, kind]} VNs' {_KINDS[kind]}" for kind in VnMeters._fields if counts[why, kind]]
            lacking[why] = f"{', '.join(subjects)} without a meter: {why}"
        for why in lacking.keys() - self._reported.get(dpid, set()):
            text = f"switch {record.switch.name}: {lacking[why]}"
            self._fabric.note(EventKind.OUT_OF_METERS, text, now_s, dpid=dpid)
        self._reported[dpid] = set(lacking)
        capabilities.lacking = tuple(lacking.values())


class _Claim(NamedTuple):
    """The need of a pair for a meter."""

    congested: bool
    rate_bps: float
    pair: Pair

    def beats(self, other: _Claim) -> bool:
        """Return whether the pair of ``other`` must give its meter to this pair."""
        if self.congested != other.congested:
            return self.congested and self.rate_bps > 0.0
        return self.rate_bps > LARGER * other.rate_bps + LARGER_BPS


class ScarceMeters:
    """Moves meters from pairs that need them less to pairs that need them more."""

    def __init__(self, fabric: FabricState, pairs: PairMeterManager) -> None:
        self._fabric, self._pairs = fabric, pairs
        self._turned_s = -np.inf

    def tick(self, now_s: float) -> None:
        """Once in TURN_S, check the switches with too few meters; call it every interval."""
        if now_s - self._turned_s < TURN_S:
            return
        self._turned_s = now_s
        waiting: defaultdict[int, list[Pair]] = defaultdict(list)
        for pair in self._pairs.waiting():
            waiting[self._fabric.vns.key(pair.sender).dpid].append(pair)
        for dpid, pairs in waiting.items():
            record = self._fabric.switches[dpid]
            if record.connected and record.capabilities.uses_meters and not record.meter_ids.available:
                self._turn(record, pairs)

    def _turn(self, record: SwitchRecord, pairs: list[Pair]) -> None:
        """Give meters of a switch to those of the waiting ``pairs`` that need them most."""
        # Claims sort by congestion, then rate: the strongest claim meets the weakest holder.
        holders = sorted(self._holding(record))
        claims = sorted(self._asking(pairs), reverse=True)
        exchanges = list(zip(claims[:MAX_RETRIES_PER_TURN], holders, strict=False))
        for claim, holder in exchanges:
            if claim.beats(holder):
                self._pairs.pass_on(holder.pair, claim.pair)

    def _holding(self, record: SwitchRecord) -> list[_Claim]:
        """Return the claims of the pairs that have a meter of a switch."""
        state, rows = self._fabric.state, record.metered_rows()
        sender, receiver = state.entries.sender[rows], state.entries.receiver[rows]
        columns = state.allocators.congested[receiver], state.measured.smoothed_bps[rows], sender, receiver
        rows_of_columns = zip(*(column.tolist() for column in columns), strict=True)
        return [_Claim(congested, rate_bps, Pair(*ends)) for congested, rate_bps, *ends in rows_of_columns]

    def _asking(self, pairs: list[Pair]) -> list[_Claim]:
        """Return the claims of pairs without a meter, with an equal part of its sender's unmetered rate (step 5)."""
        fabric, state = self._fabric, self._fabric.state
        metered_bps = np.bincount(state.entries.sender, state.measured.smoothed_bps, len(fabric.vns))
        passed_bps = np.nan_to_num(fabric.send_limits.offered_bps - fabric.send_limits.dropped_bps)
        unmetered_bps = np.maximum(passed_bps - metered_bps, 0.0)
        sharers = Counter(pair.sender for pair in pairs)
        congested = state.allocators.congested
        return [
            _Claim(bool(congested[pair.receiver]), float(unmetered_bps[pair.sender]) / sharers[pair.sender], pair)
            for pair in pairs
        ]


def _fitted(bounds: MeterBounds, setting: tuple[int, int]) -> tuple[int, int]:
    """Return a setting (kb/s, kb) within a switch's bounds, as whole numbers."""
    rate, burst = bounds.fitted(*setting)
    return int(rate), int(burst)
