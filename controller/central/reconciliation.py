"""A switch's tables against what they should hold: when it connects, and in audits afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.central.agents import Agents
from controller.central.pair_meters import PairMeters
from controller.central.state import FabricState
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding import pipeline
from controller.forwarding.desired_flows import FlowKey, flow_key, plan_flows
from controller.forwarding.pairs import Pair
from controller.forwarding.pipeline import Table
from controller.openflow.constants import FlowModCommand
from controller.openflow.flows import Flow, UnknownFlow
from controller.pieces import pieces
from controller.switch.adoption import Awaiting, adopted_host, adopted_pair, entries_by_host, sort_installed
from controller.switch.meter_settings import MeterColumns, MeterSetting
from controller.switch.record import SwitchRecord

# Entries looked through, or worked on, before others in the process get their turn.
_LOOKED_AT_ONCE, _WORKED_AT_ONCE = 1000, 125


class InstalledTables(NamedTuple):
    """What a switch's tables hold of the controller's: flow entries by key, meters by id."""

    flows: Mapping[FlowKey, Flow]
    meters: MeterColumns


class Reconciler:
    """Brings the switches' tables to what the fabric wants, and takes over what they hold: a fabric and its pairs.

    ``agents`` are those on hosts. A controller has one at a time. Another configuration comes with another one, and
    this one is dropped as a whole.
    """

    def __init__(self, fabric: FabricState, epoch: int = 0) -> None:
        self.fabric = fabric
        self.agents = Agents(fabric, epoch)
        self.pairs = PairMeters(fabric, self.agents)

    def bring_up(
        self, dpid: int, flows: Iterable[Flow | UnknownFlow], meters: NDArray[np.void], now_s: float
    ) -> Iterator[None]:
        """Take a switch of the configuration over, with the flow entries and meters (METER_CONFIG) in its tables.

        1) Hosts and pairs that an earlier run left are adopted, with their meters as they stand. Entries in tables
           that have another number now are put there as well.
        2) What is missing or different is put right at once.
        3) What is the controller's and of no use is removed by an ``audit`` once no switch is awaited: until then it
           may be of use.

        Yields after each piece of the work, so that others may run in between. The switch counts as connected once
        everything that it holds has been taken over. Nothing is sent to it before. Stop iterating if the switch
        disconnects. Until the end no other switch may be brought up and the configuration may not change. Then call
        ``note_up``.
        """
        fabric, pairs, record = self.fabric, self.pairs, self.fabric.switches[dpid]
        fabric.arrivals.began(now_s)
        record.limit_meter_ids()
        record.meter_ids.reserve(meters["meter_id"].tolist())
        # 1
        own: dict[FlowKey, Flow] = {}
        moved: dict[FlowKey, Flow] = {}  # what an earlier version had in tables of other numbers, as it is now
        telling: list[Flow] = []  # entries that may show where a host is, or that a pair talks
        record.foreign = 0
        for some in pieces(flows, _LOOKED_AT_ONCE):
            found, foreign = sort_installed(some)
            own.update(found)
            now = {flow_key(again): again for flow in found.values() if (again := pipeline.moved(flow)) is not None}
            moved.update(now)
            both = (*found.values(), *now.values())
            telling += [flow for flow in both if flow.match.eth_src is not None or flow.meter_id is not None]
            record.foreign += foreign
            yield
        moved = {key: flow for key, flow in moved.items() if key not in own}
        record.installed, record.touched = {**own, **moved}, set(moved)
        fabric.forget_counters(record)
        for named in pieces(telling, _LOOKED_AT_ONCE):
            record.adopt_vn_meters(named, fabric.vns)
            yield
        self._complete_vn_meters(record, now_s)
        yield
        yield from fabric.network.put_own(dpid, record.meters_in_use(), set_queue=record.can.uses_queues)
        if not record.can.uses_meters:
            pairs.take_meters(dpid)
        yield from self._adopt(record, telling, meters, now_s)
        # Pairs and meters whose receivers' switches may still be on their way.
        record.awaiting = Awaiting(entries_by_host(telling, fabric.network.knows), meters)
        yield
        for other in fabric.switches.values():
            known = [flow for flow in other.awaiting.take(fabric.network.knows) if flow_key(flow) in other.installed]
            yield from self._adopt(other, known, other.awaiting.meters, now_s)
        pairs.flush()
        yield
        # 2
        record.connected = True
        fabric.arrivals.came(dpid, now_s)
        fabric.network.switch_up(dpid)
        fabric.network.find_paths()
        standing, settings = MeterColumns.standing(meters), fabric.wanted_meters(record)
        differing = settings.differing(standing).intersection(settings) - set(record.update.meter_id)
        record.update.put_meters({meter_id: settings[meter_id] for meter_id in sorted(differing)}, standing.keys())
        yield
        for keys in pieces(sorted(moved, key=attrgetter("table_id"), reverse=True), _LOOKED_AT_ONCE):
            record.update.set_flows((FlowModCommand.ADD, moved[key]) for key in keys)
            yield
        # What changes from here on is sent as usual. Later tables come before earlier ones, as in any plan.
        wanted = fabric.network.desired.of_switch(dpid)
        for keys in pieces(sorted(wanted, key=attrgetter("table_id"), reverse=True), _LOOKED_AT_ONCE):
            missing = plan_flows(wanted, record.installed, keys)
            record.update.set_flows(missing)
            record.hold([flow_key(flow) for _, flow in missing], wanted)
            yield

    def _complete_vn_meters(self, record: SwitchRecord, now_s: float) -> None:
        """Let the VNs of a switch have the meters that they lack."""
        lacking = record.complete_vn_meters()
        if lacking and record.can.uses_meters:
            record.can.short_of_meters = True
            text = f"switch {record.switch.name}: no ids left for {lacking} meters of floods and reports"
            self.fabric.note(EventKind.OUT_OF_METERS, text, now_s, dpid=record.switch.dpid)

    def note_up(self, dpid: int, now_s: float) -> None:
        """Note that a switch has been brought up."""
        record = self.fabric.switches[dpid]
        foreign = f", {record.foreign} entries of others left alone" if record.foreign else ""
        self.fabric.note(
            EventKind.SWITCH_UP, f"switch {record.switch.name} ({dpid:016x}) is up{foreign}", now_s, dpid=dpid
        )

    def tables(self, dpid: int) -> InstalledTables:
        """Return what a switch's tables should hold once everything that was taken by ``take_updates`` is done."""
        record = self.fabric.switches[dpid]
        return InstalledTables(dict(record.installed), self.fabric.wanted_meters(record))

    def audit(
        self,
        dpid: int,
        expected: InstalledTables,
        flows: Mapping[FlowKey, Flow],
        meters: NDArray[np.void],
        now_s: float,
        only: Collection[FlowKey] | None = None,
    ) -> Iterator[int]:
        """Compare a switch's tables with what they should hold and mend what is the controller's, in pieces.

        ``expected`` is what ``tables`` returned when the switch was asked for its ``flows`` (the controller's) and
        ``meters`` (METER_CONFIG). What has changed since then is left for the next time. Only entries with keys in
        ``only`` are compared when all others are known to be right. What an earlier run left and nobody wants is
        removed, unless a switch that is still awaited may want it. Yields after each piece how much of it was wrong.
        State may change between pieces. Stop iterating if the switch disconnects or the configuration changes.
        """
        record = self.fabric.switches[dpid]
        tidy = not self.fabric.awaits_switches(now_s)
        if tidy:
            record.awaiting = Awaiting()
        count = 0
        try:
            for keys in _pieces(expected.flows, flows, only):
                differing = {
                    key
                    for key in keys
                    if (flow := expected.flows.get(key)) != flows.get(key) and record.installed.get(key) == flow
                }
                record.hold(differing, flows)
                known = [record.installed[key] for key in keys if key in record.installed]
                for _ in self._adopt(record, known, meters, now_s):
                    pass
                self.pairs.flush()
                wrong = self._mend_flows(record, keys, differing, tidy=tidy)
                count += wrong
                yield wrong
            wrong = self._mend_meters(record, expected.meters, meters, tidy=tidy)
            count += wrong
            yield wrong
        finally:
            if count:
                text = f"switch {record.switch.name}: {count} entries and meters mended"
                self.fabric.note(EventKind.TABLES_MENDED, text, now_s, dpid=record.switch.dpid)

    def _mend_flows(
        self, record: SwitchRecord, keys: Collection[FlowKey], differing: set[FlowKey], *, tidy: bool
    ) -> int:
        """Put right the entries that are ``differing``, and those of ``keys`` that nobody wants; return how many."""
        wanted = self.fabric.network.desired.of_switch(record.switch.dpid)
        unwanted = {key for key in keys if key in record.installed and key not in wanted}
        differing = differing | unwanted
        if not tidy:
            differing -= {key for key in unwanted if _may_be_wanted(key, record)}
        wrong = plan_flows(wanted, record.installed, differing)
        record.update.set_flows(wrong)
        record.hold(differing, wanted)
        return len(wrong)

    def _mend_meters(
        self, record: SwitchRecord, expected: MeterColumns, meters: NDArray[np.void], *, tidy: bool
    ) -> int:
        """Mend what differs from ``expected`` and has not been changed since; return how many meters that were."""
        found = MeterColumns.standing(meters)
        owned = found.within(record.meter_ids.first, record.meter_ids.last)
        differing = owned.differing(expected)
        if not differing:
            return 0
        wanted = self.fabric.wanted_meters(record)
        differing = {i for i in differing if wanted.get(i) == expected.get(i)} - set(record.update.meter_id)
        unwanted = differing - wanted.keys() if tidy else set()
        differing &= wanted.keys()
        record.update.put_meters({i: wanted[i] for i in sorted(differing)}, found.keys())
        self.fabric.forget_counters(record, np.array(sorted(differing | unwanted), dtype=np.int64))
        record.update.meter_deletes += sorted(unwanted)
        return len(differing) + len(unwanted)

    def _adopt(
        self, record: SwitchRecord, flows: Collection[Flow], meters: NDArray[np.void], now_s: float
    ) -> Iterator[None]:
        """Take over hosts and pairs that entries in a switch's tables stand for and that are not known, in pieces."""
        fabric, pairs = self.fabric, self.pairs
        for some in pieces(flows, _WORKED_AT_ONCE):
            for flow in some:
                host = adopted_host(flow)
                if host is not None and flow.match.in_port is not None and not fabric.network.knows(host):
                    fabric.learn(host, PortId(record.switch.dpid, flow.match.in_port), now_s)
            yield
        if not record.can.uses_meters:
            return
        standing: dict[int, MeterSetting] | None = None
        adopted: dict[Pair, int] = {}
        for some in pieces(flows, _WORKED_AT_ONCE):
            for flow in some:
                pair = adopted_pair(flow, fabric.network, record.switch.dpid)
                if pair is None or flow.meter_id is None or pairs.metered(pair) or pair in adopted:
                    continue
                if standing is None:
                    ids = [flow.meter_id for flow in flows if flow.meter_id is not None]
                    standing = MeterColumns.standing(meters[np.isin(meters["meter_id"], ids)]).settings()
                if flow.meter_id in standing and record.meter_ids.claim(flow.meter_id):
                    adopted[pair] = flow.meter_id
            yield
        yield from pairs.adopt(adopted, standing or {}, now_s)


def _pieces(
    expected: Mapping[FlowKey, Flow], found: Mapping[FlowKey, Flow], only: Collection[FlowKey] | None
) -> Iterator[list[FlowKey]]:
    """Yield all keys, each once; hosts before the pairs they are in: tables are numbered as the pipeline goes."""
    in_order = attrgetter("table_id")
    yield from pieces(sorted(expected if only is None else only, key=in_order), _WORKED_AT_ONCE)
    if only is None:
        for keys in pieces(sorted(found, key=in_order), _WORKED_AT_ONCE):
            yield [key for key in keys if key not in expected]


def _may_be_wanted(key: FlowKey, record: SwitchRecord) -> bool:
    """Whether another switch may want an entry: who gets in at edge ports is for the configuration alone to say."""
    return key.table_id >= Table.RATE_CONTROL or key.match.in_port not in record.switch.ports
