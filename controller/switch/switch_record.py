"""The controller's record of one switch, with the messages that are due to it."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.capability.capabilities import Capabilities
from controller.columns import IntArray
from controller.errors import InvalidValueError
from controller.fabric.config_model import Config, Switch
from controller.fabric.meter_bounds import UNBOUNDED, MeterBounds
from controller.fabric.port_numbers import PortNumbers
from controller.fabric.vn_table import VnTable
from controller.forwarding.flow_table import FlowTable, pack_key
from controller.forwarding.pipeline import VnMeters, meters_of_vn
from controller.limits.new_pair_limits import limited_senders
from controller.openflow.bounded_reader import MAX_XID, Buffer
from controller.openflow.constants import FlowModCommand, MeterModCommand
from controller.openflow.flows import Flow, encode_flow_mods
from controller.openflow.messages import encode_barrier_request
from controller.openflow.meters import (
    MeterMods,
    encode_meter_deletes,
    encode_meter_mods,
    encode_meter_mods_batch,
)
from controller.switch.adoption import DeferredAdoption
from controller.switch.meters.id_pool import MeterIdPool
from controller.switch.meters.meter_settings import MeterSetting
from controller.switch.port_states import PortState
from controller.switch.refused_frames import RefusedFrames

NO_ENTRY = -1
SPARED = ("discovery", "report", "newcomer")
"""The optional meters of VNs: without them the flood meter, or the send limit's, is used."""


@dataclass(slots=True)
class SwitchUpdate:
    """Messages for one switch, in the one order in which no message refers to something missing.

    Flow deletes, meter-mods (decreases come before increases), flow adds, meter deletes.

    ``restarts_counts``: the update includes pairs' meters that an interval has modified. Their counts begin when the
    switch has executed this update; confirmations of other messages are no evidence of that.
    """

    flow_deletes: list[Flow] = field(default_factory=list)
    flow_adds: list[Flow] = field(default_factory=list)
    meter_deletes: list[int] = field(default_factory=list)
    restarts_counts: bool = False
    _meter_mods: list[MeterMods] = field(default_factory=list)  # in parts

    def __len__(self) -> int:
        """Return the number of messages."""
        meter_mods: int = sum(mods.shape[1] for mods in self._meter_mods)
        return meter_mods + len(self.flow_deletes) + len(self.flow_adds) + len(self.meter_deletes)

    @property
    def due(self) -> bool:
        """Return whether the update has any message."""
        return bool(self._meter_mods or self.flow_deletes or self.flow_adds or self.meter_deletes)

    def meter_mods(self) -> MeterMods:
        """Return the meter-mods that add or modify, in order, (4, meters): command, id, rate, burst."""
        if len(self._meter_mods) > 1:
            self._meter_mods = [np.concatenate(self._meter_mods, axis=1)]
        return self._meter_mods[0] if self._meter_mods else np.empty((4, 0), dtype=np.uint32)

    @property
    def meter_id(self) -> list[int]:
        """The ids of the meter-mods."""
        return list(self.meter_mods()[1].tolist())

    @property
    def has_meter_mods_alone(self) -> bool:
        """Return whether the update has meter-mods only."""
        return not (self.flow_deletes or self.flow_adds or self.meter_deletes)

    def modify_meters(self, mods: MeterMods, *, restarts_counts: bool = False) -> None:
        """Append meter-mods with the command MODIFY, one in each column of ``mods`` (4, meters)."""
        if mods.shape[1]:
            self._meter_mods.append(mods)
            self.restarts_counts |= restarts_counts

    def put_meters(self, settings: Mapping[int, MeterSetting], installed: Container[int]) -> None:
        """Append a meter-mod for each id: MODIFY where a meter is installed (``installed``), otherwise ADD."""
        rows = [
            (MeterModCommand.MODIFY if meter_id in installed else MeterModCommand.ADD, meter_id, *setting)
            for meter_id, setting in settings.items()
        ]
        if rows:
            self._meter_mods.append(np.array(rows, dtype=np.uint32).T)

    def fit(self, bounds: MeterBounds) -> None:
        """Fit the meter-mods to the switch's bounds."""
        if self._meter_mods and bounds != UNBOUNDED:
            mods = self.meter_mods().copy()
            mods[2:] = bounds.fitted(mods[2], mods[3])
            self._meter_mods = [mods]

    def encode(self, xid_first: int) -> bytes:
        """Return all messages as bytes, with xids from ``xid_first`` on."""
        parts, xid = [], xid_first
        if self.flow_deletes:
            parts.append(encode_flow_mods([(FlowModCommand.DELETE_STRICT, flow) for flow in self.flow_deletes], xid))
            xid += len(self.flow_deletes)
        command, meter_id, rate_kbps, burst_kbits = self.meter_mods()
        if len(meter_id):
            parts.append(encode_meter_mods(command, meter_id, rate_kbps, burst_kbits, xid_first=xid))
            xid += len(meter_id)
        if self.flow_adds:
            parts.append(encode_flow_mods([(FlowModCommand.ADD, flow) for flow in self.flow_adds], xid))
            xid += len(self.flow_adds)
        if self.meter_deletes:
            parts.append(encode_meter_deletes(self.meter_deletes, xid))
        return b"".join(parts)


