"""The same scenarios on the model fabric and on Open vSwitch, side by side: how exact the model is.

Steady rates should be within 5 %, convergence within one interval. Where Open vSwitch is not available only the model's
column is filled. docs/experiments.md explains the differences.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.bench.harness import Target, finished
from experiments.evaluation.measures import isolation_measures
from experiments.evaluation.run_matrix import SCALE, RunSpec, run_scenario
from experiments.measure.frame_sizes import TCP_HEADERS_BYTES, VLAN_TAG_BYTES
from experiments.ovs.fabric import OvsFabric, OvsOptions
from experiments.ovs.ovs_vsctl import ofctl
from experiments.ovs.traffic import FIRST_PORT, Flow, Traffic
from experiments.runs.scenario_run import DEFAULT_SETTINGS
from experiments.scenarios.dets_fig5 import joined_by_udp
from topologies.builders import fig1
from topologies.fabric import Fabric, VirtualNode

WITHIN = 0.05  # relative to the larger rate
WITHIN_INTERVALS = 1
# Below this rate a starving flow's rate is random: the difference means nothing.
STARVED_BPS = 5_000_000
# dets-fig2 and dets-fig5 at a twentieth of the paper's rates.
ISOLATION = joined_by_udp("isolation", "TCP joined by UDP", warmup_s=8, blast_s=8, cooldown_s=2).scaled(SCALE["ovs"])
QUEUES = joined_by_udp(
    "queues",
    "wider queues",
    link_rate_bps=100_000_000,
    victim_limit_bps=40_000_000,
    aggressor_limit_bps=50_000_000,
    udp_rate_bps=15_000_000,
    warmup_s=8,
    blast_s=8,
    cooldown_s=2,
)
SCENARIOS = (
    ("dets-fig2", "none", ISOLATION),
    ("dets-fig5", "fp d=2", ISOLATION),
    ("queues of 40 and 50 Mb/s, static meters", "static", QUEUES),
)
RATE_KBPS = 50_000
BURSTS_S = (0.020, 0.050, 0.100, 0.200, 0.400)
MODIFY_INTERVAL_S = 0.055
MODIFIED_BURST_S = 0.020
UDP_RATE_BPS = 95_000_000
METER_ID = 1
WARM_UP_S, MEASURE_S = 2.0, 8.0
FINE_SLOT_S = 0.0001  # the round trip of one flow on an empty fabric ...
# ... and the most that it grows by while a host or the switch waits for a processor: nine of ten pings on a quiet
# machine stayed below. It decides the flow's rate: with the smallest window, two segments in 0.5 ms, the flow sends at
# the rate of the meter and loses nothing.
JITTER_S = 0.0002


@dataclass(frozen=True, slots=True)
class Metered:
    """One flow through one meter of RATE_KBPS: TCP (cubic), or UDP with the meter modified in every interval."""

    burst_s: float
    udp: bool = False

    @property
    def burst_kbits(self) -> int:
        """The band's burst size."""
        return round(RATE_KBPS * self.burst_s)


def isolation_rows(fabric: str) -> dict[str, float]:
    """Return the figures of dets-fig2, of dets-fig5, and of static meters and queues, on one fabric."""
    rows: dict[str, float] = {}
    for name, control, scenario in SCENARIOS:
        spec = RunSpec(name, control, 1, fabric, scenario)
        with tempfile.TemporaryDirectory() as folder:
            figures = isolation_measures(run_scenario(spec, Path(folder)))
        rows[f"{name}: TCP before, bit/s"] = figures["victim_goodput_bps_before"]
        rows[f"{name}: TCP during, bit/s"] = figures["victim_goodput_bps_during"]
        rows[f"{name}: UDP during, bit/s"] = figures["aggressor_received_bps_during"]
        if control != "none":
            rows[f"{name}: below 95 %, intervals"] = figures["victim_intervals_below_95_percent"]
    return rows


def metered_rows(measure: Callable[[Metered], float]) -> dict[str, float]:
    """Return the rate of a flow through a meter, by scenario; ``measure`` measures it on one fabric."""
    rows = {f"TCP, meter of 50 Mb/s, burst {b * 1000:.0f} ms, bit/s": measure(Metered(b)) for b in BURSTS_S}
    label = f"UDP, meter of 50 Mb/s, burst {MODIFIED_BURST_S * 1000:.0f} ms, modified every 55 ms, bit/s"
    return {**rows, label: measure(Metered(MODIFIED_BURST_S, udp=True))}


def measure_on_model(case: Metered) -> float:
    """Return the goodput of TCP, or the wire rate of UDP, on the model."""
    from controller.openflow.constants import MeterModCommand
    from experiments.model.control.uncontrolled import install_metered_flow, set_meter
    from experiments.model.fabric import ModelFabric, ModelOptions
    from experiments.model.sources import UdpSource
    from experiments.model.tcp import TcpSource

    model = ModelFabric(fig1(pns=2), ModelOptions(slot_s=FINE_SLOT_S))
    sender, receiver = (model.fabric.vn(1, number) for number in (1, 2))
    install_metered_flow(model, sender, receiver, METER_ID, RATE_KBPS, case.burst_kbits)
    source = (
        UdpSource(UDP_RATE_BPS, model.slot_s)
        if case.udp
        else TcpSource("cubic", model.slot_s, jitter_s=JITTER_S, rng=model.rng)
    )
    model.connect(source, sender, receiver)
    source.start(0)

    def modify() -> None:
        set_meter(model, 1, METER_ID, RATE_KBPS, case.burst_kbits, MeterModCommand.MODIFY)
        model.at(model.now_s + MODIFY_INTERVAL_S, modify)

    if case.udp:
        modify()
    model.run(WARM_UP_S)
    received = model.received[receiver]
    bytes_before, packets_before = received.octets, received.packets
    model.run(WARM_UP_S + MEASURE_S)
    untagged = received.octets - bytes_before - VLAN_TAG_BYTES * (received.packets - packets_before)
    return _rate(untagged, received.packets - packets_before, MEASURE_S, case.udp)


