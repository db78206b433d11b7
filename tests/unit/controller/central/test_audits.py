"""Audits: a switch's tables against what they should hold, all of them or what has changed."""

from __future__ import annotations

import numpy as np
import pytest
from support.configs import star
from support.fabrics import ControlLoop, mac_of
from support.host_traffic import (
    contents,
    entry_keys,
    nothing_to_mend,
    rate_control_keys,
    restarted,
    started,
    talk,
    talking_fabric,
    told,
)
from support.switches import Meter

from controller.central import reconciliation
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.forwarding.flow_table import FlowTable, flow_key, pack_key
from controller.forwarding.pipeline import Table
from controller.openflow.constants import COUNTER_UNAVAILABLE
from controller.openflow.flows import Flow
from controller.openflow.match import Match
from controller.switch.switch_record import MeterSetting


@pytest.fixture
def talking():
    return talking_fabric()


def test_audit_mends_what_is_missing_altered_and_alien(talking):
    nothing_to_mend(talking)
    assert not told(talking, EventKind.TABLES_REPAIRED)
    before, switch = contents(talking), talking.switches[1]
    missing, altered = sorted(switch.flows, key=str)[:2]
    pair_flow = rate_control_keys(switch)[0]
    del switch.flows[missing]
    switch.flows[altered] = switch.flows[altered]._replace(
        actions=(), goto_table=None, meter_id=None, cookie=0xDE75 << 48
    )
    switch.flows[pair_flow] = switch.flows[pair_flow]._replace(meter_id=1)
    alien = Flow(0, 9999, Match(in_port=1), 0xDE75 << 48, goto_table=7)
    switch.flows[flow_key(alien)] = alien
    del switch.meters[2]
    switch.meters[1].setting = MeterSetting(1, 1)
    switch.meters[5000] = Meter(MeterSetting(9, 9), 0.0)
    assert talking.audit(1) == 7
    assert contents(talking) == before
    assert talking.audit(1) == 0


