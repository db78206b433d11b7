"""Figure 9: one TCP flow against (a) UDP at full rate, (b) selfish senders of 1, 2 and 66 TCP flows."""

from experiments.scenarios.scenario import Scenario, Source
from experiments.scenarios.seawall import ALL_LAWS, LINK_BPS, shared


def _selfish(flows: int) -> Scenario:
    return shared(
        f"seawall-fig9-b{flows}",
        f"one TCP flow against {flows} of another sender",
        {1: None, 2: None},
        pns=3,
        sources=(Source(1, 1, 3, "tcp"), Source(2, 2, 3, "tcp", flows=flows)),
    )


scenarios = (
    shared(
        "seawall-fig9-alone",
        "one TCP flow alone",
        {1: None, 2: None},
        pns=3,
        sources=(Source(1, 1, 3, "tcp"),),
        seeds=3,
    ),
    shared(
        "seawall-fig9-a",
        "one TCP flow against UDP at full rate",
        {1: None, 2: None},
        pns=3,
        sources=(Source(1, 1, 3, "tcp"), Source(2, 2, 3, "udp", LINK_BPS)),
        controls=ALL_LAWS,
    ),
    *(_selfish(flows) for flows in (1, 2, 66)),
)
