"""The traffic of Gatekeeper's figure 5: all 15 cells towards one PN."""

import dataclasses

from experiments.scenarios.comparison import compared
from experiments.scenarios.gatekeeper import fig5

scenarios = (compared(dataclasses.replace(fig5.scenarios[0], name="gatekeeper-fig5")),)
