"""Gatekeeper in the running controller, in virtual time, with TCP and UDP: scheduler on hosts, and at the edge."""

from __future__ import annotations

import numpy as np
import pytest
from support.model_plane import INTERVAL_S, document_of, send, under_control

from controller.events import EventKind
from controller.loop import control_step
from controller.monitoring.pair_explanation import explain_pair
from controller.policy.policy_groups import PolicyChoice
from controller.whatif.recording import Recorder, decode
from controller.whatif.replay import replay
from experiments.model.fabric import ModelOptions
from experiments.model.queues import QueueOptions
from experiments.model.sources import UdpSource
from experiments.model.tcp import TcpSource
from topologies.builders import fabrics

M = 1e6
LINK_BPS, IN_BPS = 1_000_000_000, 860_000_000
A_BPS, B_BPS = 645_000_000, 215_000_000
LITERAL = {"floor": 0, "served": 0, "targets": 0, "pair": 0}


class Tenants:
    """Tenant A is VLAN 1, B is VLAN 2; both send to the last PN, each from PNs of its own."""

    def __init__(self, topology="gatekeeper-hosts", pns=3, parameters=None, vlans=None, limit_packets=None):
        options = {"access_rates_bps": {pns: IN_BPS}} if topology == "gatekeeper-hosts" else {}
        self.fabric = fabrics[topology](pns=pns, link_rate_bps=LINK_BPS, **options)
        limits_bps = {1: A_BPS, 2: B_BPS}
        document = document_of(self.fabric, limits_bps, "gatekeeper", **(parameters or {}))
        for vid, values in (vlans or {}).items():
            document["vlans"][vid] = {**document["vlans"][vid], **values}
        options = ModelOptions(queues=QueueOptions(limit_packets))
        self.model, self.plane = under_control(self.fabric, document, options)
        self.last = pns

    @property
    def central(self):
        return self.plane.central

    def send(self, vid, pn, kind, flows=1, receiver=None):
        model = self.model
        for _ in range(flows):
            source = (
                UdpSource(1e9, model.slot_s, model.rng.random()) if kind == "udp" else TcpSource("cubic", model.slot_s)
            )
            send(model, source, vid, pn, receiver or self.last)

    def run(self, intervals):
        """Return what A and B received in each interval, in Mb/s."""
        rows = []
        for _ in range(intervals):
            before = self._received()
            self.model.run(self.model.now_s + INTERVAL_S)
            rows.append((self._received() - before) / INTERVAL_S / M)
        return np.array(rows)

    def _received(self):
        return np.array([self.model.received[self.fabric.vn(vid, self.last)].octets * 8.0 for vid in (1, 2)])

    def row(self, vid):
        port = self.model.edge_port(self.fabric.vn(vid, self.last))
        return self.central.vns.row_of(vid, port.dpid, port.port_no)

    def decision(self):
        (decision,) = self.central.state.allocators.decisions
        return decision

    def pair(self, vid):
        """The row of the entry of a VLAN's only pair."""
        (row,) = np.flatnonzero(self.central.state.entries.receiver == self.row(vid))
        return row


def blasted(**more):
    """A's TCP has the link; then B's UDP comes."""
    tenants = Tenants(**more)
    tenants.send(1, 1, "tcp")
    alone = 860 if tenants.fabric.name == "gatekeeper-hosts" else 1000
    assert tenants.run(40)[-20:, 0].mean() == pytest.approx(alone, rel=0.01)
    for pn in range(2, tenants.last):
        tenants.send(2, pn, "udp")
    return tenants


def received_mbps(model, receivers):
    """What VNs get from 3 s to 6 s, by their VLANs and PNs."""
    model.run(3.0)
    got = [model.received[model.fabric.vn(vid, pn)] for vid, pn in receivers.items()]
    before = [one.octets for one in got]
    model.run(6.0)
    return [(one.octets - was) * 8 / 3.0 / M for one, was in zip(got, before, strict=True)]


def test_a_flood_that_starves_a_neighbour_before_its_port_is_held_by_messages():
    rates = blasted().run(60)
    assert (rates[3:, 0] >= 0.95 * 645).all()
    assert rates[20:].mean(axis=0) == pytest.approx([645, 215], rel=0.01)


