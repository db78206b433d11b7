"""Tests of switches' capabilities: their meters when they connect, their queues while they run.

The tests themselves are pure: ``controller.capability.meter_probe``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from apps.runtime.ryu_adapter import hub
from apps.southbound.connected_switches import ConnectedSwitch, ConnectedSwitches
from controller.capability import bound_search, meter_probe
from controller.central import port_enforceability
from controller.errors import SwitchReplyError
from controller.fabric.topology import PortId
from controller.loop.pair_changes import first_bursts
from controller.metering.enforcement import to_kilo
from controller.openflow import constants as ofp
from controller.openflow.meters import decode_meter_config, encode_meter_deletes
from controller.openflow.multipart import encode_meter_config_request, encode_meter_stats_request

# Frames that pass a switch's tables return within milliseconds. A switch that passes none times out, and so do frames
# that its meter may hold back.
FRAMES_TIMEOUT_S = 1.0
LATE_FRAMES_S = 0.05
CHECK_INTERVAL_S = 0.005


def test_meters(peers: ConnectedSwitches, peer: ConnectedSwitch, installed: set[int]) -> None:
    """Test a switch's meters, given the ids ``installed`` in use; store the results in its capabilities.

    Raises ProtocolError if the switch stops replying.
    """
    record = peers.central.switches[peer.connection.dpid]
    most = min(record.meter_ids.last, record.capabilities.features.max_meter if record.capabilities.features else 0)
    meter_id = meter_probe.free_meter_id(record.meter_ids.first, most, installed)
    queue_id = next((vid for port in record.switch.ports.values() for vid in port.vlan_vids), None)
    if record.capabilities.tested or record.capabilities.meters_unused or meter_id is None or queue_id is None:
        return
    _find_bounds(peers, peer, meter_id)
    test = peer.probe = meter_probe.MeterProbe(meter_id, queue_id, record.capabilities.bounds)
    try:
        peer.connection.send(test.setup, test.setup_messages)
        peers.answer(peer.connection.barrier())
        if not test.refused.keys() - meter_probe.NON_METER_KINDS:
            peer.connection.send(test.frames, test.frame_messages)
            peers.answer(peer.connection.barrier())
            _await_frames(peers, test)
        asks = record.capabilities.profile != "no-meter-counters"
        stats = _meter_stats(peers, peer, meter_id) if asks else None
        peer.connection.send(test.cleanup, test.cleanup_messages)
        peers.answer(peer.connection.barrier())
    finally:
        peer.probe = None
    test.evaluate(record.capabilities, stats)


def _find_bounds(peers: ConnectedSwitches, peer: ConnectedSwitch, meter_id: int) -> None:
    """Find the bounds of a switch's meters, as far as the configuration may need them.

    Store them in its capabilities.
    """
    dpid, vns = peer.connection.dpid, peers.central.vns
    most_bps = vns.send_max_bps[vns.dpid == dpid]
    if not len(most_bps):
        return
    burst_bits = first_bursts(most_bps)
    need = bound_search.Setting(int(to_kilo(most_bps).max()), int(to_kilo(burst_bits).max()))
    test = peer.probe = bound_search.BoundTest(meter_id)
    steps, answers = bound_search.search(need), None
    try:
        while True:
            tried = next(steps) if answers is None else steps.send(answers)
            answers = _try_all(peers, peer, test, tried)
    except StopIteration as end:
        if end.value is not None:
            peers.central.switches[dpid].capabilities.learn_bounds(end.value)
    finally:
        peer.connection.send(partial(encode_meter_deletes, [meter_id]), 1)
        peers.answer(peer.connection.barrier())
        peer.probe = None


def _try_all(
    peers: ConnectedSwitches, peer: ConnectedSwitch, test: bound_search.BoundTest, tried: list[bound_search.Setting]
) -> list[bound_search.Answer]:
    """Try settings of the test's meter one after the other; return the result of each."""
    # Requesting a missing meter is an error.
    asks = partial(encode_meter_config_request, meter_id=ofp.METER_ALL if test.installed is None else test.meter_id)
    sent = []
    for setting in tried:
        xid = peer.connection.reserve(1)
        peer.connection.send(lambda _, one=setting, at=xid: test.attempt(one, at), 1)  # type: ignore[misc]
        peer.connection.barrier()
        sent.append((setting, xid, peer.connection.ask(asks)))
    answers = []
    for setting, xid, reply in sent:
        body = peers.answer_or_refusal(reply)
        rows = decode_meter_config(body)[0] if body is not None else ()
        mine = [(int(row["rate_kbps"]), int(row["burst_kbits"])) for row in rows if row["meter_id"] == test.meter_id]
        read = bound_search.Setting(*mine[0]) if mine else None
        answers.append(test.answer(setting, xid, read, readable=body is not None))
    return answers


def _await_frames(peers: ConnectedSwitches, test: meter_probe.MeterProbe) -> None:
    deadline_s = peers.clock() + FRAMES_TIMEOUT_S
    while not test.all_seen and peers.clock() < deadline_s:
        hub.sleep(CHECK_INTERVAL_S)
    hub.sleep(LATE_FRAMES_S)


def _meter_stats(peers: ConnectedSwitches, peer: ConnectedSwitch, meter_id: int) -> bytes | None:
    """Return the body of the meter-stats reply, None for an error reply."""
    reply = peer.connection.ask(lambda xid: encode_meter_stats_request(xid, meter_id))
    try:
        return peers.answer(reply)
    except SwitchReplyError:
        return None


def run_queue_tests(peers: ConnectedSwitches) -> None:
    """Send test frames into untested queues, and record changes of what can be enforced."""
    for dpid, peer in peers.ready().items():
        record = peers.central.switches[dpid]
        record.capabilities.passive = peer.meters.ability
        record.capabilities.refuses_meters = peer.refuses_meters(peers.clock())
        record.capabilities.queues = peer.queues.findings()
        if record.capabilities.uses_queues and peer.queues.pending:
            network = peers.central.network
            ports = {network.numbers.port(dpid, port.port_no) for port in peer.ports.values() if port.up}
            up = {port.port_no for port in ports - network.fenced}
            for port_no in peer.queues.due(up, peers.clock()):
                number = network.numbers.number(PortId(dpid, port_no))
                port = replace(record.switch.ports[port_no], port_no=number)
                peer.connection.send(partial(meter_probe.queue_frames, port), meter_probe.QUEUE_FRAMES)
    port_enforceability.note_changes(peers.central.fabric, peers.clock())
