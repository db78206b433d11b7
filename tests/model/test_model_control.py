"""The central controller on the model fabric, and the isolation experiment there: figures, files, determinism."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.model_plane import blast, document_of, received_bps, under_control

from controller.errors import InvalidValueError
from controller.events import EventKind
from controller.fabric.topology import PortId
from controller.openflow.flows import decode_flow_stats
from controller.openflow.multipart import encode_flow_stats_request
from experiments.experiment_options import ExperimentOptions
from experiments.experiment_runner import run
from experiments.model.control.control_plane import ControlTiming
from experiments.runs.model_run import run_on_model
from experiments.scenarios.dets_fig5 import joined_by_udp
from topologies.builders import fabrics

SHORT = ExperimentOptions(
    fabric="model", senders=4, warmup_s=3, blast_s=3, cooldown_s=1, udp_rate_bps=25_000_000, quiet=True
)
FAST = replace(
    SHORT,
    link_rate_bps=10_000_000_000,
    victim_limit_bps=4_000_000_000,
    aggressor_limit_bps=5_000_000_000,
    udp_rate_bps=2_500_000_000,
)


def controlled(topology="dets-fig5", timing=None, blast_bps=25e6):
    fabric = fabrics[topology](pns=5)
    document = document_of(fabric, dict(zip(fabric.vlans, (40_000_000, 50_000_000), strict=True)))
    model, plane = under_control(fabric, document, timing=timing)
    return model, plane, blast(model, blast_bps) if blast_bps else []


def kinds(plane):
    return [event.kind for event in plane.events()]


@pytest.mark.parametrize("topology", sorted(fabrics))
def test_a_blast_is_held_to_its_limit_on_every_topology(topology):
    model, plane, _ = controlled(topology)
    assert received_bps(model, 3.0, 6.0) == pytest.approx(50e6, rel=0.02)
    assert kinds(plane).count(EventKind.CONGESTION_BEGAN) == 1
    assert len(plane.central.state.entries) == 4
    assert EventKind.COUNTERS_IMPLAUSIBLE not in kinds(plane)


def test_senders_share_by_their_own_weights_and_limits_that_change_reach_the_queues():
    model, plane, senders = controlled()
    plane.operator.set_vlan(2, 0.0, algorithm="level")
    row = plane.central.vns.row_of(2, 1, 1)
    for weight, begin_s in ((3.0, 3.0), (1.0, 8.0)):
        plane.operator.set_vn(row, model.now_s, weight=weight)
        assert f"weight {weight:g}" in plane.events()[-1].text
        model.run(begin_s)
        before = [source.delivered for source in senders]
        model.run(begin_s + 3.0)
        first, *others = (source.delivered - was for source, was in zip(senders, before, strict=True))
        assert first / (sum(others) / 3) == pytest.approx(weight, rel=0.05)
    plane.operator.set_vn(plane.central.vns.row_of(2, 1, 5), model.now_s, receive_limit_bps=30_000_000)
    plane.write_queues()
    assert model.ports[PortId(1, 5)].port.queues[2].max_rate_bps == 30_000_000
    assert received_bps(model, 12.0, 14.0) == pytest.approx(30e6, rel=0.03)


def test_links_between_switches_come_up_and_stay():
    model, plane, _ = controlled("dets-fig7", blast_bps=0.0)
    model.run(8.0)
    assert kinds(plane).count(EventKind.LINK_UP) == len(model.fabric.core_links)
    assert EventKind.LINK_DOWN not in kinds(plane)


def test_each_pair_is_reported_until_it_has_its_entry():
    model, plane, _ = controlled(blast_bps=0.0)
    learned = plane.counts.packet_ins
    assert learned == len(model.received)
    blast(model, 25e6)
    model.run(1.0)
    assert 4 <= plane.counts.packet_ins - learned <= 8


@pytest.mark.parametrize("loop_delay_s", [0.0, 0.040])
def test_a_late_loop_still_holds_the_limit(loop_delay_s):
    model, plane, _ = controlled(timing=ControlTiming(0.055, loop_delay_s, jitter_s=0.010))
    assert received_bps(model, 3.0, 5.0) == pytest.approx(50e6, rel=0.03)
    assert plane.counts.intervals == pytest.approx(5.0 / 0.055, abs=1)
    assert EventKind.COUNTERS_IMPLAUSIBLE not in kinds(plane)


def test_a_switch_that_sets_meters_just_before_they_are_read_is_measured():
    """What a meter counts begins again at zero when it is set; no reading is of use so soon after."""
    model, plane, sources = controlled(timing=ControlTiming(0.055, 0.0535))
    for number, source in enumerate(sources):
        for turn in range(1, 40):  # on and off, so that grants change all the time
            change = source.stop if turn % 2 else source.start
            model.at(turn * (0.11 + 0.03 * number), lambda change=change: change(model.slot))
    model.run(1.0)
    first, oldest_s = plane.counts.meter_mods, 0.0
    while model.now_s < 5.0:
        model.run(model.now_s + 0.055)
        oldest_s = max(oldest_s, model.now_s - plane.central.state.counters.received_s.min())
    assert plane.counts.meter_mods - first > 40
    assert oldest_s < 4 * 0.055  # one reading is left out, the next one counts, and half an interval to the step


def test_flow_stats_are_as_old_as_the_revalidator_lets_them_be():
    model, plane, (source, *_) = controlled()
    model.run(3.0)
    seen = set()
    for _ in range(8):
        model.run(model.now_s + 0.11)
        stats = decode_flow_stats(plane._ask(1, encode_flow_stats_request))
        counts = {
            f.match.in_port: n for f, n in zip(stats.flows, stats.packet_count.tolist(), strict=True) if f.table_id == 3
        }
        count = counts[1]
        # Half a second, the interval at which it is looked at, and the first frames, which another entry counted.
        assert 0 <= source.sent - count <= (0.5 + 3 * 0.055) * 25e6 / source.frame_bits
        seen.add(count)
    assert 2 <= len(seen) <= 4


def test_timing_that_makes_no_sense_is_refused():
    for wrong in ({"interval_s": 0.0}, {"loop_delay_s": 0.06}, {"jitter_s": -0.001}):
        with pytest.raises(InvalidValueError, match=next(iter(wrong))):
            ControlTiming(**wrong)


@pytest.mark.parametrize("options", [SHORT, FAST], ids=["100M", "10G"])
def test_figures_2_and_5_of_the_paper_leave_the_files_of_open_vswitch(tmp_path: Path, options: ExperimentOptions):
    starved = run("dets-fig2", replace(options, output=tmp_path / "fig2"))["none"]["figures"]
    done = run("dets-fig5", replace(options, output=tmp_path / "fig5"))
    kept, baseline = done[options.control]["figures"], done["none"]["figures"]
    allowed_bps = kept["victim_goodput_limit_bps"]
    assert starved["victim_goodput_bps_during"] < 0.35 * allowed_bps
    assert baseline["victim_goodput_bps_during"] < 0.35 * allowed_bps
    assert kept["victim_goodput_bps_during"] > 0.95 * allowed_bps
    assert kept["aggressor_received_bps_during"] == pytest.approx(options.aggressor_limit_bps, rel=0.02)
    assert done["none"]["fabric"] == "model"
    folder = tmp_path / "fig5"
    assert {path.name for path in folder.iterdir()} == {"summary.json", "manifest.json", "dets-fig5.png", "dets-fig5"}
    assert json.loads((folder / "manifest.json").read_text())["options"]["fabric"] == "model"
    folder = folder / "dets-fig5" / options.control.replace(" ", "-") / "seed-1"
    assert (folder / "controller.yaml").exists()
    assert json.loads((folder / "seen.json").read_text())["switches"]["s1"]["meters"]
    with (folder / "series.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == pytest.approx(7.0 / 0.055, abs=2)
    assert min(float(row["time_s"]) for row in rows) == 0.0


@pytest.mark.parametrize("control", ["none", "static", "fp"])
def test_a_seed_gives_the_same_bytes_and_another_one_others(control: str):
    scenario = joined_by_udp("short", "short", senders=4, warmup_s=1, blast_s=1, cooldown_s=1).scaled(0.05)
    runs = [run_on_model(scenario, control, seed, lambda _passed_s: None) for seed in (7, 7, 8)]
    found = [(run.delivered_bits.tobytes(), run.granted_bps.tobytes()) for run in runs]
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