def test_what_a_switch_makes_of_a_rate_is_accepted_once_it_reads_so_again(talking):
    meters = talking.switches[1].meters

    def round_up():
        for meter in meters.values():
            meter.setting = MeterSetting(-(-meter.setting.rate_kbps // 65) * 65, meter.setting.burst_kbits)

    round_up()
    assert talking.audit(1) == len(meters)
    round_up()
    assert [talking.audit(1) for _ in range(3)] == [0, 0, 0]
    assert all(meter.setting.rate_kbps % 65 == 0 for meter in meters.values())
    meters[1].setting = MeterSetting(130, 130)
    assert talking.audit(1) == 1


def test_audit_leaves_what_changed_while_the_switch_was_asked(talking):
    central, switch = talking.central, talking.switches[1]
    expected, flows, meters = central.reconciler.tables(1), FlowTable(switch.flows.values()), switch.meter_config()
    talk(talking, (1, 2), (1, 1))
    talking.operator.set_vn(central.vns.row_of(10, 1, 1), 1.0, send_limit_bps=1_000_000)
    talking.push()
    before = contents(talking)
    assert sum(central.reconciler.audit(1, expected, flows, meters, 1.0)) == 0
    assert central.drain_updates() == {}
    assert contents(talking) == before


def mended(loop):
    """A modify outside of the interval zeroes a meter's counters as well."""
    net = loop.fabric
    (meter_id,) = net.central.state.entries.meter_id.tolist()
    net.switches[1].meters[meter_id].setting = MeterSetting(50_000, 10_000)
    assert net.audit(1) == 1


def away(loop):
    """Limits change there and back again, unseen by the switch."""
    net = loop.fabric
    net.disconnect(1)
    for limit in (60_000_000, 400_000_000):
        net.operator.set_vn(net.central.vns.row_of(10, 1, 1), net.now_s, send_limit_bps=limit)
        loop.run(5)
    net.connect(1)


def set_by_others(loop):
    """While a switch is away, somebody may set its meters, which zeroes their counters."""
    net = loop.fabric
    net.disconnect(1)
    for meter in net.switches[1].meters.values():
        meter.in_bits = meter.dropped_bits = 0.0
    net.connect(1)


@pytest.mark.parametrize("happens", [mended, away, set_by_others])
def test_what_a_sender_sends_is_measured_whatever_becomes_of_its_meter(happens):
    loop = ControlLoop(started(star(3)))
    loop.add((1, 1), (1, 2), 10, 100e6)
    loop.run(10)
    happens(loop)
    loop.run(3)
    central = loop.fabric.central
    assert central.fabric.received_bps[central.vns.row_of(10, 1, 2)] == pytest.approx(100e6, rel=0.01)
    for kind in (EventKind.COUNTERS_IMPLAUSIBLE, EventKind.CONGESTION_BEGAN):
        assert not told(loop.fabric, kind)


def test_counters_of_floods_are_forgotten_for_the_whole_switch_or_for_one_meter(monkeypatch):
    net = started(star(3))
    fabric, record, forgotten = net.central.fabric, net.central.switches[1], []
    monkeypatch.setattr(fabric.floods, "invalidated", lambda rows: forgotten.append(rows.tolist()))
    (one, meters), *others = record.vn_meters.items()
    for meter_id in (None, np.array([meters.flood]), np.array([meters.send])):
        fabric.invalidate_counters(record, meter_id)
    assert others
    assert forgotten == [list(record.vn_meters), [one], []]


def test_a_switch_that_comes_back_empty_is_filled_again(talking):
    before = contents(talking)
    talking.disconnect(1)
    talking.switches[1].flows.clear()
    talking.switches[1].meters.clear()
    talking.connect(1)
    talking.hello()
    talking.settle()
    assert contents(talking) == before
    assert talking.audit(1) == 0


def test_counters_that_a_switch_does_not_keep_are_unknown():
    net = started(star(3))
    talk(net, (1, 1), (1, 2))
    net.central.interval({}, {}, net.now_s)
    for _ in range(3):
        net.now_s += 0.055
        stats = net.switches[1].meter_stats(net.now_s)
        stats["byte_in_count"] = COUNTER_UNAVAILABLE
        net.central.interval({1: stats}, {1: net.now_s}, net.now_s)
    assert net.central.state.measured.silent_intervals.tolist() == [0]


# -- comparing piece by piece, and only what has changed


def test_an_audit_of_some_entries_mends_those_and_looks_at_no_other(talking):
    switch, central = talking.switches[1], talking.central
    gone, altered, unseen = list(switch.flows)[:3]
    del switch.flows[gone]
    switch.flows[altered] = switch.flows[altered]._replace(idle_timeout_s=77)
    del switch.flows[unseen]
    expected = central.reconciler.tables(1)
    some, keys = FlowTable([switch.flows[altered]]), [pack_key(gone), pack_key(altered)]
    assert sum(central.reconciler.audit(1, expected, some, switch.meter_config(), 2.0, keys)) == 2
    talking.push()
    assert gone in switch.flows
    assert switch.flows[altered].idle_timeout_s != 77
    assert unseen not in switch.flows
    assert talking.audit(1) == 1


def test_what_is_awaited_is_taken_over_by_an_audit_that_looks_at_nothing_else(talking):
    """Its receiver is heard again while another switch is awaited: no switch that comes brings it."""
    again, mac = restarted(talking), mac_of(PortId(1, 2), 10)
    flows = again.switches[1].flows
    del flows[next(key for key, flow in flows.items() if key.table_id == Table.LEARN and key.match.eth_src == mac)]
    again.connect(1)
    central, record = again.central, again.central.switches[1]
    assert central.fabric.awaits_switches(again.now_s)
    assert record.deferred.entries.mac.tolist().count(mac) == 1
    known = len(central.state.entries)
    again.learn(mac, PortId(1, 2), 10)
    expected, meters = central.reconciler.tables(1), again.switches[1].meter_config()
    for _ in central.reconciler.audit(1, expected, expected.flows, meters, again.now_s, set()):
        pass
    assert mac not in record.deferred.entries.mac
    assert len(central.state.entries) == known + 1
    assert entry_keys(again.central) < entry_keys(talking.central)


def test_between_the_pieces_of_an_audit_anything_may_change(talking, monkeypatch):
    monkeypatch.setattr(reconciliation, "_REPAIR_BATCH", 1)
    switch, central = talking.switches[1], talking.central
    gone = sorted(switch.flows, key=str)[:2]
    flows = FlowTable(flow for key, flow in switch.flows.items() if key not in gone)
    expected, meters = central.reconciler.tables(1), switch.meter_config()
    for key in gone:
        del switch.flows[key]
    counts = []
    for count in central.reconciler.audit(1, expected, flows, meters, 2.0):
        counts.append(count)
        if len(counts) == 1:
            talk(talking, (1, 2), (1, 1))
        talking.push()
    assert sum(counts) == 2
    assert len(counts) == len(gone) + 1  # what is wanted, expected and there is not looked at one by one
    assert max(counts) == 1
    assert told(talking, EventKind.TABLES_REPAIRED) == ["switch s1: 2 flow entries and meters repaired"]
    assert switch.flows.keys() > expected.flows.keys()
    assert talking.audit(1) == 0


def test_an_audit_given_up_tells_what_it_has_mended(talking, monkeypatch):
    monkeypatch.setattr(reconciliation, "_REPAIR_BATCH", 1)
    switch, central = talking.switches[1], talking.central
    before = contents(talking)
    for key in sorted(switch.flows, key=str)[:2]:
        del switch.flows[key]
    flows, meters = FlowTable(switch.flows.values()), switch.meter_config()
    audit = central.reconciler.audit(1, central.reconciler.tables(1), flows, meters, 2.0)
    assert next(count for count in audit if count) == 1
    audit.close()
    assert told(talking, EventKind.TABLES_REPAIRED) == ["switch s1: 1 flow entries and meters repaired"]
    assert talking.audit(1) == 1
    assert contents(talking) == before


def test_what_has_changed_since_the_last_comparison_is_remembered(talking):
    record = talking.central.switches[1]
    record.changed_keys = set()
    talking.learn(0xC1, PortId(1, 1), 10)
    changed = {
        pack_key(key) for key, flow in record.installed.items() if 0xC1 in (flow.match.eth_src, flow.match.eth_dst)
    }
    assert changed
    assert changed <= record.changed_keys
    assert len(record.changed_keys) < len(record.installed)
