"""Meters that a switch rejects: they are requested again after a while, and when the switch returns."""

from __future__ import annotations

from support.configs import star
from support.fabrics import Fabric
from support.host_traffic import started, talk

from controller.central.refused_meters import RETRY_S
from controller.fabric.topology import PortId
from controller.openflow.constants import MeterModCommand
from controller.openflow.meters import encode_meter_mods


def interval(net: Fabric, seconds: float = 0.0) -> None:
    """Let time pass, then a control interval without counters."""
    net.now_s += seconds
    net.central.interval({}, {}, net.now_s)
    net.push()


def reject(net: Fabric, meter_id: int) -> None:
    """Let switch 1 reject the request that added a meter."""
    setting = net.switches[1].meters.pop(meter_id).setting
    message = encode_meter_mods(MeterModCommand.ADD, [meter_id], [setting.rate_kbps], [setting.burst_kbits], 1)
    assert net.central.meter_refused(1, message, "UNKNOWN")
    interval(net)


def test_a_rejected_meter_of_a_vn_is_requested_again_after_a_while() -> None:
    net = started(star(3))
    record, row = net.central.switches[1], net.central.vns.row_of(10, 1, 1)
    flood_meter_id = record.vn_meters[row].flood
    assert flood_meter_id is not None
    reject(net, flood_meter_id)
    assert record.vn_meters[row].flood is None
    interval(net, RETRY_S)
    assert record.vn_meters[row].flood in net.switches[1].meters


def test_a_rejected_meter_of_a_pair_is_requested_again_when_the_switch_returns() -> None:
    net = started(star(3))
    frame = talk(net, (1, 1), (1, 2))
    meters = net.send(frame, PortId(1, 1)).meters
    (meter_id,) = net.central.state.entries.meter_id.tolist()
    reject(net, meter_id)
    assert len(net.send(frame, PortId(1, 1)).meters) == len(meters) - 1
    net.disconnect(1)
    net.connect(1)
    interval(net)
    assert len(net.send(frame, PortId(1, 1)).meters) == len(meters)
