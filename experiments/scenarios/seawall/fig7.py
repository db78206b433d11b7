"""Figure 7: a sender with three tunnels and one with one, over one link. A loop per tunnel gives the first 3/4."""

from experiments.scenarios.scenario import Source
from experiments.scenarios.seawall import LINK_BPS, PUBLISHED, shared

scenario = shared(
    "seawall-fig7",
    "UDP to three receivers and to one, over one core link",
    {1: None, 2: None},
    topology="dumbbell",
    topology_options={"core_rate_bps": LINK_BPS, "receivers": 4},
    pns=6,
    sources=(*(Source(1, 1, to, "udp", LINK_BPS // 3) for to in (3, 4, 5)), Source(2, 2, 6, "udp", LINK_BPS)),
    controls=("none", "seawall", "seawall-exact", "seawall-strawman", PUBLISHED),
)
