"""Readings of queues and links on the model: they are what happened, fresh or unknown, recorded and replayed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from support.model_plane import blast, document_of, under_control

from controller.central.readings_collector import collect_readings
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.metering.fabric_readings import ReadingKind
from controller.policy.max_min import MaxMinPolicy
from controller.whatif.recording import Interval, Recorder, decode, encode_interval, encode_start
from controller.whatif.replay import replay
from experiments.model.control.uncontrolled import install_forwarding
from experiments.model.fabric import ModelFabric, ModelOptions
from topologies.builders import fabrics

NUMBER_OF_LAST_PN = 5


def controlled(topology="dets-fig5", algorithm="fp", blast_bps=25e6):
    """A model under control, with the capacities of its core links in the configuration, and a blast of its last PN."""
    fabric = fabrics[topology](pns=NUMBER_OF_LAST_PN)
    document = document_of(fabric, dict(zip(fabric.vlans, (40_000_000, 50_000_000), strict=True)), algorithm)
    document["links"] = [
        {"between": [f"{link.switch_a}:{link.port_a}", f"{link.switch_b}:{link.port_b}"], "capacity": link.rate_bps}
        for link in fabric.core_links
    ]
    model, plane = under_control(fabric, document)
    blast(model, blast_bps)
    return model, plane


def recorded(plane, model, seconds):
    """Let time pass; return the intervals' readings."""
    central = plane.central
    central.recorder = recorder = Recorder()
    model.run(model.now_s + seconds)
    central.recorder = None
    return [one for one in decode(recorder.drain()) if isinstance(one, Interval)]


def receiver(plane, vid=2):
    return plane.central.vns.row_of(vid, 1, NUMBER_OF_LAST_PN)


def test_the_models_counters_are_what_its_sources_sent_got_and_lost():
    """Without meters all that is lost is lost in queues, of one VLAN here, and of the port without queues there."""
    model = ModelFabric(fabrics["dets-fig7"](pns=4, link_rate_bps=100_000_000), ModelOptions())
    install_forwarding(model)
    sources = blast(model, 60e6, 1)
    model.run(2.0)
    for source in sources:
        source.stop(model.slot)
    model.run(3.0)
    model.count_hits()
    counters = {at: out.port.counters for at, out in model.ports.items()}
    assert sum(row["tx_dropped"] for row in counters.values()) == sum(source.lost for source in sources) > 1000
    last = model.edge_port(model.fabric.vn(1, 4))
    octets = sum(source.delivered * source.frame_bytes for source in sources)
    assert counters[last]["tx_bytes"] == octets == model.received[model.fabric.vn(1, 4)].octets
    for one, other in model.links.items():
        assert counters[one]["tx_bytes"] == counters[other]["rx_bytes"]
    assert any(counters[end]["tx_bytes"] for end in model.links)


def test_a_queue_that_overflows_is_read_and_no_other():
    model, plane = controlled()
    at = PortId(1, NUMBER_OF_LAST_PN)
    model.set_queues({at: {1: (40_000_000, 40_000_000), 2: (10_000_000, 10_000_000)}})  # below the limit
    model.run(2.0)
    intervals = recorded(plane, model, 2.0)
    mine, other = receiver(plane), receiver(plane, 1)
    assert len(intervals) >= 36
    for one in intervals:
        queues = one.observed.queues
        assert queues.known[[mine, other]].all()
        assert queues.served_bps[mine] == pytest.approx(10e6, rel=0.03)
        assert queues.elapsed_s[mine] == pytest.approx(0.055, abs=0.003)
        assert queues.dropped_packets[other] == 0
        assert not queues.implausible.any()
    passed_bps = sum(plane.central.state.measured.smoothed_bps)
    dropped_bps = np.mean([one.observed.queues.dropped_bps[mine] for one in intervals])
    assert passed_bps > 30e6
    assert dropped_bps == pytest.approx(passed_bps - 10e6, rel=0.02)


def test_links_are_read():
    model, plane = controlled("dets-fig7", blast_bps=5e6)
    model.run(2.0)
    *_, last = recorded(plane, model, 0.5)
    ports, fabric = last.observed.ports, plane.central.fabric
    links = fabric.links.link_table(fabric.vns, fabric.network.topology)
    assert ports.known.all()
    vns, mine = plane.central.vns, plane.central.vns.row_of(2, 4, 1)
    senders = [row for row in range(len(vns)) if vns.vlan_vid[row] == 2 and row != mine]
    assert ports.transmitted_bps[links.up[senders]] == pytest.approx(5e6, rel=0.01)
    assert ports.transmitted_bps[links.down[mine]] == pytest.approx(20e6, rel=0.01)
    core = [row for row, name in enumerate(links.names) if name.startswith("out of")]
    into_last = [row for row in core if links.names[row] == "out of c1:4"]
    assert ports.transmitted_bps[into_last] == pytest.approx(20e6, rel=0.01)
    assert ports.dropped_packets[core].tolist() == [0] * 8
    assert np.isnan(ports.dropped_packets[links.up[senders]]).all()
    assert ports.dropped_packets[links.down[mine]] == 0


