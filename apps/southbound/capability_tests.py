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

# Test frames return from a switch's tables within milliseconds. The first limit ends the wait if some never return. The
# second is the further wait, after all expected frames have returned, for frames that the meter should have dropped.
FRAMES_TIMEOUT_S = 1.0
LATE_FRAMES_S = 0.05
CHECK_INTERVAL_S = 0.005


def test_meters(peers: ConnectedSwitches, peer: ConnectedSwitch, installed: set[int]) -> None:
    """Test a switch's meters by a temporary meter; store the results in the switch's capabilities.

    ``installed`` are the meter ids in use. Nothing is tested if the capabilities are known, if the configuration uses
    no meters, or if the switch has no free meter id or no VN. Raises ProtocolError if the switch stops replying.
    """
    record = peers.central.switches[peer.connection.dpid]
    capabilities = record.capabilities
    last_id = min(record.meter_ids.last, capabilities.features.max_meter if capabilities.features else 0)
    meter_id = meter_probe.free_meter_id(record.meter_ids.first, last_id, installed)
    queue_id = next((vid for port in record.switch.ports.values() for vid in port.vlan_vids), None)
    if capabilities.tested or capabilities.meters_unused or meter_id is None or queue_id is None:
        return
    _find_bounds(peers, peer, meter_id)
    test = peer.probe = meter_probe.MeterProbe(meter_id, queue_id, capabilities.bounds)
    try:
        peer.connection.send(test.setup, test.setup_messages)
        peers.answer(peer.connection.barrier())
        if not test.refused.keys() - meter_probe.NON_METER_KINDS:  # the switch accepted the meter: send frames to it
            peer.connection.send(test.frames, test.frame_messages)
            peers.answer(peer.connection.barrier())
            _await_frames(peers, test)
        has_counters = capabilities.profile != "no-meter-counters"
        stats = _meter_stats(peers, peer, meter_id) if has_counters else None
        peer.connection.send(test.cleanup, test.cleanup_messages)
        peers.answer(peer.connection.barrier())
    finally:
        peer.probe = None
    test.evaluate(capabilities, stats)


def _find_bounds(peers: ConnectedSwitches, peer: ConnectedSwitch, meter_id: int) -> None:
    """Find the greatest rate and burst that a switch's meters accept; store them in its capabilities.

    The search ends at the greatest values that the configured VNs of the switch may need. It sets the meter
    ``meter_id`` to one value after the other, and deletes it at the end.
    """
    dpid, vns = peer.connection.dpid, peers.central.vns
    max_rates_bps = vns.send_max_bps[vns.dpid == dpid]
    if not len(max_rates_bps):
        return
    burst_bits = first_bursts(max_rates_bps)
    needed = bound_search.Setting(int(to_kilo(max_rates_bps).max()), int(to_kilo(burst_bits).max()))
    test = peer.probe = bound_search.BoundTest(meter_id)
    # The search is a generator: it yields settings to try, gets their results, and returns the bounds.
    search, results = bound_search.search(needed), None
    try:
        while True:
            settings = next(search) if results is None else search.send(results)
            results = _try_all(peers, peer, test, settings)
    except StopIteration as end:
        if end.value is not None:
            peers.central.switches[dpid].capabilities.learn_bounds(end.value)
    finally:
        peer.connection.send(partial(encode_meter_deletes, [meter_id]), 1)
        peers.answer(peer.connection.barrier())
        peer.probe = None


def _try_all(
    peers: ConnectedSwitches, peer: ConnectedSwitch, test: bound_search.BoundTest, settings: list[bound_search.Setting]
) -> list[bound_search.Answer]:
    """Set the test's meter to each of the settings in turn, and read it back; return the result of each."""
    # While the meter does not exist, a request for it alone is an error: all meters are requested.
    requested_id = ofp.METER_ALL if test.installed is None else test.meter_id
    encode_request = partial(encode_meter_config_request, meter_id=requested_id)
    attempts = []
    for setting in settings:
        xid = peer.connection.reserve(1)
        peer.connection.send(lambda _, setting=setting, xid=xid: test.attempt(setting, xid), 1)  # type: ignore[misc]
        peer.connection.barrier()  # so that the switch has executed the attempt before it reads the meter
        attempts.append((setting, xid, peer.connection.ask(encode_request)))
    results = []
    for setting, xid, reply in attempts:
        body = peers.answer_or_refusal(reply)
        meters = decode_meter_config(body)[0] if body is not None else ()
        found = [row for row in meters if row["meter_id"] == test.meter_id]
        read = bound_search.Setting(int(found[0]["rate_kbps"]), int(found[0]["burst_kbits"])) if found else None
        results.append(test.answer(setting, xid, read, readable=body is not None))
    return results


def _await_frames(peers: ConnectedSwitches, test: meter_probe.MeterProbe) -> None:
    """Wait until all test frames have returned, at most FRAMES_TIMEOUT_S, and then for those that should not return."""
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
    """Send test frames into queues whose test is due, and record changes of what each port can enforce."""
    for dpid, peer in peers.ready().items():
        record = peers.central.switches[dpid]
        record.capabilities.passive = peer.meters.ability
        record.capabilities.refuses_meters = peer.refuses_meters(peers.clock())
        record.capabilities.queues = peer.queues.findings()
        if record.capabilities.uses_queues and peer.queues.pending:
            # The monitor has the configuration's port numbers; the test frames need the switch's own.
            network = peers.central.network
            up = {network.numbers.port(dpid, port.port_no) for port in peer.ports.values() if port.up}
            usable_ports = {port.port_no for port in up - network.fenced}
            for port_no in peer.queues.due(usable_ports, peers.clock()):
                number = network.numbers.number(PortId(dpid, port_no))
                port = replace(record.switch.ports[port_no], port_no=number)
                peer.connection.send(partial(meter_probe.queue_frames, port), meter_probe.QUEUE_FRAMES)
    port_enforceability.note_changes(peers.central.fabric, peers.clock())
