"""What is owed to a switch, and which entry a meter belongs to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import star

from controller.errors import InvalidValueError
from controller.fabric.vn_table import VnTable
from controller.forwarding import pipeline
from controller.forwarding.flow_table import FlowTable, flow_key, pack_key
from controller.openflow.constants import FlowModCommand, MessageType, MeterModCommand
from controller.openflow.messages import encode_barrier_request
from controller.switch.meters.meter_mods import modifications
from controller.switch.switch_record import NO_ENTRY, MeterSetting, SwitchRecord, SwitchUpdate, encode_updates


def record(ports=2, **openflow):
    config = star(ports, openflow={"first_meter_id": 10, "last_meter_id": 100, **openflow})
    return SwitchRecord.from_config(config.switches["s1"], VnTable.from_config(config), config)


def messages(octets):
    """(type, xid, command) of each message."""
    found = []
    while octets:
        kind, length, xid = octets[1], int.from_bytes(octets[2:4]), int.from_bytes(octets[4:8])
        command = octets[25] if kind == MessageType.FLOW_MOD else int.from_bytes(octets[8:10])
        found.append((MessageType(kind), xid, command))
        octets = octets[length:]
    return found


def test_every_vn_has_its_meter():
    one = record()
    assert sorted(meters.send for meters in one.vn_meters.values()) == [10, 11, 12, 13]
    assert one.complete_vn_meters() == 0
    ids = [meter_id for meters in one.vn_meters.values() for meter_id in meters if meter_id is not None]
    assert sorted(ids) == list(range(10, 26))
    assert one.meter_ids.allocate() == 26
    few = record(last_meter_id=22)  # VNs leave some to pairs
    assert few.complete_vn_meters() == 0
    assert {(meters.discovery, meters.report) for meters in few.vn_meters.values()} == {(None, None)}
    assert few.meter_ids.left == 5
    assert record(last_meter_id=16).complete_vn_meters() == 1
    with pytest.raises(InvalidValueError, match="s1 fewer meter ids than it has VNs"):
        record(last_meter_id=12)


def test_the_meters_of_vns_as_columns_follow_them():
    one = record()
    rows, meter_id = one.vn_meter_columns()
    assert meter_id.tolist() == [[10, 11, 12, 13], *[[0] * 4] * 5]
    one.complete_vn_meters()
    assert (one.vn_meter_columns()[1][:4] > 0).all()
    changed = int(rows[2])
    one.set_vn_meters({changed: one.vn_meters[changed]._replace(send=77)})
    assert one.vn_meter_columns()[1][0].tolist() == [10, 11, 77, 13]


def test_the_order_on_the_wire():
    update = SwitchUpdate()
    flow = pipeline.drop_link_local()
    update.meter_deletes.append(9)
    update.flow_adds.append(flow)
    update.flow_deletes.append(flow)
    update.put_meters({7: MeterSetting(1, 2)}, [])
    update.modify_meters(modifications(np.array([8]), np.array([5]), np.array([6])))
    update.put_meters({8: MeterSetting(3, 4)}, {8: None})
    flow_mod, meter_mod = MessageType.FLOW_MOD, MessageType.METER_MOD
    assert messages(update.encode(100)) == [
        (flow_mod, 100, FlowModCommand.DELETE_STRICT),
        (meter_mod, 101, MeterModCommand.ADD),
        (meter_mod, 102, MeterModCommand.MODIFY),
        (meter_mod, 103, MeterModCommand.MODIFY),
        (flow_mod, 104, FlowModCommand.ADD),
        (meter_mod, 105, MeterModCommand.DELETE),
    ]
    assert len(update) == 6
    assert len(SwitchUpdate()) == 0
    assert SwitchUpdate().encode(1) == b""


def test_an_id_is_free_once_its_delete_is_on_its_way():
    one = record()
    one.meter_ids.allocate()
    one.update.meter_deletes.append(14)
    assert one.meter_ids.allocate() == 15
    assert one.drain_update().meter_deletes == [14]
    assert one.meter_ids.allocate() == 14
    assert len(one.update) == 0


@given(
    st.dictionaries(st.integers(10, 60), st.integers(0, 1000), max_size=20), st.lists(st.integers(1, 80), max_size=30)
)
@settings(max_examples=60)
def test_rows_of_meters(rows, asked):
    one = record()
    one.map_meters(np.array(list(rows), dtype=np.int64), np.array(list(rows.values()), dtype=np.int64))
    found = one.rows_of(np.array(asked, dtype=np.int64))
    assert found.tolist() == [rows.get(meter_id, NO_ENTRY) for meter_id in asked]


def test_planned_entries_are_queued_and_noted():
    one, (kept, gone) = record(), (pipeline.drop_link_local(), pipeline.link_discovery())
    one.installed = FlowTable([gone])
    one.set_flows([(FlowModCommand.DELETE_STRICT, gone), (FlowModCommand.ADD, kept)])
    assert (one.update.flow_adds, one.update.flow_deletes) == ([kept], [gone])
    assert one.installed == {flow_key(kept): kept}
    assert one.changed_keys == {pack_key(kept), pack_key(gone)}


def test_meters_that_waiting_entries_may_name_are_deleted_later():
    one = record()
    meter_id = one.meter_ids.allocate()
    assert meter_id is not None
    one.update.meter_deletes.append(meter_id)
    one.set_flows([(FlowModCommand.ADD, pipeline.drop_link_local())])
    kept = one.drain_update(keep_meters=True)
    assert (kept.meter_deletes, len(kept.flow_adds)) == ([], 1)
    assert one.meter_ids.allocate() != meter_id  # which is not free yet
    assert one.drain_update().meter_deletes == [meter_id]
    assert not one.update.due


def test_updates_of_all_switches_are_each_its_messages_and_a_barrier():
    updates = [SwitchUpdate() for _ in range(3)]
    updates[0].modify_meters(modifications(np.array([8, 9]), np.array([5, 5]), np.array([6, 6])))
    updates[1].flow_adds.append(pipeline.drop_link_local())
    updates[1].modify_meters(modifications(np.array([7]), np.array([5]), np.array([6])))
    updates[2].modify_meters(modifications(np.array([3]), np.array([5]), np.array([6])))
    xids = [10, 20, 2**32 - 1]
    made = encode_updates(updates, xids)
    for update, xid, octets in zip(updates, xids, made, strict=True):
        end = (xid + len(update)) % 2**32
        assert octets == update.encode(xid) + encode_barrier_request(end)
        assert messages(octets)[-1][:2] == (MessageType.BARRIER_REQUEST, end)
    assert encode_updates([], []) == []
