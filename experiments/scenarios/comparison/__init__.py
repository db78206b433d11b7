"""All systems on the traffic of all four papers, in two blocks: without borrowing, and with borrowing.

In the first every ceiling is the limit; in the second ceilings are the link's rate. Systems that never borrow run only
in the first: in the second they would do the same. Weights are in proportion to guarantees. Each paper's law has its
published form next to the product's if the two differ. Fabrics in real time run only the second block: without
borrowing, the queue of a receiving port helps every system to its limits.
"""

import dataclasses
from collections.abc import Callable

from experiments.scenarios.gatekeeper.fig5 import LITERAL
from experiments.scenarios.hygenicc.fig2 import CUTS, published
from experiments.scenarios.scenario import Limits, Scenario
from experiments.scenarios.seawall import PUBLISHED

ALONE, LENDING = "alone", "lending"


def _hygenicc_published(scenario: Scenario) -> str:
    """Return HyGenICC's law as published for the largest number of senders to one receiver."""
    senders: dict[tuple[int, int], set[int]] = {}
    for vid, sender, receiver in scenario.pairs:
        senders.setdefault((vid, receiver), set()).add(sender)
    return published(max(map(len, senders.values())))


SYSTEMS: dict[str, str | Callable[[Scenario], str]] = {
    "no control": "none",
    "static limits": "static",
    "DETS, RAA-FS": "fs",
    "DETS, RAA-SP": "sp",
    "DETS, RAA-FP": "fp",
    "DETS, RAA-FE": "fe k=0.07",
    "level": "level",
    "max-min": "max-min",
    "Gatekeeper": "gatekeeper",
    "Gatekeeper, as published": LITERAL,
    "Seawall": "seawall",
    "Seawall, as published": PUBLISHED,
    "HyGenICC": CUTS[0],
    "HyGenICC, cut 2": CUTS[2],
    "HyGenICC, as published": _hygenicc_published,
}
"""By name the control of each system, which may depend on the number of senders to one receiver."""
BORROWERS = ("max-min", "Gatekeeper", "Gatekeeper, as published", "Seawall", "Seawall, as published")
EMULATED = ("max-min", "Gatekeeper", "Seawall")
"""The systems on fabrics in real time: those that borrow, without the published forms."""

WITHOUT_WEIGHTS = ("DETS, RAA-FE",)
"""Systems under which the product rejects weights."""


def control_of(system: str, scenario: Scenario) -> str:
    """Return the control of a system on a scenario."""
    control = SYSTEMS[system]
    return control if isinstance(control, str) else control(scenario)


def alone(scenario: Scenario) -> Scenario:
    """Return the scenario without borrowing, under all systems."""
    return _compared(scenario, ALONE, tuple(SYSTEMS), lambda limit: (limit.send_bps, limit.receive_bps))


def lending(scenario: Scenario, link_bps: int) -> Scenario:
    """Return the scenario with borrowing up to the link's rate, under the systems that borrow."""
    return _compared(scenario, LENDING, BORROWERS, lambda _: (link_bps, link_bps))


def _compared(
    scenario: Scenario, block: str, systems: tuple[str, ...], ceilings: Callable[[Limits], tuple[int, int]]
) -> Scenario:
    """Return a scenario of another paper for the compared ``systems``, with ceilings."""
    limits = {
        vid: dataclasses.replace(limit, send_ceiling_bps=ceilings(limit)[0], receive_ceiling_bps=ceilings(limit)[1])
        for vid, limit in scenario.limits.items()
    }
    weighted = any(limit.weight is not None for limit in limits.values())
    return dataclasses.replace(
        scenario,
        name=f"comparison-{scenario.name}-{block}",
        limits=limits,
        controls=tuple(control_of(name, scenario) for name in systems if not (weighted and name in WITHOUT_WEIGHTS)),
        emulated_controls=() if block == ALONE else tuple(control_of(name, scenario) for name in EMULATED),
        paper_controls=(),
        promise="limits" if block == ALONE else "ceilings",
        seeds=3,
        emulated_seeds=3,
    )
