"""A switch's tables against what they should hold: when it connects, and in audits afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.central.pair_meters import PairMeters
from controller.central.state import FabricState
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.desired_flows import FlowKey, flow_key, plan_flows
from controller.forwarding.hosts_and_paths import Pair
from controller.forwarding.pipeline import Table
from controller.openflow.flows import Flow, UnknownFlow
from controller.pieces import pieces
from controller.switch.adoption import Awaiting, adopted_host, adopted_pair, entries_by_host, sort_installed
from controller.switch.meter_settings import MeterColumns, MeterSetting
from controller.switch.record import SwitchRecord

# So many entries are looked through, or worked on, before others in the process get their turn.
_LOOKED_AT_ONCE, _WORKED_AT_ONCE = 1000, 125


class InstalledTables(NamedTuple):
    """What a switch's tables hold of ours: flow entries by key, meters by id."""

    flows: Mapping[FlowKey, Flow]
    meters: MeterColumns


def bring_up(
    fabric: FabricState,
    pairs: PairMeters,
    dpid: int,
    flows: Iterable[Flow | UnknownFlow],
    meters: NDArray[np.void],
    now_s: float,
) -> Iterator[None]:
    """Take over what an earlier run left on a switch that comes, and put right what is missing or different.

    Yields after each piece. The switch counts as connected once all that it holds has been taken over; until then
    nothing is sent to it. Between two pieces anything may happen but that the switch goes (then the rest is not to be
    asked for), another one is brought up or the configuration becomes another.
    """
    record = fabric.switches[dpid]
    record.limit_meter_ids()
    record.meter_ids.reserve(meters["meter_id"].tolist())
    ours: dict[FlowKey, Flow] = {}
    telling: list[Flow] = []  # entries that may tell where a host is, or that a pair talks
    record.foreign = 0
    for some in pieces(flows, _LOOKED_AT_ONCE):
        own, foreign = sort_installed(some)
        ours.update(own)
        telling += [flow for flow in own.values() if flow.match.eth_src is not None or flow.meter_id is not None]
        record.foreign += foreign
        yield
    record.installed, record.touched = ours, set()
    fabric.forget_counters(record.row_of_meter)
    senders = record.meters_of_senders()
    yield from fabric.network.put_own(dpid, senders, set_queue=record.can.uses_queues)
    if not record.can.uses_meters:
        pairs.take_meters(dpid)
    yield from _adopt(fabric, pairs, record, telling, meters, now_s)
    # Pairs and meters whose receivers' switches may still be on their way.
    record.awaiting = Awaiting(entries_by_host(telling, fabric.network.knows), meters)
    for other in fabric.switches.values():
        known = [flow for flow in other.awaiting.take(fabric.network.knows) if flow_key(flow) in other.installed]
        yield from _adopt(fabric, pairs, other, known, other.awaiting.meters, now_s)
    pairs.flush()
    record.connected = True
    fabric.switch_came(now_s)
    fabric.network.switch_up(dpid)
    fabric.network.find_paths()
    standing, settings = MeterColumns.standing(meters), fabric.wanted_meters(record)
    differing = (settings.differing(standing) & settings.keys()) - set(record.update.meter_id)
    record.update.put_meters({meter_id: settings[meter_id] for meter_id in sorted(differing)}, standing.keys())
    yield
    # What changes from here on is sent as ever; later tables come before earlier ones, as in any plan.
    wanted = fabric.network.desired.of_switch(dpid)
    for keys in pieces(sorted(wanted, key=attrgetter("table_id"), reverse=True), _LOOKED_AT_ONCE):
        missing = plan_flows(wanted, record.installed, keys)
        record.update.set_flows(missing)
        record.hold([flow_key(flow) for _, flow in missing], wanted)
        yield


def note_up(fabric: FabricState, dpid: int, now_s: float) -> None:
    """Note that a switch has been brought up."""
    record = fabric.switches[dpid]
    foreign = f", {record.foreign} entries of others left alone" if record.foreign else ""
    fabric.note(EventKind.SWITCH_UP, f"switch {record.switch.name} ({dpid:016x}) is up{foreign}", now_s)


