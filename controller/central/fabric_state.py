"""The state of one fabric: what pairs, reconciliation and the interval share.

``ControlContext`` is the part that the control step uses: an immutable value. The rest of ``FabricState`` changes in
place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from weakref import proxy

import numpy as np

from controller.capability.capabilities import Verdicts
from controller.capability.meter_monitor import NOT_KNOWN
from controller.central.learning import Learning
from controller.columns import FloatArray, IntArray, UInt32Array
from controller.events import EventKind, EventLog
from controller.fabric.config_model import Config
from controller.fabric.link_table import LinkTableCache
from controller.fabric.meter_bounds import columns_of
from controller.fabric.topology import PortId
from controller.fabric.vn_table import VnTable
from controller.forwarding.forwarding_state import ForwardingState
from controller.forwarding.host_entries import ForwardingSettings
from controller.forwarding.pairs import Host
from controller.forwarding.pipeline import EcnMarking
from controller.forwarding.token_buckets import (
    AGENT_BURST_INTERVALS,
    PACKET_IN_BURST,
    PACKET_INS_PER_S,
    TokenBuckets,
    packet_in_bursts,
)
from controller.limits.admission import AdmittedLimits
from controller.limits.effective_settings import EffectiveSettings
from controller.limits.flood_limits import discovery_limits, flood_limits
from controller.limits.new_pair_limits import limited_receivers, new_pair_limits
from controller.limits.overrides import VN_FIELDS
from controller.loop import control_step, pair_changes
from controller.loop.congestion import Congestion
from controller.loop.fabric_partition import WHOLE_FABRIC, FabricPartition
from controller.metering.enforcement import RATE_STEP_BPS, from_kilo, to_kilo, whole_rates
from controller.metering.flood_rates import FloodRates
from controller.metering.guarantees import Guarantees
from controller.metering.measurement import Measurement, sum_by_row
from controller.metering.send_limit_meters import SendLimitMeters
from controller.openflow.ethernet import CONTROL_ETH_TYPES
from controller.policy.policy_groups import Choices, PolicyGroup, apply_choices, choices_of, groups_of, shadows_of
from controller.switch.delivered_rates import DeliveredRates
from controller.switch.frame_sizes import min_bursts
from controller.switch.meter_index import MeterIndex
from controller.switch.meters.counting import CountingMeters
from controller.switch.meters.meter_settings import MeterSetting, MeterSettingsTable
from controller.switch.meters.phantom import PhantomMeters
from controller.switch.switch_record import NO_ENTRY, SwitchRecord
from controller.whatif.shadow import Shadow

# A switch that has not connected this long after the last one that did is no longer awaited.
SWITCH_WAIT_S = 30.0


class ControlContext(NamedTuple):
    """The input and state of the control step: one value, so that a change replaces all of it at once."""

    config: Config
    vns: VnTable
    policies: Choices
    groups: tuple[PolicyGroup, ...]
    shadow: Shadow
    state: control_step.ControlState

    @classmethod
    def start(cls, config: Config) -> ControlContext:
        """Return the initial state for a configuration: no pair is active."""
        policies = choices_of(config)
        vns = apply_choices(VnTable.from_config(config), policies)
        groups = groups_of(vns, policies)
        shadow = Shadow.build(vns, shadows_of(config))
        return cls(config, vns, policies, groups, shadow, control_step.ControlState.start(vns, groups))

    def with_values(self, values: EffectiveSettings) -> ControlContext:
        """Return the context with other limits, ceilings, weights, algorithms and shadows.

        Algorithms and shadows that stay keep their state.
        """
        config = replace(self.config, vlans=values.vlans)
        policies, shadows = choices_of(config), shadows_of(config)
        columns = {name: getattr(values.vns, name) for name in VN_FIELDS}
        vns = apply_choices(self.vns.with_columns(**columns), policies)
        groups, state = self.groups, self.state
        if policies != self.policies:
            groups = groups_of(vns, policies)
            state = control_step.with_groups(state, self.groups, groups)
        shadow = self.shadow if shadows == self.shadow.policies else self.shadow.changed(vns, shadows)
        return ControlContext(config, vns, policies, groups, shadow, state)


@dataclass
class SwitchArrivals:
    """The dpids of the switches that have connected, and when any switch and a new switch connected last."""

    known: set[int] = field(default_factory=set)
    last_s: float = -math.inf
    new_s: float = -math.inf

    def began(self, now_s: float) -> None:
        """Record that the adoption of a switch's tables begins; the first one starts the wait for new switches."""
        if math.isinf(self.new_s):
            self.new_s = now_s

    def connected(self, dpid: int, now_s: float) -> None:
        """Record that a switch has connected, whatever its tables hold."""
        self.last_s = now_s
        if dpid not in self.known:
            self.known.add(dpid)
            self.new_s = now_s


