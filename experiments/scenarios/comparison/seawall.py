"""The traffic of Seawall's figures 9(a), 10 and 11: two tenants with half of the link each."""

import dataclasses

from experiments.scenarios.comparison import alone, lending
from experiments.scenarios.scenario import Limits, Scenario, Source
from experiments.scenarios.seawall import LINK_BPS, fig11

SETTLED = "settled"
HALF = Limits(LINK_BPS // 2, LINK_BPS // 2)


def _halves(name: str, title: str, pns: int, sources: tuple[Source, ...]) -> Scenario:
    """Return a scenario of two tenants, VLANs 1 and 2, each guaranteed half of the link."""
    return Scenario(
        name,
        title,
        topology="dets-fig1",
        pns=pns,
        limits={1: HALF, 2: HALF},
        sources=sources,
        duration_s=8.0,
        phases={SETTLED: (4.0, 8.0)},
    )


_WEB = next(scenario for scenario in fig11.scenarios if scenario.name == "seawall-fig11-flood")
TRAFFIC = (
    _halves(
        "seawall-fig9",
        "one TCP flow against UDP of another tenant at full rate",
        3,
        (Source(1, 1, 3, "tcp"), Source(2, 2, 3, "udp", LINK_BPS)),
    ),
    _halves(
        "seawall-fig10",
        "two tenants of one PN, TCP to one receiver and to eight",
        10,
        (Source(1, 1, 2, "tcp"), *(Source(2, 1, 3 + number, "tcp") for number in range(8))),
    ),
    dataclasses.replace(
        _WEB.lasting(10.0), name="seawall-fig11", limits={1: HALF, 2: HALF}, phases={SETTLED: (3.0, 10.0)}, queues=True
    ),
)

scenarios = tuple(block for traffic in TRAFFIC for block in (alone(traffic), lending(traffic, LINK_BPS)))