def test_without_messages_it_is_not():
    rates = blasted(parameters={"feedback": 0}).run(60)
    assert rates[20:, 0].mean() < 0.5 * 645


def test_ten_senders_are_held_and_the_papers_one_message_at_a_time_does_not():
    rates = blasted(pns=12).run(60)
    assert rates[30:].mean(axis=0) == pytest.approx([645, 215], rel=0.01)
    rates = blasted(pns=12, parameters=LITERAL).run(60)
    assert rates[30:, 0].mean() < 0.1 * 645


@pytest.mark.parametrize("algorithm", ["gatekeeper", "max-min"])
def test_with_meters_alone_one_flow_next_to_ten_of_another_has_its_send_guarantee(algorithm):
    """All leave by one uplink that knows no VLANs: what the single flow would send cannot be seen behind it."""
    chosen = {"algorithm": algorithm, "send_ceiling": IN_BPS, "receive_ceiling": IN_BPS}
    tenants = Tenants(vlans=dict.fromkeys((1, 2), chosen))
    for vid, flows in ((1, 1), (2, 10)):
        tenants.send(vid, 3, "tcp", flows, receiver=vid)
    one_mbps, ten_mbps = received_mbps(tenants.model, {1: 1, 2: 2})
    assert one_mbps >= 0.9 * 645
    assert one_mbps + ten_mbps >= 0.97 * 860


def test_at_the_edge_the_queue_holds_and_messages_hardly_matter():
    for parameters in ({}, {"feedback": 0}):
        rates = blasted(topology="dets-fig5", parameters=parameters).run(40)
        assert rates[:, 0].min() >= 0.95 * 645


def test_tcp_hears_of_no_message_and_what_is_idle_is_used():
    tenants = Tenants()
    tenants.send(1, 1, "tcp")
    tenants.send(2, 2, "tcp", flows=10)
    rates = tenants.run(100)
    assert np.isnan(tenants.decision().last_notified_s).all()
    assert rates[60:].mean(axis=0) == pytest.approx([645, 215], rel=0.02)


def test_one_alone_has_all_of_the_port_and_the_papers_loses_a_part():
    """With the paper's queues of 160 packets."""
    use = []
    for parameters in ({}, LITERAL):
        tenants = Tenants(parameters=parameters, limit_packets=160)
        tenants.send(2, 2, "udp")
        use.append(tenants.run(100)[40:, 1].mean() / 860)
    assert use[0] >= 0.99
    assert use[1] < 0.97


def test_it_is_explained_and_shown_and_a_flood_is_one_event_of_congestion_and_one_of_messages():
    tenants = blasted()
    tenants.run(40)
    fabric, at, free = tenants.central.fabric, tenants.pair(2), tenants.pair(1)
    held = []
    for _ in range(4):  # its limit is halved to its floor, and rises
        tenants.run(1)
        held.append(explain_pair(fabric, at).constraint)
    assert explain_pair(fabric, free).constraint == "the lower of both ceilings"
    assert "its floor: its part of s3:1's receive guarantee" in held
    assert any("last notified by s3:1 (dropped " in bound for bound in held)
    limit_bps, notification_age_s = fabric.sender_limits()
    assert limit_bps[at] == tenants.decision().limit_bps[at]
    assert 0.0 <= notification_age_s[at] < 2.0
    assert np.isnan(notification_age_s[free])
    assert not np.isnan(fabric.queue_dropped_bps[tenants.row(2)])
    tenants.run(60)
    events = tenants.plane.events()
    (text,) = [event.text for event in events if event.kind is EventKind.CONGESTION_NOTIFICATION_SENT]
    assert text.startswith("VLAN 2 at s3:1: notifies 1 of its senders of congestion; its queue dropped ")
    assert any("VLAN 2 at s3:1: congestion began" in event.text for event in events)
    assert fabric.notifications[tenants.row(2)] > 5


