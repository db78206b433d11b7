"""The traffic of Gatekeeper's figure 5: cells in which both tenants send to one PN; with borrowing, two more."""

import dataclasses

from experiments.scenarios.comparison import alone, lending
from experiments.scenarios.gatekeeper.fig5 import SCHEDULED_BPS, TO_ONE, cells
from experiments.scenarios.scenario import Scenario

BOTH = (("1 TCP", "UDP"), ("1 TCP", "10 TCP"), ("UDP", "UDP"))
ONE = (("1 TCP", "none"), ("none", "UDP"))


def _cells(chosen: tuple[tuple[str, str], ...]) -> Scenario:
    made = cells("gatekeeper-fig5", "two tenants send to one PN", TO_ONE, 3, chosen)
    weights = {1: 3.0, 2: 1.0}  # as the guarantees: 645 and 215 Mb/s
    return dataclasses.replace(
        made, limits={vid: dataclasses.replace(limit, weight=weights[vid]) for vid, limit in made.limits.items()}
    )


scenarios = (alone(_cells(BOTH)), lending(_cells((*BOTH, *ONE)), SCHEDULED_BPS))
