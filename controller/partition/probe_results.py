"""Test results of a switch in a form that one controller leaves for the next, which then need not test again.

Only positive results are passed on: meters that limit and count. They hold for exactly the switch that was tested; a
switch with another description or software release discards them (``Capabilities``).
"""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

from controller.capability.capabilities import UNKNOWN, Ability, Capabilities, ProbeResult
from controller.errors import InvalidValueError
from controller.fabric.meter_bounds import MAX_KILO, MeterBounds
from controller.openflow.constants import MeterFlags
from controller.openflow.meters import MeterFeatures
from controller.openflow.multipart import SwitchDesc

_WORKS = Ability(ProbeResult.WORKS)


def encode_probe_results(can: Capabilities) -> bytes | None:
    """Return the test results of a switch, None if its meters were not tested or did not work."""
    if can.features is None or can.description is None or not (can.meters.works and can.counters.works):
        return None
    of_abilities = {name: [ability.finding, ability.why] for name, ability in _more(can).items()}
    known = {"description": list(can.description), "features": astuple(can.features), **of_abilities}
    known["bounds"] = list(map(int, can.bounds))
    return json.dumps(known).encode()


def import_probe_results(can: Capabilities, data: bytes) -> None:
    """Import the result of another node's ``encode_probe_results``, unless this node has tested.

    Raises InvalidValueError.
    """
    try:
        known: dict[str, Any] = json.loads(data)
        description = SwitchDesc(*map(str, known["description"]))
        max_meter, band_types, flags, max_bands, max_color = map(int, known["features"])
        features = MeterFeatures(max_meter, band_types, MeterFlags(flags), max_bands, max_color)
        more = {name: Ability(ProbeResult(known[name][0]), str(known[name][1])) for name in _more(can)}
        bounds = MeterBounds._make(map(int, known["bounds"]))
        if not all(1 <= int(bound) <= MAX_KILO for bound in bounds):
            raise ValueError(f"bounds {tuple(bounds)}")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InvalidValueError("findings", data[:100], f"is not a switch's test results: {error!r}") from None
    if can.tested or can.passive is not UNKNOWN:
        return
    can.description, can.features = description, features
    can.meters = can.counters = _WORKS
    can.set_queue, can.ecn = more["set_queue"], more["ecn"]
    can.learn_bounds(bounds)
    can.set_meters_unused("")  # no reason: meters are used


def _more(can: Capabilities) -> dict[str, Ability]:
    return {"set_queue": can.set_queue, "ecn": can.ecn}
