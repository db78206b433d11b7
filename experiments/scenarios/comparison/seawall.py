"""The traffic of Seawall's figures 9 and 10.

Figure 9 is two senders of one VLAN with the link for a limit, figure 10 two VLANs with half of it each.
"""

from experiments.scenarios.comparison import compared
from experiments.scenarios.scenario import Limits, Scenario, Source
from experiments.scenarios.seawall import LINK_BPS

END_S = 15.0
SETTLED = "settled"
PHASES = {SETTLED: (5.0, END_S)}
HALF = Limits(LINK_BPS // 2, LINK_BPS // 2, LINK_BPS, LINK_BPS)

_FIG9 = Scenario(
    "seawall-fig9",
    "one TCP flow against UDP at full rate",
    topology="dets-fig1",
    pns=3,
    limits={1: Limits(LINK_BPS, LINK_BPS)},
    sources=(Source(1, 1, 3, "tcp"), Source(1, 2, 3, "udp", LINK_BPS)),
    duration_s=END_S,
    phases=PHASES,
)
_FIG10 = Scenario(
    "seawall-fig10",
    "two senders of one PN, TCP to one receiver and to eight",
    topology="dets-fig1",
    pns=10,
    limits={1: HALF, 2: HALF},
    sources=(Source(1, 1, 2, "tcp"), *(Source(2, 1, 3 + one, "tcp") for one in range(8))),
    duration_s=END_S,
    phases=PHASES,
    promise="ceilings",
)

scenarios = (compared(_FIG9), compared(_FIG10))
