"""A switch's tables against what they should hold: when it connects, and in audits afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.adoption import adopted_host, adopted_pair, sort_installed
from controller.events import EventKind
from controller.fabric_state import FabricState
from controller.forwarding.network import Pair
from controller.forwarding.topology import Port
from controller.openflow.flows import Flow, UnknownFlow
from controller.pair_meters import PairMeters
from controller.switch_record import MeterSetting, SwitchRecord, standing_meters
from controller.tables import FlowKey, plan_flows


class Tables(NamedTuple):
    """What a switch's tables hold of ours: flow entries by key, meters by id."""

    flows: Mapping[FlowKey, Flow]
    meters: Mapping[int, MeterSetting]


def bring_up(
    fabric: FabricState,
    pairs: PairMeters,
    dpid: int,
    flows: Iterable[Flow | UnknownFlow],
    meters: NDArray[np.void],
    now_s: float,
) -> None:
    """Take over what an earlier run left on a switch that has connected, and put right what is missing or different."""
    record = fabric.switches[dpid]
    record.connected = True
    record.installed, alien = sort_installed(flows)
    fabric.forget_counters(record.row_of_meter)
    fabric.network.switch_up(dpid, record.send_meter)
    _adopt(fabric, pairs, record, meters, now_s)
    # Meters whose pairs are not known yet: their receivers' switches may still be on their way.
    record.meter_ids.reserve(meters["meter_id"].tolist())
    pairs.flush()
    standing, settings = standing_meters(meters), fabric.wanted_meters(record)
    queued = set(record.update.meter_id)
    differing = {i: m for i, m in settings.items() if standing.get(i) != m and i not in queued}
    record.update.put_meters(differing, standing.keys())
    wanted = fabric.network.desired.of_switch(dpid)
    record.update.set_flows(plan_flows(wanted, record.installed, wanted.keys()))
    record.installed.update(wanted)
    foreign = f", {alien} entries of others left alone" if alien else ""
    fabric.note(EventKind.SWITCH_UP, f"switch {record.switch.name} ({dpid:016x}) is up{foreign}", now_s)


def audit(
    fabric: FabricState,
    pairs: PairMeters,
    dpid: int,
    expected: Tables,
    flows: Iterable[Flow | UnknownFlow],
    meters: NDArray[np.void],
    now_s: float,
) -> int:
    """Mend what of a switch's tables is ours and not as expected; return how much was wrong."""
    record = fabric.switches[dpid]
    found, _ = sort_installed(flows)
    differing = {key for key in found.keys() | expected.flows.keys() if found.get(key) != expected.flows.get(key)}
    differing = {key for key in differing if record.installed.get(key) == expected.flows.get(key)}
    for key in differing:
        record.installed.pop(key, None)
        if key in found:
            record.installed[key] = found[key]
    _adopt(fabric, pairs, record, meters, now_s)
    pairs.flush()
    wanted = fabric.network.desired.of_switch(dpid)
    differing |= record.installed.keys() - wanted.keys()  # left by an earlier run, and of no use
    wrong = plan_flows(wanted, record.installed, differing)
    record.update.set_flows(wrong)
    for key in differing:
        record.installed.pop(key, None)
        if key in wanted:
            record.installed[key] = wanted[key]
    count = len(wrong) + _mend_meters(fabric, record, expected.meters, meters)
    if count:
        fabric.note(EventKind.TABLES_MENDED, f"switch {record.switch.name}: {count} entries and meters mended", now_s)
    return count


def _adopt(
    fabric: FabricState, pairs: PairMeters, record: SwitchRecord, meters: NDArray[np.void], now_s: float
) -> None:
    """Take over hosts and pairs that stand in a switch's tables and are not known here."""
    for flow in record.installed.values():
        host = adopted_host(flow)
        if host is not None and flow.match.in_port is not None and not fabric.network.knows(host):
            fabric.learn(host, Port(record.switch.dpid, flow.match.in_port), now_s)
    standing = standing_meters(meters)
    entries = fabric.state.entries
    known = set(zip(entries.sender.tolist(), entries.receiver.tolist(), strict=True))
    adopted: dict[Pair, int] = {}
    for flow in record.installed.values():
        pair = adopted_pair(flow, fabric.network, record.switch.dpid)
        if pair is None or pair in known or pair in adopted or flow.meter_id not in standing:
            continue
        if record.meter_ids.claim(flow.meter_id):
            adopted[pair] = flow.meter_id
    pairs.adopt(adopted, standing, now_s)


def _mend_meters(
    fabric: FabricState, record: SwitchRecord, expected: Mapping[int, MeterSetting], meters: NDArray[np.void]
) -> int:
    """Mend what differs from ``expected`` and has not been changed since; return how many meters that were."""
    found = standing_meters(meters)
    wanted = fabric.wanted_meters(record)
    owned = {meter_id for meter_id in found if record.meter_ids.owns(meter_id)}
    differing = {i for i in owned | expected.keys() if found.get(i) != expected.get(i)}
    differing = {i for i in differing if wanted.get(i) == expected.get(i)} - set(record.update.meter_id)
    record.update.put_meters({i: wanted[i] for i in differing & wanted.keys()}, found.keys())
    fabric.forget_counters(record.rows_of(np.array(sorted(differing), dtype=np.int64)))
    record.update.meter_deletes += sorted(differing - wanted.keys())
    return len(differing)
