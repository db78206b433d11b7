"""Time from a surge to the meters' reaction on the model: what a control interval costs other tenants.

Four pairs that the controller knows begin to send, together 2.56 times their receiver's limit, whose port has a queue.
The time ends when meters are set that sum to at most 110 % of the limit. The surge begins at many phases of the
interval.
"""

from __future__ import annotations

import numpy as np
import yaml

from controller.central.controller import CentralController
from controller.config.loader import parse_config
from experiments.machine.controller_process import configuration
from experiments.model.control.control_plane import ControlPlane
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.sources import UdpSource
from topologies.builders import fig5

LINK_BPS, LIMIT_BPS, OFFERED_BPS, KNOWN_BPS = 50_000_000, 25_000_000, 16_000_000, 1_000_000
SENDERS, RECEIVER, VLAN = (1, 2, 3, 4), 5, 2
HELD_AT = 1.1  # the meters hold the surge when their rates together are at most this part of the receive limit
PHASES = 20
# From the first time of HOSTS_LEARNED_S to the second the senders send a little, so that hosts and pairs are known.
HOSTS_LEARNED_S, BEGIN_S, TIMEOUT_S = (0.5, 1.0), 3.0, 1.0


def figures(interval_ms: int, algorithm: str = "fp") -> dict[str, float]:
    """Return the least, the median and the longest time, ms, of surges in each of PHASES phases of an interval."""
    times_ms = [_reaction_ms(interval_ms, algorithm, phase / PHASES) for phase in range(PHASES)]
    return {"least_ms": min(times_ms), "median_ms": float(np.median(times_ms)), "most_ms": max(times_ms)}


def _reaction_ms(interval_ms: int, algorithm: str, phase: float) -> float:
    """Return the ms from a surge to limits that hold it, in virtual time; ``phase`` is in control intervals."""
    description = fig5(pns=len(SENDERS) + 1, link_rate_bps=LINK_BPS)
    document = configuration(description, {1: LIMIT_BPS, VLAN: LIMIT_BPS}, algorithm, {}, 6653, 8080)
    document["control"] |= {"interval_ms": interval_ms}
    model = ModelFabric(description, ModelOptions())
    plane = ControlPlane(model, CentralController(parse_config(yaml.safe_dump(document), "model"), epoch=9))
    plane.start()
    model.run(HOSTS_LEARNED_S[0])
    first_sources = _send(model, KNOWN_BPS)
    model.run(HOSTS_LEARNED_S[1])
    for source in first_sources:
        source.stop(model.slot)
    begin_s = BEGIN_S + phase * interval_ms / 1e3
    model.run(begin_s)
    _send(model, OFFERED_BPS)
    while model.now_s < begin_s + TIMEOUT_S:
        model.run(model.now_s + model.slot_s / 2)  # one slot: a part of a slot is rounded up
        if plane.central.state.enforcement.rate_bps.sum() <= HELD_AT * LIMIT_BPS:
            break
    return (model.now_s - begin_s) * 1e3


def _send(model: ModelFabric, rate_bps: float) -> list[UdpSource]:
    """Start a UDP source at each sender, and return the sources."""
    sources = [UdpSource(rate_bps, model.slot_s) for _ in SENDERS]
    for number, source in zip(SENDERS, sources, strict=True):
        model.connect(source, model.fabric.vn(VLAN, number), model.fabric.vn(VLAN, RECEIVER))
        source.start(model.slot)
    return sources
