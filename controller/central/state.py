"""All that the controller knows of one fabric, which pairs, reconciliation and the interval work on together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from controller.capability.capabilities import Verdicts
from controller.columns import FloatArray, IntArray
from controller.events import EventKind, EventLog
from controller.fabric.description import Config
from controller.fabric.links import LinksInUse
from controller.fabric.topology import PortId
from controller.fabric.vns import VnTable
from controller.forwarding.hosts_and_paths import ForwardingSettings, Host, Network
from controller.limits.admission import AdmittedLimits
from controller.loop import step
from controller.loop.policies import algorithm_groups, lending_vlans, policies_of, shadows_of
from controller.metering.enforcement import whole_rates
from controller.metering.guarantees import Guarantees
from controller.openflow.frames import format_mac
from controller.switch.delivery import Delivery
from controller.switch.meter_settings import MeterColumns
from controller.switch.record import NO_ENTRY, SwitchRecord
from controller.whatif.recording import Recorder
from controller.whatif.shadow import Shadow

# A switch that has not come so long after the last one that did is not waited for any more.
AWAITED_S = 30.0


class FabricState:
    """The tables, the control state and the switches of the fabric of one configuration.

    Raises InvalidValueError when a switch has more VNs than the controller has meter ids. ``on_event`` is called with
    every event as it happens.
    """

    def __init__(self, config: Config, on_event: Callable[[EventKind, str], None] | None = None) -> None:
        self.config = config
        self.admitted = AdmittedLimits(config)
        self.policies = policies_of(config)
        self.vns = VnTable.of_config(config).with_lending(lending_vlans(self.policies))
        self.links = LinksInUse(config)
        self.groups = algorithm_groups(self.vns, self.policies)
        self.shadow = Shadow.of(self.vns, shadows_of(config))
        self.recorder: Recorder | None = None
        self.state = step.ControlState.start(self.vns, self.groups)
        settings = ForwardingSettings(config.mac_ageing_s, config.max_macs_per_vn)
        self.network = Network(config.switches.values(), self.vns, settings)
        self.switches = {s.dpid: SwitchRecord.of(s, self.vns, config) for s in config.switches.values()}
        self.deliveries = {dpid: Delivery() for dpid in self.switches}
        self.events = EventLog()
        self.verdicts = Verdicts()
        self.received_bps: FloatArray = np.zeros(len(self.vns))
        self.guarantees = Guarantees.unused(len(self.vns))
        self.congested_since_s: FloatArray = np.full(len(self.vns), np.nan)  # NaN: is not, or was at the start
        self._on_event = on_event
        self._came_s = -math.inf

    def note(self, kind: EventKind, text: str, now_s: float) -> None:
        """Note an event."""
        self.events.add(kind, text, now_s)
        if self._on_event is not None:
            self._on_event(kind, text)

    def switch_came(self, now_s: float) -> None:
        """A switch of the configuration is there, with whatever its tables hold."""
        self._came_s = now_s

    def awaits_switches(self, now_s: float) -> bool:
        """Whether one of the configuration may still be on its way: it is not there, and another one came just now."""
        missing = not all(record.connected for record in self.switches.values())
        return missing and now_s - self._came_s < AWAITED_S

    def vn_name(self, row: int) -> str:
        """Return a VN's name as people read it: ``VLAN 10 at s1:3``."""
        key = self.vns.key(row)
        return f"VLAN {key.vlan_vid} at {self.switch_name(key.dpid)}:{key.port_no}"

    def place_name(self, row: int) -> str:
        """Return where a VN is as people write it: ``s1:3``."""
        key = self.vns.key(row)
        return f"{self.switch_name(key.dpid)}:{key.port_no}"

    def switch_name(self, dpid: int) -> str:
        """Return a switch's name, or its dpid if the configuration does not name it."""
        record = self.switches.get(dpid)
        return record.switch.name if record else f"{dpid:016x}"

    def record_of_sender(self, row: int) -> SwitchRecord:
        """Return the switch behind which a VN sends."""
        return self.switches[self.vns.key(row).dpid]

    def learn(self, host: Host, port: PortId, now_s: float) -> None:
        """Note where a host is; say so when its VN may have no more."""
        news = self.network.learn(host, port)
        row = self.vns.row_of(host.vlan_vid, *port)
        if news and row is not None and self.network.full(row):
            text = f"{self.vn_name(row)} has {self.config.max_macs_per_vn} hosts, the most it may have"
            self.note(EventKind.HOSTS_FULL, f"{text}; the last is {format_mac(host.mac)}", now_s)

    def forget_counters(self, rows: IntArray) -> None:
        """Meters of these rows (NO_ENTRY among them) may have been set outside of the interval, or by others."""
        self.state = replace(self.state, counters=self.state.counters.forgotten(rows[rows != NO_ENTRY]))

    def meter_settings(self, dpid: int, meter_id: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the rates (bit/s) and bursts (bits) of meters of a switch that limit entries; infinite for others."""
        rows = self.switches[dpid].rows_of(meter_id)
        known = rows != NO_ENTRY
        rate_bps, burst_bits = np.full(len(rows), np.inf), np.full(len(rows), np.inf)
        rate_bps[known] = self.state.enforcement.rate_bps[rows[known]]
        burst_bits[known] = self.state.enforcement.burst_bits[rows[known]]
        return rate_bps, burst_bits

    def wanted_meters(self, record: SwitchRecord) -> MeterColumns:
        """Return what all meters of a switch should be set to; none where its meters are of no use."""
        if not record.can.uses_meters:
            nothing = np.empty(0, dtype=np.int64)
            return MeterColumns(nothing, nothing, nothing)
        rows = np.array(list(record.send_meter), dtype=np.int64)
        rate_bps = whole_rates(self.vns.send_most_bps[rows])
        ids = np.array(list(record.send_meter.values()), dtype=np.int64)
        mine = np.flatnonzero(self.vns.dpid[self.state.entries.sender] == record.switch.dpid)
        enforcement = self.state.enforcement
        return MeterColumns.of_rates(
            np.concatenate([ids, self.state.entries.meter_id[mine]]),
            np.concatenate([rate_bps, enforcement.rate_bps[mine]]),
            np.concatenate([step.first_bursts(rate_bps), enforcement.burst_bits[mine]]),
        )