def test_nothing_is_computed_that_nobody_asks_for(monkeypatch):
    model, _ = controlled()
    asked = []
    monkeypatch.setattr("controller.switch.delivered_rates.CounterDeltas.between", lambda *given: asked.append(given))
    model.run(1.0)
    assert asked == []


def test_a_policy_sees_the_readings_that_it_asks_for_and_no_others(monkeypatch):
    views, decide = [], MaxMinPolicy.decide
    monkeypatch.setattr(MaxMinPolicy, "required_readings", frozenset({ReadingKind.LINKS, ReadingKind.QUEUES}))
    monkeypatch.setattr(
        MaxMinPolicy, "decide", lambda self, view, memory: views.append(view) or decide(self, view, memory)
    )
    model, plane = controlled(algorithm="max-min")
    model.run(2.0)
    assert views[-1].queues.known[receiver(plane)]
    assert views[-1].queues.served_bps[receiver(plane)] == pytest.approx(50e6, rel=0.01)
    assert views[-1].ports is None
    assert views[-1].links is not None


def test_a_reply_older_than_that_of_the_meters_is_not_known():
    model, plane = controlled()
    model.run(2.0)
    fabric, now_s, both = plane.central.fabric, model.now_s, frozenset(ReadingKind)
    fresh = {dpid: delivery.queues.received_s for dpid, delivery in fabric.deliveries.items()}
    assert collect_readings(fabric, both, fresh, now_s).queues.known[receiver(plane)]
    assert collect_readings(fabric, both, fresh, now_s).ports.known.any()
    for stale in ({}, {dpid: at_s + 0.001 for dpid, at_s in fresh.items()}):
        seen = collect_readings(fabric, both, stale, now_s)
        assert not seen.queues.known.any()
        assert not seen.ports.known.any()
    assert collect_readings(fabric, frozenset(), fresh, now_s) is None
    assert collect_readings(fabric, {ReadingKind.LINKS}, fresh, now_s) is None
    only = collect_readings(fabric, {ReadingKind.PORTS}, fresh, now_s)
    assert only.queues is None
    assert only.ports is not None


def test_a_queue_made_again_is_unknown_once_and_a_jump_is_reported():
    model, plane = controlled()
    model.run(2.0)
    at, mine = PortId(1, NUMBER_OF_LAST_PN), receiver(plane)

    def known(intervals=4):
        return [one.observed.queues.known[mine] for one in recorded(plane, model, 0.055 * intervals)]

    assert all(known())
    model.set_queues({at: {1: (40_000_000, 40_000_000)}})
    assert not any(known()[1:])
    model.set_queues({at: {1: (40_000_000, 40_000_000), 2: (50_000_000, 50_000_000)}})
    again = known(6)
    assert again[-3:] == [True] * 3
    assert False in again
    assert EventKind.COUNTERS_IMPLAUSIBLE not in {event.kind for event in plane.events()}
    model.ports[at].port.queue_counters[2]["tx_errors"] += 1e12
    assert sorted(known())[:2] == [False, True]
    told = [event.text for event in plane.events() if event.kind == EventKind.COUNTERS_IMPLAUSIBLE]
    assert told == ["VLAN 2 at s1:5: its queue's counters jumped or went back"]


def test_readings_are_recorded_and_decided_on_again():
    model, plane = controlled()
    central = plane.central
    central.recorder = recorder = Recorder()
    model.run(2.0)
    data = recorder.drain()
    assert [one.same for one in replay(decode(data))] == [True] * plane.counts.intervals
    start, *intervals = decode(data)
    again = encode_start(start) + b"".join(
        map(encode_interval, (one for one in intervals if isinstance(one, Interval)))
    )
    first, second = (next(one for one in decode(d) if isinstance(one, Interval)) for d in (data, again))
    for part in ("queues", "ports"):
        for field in dataclasses.fields(getattr(first.observed, part)):
            columns = [getattr(getattr(one.observed, part), field.name) for one in (first, second)]
            assert columns[0].tobytes() == columns[1].tobytes()
            assert len(columns[0]) > 0
