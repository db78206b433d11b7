"""Model fabrics under a controller, in virtual time, and traffic on them."""

from __future__ import annotations

from typing import Any, TypeVar

import yaml

from controller.central.controller import CentralController
from controller.config.loader import parse_config
from experiments.machine.controller_process import configuration
from experiments.model.control.control_plane import ControlPlane, ControlTiming
from experiments.model.fabric import ModelFabric, ModelOptions
from experiments.model.sources import ModelSource, UdpSource
from topologies.fabric import Fabric

INTERVAL_S = 0.055
DEFAULT_OPTIONS = ModelOptions()
Document = dict[str, Any]
Source = TypeVar("Source", bound=ModelSource)


def document_of(
    fabric: Fabric, limits_bps: dict[int, int], algorithm: str = "fp", *, queues: bool = True, **parameters: object
) -> Document:
    """Return the configuration of a fabric, before it is read."""
    return configuration(fabric, limits_bps, algorithm, parameters, 6653, 8080, queues=queues)


def under_control(
    fabric: Fabric,
    document: Document,
    options: ModelOptions = DEFAULT_OPTIONS,
    timing: ControlTiming | None = None,
    epoch: int = 0,
) -> tuple[ModelFabric, ControlPlane]:
    """Return a model of a fabric, and the controller that has just started on it."""
    model = ModelFabric(fabric, options)
    central = CentralController(parse_config(yaml.safe_dump(document), "model"), epoch=epoch)
    plane = ControlPlane(model, central, timing)
    plane.start()
    return model, plane


def send(model: ModelFabric, source: Source, vid: int, sender: int, receiver: int, at_s: float | None = None) -> Source:
    """Let a source of one PN send to another, now or from a time on."""
    model.connect(source, model.fabric.vn(vid, sender), model.fabric.vn(vid, receiver))
    if at_s is None:
        source.start(model.slot)
    else:
        model.at(at_s, lambda: source.start(model.slot))
    return source


def blast(model: ModelFabric, rate_bps: float, vid: int = 2, at_s: float | None = None) -> list[UdpSource]:
    """Let all PNs send UDP to the last one."""
    *senders, last = (pn.number for pn in model.fabric.pns)
    return [send(model, UdpSource(rate_bps, model.slot_s), vid, number, last, at_s) for number in senders]


def received_bps(model: ModelFabric, begin_s: float, end_s: float, vid: int = 2, pn: int = 5) -> float:
    """Let time pass; return what a VN received between two times."""
    vn = model.fabric.vn(vid, pn)
    model.run(begin_s)
    before = model.received[vn].octets
    model.run(end_s)
    return (model.received[vn].octets - before) * 8 / (end_s - begin_s)
