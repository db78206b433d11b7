"""All scenarios with the paper's published law, shaped by agents on hosts instead of meters: its shims are there too.

A shim queues the frames that a meter drops.
"""

import dataclasses

from experiments.scenarios.scenario import Scenario
from experiments.scenarios.seawall import AT_HOSTS, AT_METERS, PUBLISHED, fig3, fig7, fig9, fig10, fig11, weights, work


def _at_hosts(scenario: Scenario) -> Scenario:
    """Return a scenario with the published law alone, shaped by agents."""
    return dataclasses.replace(
        scenario,
        name=scenario.name.replace(AT_METERS, AT_HOSTS, 1),
        title=f"{scenario.title}, shaped by hosts",
        controls=(PUBLISHED,),
        emulated_controls=(),
        shaping="agent",
        seeds=3,
    )


_MODULES = (fig3, fig9, fig10, fig11, weights, work)
_ALL = (fig7.scenario, *(base for module in _MODULES for base in module.scenarios))

scenarios = tuple(_at_hosts(base) for base in _ALL if PUBLISHED in base.controls)
