"""``dets bench marks``: meters and flow entries of HyGenICC's marks by what makes them, and its step's time an entry.

Meters and entries are those of switches on the model, with every sender talking to every receiver behind another
switch. The step is the policy's decision alone, on one core, with all pairs of so many VNs; a third is marked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml

from controller.allocation.parameters import parameters_of
from controller.central.controller import CentralController
from controller.config.load import parse_config
from controller.errors import InvalidValueError
from controller.fabric.entries import EntryTable
from controller.fabric.links import FabricLinks
from controller.fabric.vns import VnTable
from controller.forwarding.pipeline import Table
from controller.hygenicc.policy import HyGenICC
from controller.metering.mark_readings import MarkReadings
from controller.policy.interface import PolicyView
from controller.policy.memory import Memory
from experiments.bench.allocate.bench import timed
from experiments.machine.controller_process import configuration
from experiments.machine.processors import machine
from experiments.model.control import ControlPlane
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.sources import UdpSource
from topologies.builders import fabrics

HOSTS, VNS, MOST_VNS = 8, (100, 316), 1000
LINK_BPS = 1_000_000_000
TALKED_S = 1.0
INTERVAL_S = 0.055
BUDGET_S = 2.0
TARGET_ENTRIES_PER_S = 50e6  # as for the algorithms of receivers
OF_MARKS = (Table.MARKS, Table.COUNT, Table.PHANTOM)
CUTS: tuple[dict[str, float], ...] = ({}, {"cut": 2.0, "slow": 0.02, "fast": 0.2})


def run(hosts: int = HOSTS, vns: int | None = None) -> dict[str, Any]:
    """Measure with so many ``hosts`` at each of two switches, and the step with all pairs of so many ``vns``."""
    if not 2 <= hosts <= 32:
        raise InvalidValueError("hosts", hosts, "is outside 2 to 32")
    if vns is not None and not 2 <= vns <= MOST_VNS:
        raise InvalidValueError("vns", vns, f"is outside 2 to {MOST_VNS}")
    states = {what: state(hosts, *which) for what, which in MODES.items()}
    steps = [step(size, parameters) for size in ([vns] if vns else VNS) for parameters in CUTS]
    pairs = hosts * hosts
    more = states["phantom meters and ECN"]["meters"] - states["phantom meters"]["meters"]
    fastest = max(one["entries_per_s"] for one in steps)
    targets = [
        {"name": "meters of ECN, a pair", "value": more / pairs, "unit": "", "target": 1.0, "met": more <= pairs},
        {
            "name": "step, entries per second",
            "value": round(fastest / 1e6, 2),
            "unit": "M/s",
            "target": TARGET_ENTRIES_PER_S / 1e6,
            "met": fastest >= TARGET_ENTRIES_PER_S,
        },
    ]
    return {"figures": {"state": states, "step": steps}, "settings": {"hosts": hosts, **machine()}, "targets": targets}


MODES = {
    "DETS (fp)": ("fp", "phantom"),
    "phantom meters": ("hygenicc", "phantom"),
    "phantom meters and ECN": ("hygenicc", "both"),
}


def state(hosts: int, algorithm: str, marks: str) -> dict[str, int]:
    """Return how many meters and entries both switches hold, and how many entries are there for marks alone."""
    fabric = fabrics["dumbbell"](pns=2 * hosts, link_rate_bps=LINK_BPS, vlans=(1,), receivers=hosts)
    document = configuration(fabric, {1: LINK_BPS}, algorithm, {}, openflow_port=6653, rest_port=8080)
    model = ModelFabric(fabric, ModelOptions())
    config = parse_config(yaml.safe_dump(document | {"ecn": {"marks": marks}}), "bench")
    ControlPlane(model, CentralController(config)).start()
    for sender in range(1, hosts + 1):
        for receiver in range(hosts + 1, 2 * hosts + 1):
            source = UdpSource(1e6, model.slot_s)
            model.connect(source, fabric.vn(1, sender), fabric.vn(1, receiver))
            source.start(0)
    model.run(TALKED_S)
    flows = [flow for switch in model.switches.values() for flow in switch.tables.flows()]
    return {
        "meters": sum(len(switch.meters.ids()) for switch in model.switches.values()),
        "flow_entries": len(flows),
        "flow_entries_of_marks": sum(flow.table_id in OF_MARKS for flow in flows),
    }


def step(vns: int, parameters: dict[str, float]) -> dict[str, Any]:
    """Return how long a decision on all pairs of so many VNs takes, at best and in the median."""
    policy = HyGenICC(**parameters)
    view = busy(vns, policy)
    memory = policy.decide(view, Memory(vns, rows=np.arange(len(view.rows)))).memory
    best_s, median_s, _ = timed(lambda: policy.decide(view, memory), BUDGET_S)
    entries = len(view.rows)
    return {
        "cut": int(policy.cut),
        "entries": entries,
        "best_ms": round(best_s * 1e3, 3),
        "median_ms": round(median_s * 1e3, 3),
        "best_ns_per_entry": round(best_s * 1e9 / entries, 1),
        "entries_per_s": round(entries / best_s),
    }


def busy(count: int, policy: HyGenICC) -> PolicyView:
    """Return what the policy sees while all VNs of a VLAN send to all others and a third of the receivers has marks."""
    fabric = fabrics["dets-fig1"](pns=count, link_rate_bps=LINK_BPS, vlans=(1,))
    document = configuration(fabric, {1: LINK_BPS}, policy.name, {}, openflow_port=6653, rest_port=8080)
    vns = VnTable.of_config(parse_config(yaml.safe_dump(document), "bench"))
    receiver, sender = np.divmod(np.arange(count * count), count)
    talks = sender != receiver
    entries = EntryTable(sender[talks], receiver[talks], np.arange(1, talks.sum() + 1))
    rng, rows = np.random.default_rng(1), np.arange(len(entries))
    limit_bps = rng.exponential(LINK_BPS / count, len(rows))
    measured_bps = limit_bps * rng.uniform(0.5, 1.0, len(rows))
    arrived_bps = np.bincount(entries.receiver, measured_bps, minlength=count).astype(np.float64)
    beyond_bps = np.where(rng.random(count) < 1 / 3, 0.02 * arrived_bps, 0.0)
    links = FabricLinks.of_access(vns)
    nothing = np.zeros(len(links.capacity_bps))
    return PolicyView(
        now_s=100.0,
        elapsed_s=INTERVAL_S,
        entries=entries,
        vns=vns,
        mine=np.ones(count, dtype=np.bool_),
        parameters={name: np.full(count, float(getattr(policy, name))) for name in parameters_of(HyGenICC)},
        received_bps=arrived_bps,
        passed_bps=measured_bps,
        congested=np.zeros(count, dtype=np.bool_),
        rows=rows,
        sender=entries.sender,
        receiver=entries.receiver,
        measured_bps=measured_bps,
        dropped_bps=np.zeros(len(rows)),
        drops=np.zeros(len(rows), dtype=np.bool_),
        limit_bps=limit_bps,
        available_bps=limit_bps,
        active=np.ones(len(rows), dtype=np.bool_),
        unread_intervals=np.zeros(len(rows), dtype=np.int64),
        links=links,
        others_bps=nothing,
        others_within_bps=nothing,
        marks=MarkReadings(np.full(len(rows), np.nan), arrived_bps, beyond_bps),
    )
