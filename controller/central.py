"""The central controller: one DETS for a whole fabric, from what switches report to what they are told.

It does no input and output and reads no clock: a fabric calls it with what happened and takes the messages that follow
(``take_updates``). The same object runs against a model in virtual time, software switches and Open vSwitch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller import step
from controller.adoption import adopted_host, adopted_pair, sort_installed
from controller.allocation import make_algorithm
from controller.columns import FloatArray, IntArray
from controller.config import Config
from controller.counters import MeterReadings
from controller.delivery import Delivery
from controller.enforcement import RATE_STEP_BPS, MeterChanges, whole_rates
from controller.errors import InvalidValueError
from controller.events import EventKind, EventLog
from controller.forwarding.network import ForwardingSettings, Host, Network, Pair
from controller.forwarding.pipeline import Table
from controller.forwarding.topology import Port
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.flows import Flow, UnknownFlow
from controller.openflow.frames import format_mac, parse_frame
from controller.openflow.messages import FlowRemoved, PacketIn
from controller.policies import Policy, algorithm_groups, policies_of
from controller.switch_record import NO_ENTRY, MeterSetting, SwitchRecord, SwitchUpdate
from controller.tables import FlowKey, plan_flows
from controller.vns import VnTable

MeterStats = NDArray[np.void]


class Tables(NamedTuple):
    """What a switch's tables hold of ours: flow entries by key, meters by id."""

    flows: Mapping[FlowKey, Flow]
    meters: Mapping[int, MeterSetting]