def test_it_is_recorded_replayed_and_shadowed():
    tenants = Tenants(vlans={2: {"algorithm": "fs", "shadow": "gatekeeper", "parameters": {}}})
    recorder = tenants.central.recorder = Recorder()
    tenants.send(1, 1, "tcp")
    tenants.send(2, 2, "udp")
    tenants.run(40)
    fabric = tenants.central.fabric
    shadows_bps = fabric.control.shadow.rates_of(fabric.state.entries)
    assert np.isnan(shadows_bps).tolist() == (fabric.state.entries.receiver != tenants.row(2)).tolist()
    again = list(replay(decode(recorder.drain()), PolicyChoice("gatekeeper", {"decrease": 0.2})))
    assert len(again) >= 38
    assert all(one.same for one in again)


def test_when_the_controller_stops_meters_stand_at_the_guarantee():
    tenants = blasted(parameters=LITERAL)
    low = False
    for _ in range(60):
        tenants.run(1)
        if control_step.effective_limits_bps(tenants.central.state, tenants.central.vns)[tenants.pair(2)] < 0.9 * B_BPS:
            low = True
            break
    assert low
    tenants.central.finalize(tenants.model.now_s)
    settled_bps = tenants.central.state.enforcement.rate_bps[tenants.pair(2)]
    assert settled_bps == pytest.approx(B_BPS, rel=1e-3)


def test_a_limit_a_ceiling_and_a_weight_change_under_traffic():
    tenants = blasted()
    tenants.run(20)
    operator, row = tenants.plane.operator, tenants.row(2)

    def change(**given):
        operator.set_vn(row, tenants.model.now_s, **given)
        tenants.plane.write_queues()
        return tenants.run(60)[25:].mean(axis=0)

    operator.set_vn(tenants.row(1), tenants.model.now_s, receive_limit_bps=500_000_000)
    assert change(receive_limit_bps=360_000_000) == pytest.approx([500, 360], rel=0.02)
    assert change(receive_ceiling_bps=360_000_000, weight=3.0) == pytest.approx([500, 360], rel=0.02)
    operator.set_vn(tenants.row(1), tenants.model.now_s, receive_limit_bps=100_000_000)
    got = change(receive_limit_bps=100_000_000, receive_ceiling_bps=150_000_000)
    assert got[1] <= 151
    assert got[0] >= 0.97 * 710


def test_dets_max_min_and_gatekeeper_share_a_port():
    """DETS keeps its limit and leaves the rest; the other two have their guarantees and borrow what is left."""
    fabric = fabrics["dets-fig5"](pns=7, link_rate_bps=LINK_BPS, vlans=(1, 2, 3))
    document = document_of(fabric, dict.fromkeys((1, 2, 3), 200_000_000))
    lends = {"algorithm": "max-min", "send_ceiling": LINK_BPS, "receive_ceiling": LINK_BPS, "parameters": {}}
    document["vlans"][2] |= lends
    document["vlans"][3] |= {"algorithm": "gatekeeper", "parameters": {}}
    model, plane = under_control(fabric, document)
    kinds = {1: "udp", 2: "tcp", 3: "udp"}
    for pn in range(1, 7):
        vid = (pn + 1) // 2
        source = UdpSource(700e6, model.slot_s) if kinds[vid] == "udp" else TcpSource("cubic", model.slot_s)
        send(model, source, vid, pn, 7)
    dets_mbps, *borrowers_mbps = received_mbps(model, dict.fromkeys((1, 2, 3), 7))
    assert dets_mbps == pytest.approx(200, rel=0.03)
    assert min(borrowers_mbps) >= 0.97 * 200
    assert dets_mbps + sum(borrowers_mbps) >= 0.98 * 1000
    names = {explain_pair(plane.central.fabric, row).constraint for row in range(6)}
    assert len(names) >= 3


def test_a_missed_send_guarantee_is_an_event_that_says_which_way():
    """The paper's law halves a lone sender far below what both ends promise it."""
    tenants = Tenants(parameters=LITERAL | {"slope": 0.01, "decrease": 0.9}, limit_packets=160)
    tenants.send(2, 2, "udp")
    tenants.run(80)
    texts = [event.text for event in tenants.plane.events() if event.kind is EventKind.GUARANTEE_VIOLATED]
    assert any("VLAN 2 at s2:1: sends " in text and "offered within both ends' limits" in text for text in texts)
    assert any("VLAN 2 at s3:1: receives " in text for text in texts)
    assert tenants.central.fabric.notifications[tenants.row(2)] > 0
