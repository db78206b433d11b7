"""How soon meters meet a blast: a part of ``dets bench interval``.

Four pairs that the controller knows begin to send, together 2.56 times their receiver's limit, whose port has a queue.
The time is that until meters are set that sum to 110 % of the limit. The blast begins at many phases of the interval.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import yaml

from apps.cli.support import recordings
from controller.central.controller import CentralController
from controller.config.load import parse_config
from controller.whatif.recording import Interval, Start
from experiments.evaluation.cells import Cell, run_scenario
from experiments.machine.controller_process import configuration
from experiments.model.control import ControlPlane
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.sources import UdpSource
from experiments.runs.run import RunSettings
from experiments.scenarios.scenario import Limits, Scenario, Source
from topologies.builders import fig5

LINK_BPS, LIMIT_BPS, OFFERED_BPS, KNOWN_BPS = 50_000_000, 25_000_000, 16_000_000, 1_000_000
SENDERS, RECEIVER, VLAN = (1, 2, 3, 4), 5, 2
MET = 1.1
PHASES = 20
HEARD_S, BEGIN_S, PATIENCE_S = (0.5, 1.0), 3.0, 1.0
BLASTS, EVERY_S, LASTS_S = 20, 3.0, 0.6

Figures = dict[str, float | None]


def figures(times_ms: Iterable[float]) -> Figures:
    """Return what stands in the table of these times."""
    ordered = np.sort(np.array(list(times_ms)))
    names = ("blast to meters, least, ms", "blast to meters, median, ms", "blast to meters, most, ms")
    return dict(zip(names, (float(np.percentile(ordered, share)) for share in (0, 50, 100)), strict=True))


def on_model(interval_ms: int, algorithm: str = "fp") -> list[float]:
    """Return the times, ms, from the beginning of a blast in each of PHASES phases of an interval."""
    return [_met_ms(interval_ms, algorithm, phase / PHASES) for phase in range(PHASES)]


def _met_ms(interval_ms: int, algorithm: str, phase: float) -> float:
    description = fig5(pns=len(SENDERS) + 1, link_rate_bps=LINK_BPS)
    document = configuration(description, {1: LIMIT_BPS, VLAN: LIMIT_BPS}, algorithm, {}, 6653, 8080)
    document["control"] |= {"interval_ms": interval_ms}
    model = ModelFabric(description, ModelOptions())
    plane = ControlPlane(model, CentralController(parse_config(yaml.safe_dump(document), "model"), epoch=9))
    plane.start()
    model.run(HEARD_S[0])
    heard = _send(model, KNOWN_BPS)
    model.run(HEARD_S[1])
    for source in heard:
        source.stop(model.slot)
    begin_s = BEGIN_S + phase * interval_ms / 1e3
    model.run(begin_s)
    _send(model, OFFERED_BPS)
    while model.now_s < begin_s + PATIENCE_S:
        model.run(model.now_s + model.slot_s / 2)
        if plane.central.state.enforcement.rate_bps.sum() <= MET * LIMIT_BPS:
            break
    return (model.now_s - begin_s) * 1e3


def _send(model: ModelFabric, rate_bps: float) -> list[UdpSource]:
    sources = [UdpSource(rate_bps, model.slot_s) for _ in SENDERS]
    for number, source in zip(SENDERS, sources, strict=True):
        model.connect(source, model.fabric.vn(VLAN, number), model.fabric.vn(VLAN, RECEIVER))
        source.start(model.slot)
    return sources


def scenario(interval_ms: int) -> Scenario:
    """Return BLASTS blasts on end, each of which begins a PHASES-th of an interval later in it."""
    interval_s = interval_ms / 1e3
    every_s = (round(EVERY_S / interval_s) + 1 / PHASES) * interval_s
    starts_s = [BEGIN_S + number * every_s for number in range(BLASTS)]
    spans = (HEARD_S, *((start_s, start_s + LASTS_S) for start_s in starts_s))
    return Scenario(
        name="blasts",
        title="blasts by known pairs",
        topology="dets-fig5",
        pns=len(SENDERS) + 1,
        link_rate_bps=LINK_BPS,
        limits={VLAN: Limits(LIMIT_BPS, LIMIT_BPS)},
        sources=tuple(Source(VLAN, number, RECEIVER, "udp", OFFERED_BPS, spans=spans) for number in SENDERS),
        duration_s=starts_s[-1] + EVERY_S,
        phases={"blasts": (BEGIN_S, starts_s[-1] + EVERY_S)},
    )


def on_ovs(interval_ms: int, algorithm: str = "fp") -> list[float]:
    """Return the times, ms, of the blasts of one run on Open vSwitch, until the controller had decided (root)."""
    blasts = scenario(interval_ms)
    settings = RunSettings(interval_ms=interval_ms)
    with tempfile.TemporaryDirectory(prefix="dets-blast-") as folder:
        ran = run_scenario(Cell("blasts", algorithm, 1, "ovs", blasts, settings), Path(folder))
        decided = list(_decided(recordings.read(Path(folder) / "recording")))
    begun_s = ran.notes["begun_s"]
    starts_s = [begun_s + start_s for start_s, _ in blasts.sources[0].spans[1:]]
    return [_decided_ms(decided, start_s) for start_s in starts_s]


def _decided(records: Iterable[Start | Interval]) -> Iterator[tuple[float, float]]:
    """Yield when the controller decided, and what the limits of the receiver's pairs were in all then."""
    theirs = np.zeros(0, np.bool_)
    for one in records:
        if isinstance(one, Start):
            theirs = one.vns.port_no[one.state.entries.receiver] == RECEIVER
        else:
            yield one.now_s, float(one.limit_bps[theirs].sum())


def _decided_ms(decided: Iterable[tuple[float, float]], start_s: float) -> float:
    met = (now_s for now_s, limit_bps in decided if now_s >= start_s and limit_bps <= MET * LIMIT_BPS)
    return (next(met, start_s + PATIENCE_S) - start_s) * 1e3