class FabricState:
    """The control context, the network and the switches of the fabric of one configuration.

    ``events`` is kept when another configuration comes. Raises InvalidValueError when a switch has more VNs than the
    controller has meter ids.
    """

    def __init__(self, config: Config, events: EventLog) -> None:
        self.control = ControlContext.start(config)
        self.events = events
        self.admitted = AdmittedLimits(config)
        self.links = LinkTableCache(config)
        ethertypes = CONTROL_ETH_TYPES if config.agent_experimental_ethertype else CONTROL_ETH_TYPES[:1]
        marking = EcnMarking(config.ecn_codepoint, config.ecn_exposed)
        limited = frozenset(np.flatnonzero(limited_receivers(self.vns, config)).tolist())
        settings = ForwardingSettings(config.mac_ageing_s, config.max_macs_per_vn, ethertypes, marking, limited)
        self.network = ForwardingState(config.switches.values(), self.vns, settings)
        self.switches = {s.dpid: SwitchRecord.from_config(s, self.vns, config) for s in config.switches.values()}
        self.listing = MeterIndex()
        self.deliveries = {dpid: DeliveredRates() for dpid in self.switches}
        self.verdicts = Verdicts()
        self.received_bps: FloatArray = np.zeros(len(self.vns))
        self.guarantees = Guarantees.initial(len(self.vns))  # of what VNs receive
        self.send_guarantees = Guarantees.initial(len(self.vns))  # of what VNs send, if they use ceilings
        self.congestion = Congestion.initial(len(self.vns))
        self.queue_dropped_bps: FloatArray = np.full(len(self.vns), np.nan)  # if a policy reads queues
        self.notifications = np.zeros(len(self.vns))  # messages from receiving VNs to senders
        self.notified_s: FloatArray = np.full(len(self.vns), np.nan)  # the time of the last of these
        self.send_limits = SendLimitMeters.initial(len(self.vns))
        self.floods = FloodRates.initial(len(self.vns))
        self.frame_bytes: FloatArray = np.zeros(len(self.vns))  # the largest frames seen, if they are large
        self.next_frame_meter = 0  # the first meter, in the order of replies, of which the next check reads frames
        self.phantoms = PhantomMeters.initial(len(self.vns))
        self.measuring = CountingMeters.empty()
        self._flood_limits: tuple[VnTable, FloatArray] | None = None
        self._shared: tuple[VnTable, FloatArray, VnTable] | None = None
        # The measurement of the last interval, and the loads computed from it.
        self.last_loads: tuple[Measurement, tuple[FloatArray, ...]] | None = None
        self.reports = TokenBuckets(len(self.vns), PACKET_INS_PER_S, PACKET_IN_BURST)
        # A reload replaces this state, which is freed only if it is in no reference cycle.
        self.learning = Learning(proxy(self), config.max_macs_per_vn)
        self.arrivals = SwitchArrivals()
        self.share: FabricPartition = WHOLE_FABRIC
        self.agent_ports: frozenset[PortId] = frozenset()  # known ports with agents that shape
        self.follow_bounds()

    def follow_bounds(self) -> None:
        """Pass the known bounds of switches' meters and the known frame sizes to the control step."""
        switch_bounds = [self.switches[dpid].capabilities.bounds for dpid in self.vns.dpids]
        bounds = columns_of(switch_bounds, self.vns.switch, to_kilo(min_bursts(self.frame_bytes)))
        if bounds is not None or self.vns.meter_bounds is not None:
            self.control = self.control._replace(vns=self.vns.with_columns(meter_bounds=bounds))

    def fitted(self, sender: IntArray, rate_bps: FloatArray, burst_bits: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return rates and bursts rounded to what the switches of these senders (rows) accept."""
        if self.vns.meter_bounds is None:
            return rate_bps, burst_bits
        rate_kbps, burst_kbits = self.vns.meter_bounds.select(sender).fitted(to_kilo(rate_bps), to_kilo(burst_bits))
        return from_kilo(rate_kbps), from_kilo(burst_kbits)

    # -- effective values

    @property
    def config(self) -> Config:
        """The configuration, with the effective values of VLANs."""
        return self.control.config

    @property
    def vns(self) -> VnTable:
        """The VNs, with their effective values."""
        return self.control.vns

    @property
    def state(self) -> control_step.ControlState:
        """The state that one interval passes to the next."""
        return self.control.state

    @state.setter
    def state(self, state: control_step.ControlState) -> None:
        self.control = self.control._replace(state=state)

    @property
    def flood_limit_bps(self) -> FloatArray:
        """The flood limit of each VN, shape (vns,)."""
        vns = self.control.vns
        if self._flood_limits is None or self._flood_limits[0] is not vns:
            self._flood_limits = (vns, flood_limits(vns, self.config.vlans))
        return self._flood_limits[1]

    @property
    def shared_vns(self) -> VnTable:
        """The VNs with their receive limits less received floods: the rates that allocators share."""
        flood_bps, vns = self.floods.received_bps, self.control.vns
        if self._shared is None or self._shared[0] is not vns or self._shared[1] is not flood_bps:
            shared = vns
            if flood_bps.any():
                limit_bps = np.maximum(vns.receive_limit_bps - flood_bps, RATE_STEP_BPS)
                shared = vns.with_columns(receive_limit_bps=limit_bps)
            self._shared = (vns, flood_bps, shared)
        return self._shared[2]

    @property
    def receiver_loads_bps(self) -> tuple[FloatArray, ...]:
        """Return each VN's offered, passed and dropped rates at its senders' meters in the last interval, (vns,) each.

        The arrays are shared and read-only.
        """
        state = self.control.state
        measured = state.measured
        if self.last_loads is None or self.last_loads[0] is not measured:
            columns = (measured.offered_bps, measured.passed_bps, measured.dropped_bps)
            self.last_loads = (measured, sum_by_row(state.entries.receiver, columns, len(self.control.vns)))
        return self.last_loads[1]

    def sender_limits(self) -> tuple[FloatArray, FloatArray]:
        """Return the limits that senders set themselves, and the time since their last message, (pairs,); NaN: none."""
        entries = self.state.entries
        limit_bps, silent_s = np.full((2, len(entries)), np.nan)
        for decision in self.state.allocators.decisions:
            view = decision.view  # its rows are void once the pair table has changed
            if decision.egress_limit_bps is not None and decision.notified_s is not None and view.entries is entries:
                limit_bps[view.rows] = decision.egress_limit_bps
                silent_s[view.rows] = view.now_s - decision.notified_s
        return limit_bps, silent_s

    # -- what happens

    def note(
        self,
        kind: EventKind,
        text: str,
        now_s: float,
        *,
        vn: int | None = None,
        dpid: int | None = None,
        vlan_vid: int | None = None,
    ) -> None:
        """Record an event, with the VN (row), switch or VLAN that it concerns, if any."""
        port_no = None
        if vn is not None:
            vlan_vid, dpid, port_no = self.vns.key(vn)
        self.events.add(kind, text, now_s, vlan_vid, None if dpid is None else self.switch_name(dpid), port_no)

    def awaits_switches(self, now_s: float) -> bool:
        """Return whether a disconnected switch of the configuration may still connect, because another one just did.

        In a cluster a node waits for all switches without limit: the other node may have connected more.
        """
        remote = self.share.remote_switches
        missing = not all(record.connected or dpid in remote for dpid, record in self.switches.items())
        return missing and (self.config.cluster is not None or now_s - self.arrivals.last_s < SWITCH_WAIT_S)

    def may_lack_senders(self, now_s: float) -> bool:
        """Return whether senders may be unknown: of a switch that has never connected, or at other nodes.

        The wait for switches ends even if switches reconnect: only a new switch extends the wait. The same holds in a
        cluster, where a dead switch must not freeze all grants. Where other nodes own switches, all nodes must learn
        the owner of the last switch, and their messages must arrive.
        """
        all_connected_once = self.switches.keys() <= self.arrivals.known
        wait_s = self.share.ownership_lag_s if all_connected_once else SWITCH_WAIT_S
        return now_s - self.arrivals.new_s < wait_s

    def vn_name(self, row: int) -> str:
        """Return a VN's name in text form: ``VLAN 10 at s1:3``."""
        return f"VLAN {self.vns.key(row).vlan_vid} at {self.location_name(row)}"

    def location_name(self, row: int) -> str:
        """Return a VN's location in text form: ``s1:3``."""
        return self.port_name(PortId(*self.vns.key(row)[1:]))

    def port_name(self, port: PortId) -> str:
        """Return an edge port in text form: ``s1:3``, or by its interface, ``s1:eth3``."""
        edge = self.network.edge_port(port)
        return f"{self.switch_name(port.dpid)}:{port.port_no if edge is None else edge.label}"

    def switch_name(self, dpid: int) -> str:
        """Return a switch's name, or its dpid if the configuration does not name it."""
        record = self.switches.get(dpid)
        return record.switch.name if record else f"{dpid:016x}"

    def record_of_sender(self, row: int) -> SwitchRecord:
        """Return the record of the switch at which a VN sends."""
        return self.switches[self.vns.key(row).dpid]

    def learn(self, host: Host, port: PortId, now_s: float, *, installed: bool = False) -> None:
        """Record where a host is, by a frame or, if ``installed``, by the flow tables of its switch."""
        self.learning.learn(host, port, now_s, installed=installed)

    def invalidate_counters(self, record: SwitchRecord, meter_id: IntArray | None = None) -> None:
        """Discard counters of meters of a switch, all or some, which may have been set outside of the interval."""
        if meter_id is None:
            rows = record.metered_rows()
        else:
            rows = record.rows_of(meter_id)
            rows = rows[rows != NO_ENTRY]
        self.invalidate_rows(rows)
        senders = [row for row, meters in record.vn_meters.items() if meter_id is None or meters.send in meter_id]
        self.send_limits = self.send_limits.invalidated(np.array(senders, dtype=np.int64))
        vn_rows, vn_meter_id = record.vn_meter_columns()
        if meter_id is not None:
            flood_meter_id = vn_meter_id[1:3]  # the fields ``flood`` and ``discovery`` of VnMeters
            vn_rows = vn_rows[np.isin(flood_meter_id, meter_id).any(axis=0)]
        self.floods.invalidated(vn_rows)
        self.phantoms = self.phantoms.invalidated(record.switch.dpid, self.vns, meter_id)
        self.measuring = self.measuring.invalidated(record.switch.dpid, self.vns, meter_id)

    def invalidate_rows(self, rows: IntArray) -> None:
        """Discard the counters of these pairs: they come from another source now."""
        self.state = self.state._replace(counters=self.state.counters.invalidated(rows))

    def set_installed(self, rows: IntArray, settings: Sequence[MeterSetting]) -> None:
        """Record that the meters of these pairs are set to these settings."""
        if not len(rows):
            return
        enforcement = self.state.enforcement
        rate_kbps, burst_kbits = enforcement.rate_kbps.copy(), enforcement.burst_kbits.copy()
        rate_kbps[rows], burst_kbits[rows] = zip(*settings, strict=True)
        level_bits = np.minimum(enforcement.level_bits, from_kilo(burst_kbits))
        enforcement = enforcement._replace(rate_kbps=rate_kbps, burst_kbits=burst_kbits, level_bits=level_bits)
        self.state = self.state._replace(enforcement=enforcement)

    def meter_settings(self, dpid: int, meter_id: IntArray) -> tuple[UInt32Array, UInt32Array]:
        """Return the rates (kb/s) and bursts (kb) of meters of a switch that limit pairs; NOT_KNOWN for others."""
        rows, enforcement = self.switches[dpid].rows_of(meter_id), self.state.enforcement
        unknown = np.flatnonzero(rows == NO_ENTRY)  # only a few: most meters limit pairs
        if len(unknown) == len(rows):  # there may be no pair at all, and then nothing to take from
            return np.full(len(rows), NOT_KNOWN, np.uint32), np.full(len(rows), NOT_KNOWN, np.uint32)
        # NO_ENTRY, -1, takes the last row's values, which NOT_KNOWN replaces.
        rate_kbps = enforcement.rate_kbps.take(rows, mode="wrap")
        burst_kbits = enforcement.burst_kbits.take(rows, mode="wrap")
        rate_kbps[unknown] = burst_kbits[unknown] = NOT_KNOWN
        return rate_kbps, burst_kbits

    def desired_meters(self, record: SwitchRecord) -> MeterSettingsTable:
        """Return the desired settings of all meters of a switch; none if its meters are unusable."""
        if not record.capabilities.uses_meters:
            nothing = np.empty(0, dtype=np.int64)
            return MeterSettingsTable(nothing, nothing, nothing)
        rows, vn_meter_id = record.vn_meter_columns()
        discovery_bps = discovery_limits(self.flood_limit_bps[rows])
        newcomer_bps, newcomer_bits = new_pair_limits(self.vns)
        # In the order of VnMeters: send limit, floods, discovery, packet-ins, new pairs, agents.
        rates_bps = (
            whole_rates(self.vns.send_max_bps[rows]),
            self.flood_limit_bps[rows] - discovery_bps,
            discovery_bps,
            np.full(len(rows), float(self.config.packet_in_rate_bps)),
            newcomer_bps[rows],
            np.full(len(rows), float(self.config.control_frame_rate_bps)),
        )
        agent_burst_s = AGENT_BURST_INTERVALS * self.config.interval_s
        min_bits = min_bursts(self.frame_bytes[rows])
        bursts_bits = (
            np.maximum(pair_changes.first_bursts(rates_bps[0]), min_bits),
            *map(pair_changes.first_bursts, rates_bps[1:3]),  # no minimum: floods are not of very large frames
            np.maximum(packet_in_bursts(rates_bps[3]), min_bits),
            np.maximum(newcomer_bits[rows], min_bits),
            packet_in_bursts(rates_bps[5], agent_burst_s),
        )
        exists = vn_meter_id > 0  # (kinds of meters, VNs of the switch), as the rates and bursts once stacked
        vn_kbps, vn_kbits = to_kilo(np.stack(rates_bps)[exists]), to_kilo(np.stack(bursts_bits)[exists])
        pair_rows, enforcement = record.metered_rows(), self.state.enforcement
        pair_meter_id = self.state.entries.meter_id[pair_rows]
        mark_id, mark_bps, mark_bits = self.phantoms.settings(record.switch.dpid, self.vns)
        limits = MeterSettingsTable(
            np.concatenate([vn_meter_id[exists], pair_meter_id, mark_id]),
            np.concatenate([vn_kbps, enforcement.rate_kbps[pair_rows], to_kilo(mark_bps)]),
            np.concatenate([vn_kbits, enforcement.burst_kbits[pair_rows], to_kilo(mark_bits)]),
        )
        settings = limits.merged(self.measuring.settings(record.switch.dpid, self.vns))
        return settings.within_bounds(record.capabilities.bounds)