def encode_updates(updates: Sequence[SwitchUpdate], xid_first: Sequence[int]) -> list[Buffer]:
    """Return the messages of each update with xids from its ``xid_first`` on, and a barrier request with the next one.

    Usually there are meter-mods only: those of all switches are encoded at once.
    """
    meters_only = [index for index, update in enumerate(updates) if update.has_meter_mods_alone]
    mods = [updates[index].meter_mods() for index in meters_only]
    batch = encode_meter_mods_batch(mods, [xid_first[index] for index in meters_only], encode_barrier_request(0))
    encoded: dict[int, Buffer] = dict(zip(meters_only, batch, strict=True))
    for index, (update, xid) in enumerate(zip(updates, xid_first, strict=True)):
        if index not in encoded:
            encoded[index] = update.encode(xid) + encode_barrier_request((xid + len(update)) & MAX_XID)
    return [encoded[index] for index in range(len(updates))]


@dataclass
class SwitchRecord:
    """One switch of the configuration.

    ``vn_meters`` has the meters of each VN at the switch, by rows of the VN table. ``installed`` are the controller's
    flow entries in the switch's tables; ``changed_keys`` collects the packed keys of changed ones. ``foreign`` is the
    number of foreign flow entries when the switch connected, and ``deferred`` are flow entries of an earlier run for
    pairs with switches that have not connected yet. ``row_of_meter`` maps a meter id, less the first of the range, to
    the row of the pair table. ``capabilities`` are the known capabilities. ``agent_rows`` are the VNs with ports that
    may have an agent, ``newcomer_rows`` the VNs with a meter for new pairs. ``ports`` are the reported states of its
    edge ports by number, and since when each is up, down or absent; ``refused`` counts the frames that no VLAN of these
    ports accepts.
    """

    switch: Switch
    meter_ids: MeterIdPool
    first_meter_id: int
    vn_meters: dict[int, VnMeters]
    capabilities: Capabilities
    connected: bool = False
    installed: FlowTable = field(default_factory=FlowTable)
    changed_keys: set[bytes] = field(default_factory=set)
    foreign: int = 0
    update: SwitchUpdate = field(default_factory=SwitchUpdate)
    deferred: DeferredAdoption = field(default_factory=DeferredAdoption)
    row_of_meter: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    agent_rows: frozenset[int] = frozenset()
    newcomer_rows: frozenset[int] = frozenset()
    ports: dict[int, tuple[PortState, float]] = field(default_factory=dict)
    refused: RefusedFrames = field(default_factory=RefusedFrames)
    thrifty: bool = False  # the switch has too few meters for its pairs
    # Findings of the last audit: the ids of installed and of missing meters.
    audited_meter_id: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    missing_meter_ids: frozenset[int] = frozenset()
    # ... the desired and the installed settings of meters where they differed, by meter id
    unlike_settings: dict[int, tuple[MeterSetting, MeterSetting]] = field(default_factory=dict)
    # ... the packed keys of missing flow entries that name meters
    missing_metered_keys: frozenset[bytes] = frozenset()
    unidentified_error: bool = False  # whether an error reply since the last audit did not identify its meter
    _vn_meter_columns: tuple[IntArray, IntArray] | None = None

    @classmethod
    def from_config(cls, switch: Switch, vns: VnTable, config: Config) -> SwitchRecord:
        """Return the record of a switch not yet connected; each of its VNs has its meter id.

        Raises InvalidValueError when there are more VNs than ids.
        """
        ids = MeterIdPool(config.first_meter_id, config.last_meter_id)
        vn_meters: dict[int, VnMeters] = {}
        for row in np.flatnonzero(vns.dpid == switch.dpid).tolist():
            meter_id = ids.allocate()
            if meter_id is None:
                reason = f"leaves switch {switch.name} fewer meter ids than it has VNs"
                raise InvalidValueError("openflow.last_meter_id", config.last_meter_id, reason)
            vn_meters[row] = VnMeters(send=meter_id)
        agents = {port.port_no for port in switch.ports.values() if port.agent != "none"}
        agent_rows = frozenset(row for row in vn_meters if int(vns.port_no[row]) in agents)
        limited = frozenset(np.flatnonzero((vns.dpid == switch.dpid) & limited_senders(vns, config)).tolist())
        capabilities = Capabilities(switch.profile, switch.meters, classes=config.queue_mode == "per-vlan")
        first_id = config.first_meter_id
        return cls(switch, ids, first_id, vn_meters, capabilities, agent_rows=agent_rows, newcomer_rows=limited)

    def meters_in_use(self) -> dict[int, VnMeters]:
        """Return the meters of each of its VNs; none if the switch's meters are unusable."""
        return self.vn_meters if self.capabilities.uses_meters else dict.fromkeys(self.vn_meters, VnMeters())

    def vn_meter_columns(self) -> tuple[IntArray, IntArray]:
        """Return its VNs (rows of the VN table, (vns,)) and their meters, (fields of VnMeters, vns); 0 for none."""
        if self._vn_meter_columns is None:
            rows = np.array(list(self.vn_meters), dtype=np.int64)
            ids = [[meter_id or 0 for meter_id in meters] for meters in self.vn_meters.values()]
            columns = np.array(ids, dtype=np.int64).reshape(-1, len(VnMeters._fields)).T
            self._vn_meter_columns = rows, np.ascontiguousarray(columns)
        return self._vn_meter_columns

    def set_vn_meters(self, meters: Mapping[int, VnMeters]) -> None:
        """Set the meters of these VNs; those of other VNs stay."""
        self.vn_meters.update(meters)
        self._vn_meter_columns = None
        self.row_of_meter = self.row_of_meter.view()  # a new array: the positions in replies must be found again

    def adopt_vn_meters(self, flows: Iterable[Flow], vns: VnTable, numbers: PortNumbers) -> None:
        """Adopt the meters that installed flow entries name for VNs that have none yet."""
        for flow in flows:
            named = meters_of_vn(flow)
            if named is None:
                continue
            port_number, vlan_vid, named_meters = named
            row = vns.row_of(vlan_vid, *numbers.port(self.switch.dpid, port_number))
            if row not in self.vn_meters:
                continue
            meters = self.vn_meters[row]
            adopted = {
                name: meter_id
                for name, meter_id in named_meters._asdict().items()
                if meter_id is not None and getattr(meters, name) is None and self.meter_ids.claim(meter_id)
            }
            self.set_vn_meters({row: meters._replace(**adopted)})

    def complete_vn_meters(self) -> int:
        """Add the missing meters of every VN; return the number for which no id was left.

        If there are too few for all, optional meters are omitted.
        """
        rows_with = {"agent": self.agent_rows, "newcomer": self.newcomer_rows}  # all VNs have meters of other kinds
        # VNs without a meter of a kind that they should have.
        incomplete = {
            row: meters
            for row, meters in self.vn_meters.items()
            if meters.count(None) > sum(row not in rows for rows in rows_with.values())
        }
        # In the order of kinds, so that the first kinds get the last ids.
        missing = [
            (row, name)
            for name in VnMeters._fields
            for row, meters in incomplete.items()
            if getattr(meters, name) is None and row in rows_with.get(name, incomplete)
        ]
        self.thrifty |= len(missing) > self.meter_ids.left
        completed = {row: meters._asdict() for row, meters in incomplete.items()}
        lacking = 0
        for row, name in missing:
            if not (self.thrifty and name in SPARED):
                completed[row][name] = self.meter_ids.allocate()
                lacking += completed[row][name] is None
        self.set_vn_meters({row: VnMeters(**meters) for row, meters in completed.items()})
        return lacking

    def spare_meters(self) -> list[int]:
        """Remove optional meters of VNs for the sake of pairs, if ids are scarce; return the rows of these VNs.

        Their ids are free once the switch has received the change.
        """
        self.thrifty = True
        changed = {}
        for row, meters in self.vn_meters.items():
            spared = [meter_id for name in SPARED if (meter_id := getattr(meters, name)) is not None]
            if spared:
                changed[row] = meters._replace(**dict.fromkeys(SPARED))
                self.update.meter_deletes += spared
        self.set_vn_meters(changed)
        return list(changed)

    def limit_meter_ids(self) -> None:
        """Allocate only ids that the switch supports: none if its meters are unusable."""
        features = self.capabilities.features
        max_id = self.meter_ids.last if features is None else features.max_meter
        self.meter_ids.limit_to(max_id if self.capabilities.uses_meters else 0)
        self.meter_ids.most_used = self.capabilities.configured_bounds.count

    def set_flows(self, mods: Iterable[tuple[FlowModCommand, Flow]]) -> None:
        """Queue planned flow-mods, and record the resulting flow entries.

        An update deletes before it adds. So a flow entry that still waits to be added is dropped if a later plan
        changes it.
        """
        adds, planned = list[Flow](), set[bytes]()
        for command, flow in mods:
            if command == FlowModCommand.ADD:
                planned.add(self.installed.put(flow))
                adds.append(flow)
            else:
                planned.add(packed := pack_key(flow))
                self.installed.discard(packed)
                self.update.flow_deletes.append(flow)
        self.changed_keys |= planned
        if planned and self.update.flow_adds:
            self.update.flow_adds = [flow for flow in self.update.flow_adds if pack_key(flow) not in planned]
        self.update.flow_adds += adds

    def mark_removed(self, packed: bytes) -> None:
        """Record that the switch does not have the flow entry of a packed key."""
        self.installed.discard(packed)
        self.changed_keys.add(packed)

    def mark_installed(self, keys: Collection[bytes], flows: FlowTable) -> None:
        """Record that the switch has, of the flow entries with packed ``keys``, exactly those in ``flows``."""
        for packed in keys:
            self.installed.put_from(flows, packed)
        self.changed_keys.update(keys)

    def drain_update(self, *, keep_meters: bool = False) -> SwitchUpdate:
        """Return the messages that are due, and start a new batch.

        The id of a deleted meter becomes free only now, for the next batch: within one update, adds come before
        deletes. With ``keep_meters`` no meter is deleted yet, since flow entries that name it may wait to be deleted.
        """
        update, self.update = self.update, SwitchUpdate()
        update.fit(self.capabilities.bounds)
        if keep_meters:
            update.meter_deletes, self.update.meter_deletes = self.update.meter_deletes, update.meter_deletes
        for meter_id in update.meter_deletes:
            self.meter_ids.release(meter_id)
        return update

    def map_meters(self, meter_id: IntArray, rows: IntArray) -> None:
        """Record the rows of the pairs that the switch's meters limit, shape of ``meter_id``."""
        size = int(meter_id.max(initial=self.first_meter_id - 1)) - self.first_meter_id + 1
        self.row_of_meter = np.full(size, NO_ENTRY, dtype=np.int32)
        self.row_of_meter[meter_id - self.first_meter_id] = rows

    def metered_rows(self) -> IntArray:
        """Return the rows of the pairs with a meter at this switch, in the order of the meters' ids."""
        rows: IntArray = self.row_of_meter[self.row_of_meter != NO_ENTRY].astype(np.int64)
        return rows

    def rows_of(self, meter_id: IntArray) -> IntArray:
        """Return the pairs (rows) of meters, NO_ENTRY for meters that limit no pair."""
        if not len(self.row_of_meter):
            return np.full(len(meter_id), NO_ENTRY, dtype=np.int64)
        index = meter_id - self.first_meter_id
        rows = self.row_of_meter.take(index, mode="clip").astype(np.int64)
        rows[(index < 0) | (index >= len(self.row_of_meter))] = NO_ENTRY
        return rows
