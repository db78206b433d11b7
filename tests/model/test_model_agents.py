"""Agents on the model's hosts: who shapes, how soon, what is lost on the way, who dies, who lies."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import yaml
from support import model_plane
from support.model_plane import INTERVAL_S, blast, received_bps, under_control

from apps.rest.resources.views import explanation_views
from controller.agents.agent_port import DISTRUST_S, TIMEOUT_INTERVALS
from controller.agents.control_frames import CONTROLLER_MAC, LAYOUTS, FrameAddress, Opcode, encode, records
from controller.central.reconfiguration import reconfigure
from controller.config.loader import parse_config
from controller.dets.send_rate_controller import KEEP_ALIVE_INTERVALS
from controller.events import EventKind
from controller.fabric.agent_ports import AgentState, Shaping
from controller.fabric.topology import PortId
from controller.whatif.recording import Recorder
from controller.whatif.recording import decode as decode_recording
from controller.whatif.replay import replay
from experiments.experiment_options import ExperimentOptions
from experiments.experiment_runner import run
from experiments.model.control.agents import ModelAgents
from topologies.builders import fabrics

LIMITS_BPS = {1: 20_000_000, 2: 25_000_000}


def document_of(description, mode: str, profile: str = "full", **options: bool):
    document = model_plane.document_of(description, LIMITS_BPS, **options)
    document["agents"] = {"long_frames": True}
    for switch in document["switches"].values():
        switch["profile"] = profile
        for port in switch["ports"].values():
            port["agent"] = mode
    return document


def fabric_of(mode: str, profile: str = "full", blast_bps: float = 0.0, **options: bool):
    """Five PNs with 50 Mb/s links and an agent each; the last one receives, from 0.5 s on if the others blast it."""
    description = fabrics["dets-fig5"](pns=5, link_rate_bps=50_000_000)
    model, plane = under_control(description, document_of(description, mode, profile, **options), epoch=9)
    agents = ModelAgents(plane, description.pns)
    if blast_bps:
        blast(model, blast_bps, at_s=0.5)
    return model, plane, agents


def kinds(plane):
    return [event.kind for event in plane.events()]


def port_of(model, number):
    return model.edge_port(model.fabric.vn(1, number))


@pytest.mark.parametrize("shaping", ["agent", "both", "mixed"])
def test_figure_5_holds_whoever_shapes(tmp_path, shaping) -> None:
    options = ExperimentOptions(
        fabric="model", warmup_s=3, blast_s=4, cooldown_s=1, baseline=False, quiet=True, shaping=shaping
    )
    summary = run("dets-fig5", replace(options, output=tmp_path))["fp"]["figures"]
    assert summary["victim_intervals_below_95_percent"] <= 2
    assert summary["victim_goodput_bps_during"] >= 0.98 * summary["victim_goodput_limit_bps"]
    assert summary["aggressor_received_bps_during"] == pytest.approx(25e6, rel=0.02)


@pytest.mark.parametrize("algorithm", ["fs", "fp"])
def test_without_a_queue_a_blast_of_shaped_hosts_costs_tcp_two_intervals_at_most(tmp_path, algorithm) -> None:
    """Rates of the paper: until agents have rates for new pairs, meters bound them."""
    rates = {"link_rate_bps": 10**9, "victim_limit_bps": 400_000_000, "aggressor_limit_bps": 500_000_000}
    options = ExperimentOptions(
        **rates, udp_rate_bps=320_000_000, algorithm=algorithm, fabric="model", warmup_s=2, blast_s=2, cooldown_s=1,
        baseline=False, quiet=True, shaping="agent", queues="none", output=tmp_path,
    )  # fmt: skip
    figures = run("dets-fig5", options)[algorithm]["figures"]
    assert figures["victim_recovery_intervals"] <= 2
    assert figures["victim_intervals_below_95_percent"] <= 2
    assert figures["victim_goodput_bps_during"] >= 0.97 * figures["victim_goodput_limit_bps"]
    assert figures["aggressor_received_bps_during"] <= 1.02 * 500e6


@pytest.mark.parametrize(("shaping", "kept"), [("meter", False), ("agent", True)])
def test_vns_of_one_host_are_kept_apart_on_its_uplink_by_an_agent_alone(tmp_path, shaping, kept) -> None:
    options = ExperimentOptions(fabric="model", baseline=False, quiet=True, shaping=shaping, output=tmp_path)
    figures = run("dets-uplink", options)["fp"]["figures"]
    share = figures["victim_goodput_bps_during"] / figures["victim_goodput_limit_bps"]
    assert share >= 0.98 if kept else share < 0.5


def test_trusted_agents_shape_without_any_meter() -> None:
    model, plane, _ = fabric_of("trust", "no-meters", 16e6)
    assert received_bps(model, 2.0, 4.0) == pytest.approx(25e6, rel=0.02)
    assert set(plane.central.agents.shaping()) == {Shaping.AGENT}
    assert plane.central.state.entries.meter_id.tolist() == [0] * 4
    (sentence, *_) = (one["sentence"] for one in explanation_views(plane.central, np.arange(4)))
    assert sentence.endswith("; shaped by the agent on the host behind s1:1")
    assert plane.central.agents.counts() == {"absent": 0, "hello": 1, "trusted": 4, "distrusted": 0}


def test_pairs_get_meters_when_a_reload_takes_all_agents_away_and_agents_take_over_again_after_the_next() -> None:
    model, plane, _ = fabric_of("trust", blast_bps=16e6)
    model.run(3.0)
    assert not plane.central.state.entries.meter_id.any()
    for mode, shaping, metered in (("none", Shaping.METER, True), ("trust", Shaping.AGENT, False)):
        config = parse_config(yaml.safe_dump(document_of(model.fabric, mode)), "model")
        reconfigure(plane.central, config, model.now_s).finish(plane.central)
        assert received_bps(model, model.now_s + 0.5, model.now_s + 2.5) == pytest.approx(25e6, rel=0.03)
        assert set(plane.central.agents.shaping()) == {shaping}
        assert (plane.central.state.entries.meter_id > 0).tolist() == [metered] * 4
    assert plane.central.agents.epoch == 9


def test_a_trusted_agent_takes_over_from_meters_and_gives_back_within_25_intervals_of_its_death() -> None:
    model, plane, agents = fabric_of("trust", blast_bps=16e6)
    assert received_bps(model, 2.0, 3.0) == pytest.approx(25e6, rel=0.02)
    assert set(plane.central.agents.shaping()) == {Shaping.AGENT}
    for number in range(1, 6):
        agents.kill(number)
    assert received_bps(model, 3.0, 5.0) == pytest.approx(25e6, rel=0.03)
    assert (plane.central.state.entries.meter_id > 0).all()
    assert set(plane.central.agents.shaping()) == {Shaping.METER}
    lost_s = [event.at_s for event in plane.events() if event.kind is EventKind.AGENT_LOST]
    assert len(lost_s) == 5
    assert max(lost_s) <= 3.0 + 25 * INTERVAL_S
    assert plane.central.agents.ports[port_of(model, 1)].state is AgentState.ABSENT


def reaction_s(mode: str, profile: str = "full") -> list[float]:
    """After traffic began, and after a limit fell: the end of the last interval with more than 1.05 of the limit.

    Queues are off, so that what is seen is what senders are held to.
    """
    model, plane, _ = fabric_of(mode, profile, queues=False)
    row = plane.central.vns.row_of(2, *port_of(model, 5))
    model.run(1.0)
    blast(model, 16e6)
    found = []
    for limit_bps in (25_000_000, 12_000_000):
        plane.operator.set_vn(row, model.now_s, receive_limit_bps=limit_bps)
        begin_s = last_s = model.now_s
        for _ in range(54):
            if received_bps(model, model.now_s, model.now_s + INTERVAL_S) > 1.05 * limit_bps:
                last_s = model.now_s
        model.run(begin_s + 3.0)
        found.append(last_s - begin_s)
    return found


def test_an_agent_holds_its_senders_sooner_than_meters_do() -> None:
    (meter_began_s, meter_fell_s), (agent_began_s, agent_fell_s) = reaction_s("none"), reaction_s("trust", "no-meters")
    assert 0 < agent_began_s < meter_began_s < 53 * INTERVAL_S
    assert agent_fell_s < meter_fell_s < 53 * INTERVAL_S


def test_a_recording_with_agents_that_are_verified_is_replayed_bit_by_bit() -> None:
    model, plane, agents = fabric_of("verify")
    recorder = plane.central.recorder = Recorder()
    blast(model, 16e6, at_s=0.5)
    model.run(2.0)
    agents.kill(1)
    model.run(4.0)
    again = list(replay(decode_recording(recorder.drain())))
    assert len(again) > 60
    assert all(one.same for one in again)


def test_a_host_whose_agent_lets_go_is_held_by_its_backstop_at_once() -> None:
    model, plane, agents = fabric_of("verify", blast_bps=20e6)
    model.run(3.0)
    assert set(plane.central.agents.shaping()) == {Shaping.BOTH}
    for number in range(1, 5):
        agents.kill(number)
        agents.drop_rates(number)
    limit_bps = float(np.sum(plane.central.state.machines.limit_bps))
    interval_bps = [received_bps(model, 3.0 + n * 0.22, 3.22 + n * 0.22) for n in range(8)]
    assert max(interval_bps) <= 1.05 * limit_bps + 4 * 0.030 * 25e6 / 0.22


def test_an_agent_is_trusted_while_it_is_honest_and_distrusted_25_intervals_after_it_lied() -> None:
    model, plane, agents = fabric_of("verify", blast_bps=8e6)
    model.run(9.0)
    assert not {EventKind.AGENT_DISTRUSTED, EventKind.AGENT_LOST} & set(kinds(plane))
    agents.misreport(1)
    model.run(9.0 + 26 * INTERVAL_S)
    (event,) = [event for event in plane.events() if event.kind is EventKind.AGENT_DISTRUSTED]
    assert event.at_s <= 9.0 + 25 * INTERVAL_S
    assert plane.central.agents.ports[port_of(model, 1)].state is AgentState.DISTRUSTED
    assert received_bps(model, 11.0, 13.0) == pytest.approx(25e6, rel=0.03)


def rates_kbps(agents) -> int:
    """What agents let PNs 1 to 4 send to PN 5."""
    return sum(agents.rates_kbps(number, 2, 5) for number in range(1, 5))


@pytest.mark.parametrize(("loss", "intervals"), [(0.01, 1), (0.10, 2), (0.50, 5)])
def test_set_rate_gets_through_though_frames_are_lost(loss, intervals) -> None:
    model, plane, agents = fabric_of("trust", "no-meters", 16e6)
    model.run(2.0)
    for frames in agents.frames.values():
        frames.loss = loss
    row = plane.central.vns.row_of(2, *port_of(model, 5))
    late = []
    for number in range(12):
        limit_bps = 24_000_000 if number % 2 else 12_000_000
        plane.operator.set_vn(row, model.now_s, receive_limit_bps=limit_bps)
        begin_s, changed = model.now_s, 0
        model.run(begin_s + INTERVAL_S + 0.004)  # the next interval has decided and spoken
        while rates_kbps(agents) > limit_bps / 1000 * 1.01 and changed < 40:
            model.run(model.now_s + INTERVAL_S)
            changed += 1
        late.append(changed)
        model.run(begin_s + 2.0)
    assert np.mean(late) <= intervals


def test_rates_stand_while_the_controller_is_gone_and_not_for_ever() -> None:
    model, _, agents = fabric_of("trust", "no-meters", 16e6)
    model.run(3.0)
    held = rates_kbps(agents)
    agents.cut_off()
    model.run(3.0 + (2 * KEEP_ALIVE_INTERVALS - 2) * INTERVAL_S)
    assert rates_kbps(agents) == held > 0
    model.run(3.0 + (2 * KEEP_ALIVE_INTERVALS + 4) * INTERVAL_S)
    assert rates_kbps(agents) == 0


def forged(vid: int, opcode: Opcode, source: int = 0x02_0000_0000_99) -> list[bytes]:
    entries = np.zeros(1, dtype=LAYOUTS[opcode])
    if opcode is Opcode.SET_RATE:
        entries["rate_kbps"] = 1
    if opcode is Opcode.HELLO:
        entries = records(opcode, features=[7], interval_ms=[55], most_classes=[9], link_rate_kbps=[9])
    return encode(FrameAddress(source, CONTROLLER_MAC, vid, 1), opcode, entries, 1, 0)


@pytest.mark.parametrize("opcode", list(Opcode))
def test_no_control_frame_crosses_a_switch(opcode) -> None:
    model, _, _ = fabric_of("verify")
    port = port_of(model, 1)
    victim = int(model.fabric.vn(1, 5).mac.replace(":", ""), 16)
    datapath = model.switches[port.dpid]
    datapath.drain_frames()
    for frame in forged(1, opcode, victim):
        datapath.inject(port.port_no, frame, model.now_s)
    assert datapath.drain_frames() == []


def test_a_flood_of_forged_frames_takes_no_more_than_its_budget() -> None:
    model, plane, _ = fabric_of("verify", blast_bps=16e6)
    model.run(2.0)
    agents, port = plane.central.agents, port_of(model, 1)
    (frame,) = forged(2, Opcode.TRAFFIC_REPORT)
    for _ in range(5_500):  # what 100,000 a second are in an interval, and no switch holds any of it back
        plane.central.on_control_frame(*port, frame, model.now_s)
    refused = agents.ports[port].refused
    assert refused["budget"] >= 5_000
    assert agents.refused() == refused
    assert not agents.receive_frame(PortId(99, 1), frame, model.now_s)
    assert agents.refused() == refused + Counter({"no-agent": 1})
    assert received_bps(model, 2.0, 4.0) == pytest.approx(25e6, rel=0.03)


@pytest.mark.parametrize(("mode", "profile"), [("trust", "no-meters"), ("trust", "full"), ("verify", "full")])
def test_a_port_that_floods_is_silenced_by_its_switch_through_a_reload_and_for_a_while(mode, profile) -> None:
    model, plane, _ = fabric_of(mode, profile, 16e6)
    model.run(2.0)
    port, (frame,) = port_of(model, 1), forged(2, Opcode.TRAFFIC_REPORT)

    def flood(intervals: int) -> None:
        """Let 1,000 frames come to the port in each interval."""
        for _ in range(intervals):
            for _ in range(1000):
                model.switches[port.dpid].inject(port.port_no, frame, model.now_s)
            plane.listen(port.dpid)
            model.run(model.now_s + INTERVAL_S)

    flood(40 if profile == "full" else 4)  # a meter holds most of it back, so that there is time
    (event,) = [event for event in plane.events() if event.kind is EventKind.AGENT_DISTRUSTED]
    assert "sends too many control frames" in event.text
    refused, packet_ins = plane.central.agents.ports[port].refused.copy(), plane.counts.packet_ins
    flood(2)
    assert plane.central.agents.ports[port].refused == refused, "none of it comes up any more"
    assert 0 < plane.counts.packet_ins - packet_ins < 100, "what others say does"
    assert plane.central.agents.counts() == {"absent": 0, "hello": 1, "trusted": 3, "distrusted": 1}
    reconfigure(plane.central, plane.central.config, model.now_s).finish(plane.central)
    flooder = plane.central.agents.ports[port]
    refused = flooder.refused.copy()
    flood(4)
    assert (flooder.state, flooder.refused) == (AgentState.DISTRUSTED, refused)
    flooder.distrusted_s -= DISTRUST_S
    model.run(model.now_s + 10 * INTERVAL_S)
    assert flooder.state is AgentState.TRUSTED
    assert kinds(plane).count(EventKind.AGENT_DISTRUSTED) == 1


def test_a_port_without_an_agent_is_not_listened_to() -> None:
    model, plane, _ = fabric_of("none")
    (frame,) = forged(1, Opcode.HELLO)
    plane.central.on_control_frame(*port_of(model, 1), frame, model.now_s)
    assert plane.central.agents.refused() == {"no-agent": 1}
    assert EventKind.AGENT_UP not in kinds(plane)


def test_reports_are_taken_for_senders_at_that_port_alone() -> None:
    model, plane, _ = fabric_of("trust", "no-meters", 16e6)
    model.run(3.0)
    before = plane.central.state.measured.passed_bps.copy()
    sender, receiver = (int(model.fabric.vn(2, n).mac.replace(":", ""), 16) for n in (1, 5))
    entry = records(
        Opcode.TRAFFIC_REPORT,
        sender=[sender],
        receiver=[receiver],
        measured_kbps=[1],
        dropped_kbps=[0],
        limit_kbps=[1],
        available_kbps=[1],
        flags=[3],
    )
    for sequence in range(1, 6):  # PN 2 says that PN 1 sends nothing
        (frame,) = encode(
            FrameAddress(CONTROLLER_MAC, 0x02_00_00_00_00_77, 2, 5), Opcode.TRAFFIC_REPORT, entry, sequence, 0
        )
        plane.central.on_control_frame(*port_of(model, 2), frame, model.now_s)
    model.run(3.2)
    row = int(np.flatnonzero(plane.central.state.entries.sender == plane.central.vns.row_of(2, *port_of(model, 1)))[0])
    assert plane.central.state.measured.passed_bps[row] == pytest.approx(before[row], rel=0.01)


def test_the_controller_answers_hello_and_says_its_interval() -> None:
    model, plane, agents = fabric_of("trust")
    model.run(1.0)
    assert plane.central.agents.ports[port_of(model, 1)].long_frames
    assert agents.by_pn[1].interval_s == pytest.approx(INTERVAL_S)
    assert kinds(plane).count(EventKind.AGENT_UP) == 5
    assert TIMEOUT_INTERVALS == KEEP_ALIVE_INTERVALS


def test_frames_that_waited_for_a_reload_are_no_flood() -> None:
    model, plane, _ = fabric_of("trust")
    model.run(2.0)
    agents, port = plane.central.agents, port_of(model, 1)
    agents.ports[port].most_frames = agents.ports[port].allowance = 2000  # of 500 pairs, which send 500 in an interval
    (frame,) = forged(2, Opcode.TRAFFIC_REPORT)
    for _ in range(8 * 500):
        plane.central.on_control_frame(*port, frame, model.now_s)
    reconfigure(plane.central, plane.central.config, model.now_s).finish(plane.central)
    plane.central.agents._check_floods(model.now_s + 8 * INTERVAL_S)
    assert plane.central.agents.counts()["distrusted"] == 0


@pytest.mark.parametrize("mode", ["verify", "trust"])
def test_a_reload_forgets_nothing_that_agents_have_reported(mode) -> None:
    model, plane, _ = fabric_of(mode, blast_bps=16e6)
    model.run(3.0)
    before = plane.central.agents.shaping()
    assert Shaping.METER not in before
    config = parse_config(yaml.safe_dump(document_of(model.fabric, mode)), "model")
    reconfigure(plane.central, config, model.now_s).finish(plane.central)
    for _ in range(4):
        assert plane.central.agents.shaping() == before
        model.run(model.now_s + INTERVAL_S)
        assert not plane.central.state.unread_intervals.any()
