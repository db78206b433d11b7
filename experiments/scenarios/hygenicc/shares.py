"""HyGenICC's shares: independent of the number of connections, dependent on weights and on each destination."""

from experiments.scenarios.hygenicc.fig2 import CUTS, LINK_BPS, in_real_time, published
from experiments.scenarios.scenario import Limits, Scenario, Source

END_S = 8.0
STEADY = "steady"
PHASES = {STEADY: (3.0, END_S)}
RATE_PER_VN = f"{CUTS[2]} scope=0"
WHOLE = Limits(LINK_BPS, LINK_BPS)

scenarios = (
    Scenario(
        "hygenicc-shares-parallel",
        "one TCP connection next to eight",
        pns=3,
        limits={1: WHOLE},
        sources=(Source(1, 1, 3, "tcp", flows=8), Source(1, 2, 3, "tcp")),
        duration_s=END_S,
        phases=PHASES,
        controls=("none", *CUTS, published(2)),
        emulated_controls=in_real_time(("none", *CUTS)),
        seeds=3,
    ),
    Scenario(
        "hygenicc-shares-weights",
        "two TCP senders with weights 2 and 1",
        pns=3,
        limits={1: WHOLE},
        vn_limits={(1, 1): Limits(LINK_BPS, LINK_BPS, weight=2.0)},
        sources=(Source(1, 1, 3, "tcp"), Source(1, 2, 3, "tcp")),
        duration_s=END_S,
        phases=PHASES,
        controls=(*CUTS, published(2)),
        emulated_controls=in_real_time(CUTS),
        seeds=3,
    ),
    Scenario(
        "hygenicc-shares-pairs",
        "one sender, a congested destination and a free one",
        pns=5,
        limits={1: WHOLE},
        sources=(
            Source(1, 1, 4, "tcp"),
            Source(1, 2, 4, "udp", LINK_BPS),
            Source(1, 3, 4, "udp", LINK_BPS),
            Source(1, 1, 5, "tcp"),
        ),
        duration_s=END_S,
        phases=PHASES,
        controls=(*CUTS, RATE_PER_VN, published(3)),
        emulated_controls=in_real_time((*CUTS, RATE_PER_VN)),
        seeds=3,
    ),
)