class CentralController:
    """DETS for the fabric of one configuration.

    Raises InvalidValueError when a switch has more VNs than the controller has meter ids. ``on_event`` is called with
    every event as it happens.
    """

    def __init__(self, config: Config, on_event: Callable[[EventKind, str], None] | None = None) -> None:
        self.config = config
        self.vns = VnTable.of_config(config)
        self.policies = policies_of(config)
        self.groups = algorithm_groups(self.vns, self.policies)
        self.state = step.ControlState.start(self.vns, self.groups)
        settings = ForwardingSettings(config.mac_ageing_s, config.max_macs_per_vn)
        self.network = Network(config.switches.values(), self.vns, settings)
        self.switches = {s.dpid: SwitchRecord.of(s, self.vns, config) for s in config.switches.values()}
        self.deliveries = {dpid: Delivery() for dpid in self.switches}
        self.events = EventLog()
        self.received_bps: FloatArray = np.zeros(len(self.vns))
        self._on_event = on_event
        self._now_s = 0.0
        self._new_pairs: dict[Pair, None] = {}
        self._old_pairs: set[Pair] = set()
        self._without_meter: set[int] = set()

    # -- switches

    def switch_connected(
        self, dpid: int, flows: Iterable[Flow | UnknownFlow], meters: NDArray[np.void], now_s: float
    ) -> None:
        """A switch of the configuration has connected, with these flow entries and meters (METER_CONFIG) in its tables.

        1) Hosts and pairs that an earlier run left are adopted, with their meters as they stand.
        2) What is missing or different is put right at once.
        3) What is ours and of no use is removed by the next ``audit``: until all switches are back, it may be of use.
        """
        self._now_s = now_s
        record = self.switches[dpid]
        record.connected = True
        record.installed, alien = sort_installed(flows)
        self._forget_counters(record.row_of_meter)
        self.network.switch_up(dpid, record.send_meter)
        self._adopt(record, meters)
        # Meters whose pairs are not known yet: their receivers' switches may still be on their way.
        record.meter_ids.reserve(meters["meter_id"].tolist())
        self._flush_pairs()
        standing, settings = standing_meters(meters), self._wanted_meters(record)
        queued = set(record.update.meter_id)
        differing = {i: m for i, m in settings.items() if standing.get(i) != m and i not in queued}
        record.update.put_meters(differing, standing.keys())
        wanted = self.network.desired.of_switch(dpid)
        record.update.set_flows(plan_flows(wanted, record.installed, wanted.keys()))
        record.installed.update(wanted)
        foreign = f", {alien} entries of others left alone" if alien else ""
        self._note(EventKind.SWITCH_UP, f"switch {record.switch.name} ({dpid:016x}) is up{foreign}")

    def switch_disconnected(self, dpid: int, now_s: float) -> None:
        """A switch has gone; its meters and entries stand as they are."""
        self._now_s = now_s
        record = self.switches[dpid]
        record.connected = False
        record.take_update()
        self.network.switch_down(dpid)
        self._note(EventKind.SWITCH_DOWN, f"switch {record.switch.name} ({dpid:016x}) is down")

    def port_down(self, dpid: int, port_no: int, now_s: float) -> None:
        """A port has lost its link, or is no more."""
        self._now_s = now_s
        self.network.port_down(Port(dpid, port_no))

    def tables(self, dpid: int) -> Tables:
        """Return what a switch's tables should hold once all that was taken by ``take_updates`` is done."""
        record = self.switches[dpid]
        return Tables(dict(record.installed), self._wanted_meters(record))

    def audit(
        self, dpid: int, expected: Tables, flows: Iterable[Flow | UnknownFlow], meters: NDArray[np.void], now_s: float
    ) -> int:
        """Compare a switch's tables with what they should hold and mend what is ours; return how much was wrong.

        ``expected`` is what ``tables`` returned when the switch was asked for its ``flows`` and ``meters``
        (METER_CONFIG); what has changed since then is left for the next time.
        """
        self._now_s = now_s
        record = self.switches[dpid]
        found, _ = sort_installed(flows)
        differing = {key for key in found.keys() | expected.flows.keys() if found.get(key) != expected.flows.get(key)}
        differing = {key for key in differing if record.installed.get(key) == expected.flows.get(key)}
        for key in differing:
            record.installed.pop(key, None)
            if key in found:
                record.installed[key] = found[key]
        self._adopt(record, meters)
        self._flush_pairs()
        wanted = self.network.desired.of_switch(dpid)
        differing |= record.installed.keys() - wanted.keys()  # left by an earlier run, and of no use
        wrong = plan_flows(wanted, record.installed, differing)
        record.update.set_flows(wrong)
        for key in differing:
            record.installed.pop(key, None)
            if key in wanted:
                record.installed[key] = wanted[key]
        count = len(wrong) + self._mend_meters(record, expected.meters, meters)
        if count:
            self._note(EventKind.TABLES_MENDED, f"switch {record.switch.name}: {count} entries and meters mended")
        return count

    # -- what switches report

    def frame_reported(self, dpid: int, packet: PacketIn, now_s: float) -> None:
        """A frame came up: from an unknown source (LEARN) or from a pair without an entry (RATE_CONTROL).

        Raises ProtocolError when the frame is cut short.
        """
        self._now_s = now_s
        header = parse_frame(packet.data)
        port = Port(dpid, packet.in_port)
        if header.vlan_vid is None or self.network.edge_port(port) is None:
            return
        if packet.table_id == Table.LEARN:
            self._learn(Host(header.vlan_vid, header.eth_src), port)
        elif packet.table_id == Table.RATE_CONTROL:
            pair = self.network.pair_seen(Host(header.vlan_vid, header.eth_dst), port)
            if pair is not None:
                self._new_pairs[pair] = None

    def hello_heard(self, sender: Port, receiver: Port, now_s: float) -> bool:
        """A hello of one switch reached another; tell whether that brought a link up."""
        self._now_s = now_s
        up = self.network.hear_hello(sender, receiver, now_s)
        if up:
            ends = " and ".join(f"{self._switch_name(end.dpid)}:{end.port_no}" for end in (sender, receiver))
            self._note(EventKind.LINK_UP, f"link between {ends} is up")
        return up

    def entry_removed(self, dpid: int, removed: FlowRemoved, now_s: float) -> None:
        """An entry of ours has aged."""
        self._now_s = now_s
        match = removed.match
        if match is None or match.in_port is None or match.vlan_vid is None:
            return
        self.switches[dpid].installed.pop(FlowKey(removed.table_id, removed.priority, match), None)
        port = Port(dpid, match.in_port)
        if removed.table_id == Table.LEARN and match.eth_src is not None:
            self.network.source_aged(Host(match.vlan_vid, match.eth_src), port)
        elif removed.table_id == Table.RATE_CONTROL and match.eth_dst is not None:
            pair = self.network.pair_aged(Host(match.vlan_vid, match.eth_dst), port)
            if pair is not None:
                self._old_pairs.add(pair)

    # -- the interval

    def interval(
        self, stats: Mapping[int, MeterStats], received_s: Mapping[int, float], now_s: float
    ) -> step.StepResult:
        """Run one control interval on the meter-stats (METER_STATS) of the switches, which came at ``received_s``."""
        self._now_s = now_s
        self._flush_pairs()
        readings = self._readings(stats, received_s)
        self.state, result = step.control_step(self.state, self.vns, self.groups, readings, now_s)
        self.received_bps = result.received_bps
        self._queue_meter_changes(result.changes)
        for kind, rows in (
            (EventKind.CONGESTION_BEGAN, result.congestion_began),
            (EventKind.CONGESTION_ENDED, result.congestion_ended),
        ):
            for row in rows.tolist():
                self._note(kind, f"{self.vn_name(row)}: {kind.value.replace('-', ' ')}")
        for row in result.implausible.tolist():
            pair = Pair(int(self.state.entries.sender[row]), int(self.state.entries.receiver[row]))
            text = f"{self.vn_name(pair.sender)} to {self.vn_name(pair.receiver)}: its counters jumped or fell back"
            self._note(EventKind.COUNTERS_IMPLAUSIBLE, text)
        return result

    def tick(self, now_s: float) -> None:
        """Let links expire and the tree settle; call it every interval."""
        self._now_s = now_s
        before = self.network.topology.links()
        self.network.tick(now_s)
        gone = before - self.network.topology.links()
        if gone:
            self._note(EventKind.LINKS_DOWN, f"{len(gone)} links are silent and so are down")

    def take_updates(self) -> dict[int, SwitchUpdate]:
        """Return the messages that are due, by dpid, for the switches that are connected."""
        self._flush_pairs()
        for dpid, keys in self.network.desired.take_changes().items():
            record = self.switches[dpid]
            if not record.connected:
                continue
            wanted = self.network.desired.of_switch(dpid)
            record.update.set_flows(plan_flows(wanted, record.installed, keys))
            for key in keys:
                if key in wanted:
                    record.installed[key] = wanted[key]
                else:
                    record.installed.pop(key, None)
        due = {dpid: record.update for dpid, record in self.switches.items() if record.connected and len(record.update)}
        for dpid in due:
            self.switches[dpid].take_update()
        return due

    # -- limits and algorithms

    def set_limits(
        self, row: int, now_s: float, *, send_limit_bps: int | None = None, receive_limit_bps: int | None = None
    ) -> None:
        """Give a VN new limits, in force from the next interval on.

        Raises InvalidValueError, with nothing changed, when the port's capacity does not allow them.
        """
        self._now_s = now_s
        self.vns = self.vns.with_limits(row, send_limit_bps=send_limit_bps, receive_limit_bps=receive_limit_bps)
        if send_limit_bps is not None:
            record = self.switches[self.vns.key(row).dpid]
            if record.connected:
                meter_id = record.send_meter[row]
                record.update.put_meters({meter_id: self._wanted_meters(record)[meter_id]}, [meter_id])
        given = (("send", send_limit_bps), ("receive", receive_limit_bps))
        limits = ", ".join(f"{way} limit {limit} bit/s" for way, limit in given if limit is not None)
        self._note(EventKind.LIMIT_CHANGED, f"{self.vn_name(row)}: {limits}")

    def set_algorithm(self, vlan_vid: int, name: str, parameters: Mapping[str, object], now_s: float) -> None:
        """Give a VLAN another allocation algorithm, from the next interval on.

        Raises InvalidValueError, with nothing changed, for an unknown VLAN or algorithm, or bad parameters.
        """
        self._now_s = now_s
        if vlan_vid not in self.policies:
            raise InvalidValueError("vlan_vid", vlan_vid, "is not a VLAN of the configuration")
        make_algorithm(name, parameters)
        self.policies = {**self.policies, vlan_vid: Policy(name, dict(parameters))}
        before, self.groups = self.groups, algorithm_groups(self.vns, self.policies)
        self.state = step.with_groups(self.state, before, self.groups)
        self._note(EventKind.ALGORITHM_CHANGED, f"VLAN {vlan_vid}: {name} {dict(parameters) or ''}".rstrip())

    def vn_name(self, row: int) -> str:
        """Return a VN's name as people read it: ``VLAN 10 at s1:3``."""
        key = self.vns.key(row)
        return f"VLAN {key.vlan_vid} at {self._switch_name(key.dpid)}:{key.port_no}"

    def note(self, kind: EventKind, text: str, now_s: float) -> None:
        """Note an event that the caller saw."""
        self._now_s = now_s
        self._note(kind, text)

    # -- inside

    def _switch_name(self, dpid: int) -> str:
        record = self.switches.get(dpid)
        return record.switch.name if record else f"{dpid:016x}"

    def _note(self, kind: EventKind, text: str) -> None:
        self.events.add(kind, text, self._now_s)
        if self._on_event is not None:
            self._on_event(kind, text)

    def _learn(self, host: Host, port: Port) -> None:
        news = self.network.learn(host, port)
        row = self.vns.row_of(host.vlan_vid, *port)
        if news and row is not None and self.network.full(row):
            text = f"{self.vn_name(row)} has {self.config.max_macs_per_vn} hosts, the most it may have"
            self._note(EventKind.HOSTS_FULL, f"{text}; the last is {format_mac(host.mac)}")

    def _flush_pairs(self) -> None:
        """Give the pairs that were seen their meters, and take those of pairs that aged."""
        self._old_pairs |= self.network.take_unused_pairs()
        if self._old_pairs:
            self._remove_pairs(self._old_pairs)
            self._old_pairs = set()
        pairs, self._new_pairs = list(self._new_pairs), {}
        metered: list[tuple[Pair, int]] = []
        for pair in pairs:
            record = self.switches[self.vns.key(pair.sender).dpid]
            meter_id = record.meter_ids.take()
            if meter_id is not None:
                metered.append((pair, meter_id))
            elif record.switch.dpid not in self._without_meter:
                self._without_meter.add(record.switch.dpid)
                text = f"switch {record.switch.name}: all meter ids to {self.config.last_meter_id} are in use"
                self._note(EventKind.OUT_OF_METERS, f"{text}; further pairs have only the send limit and their queue")
        if not metered:
            return
        sender = np.array([pair.sender for pair, _ in metered], dtype=np.int64)
        receiver = np.array([pair.receiver for pair, _ in metered], dtype=np.int64)
        meter_ids = np.array([meter_id for _, meter_id in metered], dtype=np.int64)
        rate_bps = step.first_rates(self.state, self.vns, sender, receiver)
        burst_bits = step.first_bursts(rate_bps)
        self._add_entries(sender, receiver, meter_ids, rate_bps, burst_bits, added_now=True)
        for (pair, meter_id), rate, burst in zip(metered, rate_bps[:, None], burst_bits[:, None], strict=True):
            record = self.switches[self.vns.key(pair.sender).dpid]
            if record.connected:
                record.update.put_meters(meter_settings([meter_id], rate, burst), [])
            self.network.add_pair(pair, meter_id)

    def _add_entries(
        self,
        sender: IntArray,
        receiver: IntArray,
        meter_id: IntArray,
        rate_bps: FloatArray,
        burst_bits: FloatArray,
        *,
        added_now: bool,
    ) -> None:
        self.state = step.add_entries(
            self.state, self.vns, sender, receiver, meter_id, rate_bps, burst_bits, self._now_s, added_now=added_now
        )
        self._map_meters()

    def _remove_pairs(self, pairs: set[Pair]) -> None:
        entries = self.state.entries
        gone = [
            row
            for row, ends in enumerate(zip(entries.sender.tolist(), entries.receiver.tolist(), strict=True))
            if Pair(*ends) in pairs
        ]
        for row in gone:
            pair = Pair(int(entries.sender[row]), int(entries.receiver[row]))
            record = self.switches[self.vns.key(pair.sender).dpid]
            meter_id = int(entries.meter_id[row])
            self.network.remove_pair(pair)
            self._without_meter.discard(record.switch.dpid)
            if record.connected:
                record.update.meter_deletes.append(meter_id)
            else:
                record.meter_ids.release(meter_id)
        self.state = step.remove_entries(self.state, np.array(gone, dtype=np.int64))
        self._map_meters()

    def _map_meters(self) -> None:
        entries = self.state.entries
        dpid = self.vns.dpid[entries.sender]
        order = np.argsort(dpid, kind="stable")
        starts = np.searchsorted(dpid[order], np.array(list(self.switches), dtype=np.uint64), side="left")
        ends = np.searchsorted(dpid[order], np.array(list(self.switches), dtype=np.uint64), side="right")
        for record, start, end in zip(self.switches.values(), starts, ends, strict=True):
            rows = order[start:end]
            record.map_meters(entries.meter_id[rows], rows)

    def _readings(self, stats: Mapping[int, MeterStats], received_s: Mapping[int, float]) -> MeterReadings:
        entries = len(self.state.entries)
        unread = np.full(entries, np.nan)
        readings = MeterReadings(unread.copy(), unread.copy(), unread.copy(), unread, np.zeros(entries, dtype=np.bool_))
        for dpid, meters in stats.items():
            rows = self.switches[dpid].rows_of(meters["meter_id"].astype(np.int64))
            counted = np.maximum(meters["byte_in_count"], meters["band_byte_count"]) < COUNTER_UNAVAILABLE
            mine = np.flatnonzero((rows >= 0) & counted)
            rows = rows[mine]
            readings.byte_in_count[rows] = meters["byte_in_count"][mine]
            readings.dropped_byte_count[rows] = meters["band_byte_count"][mine]
            readings.duration_s[rows] = meters["duration_s"][mine]
            readings.received_s[rows] = received_s[dpid]
            readings.present[rows] = True
        return readings

    def _queue_meter_changes(self, changes: MeterChanges) -> None:
        if not len(changes.rows):
            return
        dpid = self.vns.dpid[self.state.entries.sender[changes.rows]]
        meter_id = self.state.entries.meter_id[changes.rows]
        rate, burst = _kilo(changes.rate_bps), _kilo(changes.burst_bits)
        for one in np.unique(dpid).tolist():
            record = self.switches[one]
            if record.connected:
                mine = dpid == one
                record.update.modify_meters(meter_id[mine], rate[mine], burst[mine])

    def _adopt(self, record: SwitchRecord, meters: NDArray[np.void]) -> None:
        """Take over hosts and pairs that stand in a switch's tables and are not known here."""
        for flow in record.installed.values():
            host = adopted_host(flow)
            if host is not None and flow.match.in_port is not None and not self.network.knows(host):
                self._learn(host, Port(record.switch.dpid, flow.match.in_port))
        standing = standing_meters(meters)
        known = set(zip(self.state.entries.sender.tolist(), self.state.entries.receiver.tolist(), strict=True))
        adopted: dict[Pair, int] = {}
        for flow in record.installed.values():
            pair = adopted_pair(flow, self.network, record.switch.dpid)
            if pair is None or pair in known or pair in adopted or flow.meter_id not in standing:
                continue
            if record.meter_ids.claim(flow.meter_id):
                adopted[pair] = flow.meter_id
        if not adopted:
            return
        rates = np.array([standing[meter_id] for meter_id in adopted.values()], dtype=np.float64) * RATE_STEP_BPS
        sender = np.array([pair.sender for pair in adopted], dtype=np.int64)
        receiver = np.array([pair.receiver for pair in adopted], dtype=np.int64)
        meter_ids = np.array(list(adopted.values()), dtype=np.int64)
        self._add_entries(sender, receiver, meter_ids, rates[:, 0], rates[:, 1], added_now=False)
        for pair, meter_id in adopted.items():
            self._new_pairs.pop(pair, None)
            self.network.add_pair(pair, meter_id)

    def _mend_meters(self, record: SwitchRecord, expected: Mapping[int, MeterSetting], meters: NDArray[np.void]) -> int:
        """Mend what differs from ``expected`` and has not been changed since; return how many meters that were."""
        found = standing_meters(meters)
        wanted = self._wanted_meters(record)
        owned = {meter_id for meter_id in found if record.meter_ids.owns(meter_id)}
        differing = {i for i in owned | expected.keys() if found.get(i) != expected.get(i)}
        differing = {i for i in differing if wanted.get(i) == expected.get(i)} - set(record.update.meter_id)
        record.update.put_meters({i: wanted[i] for i in differing & wanted.keys()}, found.keys())
        self._forget_counters(record.rows_of(np.array(sorted(differing), dtype=np.int64)))
        record.update.meter_deletes += sorted(differing - wanted.keys())
        return len(differing)

    def _forget_counters(self, rows: IntArray) -> None:
        """Meters of these rows (NO_ENTRY among them) may have been set outside of the interval, or by others."""
        self.state = replace(self.state, counters=self.state.counters.forgotten(rows[rows != NO_ENTRY]))

    def _wanted_meters(self, record: SwitchRecord) -> dict[int, MeterSetting]:
        """Return what all meters of a switch should be set to, by id."""
        rows = np.array(list(record.send_meter), dtype=np.int64)
        rate_bps = whole_rates(self.vns.send_limit_bps[rows])
        wanted = meter_settings(list(record.send_meter.values()), rate_bps, step.first_bursts(rate_bps))
        mine = np.flatnonzero(self.vns.dpid[self.state.entries.sender] == record.switch.dpid)
        enforcement = self.state.enforcement
        ids = self.state.entries.meter_id[mine].tolist()
        return wanted | meter_settings(ids, enforcement.rate_bps[mine], enforcement.burst_bits[mine])


def meter_settings(meter_id: list[int], rate_bps: FloatArray, burst_bits: FloatArray) -> dict[int, MeterSetting]:
    """Return columns as settings by meter id."""
    rows = zip(meter_id, _kilo(rate_bps).tolist(), _kilo(burst_bits).tolist(), strict=True)
    return {meter: MeterSetting(rate, burst) for meter, rate, burst in rows}


def standing_meters(meters: NDArray[np.void]) -> dict[int, MeterSetting]:
    """Return the settings in a METER_CONFIG array by meter id."""
    rows = zip(*(meters[name].tolist() for name in ("meter_id", "rate_kbps", "burst_kbits")), strict=True)
    return {meter: MeterSetting(rate, burst) for meter, rate, burst in rows}


def _kilo(values: Any) -> IntArray:
    """Return bit/s as kb/s, or bits as kb; they are whole already."""
    return np.rint(np.asarray(values, dtype=np.float64) / RATE_STEP_BPS).astype(np.int64)