def measure_on_ovs(case: Metered) -> float:
    """Return the goodput of TCP, or the wire rate of UDP, on userspace Open vSwitch."""
    fabric = fig1(pns=2)
    sender, receiver = (fabric.vn(1, number) for number in (1, 2))
    with OvsFabric(fabric, OvsOptions(edge_queues=True, static_arp=True)) as ovs:
        _install_on_ovs(fabric, sender, receiver, case)
        assert ovs.classifier is not None
        ovs.classifier.wait_ready()
        flow = Flow(sender, receiver, FIRST_PORT, None if case.udp else "cubic", UDP_RATE_BPS if case.udp else None)
        with tempfile.TemporaryDirectory() as folder, Traffic(ovs, Path(folder), 60) as traffic:
            traffic.serve([flow])
            traffic.start([flow], WARM_UP_S + MEASURE_S + 2)
            _wait(WARM_UP_S, case)
            before, begin_s = _sent(receiver), time.monotonic()
            _wait(MEASURE_S, case)
            after, duration_s = _sent(receiver), time.monotonic() - begin_s
            traffic.check_running([flow])
    return _rate(after[0] - before[0], after[1] - before[1], duration_s, case.udp)


def _install_on_ovs(fabric: Fabric, sender: VirtualNode, receiver: VirtualNode, case: Metered) -> None:
    """Install forwarding, the meter, and the flow entry that uses the meter."""
    ofctl("add-flow", "s1", "priority=1,actions=NORMAL")
    ofctl("add-meter", "s1", _meter(case))
    match = f"priority=100,in_port={sender.pn.port_no},dl_vlan={sender.vlan_vid},dl_dst={receiver.mac}"
    ofctl("add-flow", "s1", f"{match},actions=meter:{METER_ID},NORMAL")


def _meter(case: Metered) -> str:
    """Return the meter of a case in the form of ovs-ofctl."""
    return f"meter={METER_ID},kbps,burst,stats,band=type=drop,rate={RATE_KBPS},burst_size={case.burst_kbits}"


def _wait(duration_s: float, case: Metered) -> None:
    """Let time pass; if the case requires it, modify the meter in every interval."""
    end_s = time.monotonic() + duration_s
    due_s = time.monotonic()
    while (now_s := time.monotonic()) < end_s:
        if not case.udp:
            time.sleep(end_s - now_s)
        elif now_s >= due_s:
            due_s += MODIFY_INTERVAL_S
            ofctl("mod-meter", "s1", _meter(case))
        else:
            time.sleep(due_s - now_s)


def _sent(receiver: VirtualNode) -> tuple[int, int]:
    """Return (bytes, packets) that the receiver's interface has received, untagged."""
    folder = Path("/sys/class/net") / receiver.switch_interface / "statistics"
    return int((folder / "tx_bytes").read_text()), int((folder / "tx_packets").read_text())


def _rate(octets: int, packets: int, passed_s: float, udp: bool) -> float:
    """Return the wire rate of UDP, or the goodput of TCP, in bit/s; ``octets`` are of untagged frames."""
    counted = octets + VLAN_TAG_BYTES * packets if udp else octets - TCP_HEADERS_BYTES * packets
    return counted * 8 / passed_s


def why_not_ovs() -> str | None:
    """Return why Open vSwitch cannot be used; None if it can."""
    if os.geteuid() != 0:
        return "not root"
    return None if shutil.which("ovs-vsctl") else "Open vSwitch is not installed"


def compare(model: dict[str, float], ovs: dict[str, float]) -> list[Target]:
    """Return a target per figure that both fabrics have: the difference, and whether it is small enough."""
    rows = []
    for name in model.keys() & ovs.keys():
        is_duration = name.endswith("intervals")
        if is_duration:
            difference, target, unit = abs(model[name] - ovs[name]), float(WITHIN_INTERVALS), "intervals"
        else:
            largest = max(model[name], ovs[name])
            difference, target, unit = abs(model[name] - ovs[name]) / max(largest, 1.0), WITHIN, "of the rate"
            if largest < STARVED_BPS:
                continue
        rows.append(Target(name, difference, unit, target))
    return sorted(rows, key=lambda row: list(model).index(row.name))


def run() -> dict[str, Any]:
    """The model fabric against Open vSwitch (root; without root the model alone).

    It takes three minutes, of which the model takes seconds.
    """
    model = {**isolation_rows("model"), **metered_rows(measure_on_model)}
    reason = why_not_ovs()
    ovs = {} if reason else {**isolation_rows("ovs"), **metered_rows(measure_on_ovs)}
    figures = {name: {"model": value, "ovs": ovs.get(name)} for name, value in model.items()}
    grain = {"slot_s": DEFAULT_SETTINGS.slot_s, "fine_slot_s": FINE_SLOT_S, "jitter_s": JITTER_S}
    return finished("fidelity", figures, compare(model, ovs), {"ovs": reason or "userspace datapath", **grain})