def audit(
    fabric: FabricState,
    pairs: PairMeters,
    dpid: int,
    expected: InstalledTables,
    flows: Mapping[FlowKey, Flow],
    meters: NDArray[np.void],
    now_s: float,
    only: Collection[FlowKey] | None = None,
) -> Iterator[int]:
    """Mend what of a switch's tables is ours and not as expected; after each piece yield how much in it was wrong.

    ``flows`` are its entries of ours. Those with keys in ``only`` are compared when all others are known to be as they
    should be. What an earlier run left and nobody here wants is removed, unless a switch that is still awaited may want
    it. Between two pieces anything may happen but that the switch goes: then the rest is not to be asked for.
    """
    record = fabric.switches[dpid]
    tidy = not fabric.awaits_switches(now_s)
    if tidy:
        record.awaiting = Awaiting()
    count = 0
    try:
        for piece in _pieces(expected.flows, flows, only):
            wrong = _audit_flows(fabric, pairs, record, expected.flows, flows, meters, now_s, piece, tidy=tidy)
            count += wrong
            yield wrong
        wrong = _mend_meters(fabric, record, expected.meters, meters, tidy=tidy)
        count += wrong
        yield wrong
    finally:
        if count:
            text = f"switch {record.switch.name}: {count} entries and meters mended"
            fabric.note(EventKind.TABLES_MENDED, text, now_s)


def _pieces(
    expected: Mapping[FlowKey, Flow], found: Mapping[FlowKey, Flow], only: Collection[FlowKey] | None
) -> Iterator[list[FlowKey]]:
    """Yield all keys, each once; hosts before the pairs they are in: tables are numbered as the pipeline goes."""
    in_order = attrgetter("table_id")
    yield from pieces(sorted(expected if only is None else only, key=in_order), _WORKED_AT_ONCE)
    if only is None:
        for keys in pieces(sorted(found, key=in_order), _WORKED_AT_ONCE):
            yield [key for key in keys if key not in expected]


def _audit_flows(
    fabric: FabricState,
    pairs: PairMeters,
    record: SwitchRecord,
    expected: Mapping[FlowKey, Flow],
    found: Mapping[FlowKey, Flow],
    meters: NDArray[np.void],
    now_s: float,
    keys: Collection[FlowKey],
    *,
    tidy: bool,
) -> int:
    installed = record.installed
    differing = {key for key in keys if (flow := expected.get(key)) != found.get(key) and installed.get(key) == flow}
    record.hold(differing, found)
    for _ in _adopt(fabric, pairs, record, [installed[key] for key in keys if key in installed], meters, now_s):
        pass
    pairs.flush()
    wanted = fabric.network.desired.of_switch(record.switch.dpid)
    unwanted = {key for key in keys if key in installed and key not in wanted}
    differing |= unwanted
    if not tidy:
        differing -= {key for key in unwanted if _may_be_wanted(key, record)}
    wrong = plan_flows(wanted, installed, differing)
    record.update.set_flows(wrong)
    record.hold(differing, wanted)
    return len(wrong)


def _may_be_wanted(key: FlowKey, record: SwitchRecord) -> bool:
    """Whether another switch may want an entry: who gets in at edge ports is for the configuration alone to say."""
    return key.table_id >= Table.RATE_CONTROL or key.match.in_port not in record.switch.ports


def _adopt(
    fabric: FabricState,
    pairs: PairMeters,
    record: SwitchRecord,
    flows: Collection[Flow],
    meters: NDArray[np.void],
    now_s: float,
) -> Iterator[None]:
    """Take over hosts and pairs that entries in a switch's tables stand for and that are not known here, in pieces."""
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
                standing = dict(MeterColumns.standing(meters[np.isin(meters["meter_id"], ids)]))
            if flow.meter_id in standing and record.meter_ids.claim(flow.meter_id):
                adopted[pair] = flow.meter_id
        yield
    yield from pairs.adopt(adopted, standing or {}, now_s)


def _mend_meters(
    fabric: FabricState, record: SwitchRecord, expected: MeterColumns, meters: NDArray[np.void], *, tidy: bool
) -> int:
    """Mend what differs from ``expected`` and has not been changed since; return how many meters that were."""
    found = MeterColumns.standing(meters)
    owned = found.within(record.meter_ids.first, record.meter_ids.last)
    differing = owned.differing(expected)
    if not differing:
        return 0
    wanted = fabric.wanted_meters(record)
    differing = {i for i in differing if wanted.get(i) == expected.get(i)} - set(record.update.meter_id)
    unwanted = differing - wanted.keys() if tidy else set()
    differing &= wanted.keys()
    record.update.put_meters({i: wanted[i] for i in sorted(differing)}, found.keys())
    fabric.forget_counters(record.rows_of(np.array(sorted(differing | unwanted), dtype=np.int64)))
    record.update.meter_deletes += sorted(unwanted)
    return len(differing) + len(unwanted)
