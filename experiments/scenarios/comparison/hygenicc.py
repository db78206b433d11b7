"""The traffic of HyGenICC's figure 3: eight senders, seven with UDP at full rate, and the last one with TCP."""

import dataclasses

from experiments.scenarios.comparison import alone
from experiments.scenarios.hygenicc import fig3

_EIGHT = next(scenario for scenario in fig3.scenarios if scenario.name == "hygenicc-fig3-8-udp").lasting(10.0)

scenarios = (alone(dataclasses.replace(_EIGHT, name="hygenicc-fig3")),)
