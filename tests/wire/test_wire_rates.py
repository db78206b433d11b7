"""Rates through tables, meters, queues and links, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from controller.openflow import constants as ofp
from controller.openflow import flows, meters
from controller.openflow.actions import Output, PopVlan, PushVlan, SetQueue, SetVlanVid
from controller.openflow.flows import Flow
from controller.openflow.match import Match
from experiments.wire.fabric import ManualClock, WireFabric

MBPS = 1e6


def fabric(*dpids: int, link_bps: float = 100 * MBPS) -> WireFabric:
    """A fabric that is never started: no socket, and time goes on by advance()."""
    made = WireFabric(("127.0.0.1", 1), clock=ManualClock())
    for dpid in dpids:
        made.add_switch(dpid, {1: link_bps, 2: link_bps, 3: link_bps})
        made.switches[dpid].drain_messages()
    made.advance(0.0)
    return made


def install(made: WireFabric, dpid: int, *wanted: Flow, meter: tuple[int, int, int] | None = None) -> None:
    datapath = made.switches[dpid]
    data = b""
    if meter is not None:
        meter_id, rate_kbps, burst_kbits = meter
        data += meters.encode_meter_mods(ofp.MeterModCommand.ADD, [meter_id], [rate_kbps], [burst_kbits], 1)
    data += flows.encode_flow_mods([(ofp.FlowModCommand.ADD, flow) for flow in wanted], 1)
    datapath.receive(data, made._clock())
    assert datapath.refused == []


def to_port(port_no: int, *before: object, vlan_vid: int = 10, **fields: object) -> Flow:
    actions = (*before, Output(port_no))
    return Flow(0, 1, Match(vlan_vid=vlan_vid, in_port=fields.pop("in_port", None)), 0, actions=actions, **fields)


def run(made: WireFabric, seconds: float, step_s: float = 0.01) -> None:
    for _ in range(round(seconds / step_s)):
        made.advance(step_s)


def test_counters_move_as_the_rate_says() -> None:
    made = fabric(1)
    install(made, 1, to_port(2))
    made.rates.offer(1, 1, 8 * MBPS, eth_src=1, eth_dst=2, vlan_vid=10)
    run(made, 1.0)
    ports = made.switches[1].ports
    assert ports[1].counters["rx_bytes"] == pytest.approx(1e6)
    assert ports[2].counters["tx_bytes"] == pytest.approx(1e6)
    assert ports[2].counters["tx_packets"] == pytest.approx(1e6 / 1514)
    assert made.switches[1].tables.counters["bytes"][0] == pytest.approx(1e6)
    assert made.rates.delivered_bps.tolist() == pytest.approx([8 * MBPS])


def test_a_meter_lets_its_rate_and_once_its_burst_through() -> None:
    made = fabric(1)
    install(made, 1, to_port(2, meter_id=5), meter=(5, 10_000, 2_000))
    made.rates.offer(1, 1, 30 * MBPS, eth_src=1, eth_dst=2, vlan_vid=10)
    run(made, 1.0)
    assert made.switches[1].ports[2].counters["tx_bytes"] * 8 == pytest.approx(12 * MBPS)
    row = made.switches[1].meters.stats(np.array([5]), np.array([1]), 1.0)[0]
    assert row["byte_in_count"] * 8 == pytest.approx(30 * MBPS, rel=1e-6)
    assert row["band_byte_count"] * 8 == pytest.approx(18 * MBPS, rel=1e-6)
    assert made.rates.delivered_bps.tolist() == pytest.approx([10 * MBPS])


def test_a_modify_every_interval_lets_a_burst_through_each_time() -> None:
    made = fabric(1)
    install(made, 1, to_port(2, meter_id=5), meter=(5, 10_000, 550))
    made.rates.offer(1, 1, 90 * MBPS, eth_src=1, eth_dst=2, vlan_vid=10)
    run(made, 0.055, 0.005)
    sent = made.switches[1].ports[2].counters["tx_bytes"]
    for _ in range(20):
        again = meters.encode_meter_mods(ofp.MeterModCommand.MODIFY, [5], [10_000], [550], 1)
        made.switches[1].receive(again, made._clock())
        run(made, 0.055, 0.005)
    rate_bps = (made.switches[1].ports[2].counters["tx_bytes"] - sent) * 8 / (20 * 0.055)
    assert rate_bps == pytest.approx(10 * MBPS + 0.55 * MBPS / 0.055)  # R + B/T


def test_flows_of_one_meter_lose_in_proportion() -> None:
    made = fabric(1)
    install(made, 1, to_port(2, meter_id=5), meter=(5, 12_000, 1))
    for source, rate in ((1, 30 * MBPS), (3, 10 * MBPS)):
        made.rates.offer(1, 1, rate, eth_src=source, eth_dst=2, vlan_vid=10)
    run(made, 0.5)
    assert made.rates.delivered_bps.tolist() == pytest.approx([9 * MBPS, 3 * MBPS])


def test_a_port_gives_queues_their_minimum_and_shares_the_rest() -> None:
    made = fabric(1)
    port = made.switches[1].ports[3]
    port.set_queue(10, 40 * MBPS, 100 * MBPS)
    port.set_queue(20, 50 * MBPS, 100 * MBPS)
    install(made, 1, to_port(3, SetQueue(10)), to_port(3, SetQueue(20), vlan_vid=20))
    made.rates.offer(1, 1, 60 * MBPS, eth_src=1, eth_dst=9, vlan_vid=10)
    made.rates.offer(1, 2, 300 * MBPS, eth_src=2, eth_dst=9, vlan_vid=20)
    run(made, 0.5)
    assert made.rates.delivered_bps.tolist() == pytest.approx([45 * MBPS, 55 * MBPS])
    assert port.queue_counters[10]["tx_bytes"] * 8 == pytest.approx(22.5 * MBPS)
    assert port.queue_counters[20]["tx_errors"] * 1514 * 8 == pytest.approx(122.5 * MBPS)
    made.rates.set_rates(0, 10 * MBPS)
    run(made, 0.1)
    assert made.rates.delivered_bps.tolist() == pytest.approx([10 * MBPS, 90 * MBPS])


def test_traffic_travels_over_links_and_tags() -> None:
    made = fabric(1, 2, link_bps=20 * MBPS)
    made.link((1, 3), (2, 3))
    tag = (PushVlan(), SetVlanVid(10), Output(3))
    install(
        made, 1, Flow(0, 1, Match(in_port=1, vlan_vid=ofp.VLAN_NONE), 0, meter_id=1, actions=tag), meter=(1, 30_000, 1)
    )
    install(made, 2, to_port(1, PopVlan(), in_port=3))
    made.rates.offer(1, 1, 40 * MBPS, eth_src=1, eth_dst=2, vlan_vid=None)
    run(made, 0.5)
    assert made.rates.delivered_bps.tolist() == pytest.approx([20 * MBPS])
    assert made.switches[1].ports[3].counters["tx_dropped"] > 0
    assert made.switches[2].ports[3].counters["rx_bytes"] * 8 == pytest.approx(10 * MBPS)
    made.set_link_up((1, 3), False)
    made.advance(0.01)
    assert made.rates.delivered_bps.tolist() == [0.0]


def test_copies_are_metered_once_and_counted_each() -> None:
    made = fabric(1)
    flood = Flow(0, 1, Match(vlan_vid=10), 0, meter_id=1, actions=(Output(2), Output(3)), goto_table=1)
    install(made, 1, flood, meter=(1, 10_000, 1))
    install(made, 1, Flow(1, 0, Match(), 0, meter_id=2), meter=(2, 1_000, 1))
    made.rates.offer(1, 1, 20 * MBPS, eth_src=1, eth_dst=2**48 - 1, vlan_vid=10)
    run(made, 0.2)
    assert made.rates.delivered_bps.tolist() == pytest.approx([20 * MBPS])  # ten out of each port
    ports = made.switches[1].ports
    assert ports[2].counters["tx_bytes"] == pytest.approx(ports[3].counters["tx_bytes"])
    first, second = made.switches[1].meters.stats(np.array([1, 2]), np.array([1, 1]), 1.0)["byte_in_count"].tolist()
    assert (first * 8, second * 8) == (pytest.approx(4 * MBPS, rel=0.01), pytest.approx(2 * MBPS, rel=0.01))


def test_new_tables_are_followed_and_old_ones_forgotten() -> None:
    made = fabric(1)
    made.rates.offer(1, 1, 10 * MBPS, eth_src=1, eth_dst=2, vlan_vid=10)
    run(made, 0.1)
    assert made.rates.delivered_bps.tolist() == [0.0]
    flow = to_port(2)
    install(made, 1, flow)
    run(made, 0.1)
    assert made.rates.delivered_bps.tolist() == pytest.approx([10 * MBPS])
    made.switches[1].receive(flows.encode_flow_mods([(ofp.FlowModCommand.DELETE_STRICT, flow)], 1), made._clock())
    run(made, 0.1)
    assert made.rates.delivered_bps.tolist() == [0.0]


def test_traffic_keeps_an_entry_from_idling_out() -> None:
    made = fabric(1)
    install(made, 1, to_port(2, idle_timeout_s=1))
    number = made.rates.offer(1, 1, 10 * MBPS, eth_src=1, eth_dst=2, vlan_vid=10)
    run(made, 3.0, 0.1)
    assert len(made.switches[1].tables) == 1
    made.rates.set_rates(number, 0.0)
    run(made, 1.1, 0.1)
    assert len(made.switches[1].tables) == 0


def test_traffic_that_goes_up_is_sampled() -> None:
    made = fabric(1)
    install(made, 1, Flow(0, 0, Match(), 0, actions=(Output(ofp.PORT_CONTROLLER, 0xFFFF),)))
    made.rates.offer(1, 1, 10 * MBPS, eth_src=1, eth_dst=2, vlan_vid=10)
    run(made, 1.0)
    sent = made.switches[1].drain_messages()
    assert 5 <= len(sent) // len(sent[: int.from_bytes(sent[2:4])]) <= 11


def test_equal_runs_give_equal_counters() -> None:
    def counters() -> list[float]:
        made = fabric(1)
        install(made, 1, to_port(2, meter_id=5), meter=(5, 10_000, 100))
        for source in range(20):
            made.rates.offer(1, 1, (1 + source) * MBPS / 3, eth_src=source, eth_dst=2, vlan_vid=10)
        run(made, 0.3)
        return made.rates.delivered_bps.tolist()

    assert counters() == counters()


def test_a_port_shares_its_capacity_among_flows_that_reach_it_after_different_numbers_of_steps() -> None:
    """Port 3 of switch 2 gets one flow straight, one behind two meters, and one from another switch."""
    made = fabric(1, 2, link_bps=100 * MBPS)
    made.link((1, 2), (2, 2))
    install(made, 1, to_port(2))
    install(made, 2, to_port(3), meter=(1, 1_000_000, 1_000_000))
    far = Flow(0, 2, Match(vlan_vid=20), 0, meter_id=1, goto_table=1)
    install(made, 2, far, Flow(1, 1, Match(), 0, actions=(Output(3),)))
    for dpid, port_no, vlan_vid in ((2, 1, 10), (2, 1, 20), (1, 1, 10)):
        made.rates.offer(dpid, port_no, 90 * MBPS, eth_src=1, eth_dst=9, vlan_vid=vlan_vid)
    run(made, 0.2)
    assert made.rates.delivered_bps.sum() == pytest.approx(100 * MBPS)
    assert made.rates.delivered_bps.tolist() == pytest.approx([100 / 3 * MBPS] * 3)
    assert made.switches[2].ports[3].counters["tx_bytes"] * 8 == pytest.approx(20 * MBPS)


def test_ports_that_wait_for_each_other_carry_no_more_than_their_capacity() -> None:
    """Three switches in a ring, each flow over two links: every link waits for the one before it."""
    made = fabric(1, 2, 3, link_bps=100 * MBPS)
    for one, other in ((1, 2), (2, 3), (3, 1)):
        made.link((one, 2), (other, 3))
    for dpid in (1, 2, 3):
        install(made, dpid, to_port(2, vlan_vid=dpid), to_port(1, vlan_vid=dpid % 3 + 1))
        install(made, dpid, to_port(2, in_port=3, vlan_vid=(dpid - 2) % 3 + 1))
        made.rates.offer(dpid, 1, 80 * MBPS, eth_src=1, eth_dst=9, vlan_vid=dpid)
    run(made, 0.2)
    sent = [made.switches[dpid].ports[2].counters["tx_bytes"] * 8 / 0.2 for dpid in (1, 2, 3)]
    assert max(sent) <= 100 * MBPS * (1 + 1e-9)
    assert min(sent) > 80 * MBPS
