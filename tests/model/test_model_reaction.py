"""How soon a sender is held after traffic begins or a limit falls: by meters, by agents. On the model, in virtual time.

Four PNs blast a fifth, whose limit is far below what they send. The reaction time is that of the last interval in which
more than 1.05 of the limit left the edge switch towards the receiver.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import yaml

from controller.central.controller import CentralController
from controller.config.loader import parse_config
from experiments.machine.controller_process import configuration
from experiments.model.control.agents import ModelAgents
from experiments.model.control.control_plane import ControlPlane
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.sources import UdpSource
from topologies.builders import fig5

INTERVAL_S = 0.055
LINK_BPS, LIMIT_BPS, LOWER_BPS, OFFERED_BPS = 50_000_000, 25_000_000, 12_000_000, 16e6
SENDERS, RECEIVER, VLAN = (1, 2, 3, 4), 5, 2
BEGIN_S, FALL_S, END_S = 1.0, 4.0, 7.0
ABOVE = 1.05
AGENTS = {"meter": "none", "agent": "trust", "both": "verify"}


def _start(source: UdpSource, model: ModelFabric) -> None:
    source.start(model.slot)


def reaction_ms(shaping: str) -> dict[str, float]:
    """Return the reaction times, ms, to traffic that begins and to a limit that falls, under ``shaping``.

    Queues of the edge port are off, so that what is seen is what senders are held to.
    """
    model, plane = _fabric(shaping)
    for number in SENDERS:
        source = UdpSource(OFFERED_BPS, model.slot_s)
        model.connect(source, model.fabric.vn(VLAN, number), model.fabric.vn(VLAN, RECEIVER))
        model.at(BEGIN_S, partial(_start, source, model))
    began_ms = _last_above_ms(model, BEGIN_S, FALL_S, LIMIT_BPS)
    row = plane.central.vns.row_of(VLAN, *model.edge_port(model.fabric.vn(VLAN, RECEIVER)))
    assert row is not None
    plane.operator.set_vn(row, model.now_s, receive_limit_bps=LOWER_BPS)
    return {"traffic_begins": began_ms, "limit_falls": _last_above_ms(model, FALL_S, END_S, LOWER_BPS)}


def _fabric(shaping: str) -> tuple[ModelFabric, ControlPlane]:
    description = fig5(pns=5, link_rate_bps=LINK_BPS)
    document: dict[str, Any] = configuration(
        description, {1: 20_000_000, VLAN: LIMIT_BPS}, "fp", {}, 6653, 8080, queues=False
    )
    document["agents"] = {"long_frames": True}
    for switch in document["switches"].values():
        switch["profile"] = "no-meters" if shaping == "agent" else "full"
        for port in switch["ports"].values():
            port["agent"] = AGENTS[shaping]
    model = ModelFabric(description, ModelOptions())
    plane = ControlPlane(model, CentralController(parse_config(yaml.safe_dump(document), "model"), epoch=9))
    plane.start()
    if shaping != "meter":
        ModelAgents(plane, description.pns)
    model.run(BEGIN_S)
    return model, plane


def _last_above_ms(model: ModelFabric, begin_s: float, end_s: float, limit_bps: float) -> float:
    """Return the end of the last interval with more than the limit, counted from ``begin_s``."""
    vn = model.fabric.vn(VLAN, RECEIVER)
    last_s, at_s, before = begin_s, begin_s, model.received[vn].octets
    while at_s + INTERVAL_S <= end_s:
        at_s += INTERVAL_S
        model.run(at_s)
        now = model.received[vn].octets
        if (now - before) * 8 / INTERVAL_S > ABOVE * limit_bps:
            last_s = at_s
        before = now
    return round((last_s - begin_s) * 1e3, 1)


def test_an_agent_holds_its_senders_sooner_than_meters_do() -> None:
    meter, agent = reaction_ms("meter"), reaction_ms("agent")
    for event, times in (("traffic_begins", FALL_S), ("limit_falls", END_S - FALL_S)):
        assert 0 < agent[event] < meter[event] < times * 1e3
