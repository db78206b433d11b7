"""All systems on the traffic of all four papers: DETS's figures 5 and 6, Seawall's 9 and 10, Gatekeeper's 5.

Limits are what all can keep: those who lend go up to ceilings, for the others these do not count.
"""

import dataclasses

from experiments.scenarios.scenario import Scenario

CUT_2 = "hygenicc cut=2 slow=0.02 fast=0.2"
SYSTEMS = ("none", "fs", "sp", "fp", "fe", "max-min", "gatekeeper", "seawall", "hygenicc", CUT_2)


def compared(scenario: Scenario) -> Scenario:
    """Return a paper's scenario, or one with its traffic, under all systems."""
    return dataclasses.replace(
        scenario,
        name=f"comparison-{scenario.name}",
        controls=SYSTEMS,
        emulated_controls=("none", "fp", "max-min", "gatekeeper", "seawall", CUT_2),
        emulated_seeds=1,
        paper_controls=(),
        seeds=3,
    )
